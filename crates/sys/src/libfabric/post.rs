//! Posting operations to an endpoint and polling its completions: the part that runs inside the timed loops.
//!
//! What lives here: bounds checks, the contexts that the library owns while an operation is in flight, and the calls.
//! Nothing here allocates, except to describe a failure. What does not: opening, in [`super::endpoint`].

use std::ffi::{c_int, c_void};

use super::abi;
use super::endpoint::{Endpoint, Peer, Region, RemoteRegion};
use crate::library::text;

/// Completions that are read at once.
const ENTRIES: usize = 64;

/// Kind of operation of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Local bytes to remote memory.
    Write,
    /// The same, and the peer gets the data of the operation.
    WriteData,
    /// Remote bytes to local memory.
    Read,
    /// Local bytes to the peer's next receive.
    Send,
    /// A receive for what anybody sends.
    Receive,
    /// Local bytes to the peer's next receive with this tag.
    SendTagged(u64),
    /// A receive for what anybody sends with this tag.
    ReceiveTagged(u64),
}

/// The part of an operation that stays the same from one to the next.
#[derive(Debug, Clone, Copy)]
pub struct Route {
    /// Kind of operation.
    pub action: Action,
    /// The other end.
    pub peer: Peer,
    /// Its memory.
    pub remote: RemoteRegion,
    /// This side's memory.
    pub local: Region,
    /// Complete only when the bytes are visible to the peer; for writes.
    pub delivered: bool,
    /// Writes and sends of at most so many bytes are injected: copied at once and done. 0 injects nothing.
    pub inject_bytes_max: u32,
}

/// Fate of an operation that was handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Posted {
    /// It is in flight; a completion will follow.
    Pending,
    /// It was injected and is done; no completion follows.
    Injected,
    /// There is no room now: poll, then try again.
    Again,
}

/// Kind of completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// An operation of this side.
    Done,
    /// A posted receive was filled.
    Received,
    /// A peer's write with data arrived.
    Arrived,
}

/// One completion.
#[derive(Debug, Clone, Copy)]
pub struct Event {
    /// Kind of completion.
    pub kind: EventKind,
    /// The value that [`Endpoint::post`] was given; 0 for an arrival.
    pub user: u64,
    /// Bytes, where the provider says.
    pub len: u64,
    /// The data of an arrival.
    pub data: u64,
}

impl Route {
    /// Injecting has no completion, so that nothing could be claimed about delivery.
    #[inline]
    fn can_inject(&self) -> bool {
        let sends = matches!(
            self.action,
            Action::Write | Action::WriteData | Action::Send | Action::SendTagged(_)
        );
        sends && !self.delivered
    }
}

impl Event {
    /// Value that a buffer is filled with before it is used.
    pub const EMPTY: Self = Self {
        kind: EventKind::Done,
        user: 0,
        len: 0,
        data: 0,
    };
}

/// A call or an operation that failed. The endpoint cannot be relied on after it. Boxed where it is returned, so that
/// what the loops carry stays in registers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The value that [`Endpoint::post`] was given for the operation, where one is known.
    pub user: Option<u64>,
    /// Error number, as of errno.
    pub code: i32,
    /// The library's and the provider's words.
    pub text: String,
}

/// The calls of an endpoint, looked up once.
pub(super) struct Calls {
    endpoint: *mut abi::fid_ep,
    queue: *mut abi::fid_cq,
    rma: *const abi::fi_ops_rma,
    msg: *const abi::fi_ops_msg,
    tagged: *const abi::fi_ops_tagged,
    queue_ops: *const abi::fi_ops_cq,
    entries: Box<[abi::fi_cq_data_entry; ENTRIES]>,
}

impl Calls {
    /// # Safety
    /// Both objects are open, and stay so as long as this value is used.
    pub(super) unsafe fn new(endpoint: *mut abi::fid_ep, queue: *mut abi::fid_cq) -> Self {
        let none = abi::fi_cq_data_entry {
            op_context: std::ptr::null_mut(),
            flags: 0,
            len: 0,
            buf: std::ptr::null_mut(),
            data: 0,
        };
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
            entries: Box::new([none; ENTRIES]),
        }
    }
}

