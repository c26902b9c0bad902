//! The objects of one worker on a device: protection domain, completion queue, registrations and queue pairs.
//!
//! This module opens and closes these objects in the right order, registers memory and prepares for sleeping.
//! [`super::queue_pair`] changes the states of queue pairs; [`super::post`] posts and polls.

use std::ffi::c_void;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;

use super::abi::{
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_RELAXED_ORDERING, IBV_ACCESS_REMOTE_ATOMIC,
    IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE, PollCq, PostRecv, PostSend, ibv_comp_channel,
    ibv_cq, ibv_mr, ibv_pd,
};
use super::chain::{Chain, LIST_MAX};
use super::context::{Context, unblock};
use super::dc_post::DcParts;
use super::handles::{KeyedRegion, QueuePair, RegistrationHandle};
use super::loaded::DmabufCalls;
use super::pieces::{RegionKeys, piece_stride, ranges, totals};
use super::thread_domain::ThreadDomain;
use super::{check, last_error};
use crate::error::LibraryError;
use crate::mapping::Arena;
use crate::registrable::{DeviceBytes, RegisteredBytes, RegisteredMemory, put};

/// Access rights of peers to a region, in addition to writing and reading.
#[derive(Debug, Clone, Copy, Default)]
pub struct RegionAccess {
    /// Whether peers' writes may become visible in a different order than they were posted.
    pub relaxed: bool,
    /// Whether peers may use atomic operations on the region.
    pub atomics: bool,
}

pub(super) struct Registration {
    /// One registration per piece.
    pieces: Vec<NonNull<ibv_mr>>,
    pub(super) local_keys: RegionKeys,
    remote_keys: RegionKeys,
    pub(super) bytes: RegisteredBytes,
}

/// The calls for posting and polling. They are copied from the device's table of calls, because that table fills four
/// cache lines.
pub(super) struct HotCalls {
    pub(super) poll_cq: PollCq,
    pub(super) post_send: PostSend,
    pub(super) post_recv: PostRecv,
}

/// The queues of one worker. One thread at a time may use them.
pub struct Queues {
    pub(super) calls: HotCalls,
    pub(super) chain: Chain,
    pub(super) pairs: Vec<QueuePair>,
    /// Maximum local ranges of a work request.
    pub(super) stretches_max: u32,
    /// Operations that were merged into the previous work request.
    pub(super) gathered: u64,
    /// Maximum bytes of a registration.
    region_bytes_max: u64,
    /// The thread domain of the queue pairs, if `without_locks` was called and the driver supports it.
    pub(super) thread: Option<ThreadDomain>,
    /// Objects that only DC queue pairs need.
    pub(super) dc: Option<DcParts>,
    /// Regions; the entry of a deregistered region is reused.
    pub(super) regions: Vec<Option<Registration>>,
    /// Deregistered memory that may still be used by operations in flight.
    retired: Vec<RegisteredMemory>,
    channel: Option<NonNull<ibv_comp_channel>>,
    /// True if the channel will signal the next completion.
    armed: bool,
    pub(super) completions: NonNull<ibv_cq>,
    pub(super) protection: NonNull<ibv_pd>,
    pub(super) context: Arc<Context>,
}

// SAFETY: the pointees belong to this value alone, except for the device, which is shared and locks itself; none is
// bound to a thread.
unsafe impl Send for Queues {}

