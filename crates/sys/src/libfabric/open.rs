//! The objects of an endpoint: opens and closes each of them.
//!
//! [`super::endpoint`] defines their order and combines them.

use std::ffi::c_int;
use std::os::fd::RawFd;
use std::ptr::{NonNull, null_mut};

use super::{Info, Libfabric, abi};
use crate::error::LibraryError;

/// Buffer size for an endpoint's name. The longest known name has some 70 bytes.
pub(super) const NAME_BYTES_MAX: usize = 512;

/// Queue sizes of an endpoint.
#[derive(Debug, Clone, Copy)]
pub struct QueueSizes {
    /// Maximum operations of this side in flight.
    pub operations: u32,
    /// Maximum posted receives.
    pub receives: u32,
    /// Expected number of peers, a hint.
    pub peers: usize,
}

/// An object of the library. It is closed when this value is dropped.
pub(super) struct Fid(NonNull<abi::fid>);

impl Fid {
    pub(super) fn new<T>(pointer: *mut T) -> Result<Self, LibraryError> {
        NonNull::new(pointer.cast()).map(Self).ok_or_else(|| {
            LibraryError::unsupported("libfabric reported success but returned no object")
        })
    }

    pub(super) fn cast<T>(&self) -> *mut T {
        self.0.as_ptr().cast()
    }

    pub(super) fn bind(&self, other: &Self, flags: u64) -> c_int {
        // SAFETY: both objects are open, and every fid begins with its table of operations.
        unsafe { ((*(*self.0.as_ptr()).ops).bind)(self.0.as_ptr(), other.0.as_ptr(), flags) }
    }

    pub(super) fn enable(&self) -> c_int {
        // SAFETY: as for `bind`; FI_ENABLE takes no argument.
        unsafe { ((*(*self.0.as_ptr()).ops).control)(self.0.as_ptr(), abi::FI_ENABLE, null_mut()) }
    }

    /// Returns the descriptor that becomes readable when a queue has entries, if the queue was opened with one.
    fn descriptor(&self) -> Option<RawFd> {
        let mut descriptor: c_int = -1;
        let into = (&raw mut descriptor).cast();
        // SAFETY: as for `bind`; FI_GETWAIT of a queue that was opened with FI_WAIT_FD writes one int.
        let code =
            unsafe { ((*(*self.0.as_ptr()).ops).control)(self.0.as_ptr(), abi::FI_GETWAIT, into) };
        (code == 0 && descriptor >= 0).then_some(descriptor)
    }

    /// Closes the object and returns the library's code: 0, or -EBUSY if it is still in use.
    pub(super) fn close(self) -> c_int {
        let fid = std::mem::ManuallyDrop::new(self);
        // SAFETY: the object is open, and no copy of the pointer is used after this.
        unsafe { ((*(*fid.0.as_ptr()).ops).close)(fid.0.as_ptr()) }
    }
}

impl Drop for Fid {
    fn drop(&mut self) {
        // Reached only if a later opening step failed. An object that cannot be closed stays open until the process
        // ends.
        Self(self.0).close();
    }
}

pub(super) fn check(
    library: &Libfabric,
    call: &'static str,
    code: c_int,
) -> Result<(), LibraryError> {
    if code == 0 {
        return Ok(());
    }
    let text = format!("{} ({code})", library.reason(code));
    Err(LibraryError::call(call, code, text))
}

/// The calls that open the parts of an endpoint.
pub(super) struct Opener<'a> {
    pub(super) library: &'a Libfabric,
    pub(super) info: &'a Info,
}

impl Opener<'_> {
    pub(super) fn check(&self, call: &'static str, code: c_int) -> Result<(), LibraryError> {
        check(self.library, call, code)
    }

    /// Makes a call that opens an object.
    fn opened<T>(
        &self,
        name: &'static str,
        call: impl FnOnce(*mut *mut T) -> c_int,
    ) -> Result<Fid, LibraryError> {
        let mut object = null_mut();
        self.check(name, call(&raw mut object))?;
        Fid::new(object)
    }

    pub(super) fn fabric(&self) -> Result<Fid, LibraryError> {
        // SAFETY: the info and its fabric attribute are live; `fabric` is valid for the write of a pointer.
        self.opened("fi_fabric", |fabric| unsafe {
            (self.library.calls.fabric)((*self.info.as_ptr()).fabric_attr, fabric, null_mut())
        })
    }

    pub(super) fn domain(&self, fabric: &Fid) -> Result<Fid, LibraryError> {
        let fabric: *mut abi::fid_fabric = fabric.cast();
        // SAFETY: the fabric is open and the info is live, and stays so longer than the domain.
        self.opened("fi_domain", |domain| unsafe {
            ((*(*fabric).ops).domain)(fabric, self.info.as_ptr(), domain, null_mut())
        })
    }

    pub(super) fn endpoint(&self, domain: &Fid) -> Result<Fid, LibraryError> {
        let domain: *mut abi::fid_domain = domain.cast();
        // SAFETY: as for `domain`.
        self.opened("fi_endpoint", |endpoint| unsafe {
            ((*(*domain).ops).endpoint)(domain, self.info.as_ptr(), endpoint, null_mut())
        })
    }

    /// Opens a completion queue. If `sleeps` is set and the provider has a descriptor to sleep on, also returns it.
    pub(super) fn queue(
        &self,
        domain: &Fid,
        sizes: QueueSizes,
        sleeps: bool,
    ) -> Result<(Fid, Option<RawFd>), LibraryError> {
        let domain: *mut abi::fid_domain = domain.cast();
        let open = |wait_obj| {
            let mut attr = abi::fi_cq_attr {
                // Twice the operations and receives, to leave room for arrivals that peers announce by immediate data.
                size: 2 * (sizes.operations as usize + sizes.receives as usize).max(512),
                format: abi::FI_CQ_FORMAT_DATA,
                wait_obj,
                ..abi::fi_cq_attr::ZEROED
            };
            // SAFETY: the domain is open; the attribute lives through the call.
            self.opened("fi_cq_open", |queue| unsafe {
                ((*(*domain).ops).cq_open)(domain, &raw mut attr, queue, null_mut())
            })
        };
        if sleeps
            && let Ok(queue) = open(abi::FI_WAIT_FD)
            && let Some(descriptor) = queue.descriptor()
        {
            return Ok((queue, Some(descriptor)));
        }
        Ok((open(abi::FI_WAIT_NONE)?, None))
    }

    pub(super) fn vector(&self, domain: &Fid, sizes: QueueSizes) -> Result<Fid, LibraryError> {
        let domain: *mut abi::fid_domain = domain.cast();
        let mut attr = abi::fi_av_attr {
            type_: abi::FI_AV_TABLE,
            count: sizes.peers,
            ..abi::fi_av_attr::ZEROED
        };
        // SAFETY: as for `queue`.
        self.opened("fi_av_open", |vector| unsafe {
            ((*(*domain).ops).av_open)(domain, &raw mut attr, vector, null_mut())
        })
    }

    pub(super) fn name(&self, endpoint: &Fid) -> Result<Vec<u8>, LibraryError> {
        let raw: *mut abi::fid_ep = endpoint.cast();
        let mut name = vec![0u8; NAME_BYTES_MAX];
        let mut len = name.len();
        // SAFETY: the endpoint is enabled; the buffer has `len` bytes, and the call writes no more than that.
        let code = unsafe {
            ((*(*raw).cm).getname)(endpoint.cast(), name.as_mut_ptr().cast(), &raw mut len)
        };
        self.check("fi_getname", code)?;
        name.truncate(len);
        Ok(name)
    }
}