/// One operation with its addresses resolved.
struct Operation<'a> {
    route: &'a Route,
    buffer: *mut c_void,
    len: usize,
    desc: *mut c_void,
    address: u64,
    data: u64,
}

impl Endpoint {
    /// Hands over one operation: `len` bytes at `local` of the route's own region, and at `remote` of the peer's.
    ///
    /// # Errors
    /// When a range lies outside of its memory, or the library refuses the operation.
    #[inline]
    pub fn post(
        &mut self,
        route: &Route,
        local: u64,
        remote: u64,
        len: u32,
        data: u64,
        user: u64,
    ) -> Result<Posted, Box<Failure>> {
        let region = self
            .regions
            .get(route.local.0)
            .and_then(Option::as_ref)
            .ok_or_else(|| outside(user))?;
        let buffer = region
            .arena
            .pointer(local, u64::from(len))
            .map_err(|_| outside(user))?;
        let reaches = matches!(
            route.action,
            Action::Write | Action::WriteData | Action::Read
        );
        let end = remote.checked_add(u64::from(len));
        if reaches && end.is_none_or(|end| end > route.remote.len) {
            return Err(outside(user));
        }
        let operation = Operation {
            route,
            buffer: buffer.cast(),
            len: len as usize,
            desc: region.desc,
            address: route.remote.base.wrapping_add(remote),
            data,
        };
        if len <= route.inject_bytes_max && route.can_inject() {
            // SAFETY: the buffer lies in a registered arena that this endpoint keeps alive.
            let code = unsafe { self.calls.inject(&operation) };
            return self.posted(code, Posted::Injected, user);
        }
        let receive = matches!(route.action, Action::Receive | Action::ReceiveTagged(_));
        let Some((index, context)) = self.slots.take(receive, user, route.local) else {
            return Ok(Posted::Again);
        };
        // SAFETY: as above; the context is a slot that stays in place and untouched until its completion comes back or
        // the endpoint is closed.
        let code = unsafe { self.calls.start(&operation, context) };
        if code != 0 {
            self.slots.give_back(index);
        }
        // shm before 1.18 says this where messages that nobody waits for yet have used up its entries for receives.
        if receive && code == -(abi::FI_ENOMEM as isize) {
            return Ok(Posted::Again);
        }
        self.posted(code, Posted::Pending, user)
    }

    #[inline]
    fn posted(&self, code: isize, done: Posted, user: u64) -> Result<Posted, Box<Failure>> {
        const AGAIN: isize = -(abi::FI_EAGAIN as isize);
        match code {
            0 => Ok(done),
            AGAIN => Ok(Posted::Again),
            code => Err(self.refused(code, user)),
        }
    }

    #[cold]
    fn refused(&self, code: isize, user: u64) -> Box<Failure> {
        let code = code as c_int;
        Box::new(Failure {
            user: Some(user),
            code: code.saturating_neg(),
            text: self.library().reason(code),
        })
    }

