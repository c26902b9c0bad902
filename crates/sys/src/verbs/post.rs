//! Posts work requests and takes completions: the part that runs inside the timed loops.
//!
//! Checks bounds, builds lists of work requests with one doorbell, and reads completions. Only the description of a
//! failure allocates.

use std::sync::atomic::Ordering;

use super::abi::{
    IBV_SEND_INLINE, IBV_SEND_SIGNALED, IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_SUCCESS,
    IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE,
    IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND, ibv_recv_wr, ibv_sge, ibv_wc, ibv_wr_atomic,
    ibv_wr_rdma,
};
use super::chain::{LIST_MAX, NO_TARGET};
use super::dc_post;
use super::handles::{AddressHandle, KeyedRegion, PairHandle, RegistrationHandle};
use super::last_error;
use super::queue_pair::no_such_pair;
use super::queues::Queues;
use super::queues::not_registered;
use super::{WorkAction, check};
use crate::error::LibraryError;
use crate::mapping::OutOfRange;

/// Bytes of the word of an atomic operation.
const WORD_BYTES: u64 = 8;

/// The parameters that are the same for consecutive work requests.
#[derive(Debug, Clone)]
pub struct WorkTarget {
    /// Kind of the work request.
    pub action: WorkAction,
    /// The queue pair to use.
    pub pair: PairHandle,
    /// The region of local offsets.
    pub local: RegistrationHandle,
    /// The peer's region; ignored for sends.
    pub remote: KeyedRegion,
    /// Maximum size of payloads that are inline in the work request.
    pub inline_bytes_max: u32,
    /// The target, for a DC initiator; `None` for connected queue pairs.
    pub address: Option<AddressHandle>,
}

/// One work request.
#[derive(Debug, Clone, Copy)]
pub struct WorkRequest {
    /// Returned with its completion.
    pub id: u64,
    /// Offset of the local bytes. The local bytes of a compare-swap are three words: the expected value, the new value,
    /// and space for the old value.
    pub local: u64,
    /// Offset of the remote bytes.
    pub remote: u64,
    /// Payload bytes.
    pub len: u32,
    /// Immediate data of a write-imm, or the addend of a fetch-add.
    pub imm: u32,
    /// Whether the request has a completion. The completion also means that all earlier requests on the same queue pair
    /// have ended.
    pub signalled: bool,
}

/// A completion.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct WorkEvent(ibv_wc);

impl WorkEvent {
    /// Initial value for buffers of completions.
    pub const EMPTY: Self = Self(ibv_wc::ZEROED);

    /// Returns the id of the work request that ended.
    #[inline]
    pub fn id(&self) -> u64 {
        self.0.wr_id
    }

    /// Returns the status of a failed work request; [`super::status_name`] names it.
    #[inline]
    pub fn failure(&self) -> Option<u32> {
        (self.0.status != IBV_WC_SUCCESS).then_some(self.0.status)
    }

    /// Returns the device's vendor code of a failure.
    pub fn vendor_code(&self) -> u32 {
        self.0.vendor_err
    }

    /// Returns the number of received bytes; valid only for receives.
    #[inline]
    pub fn len(&self) -> u32 {
        self.0.byte_len
    }

    /// Whether no bytes arrived.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the immediate data, if a write with immediate data consumed a receive.
    #[inline]
    pub fn immediate(&self) -> Option<u32> {
        (self.0.opcode == IBV_WC_RECV_RDMA_WITH_IMM).then(|| u32::from_be(self.0.imm_data))
    }
}

impl Queues {
    /// Whether the doorbell must ring before a work request of this queue pair can be staged.
    #[inline]
    pub fn must_ring(&self, pair: PairHandle) -> bool {
        let chain = &self.chain;
        chain.stretches_len == LIST_MAX || chain.len > 0 && chain.pair != pair.0
    }