impl Queues {
    /// Opens a protection domain and a completion queue for `completions` entries. With `sleeps`, it also opens the
    /// channel behind the descriptor that [`Self::arm`] returns.
    ///
    /// # Errors
    /// The library's reason, with the failed call.
    pub fn open(
        context: &Arc<Context>,
        completions: u32,
        sleeps: bool,
    ) -> Result<Self, LibraryError> {
        let library = &context.library.calls;
        // SAFETY: the device is open.
        let protection = unsafe { (library.alloc_pd)(context.raw.as_ptr()) };
        let protection = NonNull::new(protection).ok_or_else(|| last_error("ibv_alloc_pd"))?;
        let channel = match sleeps.then(|| channel(context)).transpose() {
            Ok(channel) => channel,
            Err(why) => {
                // SAFETY: nothing uses the protection domain yet.
                unsafe { (library.dealloc_pd)(protection.as_ptr()) };
                return Err(why);
            }
        };
        let raw_channel = channel.map_or(std::ptr::null_mut(), NonNull::as_ptr);
        let entries = i32::try_from(completions.max(1)).unwrap_or(i32::MAX);
        // SAFETY: the device is open, and the channel is null or its own.
        let queue = unsafe {
            let none = std::ptr::null_mut();
            (library.create_cq)(context.raw.as_ptr(), entries, none, raw_channel, 0)
        };
        let Some(completions) = NonNull::new(queue) else {
            let why = last_error("ibv_create_cq").about(format_args!("for {entries} completions"));
            // SAFETY: nothing uses channel and protection domain yet.
            unsafe {
                channel.map(|channel| (library.destroy_comp_channel)(channel.as_ptr()));
                (library.dealloc_pd)(protection.as_ptr());
            }
            return Err(why);
        };
        // SAFETY: an open device has its table of calls, which is never changed after opening.
        let ops = unsafe { &(*context.raw.as_ptr()).ops };
        Ok(Self {
            calls: HotCalls {
                poll_cq: ops.poll_cq,
                post_send: ops.post_send,
                post_recv: ops.post_recv,
            },
            chain: Chain::new(),
            pairs: Vec::new(),
            stretches_max: 1,
            gathered: 0,
            region_bytes_max: u64::MAX,
            thread: None,
            dc: None,
            regions: Vec::new(),
            retired: Vec::new(),
            channel,
            armed: false,
            completions,
            protection,
            context: Arc::clone(context),
        })
    }

    /// Makes later queue pairs without a lock for posting; returns whether the driver supports this. One thread at a
    /// time must use the queue pairs. That holds here, because one thread at a time uses this value.
    pub fn without_locks(&mut self) -> bool {
        if self.thread.is_none() {
            self.thread = ThreadDomain::open(&self.context, self.protection);
        }
        self.thread.is_some()
    }

    /// Lets work requests of later queue pairs have up to `stretches` local ranges. A write or read is merged into the
    /// previous request if its range at the peer directly follows that request's range.
    pub fn gather_up_to(&mut self, stretches: u32) {
        self.stretches_max = stretches.clamp(1, LIST_MAX as u32);
    }

    /// Returns the number of operations that were merged into the previous work request.
    pub fn gathered(&self) -> u64 {
        self.gathered
    }

    /// Limits later registrations to `bytes`: larger memory is registered in pieces, each with its own key. An
    /// operation on such memory may have at most [`piece_stride`] bytes.
    pub fn register_up_to(&mut self, bytes: u64) {
        self.region_bytes_max = bytes;
    }

    /// Returns the number of registrations that a memory of this size would have, and the bytes that they would lock.
    pub fn would_register(&self, bytes: u64) -> (u64, u64) {
        totals(bytes, self.region_bytes_max)
    }

    /// Returns the current number of registrations.
    pub fn registrations(&self) -> usize {
        let regions = self.regions.iter().flatten();
        regions.map(|region| region.pieces.len()).sum()
    }

    /// Registers an arena for local operations and for peers' writes and reads, with the additional rights in
    /// `granted`.
    ///
    /// # Errors
    /// The library's reason.
    pub fn register(
        &mut self,
        arena: Arc<Arena>,
        granted: RegionAccess,
    ) -> Result<RegistrationHandle, LibraryError> {
        self.register_bytes(RegisteredMemory::Host(arena), granted)
    }

    /// Registers device memory with the same rights: by its file if it has one, otherwise by its address. The CPU does
    /// not access its bytes, so inline payloads and compare-swap operands cannot be in it.
    ///
    /// # Errors
    /// The library's reason.
    pub fn register_device(
        &mut self,
        device: Arc<DeviceBytes>,
        granted: RegionAccess,
    ) -> Result<RegistrationHandle, LibraryError> {
        self.register_bytes(RegisteredMemory::Device(device), granted)
    }

