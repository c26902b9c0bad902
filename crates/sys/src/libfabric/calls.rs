//! The library's calls that start operations, looked up once per endpoint.
//!
//! Describes operations ([`Route`]), and maps each to a call. [`super::post`] checks operations before these calls, and
//! handles completions afterwards.

use std::ffi::c_void;

use super::abi;
use super::handles::{PeerAddress, RegionHandle, RemoteRegion};

/// Maximum completions per read.
pub(super) const ENTRIES: usize = 64;

/// Kind of operation of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Local bytes to remote memory.
    Write,
    /// A write that also delivers the operation's immediate data to the peer.
    WriteData,
    /// Remote bytes to local memory.
    Read,
    /// Local bytes to the peer's next receive.
    Send,
    /// A receive from any peer.
    Receive,
    /// Local bytes to the peer's next receive with this tag.
    SendTagged(u64),
    /// A receive from any peer with this tag.
    ReceiveTagged(u64),
}

/// The parameters that are the same for consecutive operations.
#[derive(Debug, Clone, Copy)]
pub struct Route {
    /// Kind of operation.
    pub action: Action,
    /// The target peer.
    pub peer: PeerAddress,
    /// The peer's memory.
    pub remote: RemoteRegion,
    /// This side's memory.
    pub local: RegionHandle,
    /// True if writes complete only when their bytes are visible to the peer.
    pub delivered: bool,
    /// Maximum size of writes and sends to inject. An injected operation is done when its call returns, because the
    /// call copies the bytes. 0 injects nothing.
    pub inject_bytes_max: u32,
}

impl Route {
    /// Whether operations can be injected. With `delivered` they cannot, because an injected operation has no
    /// completion to confirm its delivery.
    #[inline]
    pub(super) fn can_inject(&self) -> bool {
        let sends = matches!(
            self.action,
            Action::Write | Action::WriteData | Action::Send | Action::SendTagged(_)
        );
        sends && !self.delivered
    }
}

/// The calls of an endpoint, looked up once.
pub(super) struct EndpointCalls {
    endpoint: *mut abi::fid_ep,
    pub(super) queue: *mut abi::fid_cq,
    rma: *const abi::fi_ops_rma,
    msg: *const abi::fi_ops_msg,
    tagged: *const abi::fi_ops_tagged,
    pub(super) queue_ops: *const abi::fi_ops_cq,
    pub(super) entries: Box<[abi::fi_cq_data_entry; ENTRIES]>,
}

impl EndpointCalls {
    /// # Safety
    /// Both objects are open, and remain open as long as this value is used.
    pub(super) unsafe fn new(endpoint: *mut abi::fid_ep, queue: *mut abi::fid_cq) -> Self {
        // SAFETY: by the caller's promise; the tables live as long as their objects.
        let (rma, msg, tagged, queue_ops) = unsafe {
            let ep = &*endpoint;
            (ep.rma, ep.msg, ep.tagged, (*queue).ops)
        };
        Self {
            endpoint,
            queue,
            rma,
            msg,
            tagged,
            queue_ops,
            entries: Box::new([abi::fi_cq_data_entry::ZEROED; ENTRIES]),
        }
    }
}

/// One operation with resolved addresses.
pub(super) struct Operation<'a> {
    pub(super) route: &'a Route,
    /// The library's address of the route's peer.
    pub(super) peer: abi::fi_addr_t,
    pub(super) buffer: *mut c_void,
    pub(super) len: usize,
    pub(super) desc: *mut c_void,
    pub(super) address: u64,
    pub(super) data: u64,
}