    /// Appends a work request to the list that waits for the doorbell. If the list is full or belongs to another queue
    /// pair, the doorbell rings first.
    ///
    /// # Errors
    /// If a range lies outside its memory, or the device refuses the waiting requests.
    #[inline]
    pub fn stage(
        &mut self,
        target: &WorkTarget,
        request: &WorkRequest,
    ) -> Result<(), LibraryError> {
        if self.must_ring(target.pair) {
            self.ring()?;
        }
        let (opcode, is_one_sided) = match target.action {
            WorkAction::FetchAdd | WorkAction::CompareSwap => {
                return self.stage_atomic(target, request);
            }
            WorkAction::Write => (IBV_WR_RDMA_WRITE, true),
            WorkAction::WriteImm => (IBV_WR_RDMA_WRITE_WITH_IMM, true),
            WorkAction::Read => (IBV_WR_RDMA_READ, true),
            WorkAction::Send => (IBV_WR_SEND, false),
        };
        let end = request.remote.checked_add(u64::from(request.len));
        if is_one_sided && end.is_none_or(|end| end > target.remote.len) {
            return Err(outside(request, target));
        }
        let address = self.local_address(target.local, request.local, request.len)?;
        let far = far_bytes(target, request)?;
        if self.stretches_max > 1
            && matches!(target.action, WorkAction::Write | WorkAction::Read)
            && self.gather((opcode, far), target, request, address)
        {
            return Ok(());
        }
        // The driver copies inline bytes by the CPU, so they must be in host memory.
        let is_inline = (1..=target.inline_bytes_max).contains(&request.len)
            && target.action != WorkAction::Read
            && self.is_of_host(target.local);
        let place = self.chain.len;
        let staged = &mut self.chain.requests[place];
        staged.num_sge = i32::from(request.len > 0);
        staged.opcode = opcode;
        staged.send_flags = if is_inline { IBV_SEND_INLINE } else { 0 };
        staged.imm_data = request.imm.to_be();
        staged.wr.rdma = far;
        self.link(target, request, address);
        Ok(())
    }

    /// Merges a work request into the previous request, if its range at the peer directly follows that request's range.
    #[inline]
    fn gather(
        &mut self,
        far: (u32, ibv_wr_rdma),
        target: &WorkTarget,
        request: &WorkRequest,
        (addr, lkey): (u64, u32),
    ) -> bool {
        let stretch = ibv_sge {
            addr,
            length: request.len,
            lkey,
        };
        let inline_bytes_max = if self.is_of_host(target.local) {
            target.inline_bytes_max
        } else {
            0
        };
        let limits = (self.stretches_max, inline_bytes_max);
        let Some(last) = self.chain.gather(far, stretch, limits) else {
            return false;
        };
        last.wr_id = request.id;
        if request.signalled {
            last.send_flags |= IBV_SEND_SIGNALED;
        }
        self.gathered += 1;
        true
    }

    /// Stages an atomic operation. The two operands of a compare-swap are read now; the old value is stored after them.
    fn stage_atomic(
        &mut self,
        target: &WorkTarget,
        request: &WorkRequest,
    ) -> Result<(), LibraryError> {
        let (region, swaps) = (target.local, target.action == WorkAction::CompareSwap);
        let before = if swaps { 2 * WORD_BYTES } else { 0 };
        let landing = request.local.saturating_add(before);
        let address = self.local_address(region, landing, request.len)?;
        if u64::from(request.len) != WORD_BYTES {
            return Err(LibraryError::argument(format!(
                "atomic operations have {WORD_BYTES} bytes, not {}",
                request.len
            )));
        }
        if request.remote.saturating_add(WORD_BYTES) > target.remote.len {
            return Err(outside(request, target));
        }
        let (opcode, compare_add, swap) = if swaps {
            let number = |index| self.local_word(region, request.local + index * WORD_BYTES);
            (IBV_WR_ATOMIC_CMP_AND_SWP, number(0)?, number(1)?)
        } else {
            (IBV_WR_ATOMIC_FETCH_AND_ADD, request.imm.into(), 0)
        };
        let ibv_wr_rdma { remote_addr, rkey } = far_bytes(target, request)?;
        let staged = &mut self.chain.requests[self.chain.len];
        (staged.num_sge, staged.opcode, staged.send_flags) = (1, opcode, 0);
        staged.wr.atomic = ibv_wr_atomic {
            remote_addr,
            compare_add,
            swap,
            rkey,
        };
        self.link(target, request, address);
        Ok(())
    }

