//! Posts operations to an endpoint and polls its completions: the part that runs inside the timed loops.
//!
//! Checks bounds, and handles completions and the contexts that the library owns while an operation is in flight. Only
//! the description of a failure allocates. [`super::endpoint`] opens endpoints; [`super::calls`] has the library's own
//! calls.

use std::ffi::{c_int, c_void};

use super::abi;
use super::calls::{Action, ENTRIES, Operation, Route};
use super::endpoint::Endpoint;
use crate::library::text;
use crate::registrable::RegisteredBytes;

/// Result of posting an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Posted {
    /// The operation is in flight; a completion will follow.
    Pending,
    /// The operation was injected and is done; no completion follows.
    Injected,
    /// The queue is full: poll, then try again.
    Again,
}

/// Kind of completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// An operation of this side completed.
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
    /// The `user` argument of [`Endpoint::post`]; 0 for an arrival.
    pub user: u64,
    /// Size in bytes, if the provider reports it.
    pub len: u64,
    /// The data of an arrival.
    pub data: u64,
}

/// A failed call or operation. The endpoint is not reliable afterwards. Results contain the error in a box, so that
/// they fit into registers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FabricError {
    /// The `user` argument of [`Endpoint::post`] for the operation, if known.
    pub user: Option<u64>,
    /// Error number, as in errno.
    pub code: i32,
    /// Description by the library and the provider.
    pub text: String,
}

/// Whether `len` bytes of a region are injected. The CPU copies them, so they must be in host memory.
#[inline]
pub(super) fn may_inject(route: &Route, len: u32, bytes: &RegisteredBytes) -> bool {
    len <= route.inject_bytes_max && route.can_inject() && bytes.is_of_host()
}

impl Endpoint {
    /// Posts one operation: `len` bytes at `local` in the route's own region, and at `remote` in the peer's region.
    ///
    /// # Errors
    /// If a range lies outside its memory, the peer was inserted into another endpoint and is unknown here, or the
    /// library refuses the operation.
    #[inline]
    pub fn post(
        &mut self,
        route: &Route,
        local: u64,
        remote: u64,
        len: u32,
        data: u64,
        user: u64,
    ) -> Result<Posted, Box<FabricError>> {
        let region = self
            .regions
            .get(route.local.0)
            .and_then(Option::as_ref)
            .ok_or_else(|| outside(user))?;
        let buffer = region.bytes.at(local, u64::from(len));
        let buffer = buffer.map_err(|_| outside(user))? as *mut c_void;
        let reaches = matches!(
            route.action,
            Action::Write | Action::WriteData | Action::Read
        );
        let end = remote.checked_add(u64::from(len));
        if reaches && end.is_none_or(|end| end > route.remote.len) {
            return Err(outside(user));
        }
        let peer = *self.peers.get(route.peer.0).ok_or_else(|| outside(user))?;
        let address = route.remote.base.wrapping_add(remote);
        if may_inject(route, len, &region.bytes) {
            let bytes = (buffer.cast_const(), len as usize);
            // SAFETY: the buffer lies in a registered arena that this endpoint keeps alive.
            let code = unsafe { self.calls.inject(route, peer, bytes, address, data) };
            return self.posted(code, Posted::Injected, user);
        }
        let operation = Operation {
            route,
            peer,
            buffer,
            len: len as usize,
            desc: region.desc,
            address,
            data,
        };
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
        // shm before 1.18 returns this code if unexpected messages have used up its receive entries.
        if receive && code == -(abi::FI_ENOMEM as isize) {
            return Ok(Posted::Again);
        }
        self.posted(code, Posted::Pending, user)
    }

    #[inline]
    fn posted(&self, code: isize, done: Posted, user: u64) -> Result<Posted, Box<FabricError>> {
        const AGAIN: isize = -(abi::FI_EAGAIN as isize);
        match code {
            0 => Ok(done),
            AGAIN => Ok(Posted::Again),
            code => Err(self.refused(code, user)),
        }
    }

    #[cold]
    fn refused(&self, code: isize, user: u64) -> Box<FabricError> {
        let code = code as c_int;
        error(
            Some(user),
            code.saturating_neg(),
            self.library().reason(code),
        )
    }

    /// Makes progress, and calls `each` with at most `most` completions; returns their number. Never blocks.
    ///
    /// # Errors
    /// The first failed operation, or the queue's own failure.
    #[inline]
    pub fn poll(
        &mut self,
        most: usize,
        mut each: impl FnMut(Event),
    ) -> Result<usize, Box<FabricError>> {
        const AGAIN: isize = -(abi::FI_EAGAIN as isize);
        let room = most.min(ENTRIES);
        let entries = self.calls.entries.as_mut_ptr();
        // SAFETY: the queue is open and has the format of these entries; there is room for `room` of them.
        let count =
            unsafe { ((*self.calls.queue_ops).read)(self.calls.queue, entries.cast(), room) };
        if count == AGAIN {
            return Ok(0);
        }
        if count < 0 {
            return Err(self.failure(count));
        }
        let count = (count as usize).min(room);
        for entry in &self.calls.entries[..count] {
            // Look up the context first: some providers set the data flag on the initiator's completion too.
            each(match self.slots.complete(entry.op_context) {
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
                None => return Err(unknown_operation()),
            });
        }
        Ok(count)
    }

    /// Reads the reason for a negative result of the completion queue.
    #[cold]
    fn failure(&mut self, code: isize) -> Box<FabricError> {
        if code != -(abi::FI_EAVAIL as isize) {
            let code = code as c_int;
            let text = format!("fi_cq_read: {}", self.library().reason(code));
            return error(None, code.saturating_neg(), text);
        }
        let mut entry = abi::fi_cq_err_entry::ZEROED;
        // SAFETY: the queue is open; the entry has the newest and largest layout. Because its data size is 0, the
        // library keeps its pointees valid until the next read.
        let got = unsafe { ((*self.calls.queue_ops).readerr)(self.calls.queue, &raw mut entry, 0) };
        if got < 0 {
            let text = format!("fi_cq_readerr: {}", self.library().reason(got as c_int));
            return error(None, abi::FI_EAVAIL, text);
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
        error(user, entry.err, reason + &detail)
    }
}

fn error(user: Option<u64>, code: i32, text: impl Into<String>) -> Box<FabricError> {
    let text = text.into();
    Box::new(FabricError { user, code, text })
}

#[cold]
fn outside(user: u64) -> Box<FabricError> {
    let text = "the operation lies outside registered memory, or its peer is unknown";
    error(Some(user), libc::EFAULT, text)
}

#[cold]
fn unknown_operation() -> Box<FabricError> {
    let text = "the completion queue reports an operation that was never posted";
    error(None, libc::EPROTO, text)
}