    fn register_bytes(
        &mut self,
        memory: RegisteredMemory,
        granted: RegionAccess,
    ) -> Result<RegistrationHandle, LibraryError> {
        let bytes = RegisteredBytes::new(memory);
        let len = bytes.len();
        let mut access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
        if granted.relaxed {
            access |= IBV_ACCESS_RELAXED_ORDERING;
        }
        if granted.atomics {
            access |= IBV_ACCESS_REMOTE_ATOMIC;
        }
        let mut pieces = Vec::new();
        for range in ranges(len, self.region_bytes_max) {
            match self.register_piece(&bytes, range, access) {
                Ok(piece) => pieces.push(piece),
                Err(why) => {
                    self.deregister_pieces(&pieces);
                    return Err(why);
                }
            }
        }
        // SAFETY: the registrations are open.
        let (local, remote): (Vec<u32>, Vec<u32>) = pieces
            .iter()
            .map(|mr| unsafe { ((*mr.as_ptr()).lkey, (*mr.as_ptr()).rkey) })
            .unzip();
        let stride = piece_stride(self.region_bytes_max);
        let keys = |keys: &[u32]| RegionKeys::of_pieces(len, stride, keys);
        let (Some(local_keys), Some(remote_keys)) = (keys(&local), keys(&remote)) else {
            self.deregister_pieces(&pieces);
            return Err(LibraryError::argument(format!(
                "{len} bytes cannot be divided into registrations"
            )));
        };
        let registered = Registration {
            pieces,
            local_keys,
            remote_keys,
            bytes,
        };
        Ok(RegistrationHandle(put(&mut self.regions, registered)))
    }

    /// Registers a range of the memory.
    fn register_piece(
        &self,
        registered: &RegisteredBytes,
        (from, bytes): (u64, u64),
        access: i32,
    ) -> Result<NonNull<ibv_mr>, LibraryError> {
        let start = registered.at(from, bytes)?;
        let (library, protection) = (&self.context.library, self.protection.as_ptr());
        if let RegisteredMemory::Device(device) = &registered.memory
            && let Some((file, offset)) = device.file()
        {
            let register = DmabufCalls::look_up(|symbol| library.library.symbol(symbol))?.register;
            // SAFETY: the protection domain is open. The file keeps its memory alive, and the registration keeps the
            // file. If the file lacks the range, the call fails. The address is only a number for peers.
            let mr = unsafe {
                (register)(
                    protection,
                    offset + from,
                    bytes as usize,
                    start,
                    file,
                    access,
                )
            };
            return NonNull::new(mr).ok_or_else(|| last_error("ibv_reg_dmabuf_mr"));
        }
        // SAFETY: the protection domain is open; the memory stays mapped as long as the arena, or allocated as long as
        // the device's buffer. Either is kept until the registration is gone. `bytes` fits a `usize`.
        let mr = unsafe {
            (library.calls.reg_mr)(protection, start as *mut c_void, bytes as usize, access)
        };
        NonNull::new(mr).ok_or_else(|| last_error("ibv_reg_mr"))
    }

    /// Removes registrations of pieces; returns the first code that is not 0.
    fn deregister_pieces(&self, pieces: &[NonNull<ibv_mr>]) -> i32 {
        let dereg_mr = self.context.library.calls.dereg_mr;
        // SAFETY: each registration is open, and nothing refers to it any more.
        let close = |piece: &NonNull<ibv_mr>| unsafe { (dereg_mr)(piece.as_ptr()) };
        let codes: Vec<_> = pieces.iter().map(close).collect();
        codes.into_iter().find(|&code| code != 0).unwrap_or(0)
    }

    /// Removes a registration. Host memory stays mapped until the queues are closed. Device memory is released at once,
    /// unless the library cannot remove the registration.
    ///
    /// # Errors
    /// If the region is not registered, or the library cannot remove the registration.
    pub fn deregister(&mut self, region: RegistrationHandle) -> Result<(), LibraryError> {
        let taken = self.regions.get_mut(region.0).and_then(Option::take);
        let registered = taken.ok_or_else(not_registered)?;
        let code = self.deregister_pieces(&registered.pieces);
        let memory = registered.bytes.memory;
        // Device memory is scarce, and without a registration the NIC cannot access that memory.
        let is_kept = code != 0 || matches!(memory, RegisteredMemory::Host(_));
        if is_kept && !self.retired.iter().any(|kept| kept.is(&memory)) {
            self.retired.push(memory);
        }
        check("ibv_dereg_mr", code)
    }