    /// Appends a prepared request to the list, with its local bytes.
    #[inline]
    fn link(&mut self, target: &WorkTarget, request: &WorkRequest, (addr, lkey): (u64, u32)) {
        let (place, first) = (self.chain.len, self.chain.stretches_len);
        self.chain.stretches[first] = ibv_sge {
            addr,
            length: request.len,
            lkey,
        };
        self.chain.stretches_len += 1;
        self.chain.last_bytes = request.len;
        let staged = &mut self.chain.requests[place];
        staged.wr_id = request.id;
        staged.next = std::ptr::null_mut();
        staged.sg_list = &raw mut self.chain.stretches[first];
        if request.signalled {
            staged.send_flags |= IBV_SEND_SIGNALED;
        }
        if place > 0 {
            let next = &raw mut self.chain.requests[place];
            self.chain.requests[place - 1].next = next;
        }
        if let Some(address) = target.address {
            self.chain.targets[place] = address.0;
        }
        self.chain.pair = target.pair.0;
        self.chain.len += 1;
    }

    /// Submits all staged requests.
    ///
    /// # Errors
    /// The device's reason.
    #[inline]
    pub fn ring(&mut self) -> Result<(), LibraryError> {
        if self.chain.len == 0 {
            return Ok(());
        }
        let count = std::mem::take(&mut self.chain.len);
        self.chain.stretches_len = 0;
        let Some(pair) = self.pairs.get(self.chain.pair) else {
            return Err(no_such_pair());
        };
        if let Some(initiator) = &pair.initiator {
            let addresses = self.dc.as_ref().map_or(&[][..], |parts| &parts.addresses);
            let taken = dc_post::hand_over(initiator, &self.chain, count, addresses);
            self.chain.targets[..count].fill(NO_TARGET);
            return taken;
        }
        if pair.limits.depths.send == 0 {
            return Err(LibraryError::argument("a DC target cannot send"));
        }
        let mut refused = std::ptr::null_mut();
        // SAFETY: the queue pair is open. Each request of the list points to the next, the last to none, and each to
        // ranges that lie inside registered memory, which stays mapped until the queue pair is closed.
        let code = unsafe {
            let first = self.chain.requests.as_mut_ptr();
            (self.calls.post_send)(pair.raw.as_ptr(), first, &raw mut refused)
        };
        match code {
            0 => Ok(()),
            _ => check("ibv_post_send", code),
        }
    }

    /// Posts a receive of `len` bytes at an offset of a region.
    ///
    /// # Errors
    /// If the range lies outside the region, or the device refuses the receive.
    #[inline]
    pub fn receive(
        &mut self,
        pair: PairHandle,
        (region, offset): (RegistrationHandle, u64),
        len: u32,
        id: u64,
    ) -> Result<(), LibraryError> {
        let (addr, lkey) = self.local_address(region, offset, len)?;
        let mut stretch = ibv_sge {
            addr,
            length: len,
            lkey,
        };
        let mut request = ibv_recv_wr {
            wr_id: id,
            next: std::ptr::null_mut(),
            sg_list: &raw mut stretch,
            num_sge: i32::from(len > 0),
        };
        self.post_receives(pair, &raw mut request)
    }

    /// Posts receives without memory, for writes with immediate data.
    ///
    /// # Errors
    /// If the device refuses them.
    pub fn receive_immediates(
        &mut self,
        pair: PairHandle,
        count: usize,
        id: u64,
    ) -> Result<(), LibraryError> {
        let mut left = count;
        while left > 0 {
            let some = left.min(LIST_MAX);
            let mut requests = [ibv_recv_wr {
                wr_id: id,
                ..ibv_recv_wr::ZEROED
            }; LIST_MAX];
            for index in 1..some {
                let next = &raw mut requests[index];
                requests[index - 1].next = next;
            }
            self.post_receives(pair, requests.as_mut_ptr())?;
            left -= some;
        }
        Ok(())
    }

