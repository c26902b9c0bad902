//! Access of one GPU to another one's memory, as the driver describes the pair. Nothing is taken into use for it.

use std::ffi::c_int;

use super::abi::{Code, Ordinal};
use super::driver::Introduced;
use super::failure::CudaFailure;
use super::loaded::Libcuda;
use crate::library::functions;

functions! { pub(super) PeerCalls by Introduced:
    attribute = (c"cuDeviceGetP2PAttribute", 8, 0) => (*mut c_int, c_int, Ordinal, Ordinal) -> Code;
}

/// Attributes of a pair, by their distance from the driver's first.
const PERFORMANCE_RANK: c_int = 0;
const ACCESS: c_int = 1;
const NATIVE_ATOMICS: c_int = 2;

/// Access of one GPU to the memory of another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CudaPeer {
    /// True when it reaches that memory.
    pub access: bool,
    /// True when atomics on that memory are those of the GPU itself.
    pub native_atomics: bool,
    /// The driver's order of such ways: 0 is the fastest.
    pub performance_rank: u32,
}

impl Libcuda {
    /// Access of the GPU with one number to the memory of that with another one.
    ///
    /// # Errors
    /// `TooOld`; or the driver's reason, which is `CUDA_ERROR_INVALID_DEVICE` for a GPU with itself.
    pub fn peer(&self, gpu: u32, peer: u32) -> Result<CudaPeer, CudaFailure> {
        let calls = PeerCalls::of(|call| self.library.symbol(call))?;
        let (from, to) = (self.ordinal(gpu)?, self.ordinal(peer)?);
        let attribute = |distance| {
            let which = self.driver().peer_attributes_from + distance;
            let mut value = 0;
            // SAFETY: the number is valid for the write of an int; both ordinals came from the library.
            let code = unsafe { (calls.attribute)(&raw mut value, which, from, to) };
            self.check("cuDeviceGetP2PAttribute", code).map(|()| value)
        };
        Ok(CudaPeer {
            access: attribute(ACCESS)? != 0,
            native_atomics: attribute(NATIVE_ATOMICS)? != 0,
            // A negative one would be no order of the driver's: the last, so that it is not taken for the fastest.
            performance_rank: u32::try_from(attribute(PERFORMANCE_RANK)?).unwrap_or(u32::MAX),
        })
    }
}