    /// Returns the description of a region for peers.
    pub fn remote(&self, region: RegistrationHandle) -> Option<KeyedRegion> {
        let registered = self.regions.get(region.0)?.as_ref()?;
        Some(KeyedRegion {
            base: registered.bytes.address(),
            keys: registered.remote_keys.clone(),
            len: registered.bytes.len(),
        })
    }

    /// Prepares for sleeping. Returns `None` if the caller must poll first. Otherwise, returns a descriptor that
    /// becomes readable at the next completion.
    ///
    /// # Errors
    /// The library's reason; or that the queues were not opened for sleeping.
    pub fn arm(&mut self) -> Result<Option<BorrowedFd<'_>>, LibraryError> {
        let channel = self
            .channel
            .ok_or_else(|| LibraryError::argument("the queues were not opened for sleeping"))?;
        if self.armed && self.take_signal(channel) {
            self.armed = false;
        }
        if !self.armed {
            // SAFETY: the device and the queue are open.
            let code = unsafe {
                let ops = &(*self.context.raw.as_ptr()).ops;
                (ops.req_notify_cq)(self.completions.as_ptr(), 0)
            };
            check("ibv_req_notify_cq", code)?;
            self.armed = true;
            // The channel does not signal earlier completions.
            return Ok(None);
        }
        // SAFETY: the descriptor is the channel's, which is open as long as the queues are borrowed.
        Ok(Some(unsafe {
            BorrowedFd::borrow_raw((*channel.as_ptr()).fd)
        }))
    }

    /// Takes the channel's signal; returns whether there was one.
    fn take_signal(&self, channel: NonNull<ibv_comp_channel>) -> bool {
        let library = &self.context.library.calls;
        let (mut queue, mut context) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the channel is open, and its descriptor does not block; `queue` and `context` are valid for a pointer
        // each. The event is acknowledged at once, so that the queue can be closed.
        unsafe {
            let code = (library.get_cq_event)(channel.as_ptr(), &raw mut queue, &raw mut context);
            if code == 0 {
                (library.ack_cq_events)(queue, 1);
            }
            code == 0
        }
    }
}

#[cold]
pub(super) fn not_registered() -> LibraryError {
    LibraryError::argument("the region is not registered")
}

/// Opens a channel with a nonblocking descriptor.
fn channel(context: &Context) -> Result<NonNull<ibv_comp_channel>, LibraryError> {
    let library = &context.library.calls;
    // SAFETY: the device is open.
    let channel = unsafe { (library.create_comp_channel)(context.raw.as_ptr()) };
    let channel = NonNull::new(channel).ok_or_else(|| last_error("ibv_create_comp_channel"))?;
    // SAFETY: the channel is open, and so is its descriptor.
    let descriptor = unsafe { BorrowedFd::borrow_raw((*channel.as_ptr()).fd) };
    if let Err(why) = unblock(descriptor) {
        // SAFETY: nothing uses the channel yet.
        unsafe { (library.destroy_comp_channel)(channel.as_ptr()) };
        return Err(why);
    }
    Ok(channel)
}

impl Drop for Queues {
    fn drop(&mut self) {
        let library = &self.context.library.calls;
        let mut closed = true;
        // SAFETY: each object is open, and is closed once, before the objects that it uses. Once the queue pairs are
        // gone, the device no longer accesses the regions.
        unsafe {
            for pair in self.pairs.drain(..) {
                closed &= (library.destroy_qp)(pair.raw.as_ptr()) == 0;
            }
            closed &= self.dc.take().is_none_or(|parts| parts.close());
            let thread = self.thread.take();
            closed &= thread.is_none_or(|thread| thread.close(library.dealloc_pd));
            closed &= (library.destroy_cq)(self.completions.as_ptr()) == 0;
            if let Some(channel) = self.channel {
                (library.destroy_comp_channel)(channel.as_ptr());
            }
            for region in self.regions.iter().flatten() {
                closed &= self.deregister_pieces(&region.pieces) == 0;
            }
            (library.dealloc_pd)(self.protection.as_ptr());
        }
        if !closed {
            // An object that is still in use may let the device write to this memory.
            for region in self.regions.drain(..).flatten() {
                std::mem::forget(region.bytes);
            }
            std::mem::forget(std::mem::take(&mut self.retired));
            // Keep the device open too, because the remaining objects use it.
            std::mem::forget(Arc::clone(&self.context));
        }
    }
}

#[cfg(test)]
mod device_tests;
