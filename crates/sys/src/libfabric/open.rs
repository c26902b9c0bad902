//! The objects of an endpoint: the calls that open each, and closing them.
//!
//! Their order, and what belongs together, is in [`super::endpoint`].

use std::ffi::c_int;
use std::os::fd::RawFd;
use std::ptr::NonNull;

use super::{Info, Libfabric, abi};

/// Room for an endpoint's name; the longest known has some 70 bytes.
pub(super) const NAME_BYTES_MAX: usize = 512;

/// Queue sizes of an endpoint.
#[derive(Debug, Clone, Copy)]
pub struct QueueSizes {
    /// Operations of this side that may be in flight.
    pub operations: u32,
    /// Receives that may be posted.
    pub receives: u32,
    /// Peers, a hint.
    pub peers: usize,
}

/// An object of the library that is closed with this value.
pub(super) struct Fid(NonNull<abi::fid>);

impl Fid {
    pub(super) fn new<T>(pointer: *mut T) -> Result<Self, String> {
        NonNull::new(pointer.cast())
            .map(Self)
            .ok_or_else(|| "it gave nothing".to_owned())
    }

    pub(super) fn cast<T>(&self) -> *mut T {
        self.0.as_ptr().cast()
    }

    pub(super) fn bind(&self, other: &Self, flags: u64) -> c_int {
        // SAFETY: both objects are open, and every fid begins with its table of operations.
        unsafe { ((*(*self.0.as_ptr()).ops).bind)(self.0.as_ptr(), other.0.as_ptr(), flags) }
    }

    pub(super) fn enable(&self) -> c_int {
        let none = std::ptr::null_mut();
        // SAFETY: as for `bind`; FI_ENABLE takes no argument.
        unsafe { ((*(*self.0.as_ptr()).ops).control)(self.0.as_ptr(), abi::FI_ENABLE, none) }
    }

    /// The descriptor that becomes readable when a queue has something, if it was opened with one.
    fn descriptor(&self) -> Option<RawFd> {
        let mut descriptor: c_int = -1;
        let into = (&raw mut descriptor).cast();
        // SAFETY: as for `bind`; FI_GETWAIT of a queue that was opened with FI_WAIT_FD writes one int.
        let code =
            unsafe { ((*(*self.0.as_ptr()).ops).control)(self.0.as_ptr(), abi::FI_GETWAIT, into) };
        (code == 0 && descriptor >= 0).then_some(descriptor)
    }

    /// Closes the object; false when it is still in use.
    pub(super) fn close(self) -> bool {
        let fid = std::mem::ManuallyDrop::new(self);
        // SAFETY: the object is open, and after this nobody has the pointer any more.
        unsafe { ((*(*fid.0.as_ptr()).ops).close)(fid.0.as_ptr()) == 0 }
    }
}

impl Drop for Fid {
    fn drop(&mut self) {
        // Reached when opening what comes after it failed. An object that cannot be closed is left to the end of the
        // process.
        Self(self.0).close();
    }
}

pub(super) fn check(library: &Libfabric, what: &str, code: c_int) -> Result<(), String> {
    if code == 0 {
        return Ok(());
    }
    Err(format!("{what}: {} ({code})", library.reason(code)))
}

/// The calls that open the parts of an endpoint.
pub(super) struct Opener<'a> {
    pub(super) library: &'a Libfabric,
    pub(super) info: &'a Info,
}

impl Opener<'_> {
    pub(super) fn check(&self, what: &str, code: c_int) -> Result<(), String> {
        check(self.library, what, code)
    }

    pub(super) fn fabric(&self) -> Result<Fid, String> {
        let mut fabric = std::ptr::null_mut();
        let none = std::ptr::null_mut();
        // SAFETY: the info and its fabric attribute are live; `fabric` is valid for the write of a pointer.
        let code = unsafe {
            (self.library.calls.fabric)((*self.info.as_ptr()).fabric_attr, &raw mut fabric, none)
        };
        self.check("fi_fabric", code)?;
        Fid::new(fabric)
    }

    pub(super) fn domain(&self, fabric: &Fid) -> Result<Fid, String> {
        let fabric: *mut abi::fid_fabric = fabric.cast();
        let (mut domain, none) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the fabric is open and the info live, which it stays longer than the domain.
        let code =
            unsafe { ((*(*fabric).ops).domain)(fabric, self.info.as_ptr(), &raw mut domain, none) };
        self.check("fi_domain", code)?;
        Fid::new(domain)
    }

    pub(super) fn endpoint(&self, domain: &Fid) -> Result<Fid, String> {
        let domain: *mut abi::fid_domain = domain.cast();
        let (mut endpoint, none) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: as for `domain`.
        let code = unsafe {
            ((*(*domain).ops).endpoint)(domain, self.info.as_ptr(), &raw mut endpoint, none)
        };
        self.check("fi_endpoint", code)?;
        Fid::new(endpoint)
    }

    /// A completion queue, and the descriptor to sleep on where that is wanted and the provider has one.
    pub(super) fn queue(
        &self,
        domain: &Fid,
        sizes: QueueSizes,
        sleeps: bool,
    ) -> Result<(Fid, Option<RawFd>), String> {
        if sleeps
            && let Ok(queue) = self.queue_of(domain, sizes, abi::FI_WAIT_FD)
            && let Some(descriptor) = queue.descriptor()
        {
            return Ok((queue, Some(descriptor)));
        }
        let queue = self.queue_of(domain, sizes, abi::FI_WAIT_NONE)?;
        Ok((queue, None))
    }

    fn queue_of(&self, domain: &Fid, sizes: QueueSizes, wait_obj: c_int) -> Result<Fid, String> {
        let domain: *mut abi::fid_domain = domain.cast();
        // As many again for what peers announce by immediates.
        let size = 2 * (sizes.operations as usize + sizes.receives as usize).max(512);
        let mut attr = abi::fi_cq_attr {
            size,
            format: abi::FI_CQ_FORMAT_DATA,
            wait_obj,
            ..abi::fi_cq_attr::ZEROED
        };
        let (mut queue, none) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the domain is open; the attribute lives through the call.
        let code =
            unsafe { ((*(*domain).ops).cq_open)(domain, &raw mut attr, &raw mut queue, none) };
        self.check("fi_cq_open", code)?;
        Fid::new(queue)
    }

    pub(super) fn vector(&self, domain: &Fid, sizes: QueueSizes) -> Result<Fid, String> {
        let domain: *mut abi::fid_domain = domain.cast();
        let mut attr = abi::fi_av_attr {
            type_: abi::FI_AV_TABLE,
            count: sizes.peers,
            ..abi::fi_av_attr::ZEROED
        };
        let (mut vector, none) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: as for `queue`.
        let code =
            unsafe { ((*(*domain).ops).av_open)(domain, &raw mut attr, &raw mut vector, none) };
        self.check("fi_av_open", code)?;
        Fid::new(vector)
    }

    pub(super) fn name(&self, endpoint: &Fid) -> Result<Vec<u8>, String> {
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
