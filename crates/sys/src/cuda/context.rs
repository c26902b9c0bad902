//! A GPU in use: its primary context, which all users of the driver in a process share.

use std::sync::{Arc, OnceLock};

use super::abi::{ContextHandle, Ordinal, PEER_ENABLED};
use super::device::CudaDevice;
use super::driver::GpuDriver;
use super::failure::CudaFailure;
use super::loaded::{Calls, Libcuda};

/// The primary context of a GPU. It lives as long as anything that was made in it.
#[derive(Debug)]
pub struct CudaContext {
    pub(super) library: Arc<Libcuda>,
    handle: ContextHandle,
    pub(super) ordinal: Ordinal,
    device: CudaDevice,
    /// All that the process sees, when somebody has asked for a way to one of them.
    seen: OnceLock<Vec<CudaDevice>>,
}

// SAFETY: a context may be used by any thread that has made it current, which every use of this value does first, and
// by several threads at once: the driver locks what they share.
unsafe impl Send for CudaContext {}
// SAFETY: as above.
unsafe impl Sync for CudaContext {}

impl CudaContext {
    /// Takes the GPU with this number into use. The first time in a process, it takes the driver up to seconds.
    ///
    /// # Errors
    /// The driver's reason; code 101 for a number that no GPU has.
    pub fn open(library: &Arc<Libcuda>, number: u32) -> Result<Arc<Self>, CudaFailure> {
        let ordinal = library.ordinal(number)?;
        let device = library.describe(number)?;
        // SAFETY: the ordinal came from the library.
        let retained = unsafe { library.own.retain(ordinal) };
        if let Err(code) = retained {
            library.check("cuDevicePrimaryCtxRetain", code)?;
        }
        Ok(Arc::new(Self {
            library: Arc::clone(library),
            handle: retained.unwrap_or(std::ptr::null_mut()),
            ordinal,
            device,
            seen: OnceLock::new(),
        }))
    }

    /// The driver that the GPU is used through.
    pub fn driver(&self) -> &'static GpuDriver {
        self.library.driver()
    }

    /// The GPU.
    pub fn device(&self) -> &CudaDevice {
        &self.device
    }

    /// Bytes of its memory that are free, and all of them.
    ///
    /// # Errors
    /// The driver's reason.
    pub fn memory_bytes(&self) -> Result<(u64, u64), CudaFailure> {
        let (mut free, mut all) = (0, 0);
        self.call("cuMemGetInfo_v2", |calls| {
            // SAFETY: both numbers are valid for the write of a size.
            unsafe { (calls.memory_info)(&raw mut free, &raw mut all) }
        })?;
        Ok((free as u64, all as u64))
    }

    /// Waits until everything has ended that was started in it.
    ///
    /// # Errors
    /// The driver's reason, which may be that of work that was started earlier.
    pub fn wait(&self) -> Result<(), CudaFailure> {
        self.call("cuCtxSynchronize", |_| {
            // SAFETY: the context is current.
            unsafe { self.library.own.synchronize() }
        })
    }

    /// Lets kernels and copies of this GPU reach memory of another one's context.
    ///
    /// # Errors
    /// `OtherDriver`; `NoPeer` where the machine has no way between the two; or the driver's reason.
    pub fn reach(&self, peer: &Self) -> Result<(), CudaFailure> {
        self.check_driver(peer)?;
        if self.handle == peer.handle {
            return Ok(());
        }
        self.check_way((peer.ordinal, peer.device.number))?;
        self.call("cuCtxEnablePeerAccess", |_| {
            // SAFETY: both contexts are retained, and this one is current.
            match unsafe { self.library.own.enable_peer(peer.handle) } {
                PEER_ENABLED => 0,
                code => code,
            }
        })
    }

    /// Refuses a context of another library: handles, numbers of GPUs and addresses of the one mean nothing to the
    /// other, which would take an address that it does not know for one of the host.
    ///
    /// # Errors
    /// `OtherDriver`.
    pub(super) fn check_driver(&self, other: &Self) -> Result<(), CudaFailure> {
        if self.library.is_one_with(&other.library) {
            return Ok(());
        }
        Err(CudaFailure::OtherDriver {
            own: self.driver().name,
            other: other.driver().name,
        })
    }

    /// The failure of a stream of this context that was handed memory of another one.
    pub(super) fn other_gpu(&self, memory: &Self) -> CudaFailure {
        CudaFailure::OtherGpu {
            name: self.driver().name,
            memory: memory.device.number,
            stream: self.device.number,
        }
    }

    /// Refuses a GPU that this process sees, and to whose memory the machine has no way. It is not taken into use. Of
    /// one that the driver cannot describe, as one that is lost, nothing is known here.
    ///
    /// # Errors
    /// `NoPeer`, or the driver's reason.
    pub fn check_way_to(&self, is_peer: impl Fn(&CudaDevice) -> bool) -> Result<(), CudaFailure> {
        if is_peer(&self.device) {
            return Ok(());
        }
        let seen = self.seen.get_or_init(|| self.library.described());
        seen.iter()
            .find(|seen| is_peer(seen))
            .map_or(Ok(()), |peer| {
                self.check_way((self.library.ordinal(peer.number)?, peer.number))
            })
    }

    /// Refuses a GPU with this ordinal and number, to whose memory the machine has no way.
    pub(super) fn check_way(&self, (peer, number): (Ordinal, u32)) -> Result<(), CudaFailure> {
        let mut can = 0;
        self.call("cuDeviceCanAccessPeer", |calls| {
            // SAFETY: the number is valid for the write of an int; both ordinals came from the library.
            unsafe { (calls.can_access_peer)(&raw mut can, self.ordinal, peer) }
        })?;
        if can != 0 {
            return Ok(());
        }
        Err(CudaFailure::NoPeer {
            call: self.driver().called("cuDeviceCanAccessPeer"),
            name: self.driver().name,
            gpu: self.device.number,
            peer: number,
        })
    }

    /// Makes the context this thread's, for calls of other libraries: those of CUDA's runtime take the first GPU where
    /// the thread has none.
    ///
    /// # Errors
    /// The driver's reason.
    pub fn make_current(&self) -> Result<(), CudaFailure> {
        self.current().map(|_| ())
    }

    /// Makes the context this thread's, for several calls.
    #[inline]
    pub(super) fn current(&self) -> Result<&Calls, CudaFailure> {
        // SAFETY: the context is retained until this value is dropped.
        let code = unsafe { self.library.own.set_current(self.handle) };
        self.library.check("cuCtxSetCurrent", code)?;
        Ok(&self.library.calls)
    }

    /// The failure of a call, where its result is one.
    #[inline]
    pub(super) fn check(&self, name: &'static str, code: i32) -> Result<(), CudaFailure> {
        self.library.check(name, code)
    }

    /// Carries out a call in this context.
    pub(super) fn call(
        &self,
        name: &'static str,
        call: impl FnOnce(&Calls) -> i32,
    ) -> Result<(), CudaFailure> {
        let code = call(self.current()?);
        self.library.check(name, code)
    }

    /// Processors of the GPU, at least one.
    #[inline]
    pub(super) fn multiprocessors(&self) -> u32 {
        self.device.multiprocessors.max(1)
    }
}

impl Drop for CudaContext {
    fn drop(&mut self) {
        // SAFETY: retained once, released once, and everything that was made in it holds it and is gone.
        unsafe { self.library.own.release(self.ordinal) };
    }
}