impl EndpointCalls {
    /// Takes separate arguments, because an [`Operation`] in memory would need a store per field. While the peer holds
    /// the cache lines of its queue, such stores delay the injected operation.
    ///
    /// # Safety
    /// The buffer is valid for its length; it is only read, and only before this returns.
    #[inline]
    pub(super) unsafe fn inject(
        &self,
        route: &Route,
        peer: abi::fi_addr_t,
        (buffer, len): (*const c_void, usize),
        address: u64,
        data: u64,
    ) -> isize {
        let (ep, key) = (self.endpoint, route.remote.key);
        // SAFETY: the endpoint is open and its tables live with it; the caller promises the buffer.
        unsafe {
            match route.action {
                Action::Write => ((*self.rma).inject)(ep, buffer, len, peer, address, key),
                Action::WriteData => {
                    ((*self.rma).injectdata)(ep, buffer, len, data, peer, address, key)
                }
                Action::SendTagged(tag) => ((*self.tagged).inject)(ep, buffer, len, peer, tag),
                _ => ((*self.msg).inject)(ep, buffer, len, peer),
            }
        }
    }

    /// # Safety
    /// The buffer is valid for the operation's length, and the context is a slot, both until the operation completes or
    /// the endpoint is closed.
    #[inline]
    pub(super) unsafe fn start(&self, operation: &Operation<'_>, context: *mut c_void) -> isize {
        let Operation {
            route,
            peer,
            buffer,
            len,
            desc,
            address,
            data,
        } = *operation;
        let (ep, key) = (self.endpoint, route.remote.key);
        let any = abi::FI_ADDR_UNSPEC;
        if route.delivered {
            // SAFETY: by the caller's promise.
            return unsafe { self.start_delivered(operation, context) };
        }
        // SAFETY: the endpoint is open and its tables live with it; the caller promises buffer and context.
        unsafe {
            match route.action {
                Action::Write => {
                    ((*self.rma).write)(ep, buffer, len, desc, peer, address, key, context)
                }
                Action::WriteData => {
                    let write = (*self.rma).writedata;
                    write(ep, buffer, len, desc, data, peer, address, key, context)
                }
                Action::Read => {
                    ((*self.rma).read)(ep, buffer, len, desc, peer, address, key, context)
                }
                Action::Send => ((*self.msg).send)(ep, buffer, len, desc, peer, context),
                Action::SendTagged(tag) => {
                    ((*self.tagged).send)(ep, buffer, len, desc, peer, tag, context)
                }
                Action::Receive => ((*self.msg).recv)(ep, buffer, len, desc, any, context),
                Action::ReceiveTagged(tag) => {
                    ((*self.tagged).recv)(ep, buffer, len, desc, any, tag, 0, context)
                }
            }
        }
    }

    /// Starts an operation that requires delivery, through the calls that take flags.
    ///
    /// # Safety
    /// As for [`Self::start`].
    unsafe fn start_delivered(&self, operation: &Operation<'_>, context: *mut c_void) -> isize {
        let route = operation.route;
        let mut desc = operation.desc;
        let iov = libc::iovec {
            iov_base: operation.buffer,
            iov_len: operation.len,
        };
        let target = abi::fi_rma_iov {
            addr: operation.address,
            len: operation.len,
            key: route.remote.key,
        };
        let flags = abi::FI_COMPLETION | abi::FI_DELIVERY_COMPLETE;
        let rma = abi::fi_msg_rma {
            msg_iov: &raw const iov,
            desc: &raw mut desc,
            iov_count: 1,
            addr: operation.peer,
            rma_iov: &raw const target,
            rma_iov_count: 1,
            context,
            data: operation.data,
        };
        let (ep, data) = (self.endpoint, flags | abi::FI_REMOTE_CQ_DATA);
        // SAFETY: as for `start`; the library copies the descriptions before it returns.
        unsafe {
            match route.action {
                Action::Write => ((*self.rma).writemsg)(ep, &raw const rma, flags),
                Action::WriteData => ((*self.rma).writemsg)(ep, &raw const rma, data),
                // A read needs no flag, because it completes when its bytes are here. A message has none, because only
                // the receive shows its arrival.
                _ => -(abi::FI_EINVAL as isize),
            }
        }
    }
}
