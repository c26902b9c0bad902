//! The promise that a NIC accesses device memory directly.
//!
//! Providers with FI_HMEM may instead copy such memory through host buffers, without reporting it. Since libfabric
//! 1.14, an option forbids such copies. [`super::endpoint`] registers the memory.

use super::open::{Fid, check};
use super::{Libfabric, abi};
use crate::error::LibraryError;

/// Answer of a provider to the request that only the NIC moves bytes of device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerToPeer {
    /// The provider has promised direct access.
    Required,
    /// The provider does not know the option: it may copy through host memory.
    NotConfirmed,
}

impl PeerToPeer {
    /// Sets the option on an endpoint that is not enabled yet.
    ///
    /// # Errors
    /// The provider's reason, if it cannot work without copies.
    pub(super) fn require(library: &Libfabric, endpoint: &Fid) -> Result<Self, LibraryError> {
        let raw: *mut abi::fid_ep = endpoint.cast();
        let value = abi::FI_HMEM_P2P_REQUIRED;
        // SAFETY: the endpoint is open; the option's value is an int, which lives through the call.
        let code = unsafe {
            ((*(*raw).ops).setopt)(
                endpoint.cast(),
                abi::FI_OPT_ENDPOINT,
                abi::FI_OPT_FI_HMEM_P2P,
                (&raw const value).cast(),
                size_of_val(&value),
            )
        };
        if code == -abi::FI_ENOPROTOOPT {
            return Ok(Self::NotConfirmed);
        }
        let what = "the provider would copy device memory through the host (fi_setopt of FI_OPT_FI_HMEM_P2P)";
        check(library, what, code)?;
        Ok(Self::Required)
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::{c_int, c_void};
    use std::mem::ManuallyDrop;
    use std::ptr::null_mut;

    use super::*;

    /// Checks the arguments, and returns the code that the context contains.
    unsafe extern "C" fn answered(
        fid: *mut abi::fid,
        level: c_int,
        option: c_int,
        value: *const c_void,
        bytes: usize,
    ) -> c_int {
        // SAFETY: the caller's fid and value are live, and the context is the number below.
        let (value, code) = unsafe { (*value.cast::<c_int>(), (*fid).context.addr()) };
        assert_eq!((level, option, value, bytes), (0, 8, 1, 4));
        -(code as c_int)
    }

    unsafe extern "C" fn no_option(
        _: *mut abi::fid,
        _: c_int,
        _: c_int,
        _: *mut c_void,
        _: *mut usize,
    ) -> c_int {
        -1
    }

    fn asked(code: usize) -> Result<PeerToPeer, LibraryError> {
        let mut ops = abi::fi_ops_ep {
            size: size_of::<abi::fi_ops_ep>(),
            cancel: std::ptr::null(),
            getopt: no_option,
            setopt: answered,
        };
        let mut endpoint = abi::fid_ep {
            fid: abi::fid {
                fclass: 0,
                context: std::ptr::without_provenance_mut(code),
                ops: null_mut(),
            },
            ops: &raw mut ops,
            cm: null_mut(),
            msg: null_mut(),
            rma: null_mut(),
            tagged: null_mut(),
        };
        // `drop` must not close this endpoint, because it is only a local variable.
        let fid = ManuallyDrop::new(Fid::new(&raw mut endpoint).unwrap());
        PeerToPeer::require(&Libfabric::embedded(), &fid)
    }

    #[test]
    fn copies_through_the_host_are_refused_or_told() {
        assert_eq!(asked(0).unwrap(), PeerToPeer::Required);
        assert_eq!(asked(92).unwrap(), PeerToPeer::NotConfirmed);
        // EOPNOTSUPP (the device has no peer-to-peer access), ENODATA (the GPU's driver was not found), and EINVAL.
        for code in [95, 61, 22] {
            let why = asked(code).unwrap_err();
            assert!(why.to_string().contains("through the host"), "{why}");
        }
    }
}