    /// Makes progress, and fills `events` with completions; returns how many. Never blocks.
    ///
    /// # Errors
    /// The first operation that failed, or the queue's own failure.
    #[inline]
    pub fn poll(&mut self, events: &mut [Event]) -> Result<usize, Box<Failure>> {
        const AGAIN: isize = -(abi::FI_EAGAIN as isize);
        let room = events.len().min(ENTRIES);
        let entries = self.calls.entries.as_mut_ptr();
        // SAFETY: the queue is open and of the format of these entries, of which there is room for `room`.
        let count =
            unsafe { ((*self.calls.queue_ops).read)(self.calls.queue, entries.cast(), room) };
        if count == AGAIN {
            return Ok(0);
        }
        if count < 0 {
            return Err(self.failure(count));
        }
        let count = (count as usize).min(room);
        for (event, entry) in events.iter_mut().zip(&self.calls.entries[..count]) {
            // A context of ours first: some providers mark the initiator's completion with the data too.
            let done = self.slots.complete(entry.op_context);
            *event = match done {
                Some((user, receive)) => Event {
                    kind: if receive {
                        EventKind::Received
                    } else {
                        EventKind::Done
                    },
                    user,
                    len: entry.len as u64,
                    data: 0,
                },
                None if entry.flags & abi::FI_REMOTE_CQ_DATA != 0 => Event {
                    kind: EventKind::Arrived,
                    user: 0,
                    len: entry.len as u64,
                    data: entry.data,
                },
                None => return Err(stranger()),
            };
        }
        Ok(count)
    }

    /// Reads what is behind a negative answer of the completion queue.
    #[cold]
    fn failure(&mut self, code: isize) -> Box<Failure> {
        if code != -(abi::FI_EAVAIL as isize) {
            let code = code as c_int;
            return Box::new(Failure {
                user: None,
                code: code.saturating_neg(),
                text: format!("fi_cq_read: {}", self.library().reason(code)),
            });
        }
        // SAFETY: all bytes of the struct may be zero.
        let mut entry: abi::fi_cq_err_entry = unsafe { std::mem::zeroed() };
        // SAFETY: the queue is open; the entry has the newest and largest layout, and with its data size 0 the library
        // keeps what it points to valid until the next read.
        let got = unsafe { ((*self.calls.queue_ops).readerr)(self.calls.queue, &raw mut entry, 0) };
        if got < 0 {
            return Box::new(Failure {
                user: None,
                code: abi::FI_EAVAIL,
                text: format!("fi_cq_readerr: {}", self.library().reason(got as c_int)),
            });
        }
        let user = self.slots.complete(entry.op_context).map(|(user, _)| user);
        // SAFETY: as for readerr; the answer is null or a NUL-terminated text, which is copied at once.
        let words = unsafe {
            text(((*self.calls.queue_ops).strerror)(
                self.calls.queue,
                entry.prov_errno,
                entry.err_data,
                std::ptr::null_mut(),
                0,
            ))
        };
        let reason = self.library().reason(entry.err.saturating_neg());
        let detail = words
            .filter(|words| !words.is_empty() && *words != reason)
            .map(|words| format!(" ({words})"))
            .unwrap_or_default();
        Box::new(Failure {
            user,
            code: entry.err,
            text: reason + &detail,
        })
    }
}

#[cold]
fn outside(user: u64) -> Box<Failure> {
    Box::new(Failure {
        user: Some(user),
        code: libc::EFAULT,
        text: "the operation lies outside of registered memory".to_owned(),
    })
}

#[cold]
fn stranger() -> Box<Failure> {
    Box::new(Failure {
        user: None,
        code: libc::EPROTO,
        text: "the completion queue reports an operation that was never posted".to_owned(),
    })
}

impl Calls {
    /// # Safety
    /// The buffer is valid for the operation's length; it is only read, and only before this returns.
    #[inline]
    unsafe fn inject(&self, operation: &Operation<'_>) -> isize {
        let Operation {
            route,
            buffer,
            len,
            address,
            data,
            ..
        } = *operation;
        let (ep, peer, key) = (self.endpoint, route.peer.0, route.remote.key);
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
    unsafe fn start(&self, operation: &Operation<'_>, context: *mut c_void) -> isize {
        let Operation {
            route,
            buffer,
            len,
            desc,
            address,
            data,
        } = *operation;
        let (ep, peer, key) = (self.endpoint, route.peer.0, route.remote.key);
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

    /// An operation that asks for delivery, for which only the calls that take flags will do.
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
            addr: route.peer.0,
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
                // A read is complete when its bytes are here, and what a message arrived at is told by its receive.
                _ => -(abi::FI_EINVAL as isize),
            }
        }
    }
}