    #[inline]
    fn post_receives(
        &mut self,
        pair: PairHandle,
        first: *mut ibv_recv_wr,
    ) -> Result<(), LibraryError> {
        let pair = self.pairs.get(pair.0).ok_or_else(no_such_pair)?;
        let mut refused = std::ptr::null_mut();
        // SAFETY: the queue pair is open; each request of the caller's list points to the next, and the last to none;
        // the list is copied during the call. The ranges are as in `ring`.
        let code = unsafe { (self.calls.post_recv)(pair.raw.as_ptr(), first, &raw mut refused) };
        match code {
            0 => Ok(()),
            _ => check("ibv_post_recv", code),
        }
    }

    /// Takes completions, as many as are available and fit into `events`.
    ///
    /// # Errors
    /// If the device is gone.
    #[inline]
    pub fn poll(&mut self, events: &mut [WorkEvent]) -> Result<usize, LibraryError> {
        let room = i32::try_from(events.len()).unwrap_or(i32::MAX);
        // SAFETY: the queue is open; an event has the layout of a library's completion, and `room` is at most the
        // number of events.
        let count = unsafe {
            (self.calls.poll_cq)(self.completions.as_ptr(), room, events.as_mut_ptr().cast())
        };
        match usize::try_from(count) {
            Ok(count) => Ok(count.min(events.len())),
            Err(_) => Err(last_error("ibv_poll_cq")),
        }
    }

    /// Whether a region is host memory.
    #[inline]
    fn is_of_host(&self, region: RegistrationHandle) -> bool {
        let registered = self.regions.get(region.0);
        matches!(registered, Some(Some(registered)) if registered.bytes.is_of_host())
    }

    /// Returns the word at an offset of a region.
    fn local_word(&self, region: RegistrationHandle, offset: u64) -> Result<u64, LibraryError> {
        let Some(Some(registered)) = self.regions.get(region.0) else {
            return Err(not_registered());
        };
        let word = registered.bytes.word(offset);
        let word = word.ok_or_else(|| no_word(offset))?;
        Ok(word.load(Ordering::Acquire))
    }

    /// Returns address and key of local bytes.
    #[inline]
    fn local_address(
        &self,
        region: RegistrationHandle,
        offset: u64,
        len: u32,
    ) -> Result<(u64, u32), LibraryError> {
        let Some(Some(registered)) = self.regions.get(region.0) else {
            return Err(not_registered());
        };
        let key = registered.local_keys.key(offset, len);
        let address = registered.bytes.at(offset, len.into())?;
        Ok((address, key.ok_or_else(|| too_long(len))?))
    }
}

/// Returns address and key of the peer's bytes in a request.
#[inline]
fn far_bytes(target: &WorkTarget, request: &WorkRequest) -> Result<ibv_wr_rdma, LibraryError> {
    let key = target.remote.keys.key(request.remote, request.len);
    Ok(ibv_wr_rdma {
        remote_addr: target.remote.base.wrapping_add(request.remote),
        rkey: key.ok_or_else(|| too_long(request.len))?,
    })
}

#[cold]
fn too_long(len: u32) -> LibraryError {
    LibraryError::argument(format!(
        "{len} bytes exceed half of the largest registration of this device"
    ))
}

#[cold]
fn no_word(offset: u64) -> LibraryError {
    LibraryError::argument(format!(
        "the CPU cannot access an aligned word at offset {offset}"
    ))
}

#[cold]
fn outside(request: &WorkRequest, target: &WorkTarget) -> LibraryError {
    OutOfRange {
        offset: request.remote,
        len: request.len.into(),
        size: target.remote.len,
    }
    .into()
}
