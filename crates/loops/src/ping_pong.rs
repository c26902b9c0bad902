//! One operation, one answer. Each side waits for data to *arrive*, so half the round trip is a one-way latency.
//!
//! For write-imm and send, arrival is a completion at the target. For a plain write, arrival is a change of the slot's
//! last byte. This requires an engine that writes the last byte last ([`tonnage_engine::Caps::ordered_writes`]). A read
//! has no arrival, so a ping-pong of reads keeps one read in flight and rotates over the peers ([`read_round_robin`]).

use std::ops::Range;
use std::sync::Arc;

use tonnage_sys::mapping::{Arena, OutOfRange};

use super::BURST;
use super::flow::Flow;
use super::port::Port;
use super::recorder::Recorder;
use super::until::Until;
use crate::flow_walk::{FlowSlots, FlowWalk};
use tonnage_engine::{Caps, Completion, Ending, Op};
use tonnage_units::{Error, Result};

/// Checks of the last byte between two polls, if peers can write without this side polling.
const LOOKS_PER_POLL: u32 = 32;

/// Maximum number of this side's operations in flight when it posts the next one.
const OUTSTANDING_MAX: u64 = 16;

/// One direction of a plain-write ping-pong: the last byte of a slot counts the writes to it. Counts are kept per
/// target slot, because different source slots may write to it.
struct LastByteCounts {
    walk: FlowWalk,
    /// The slots of the next operation at the writer and at the target.
    local_slot: u64,
    slot: u64,
    counts: Vec<u8>,
}

impl LastByteCounts {
    fn new(mut walk: FlowWalk, slots: u64) -> Self {
        let (local_slot, slot) = walk.next_slots();
        Self {
            walk,
            local_slot,
            slot,
            counts: vec![0; slots as usize],
        }
    }

    /// Next value of the slot's last byte.
    #[inline]
    fn next_count(&self) -> u8 {
        self.counts[self.slot as usize].wrapping_add(1)
    }

    #[inline]
    fn advance(&mut self) {
        self.counts[self.slot as usize] = self.next_count();
        (self.local_slot, self.slot) = self.walk.next_slots();
    }
}

/// Last-byte signalling with one peer: the next outgoing and the next expected value.
pub struct LastByteSignal {
    arena: Arc<Arena>,
    out_origin: u64,
    into_origin: u64,
    stride_bytes: u64,
    last_byte: u64,
    out: LastByteCounts,
    into: LastByteCounts,
}

impl LastByteSignal {
    /// Creates the signalling between `rank` and `peer`. Their slices start at the two origins in this worker's memory.
    pub fn new(
        slots: &FlowSlots,
        rank: u32,
        peer: u32,
        arena: Arc<Arena>,
        out_origin: u64,
        into_origin: u64,
    ) -> Self {
        Self {
            arena,
            out_origin,
            into_origin,
            stride_bytes: slots.stride_bytes,
            last_byte: u64::from(slots.size_bytes) - 1,
            out: LastByteCounts::new(FlowWalk::new(slots, rank, peer), slots.slots),
            into: LastByteCounts::new(FlowWalk::new(slots, peer, rank), slots.slots),
        }
    }

    /// Writes the last expected count back to every incoming slot, because fills and other points overwrite the slots.
    pub fn reset_incoming(&self) -> Result<(), OutOfRange> {
        for (slot, &count) in self.into.counts.iter().enumerate() {
            let offset = self.into_origin + slot as u64 * self.stride_bytes + self.last_byte;
            self.arena.store_byte(offset, count)?;
        }
        Ok(())
    }

    /// Writes the next count into the source slot of the next outgoing operation.
    #[inline]
    fn write_count(&mut self) -> Result<(), OutOfRange> {
        let offset = self.out_origin + self.out.local_slot * self.stride_bytes + self.last_byte;
        self.arena.store_byte(offset, self.out.next_count())?;
        self.out.advance();
        Ok(())
    }

    /// Returns whether the next incoming operation has arrived, and if so advances.
    #[inline]
    fn arrived(&mut self) -> Result<bool, OutOfRange> {
        let offset = self.into_origin + self.into.slot * self.stride_bytes + self.last_byte;
        let arrived = self.arena.load_byte(offset)? == self.into.next_count();
        if arrived {
            self.into.advance();
        }
        Ok(arrived)
    }
}

/// One end of a ping-pong: its flows and, if arrivals are detected in memory, a signal per flow.
pub struct PingPongEnd {
    /// One flow per peer.
    pub flows: Vec<Flow>,
    /// Empty, or one signal per flow.
    pub signals: Vec<LastByteSignal>,
    /// Peers with an arrived operation that was not answered yet; used only by the answering side.
    unanswered: Vec<u32>,
    answers: bool,
    /// The flows that the initiating side drives.
    active: Range<usize>,
    looks_per_poll: u32,
    outstanding: u64,
    /// Allocated once: initializing it for each hop would add to the latency.
    done: Box<[Completion; BURST]>,
}

impl PingPongEnd {
    /// Creates one end with nothing in flight; `answers` is true on the answering side.
    pub fn new(flows: Vec<Flow>, signals: Vec<LastByteSignal>, answers: bool, caps: &Caps) -> Self {
        // Each peer can have one unanswered operation, so the list never exceeds this capacity.
        let unanswered = Vec::with_capacity(flows.len());
        Self {
            active: 0..flows.len(),
            flows,
            signals,
            unanswered,
            answers,
            looks_per_poll: if caps.arrives_by_polling {
                1
            } else {
                LOOKS_PER_POLL
            },
            outstanding: 0,
            done: Box::new([Completion::EMPTY; BURST]),
        }
    }

    /// Makes the initiating side drive only these flows from now on.
    pub fn activate(&mut self, flows: Range<usize>) {
        self.active = flows;
    }

    /// Prepares the incoming slots of all peers for a trial.
    pub fn reset_incoming(&self) -> Result<()> {
        self.signals
            .iter()
            .try_for_each(LastByteSignal::reset_incoming)
            .map_err(out_of_range_error)
    }

    /// Posts the next operation to the `index`-th peer.
    #[inline]
    fn post_next(&mut self, index: usize, port: &mut Port) -> Result<()> {
        if let Some(signal) = self.signals.get_mut(index) {
            signal.write_count().map_err(out_of_range_error)?;
        }
        let op: [Op; 1] = [self.flows[index].next_op(0)];
        while port.post(&op)? == 0 {
            self.poll(port)?;
        }
        self.outstanding += 1;
        Ok(())
    }

    #[inline]
    fn poll(&mut self, port: &mut Port) -> Result<usize> {
        let count = port.poll(&mut self.done)?;
        for completion in &self.done[..count] {
            match completion.ending {
                Ending::Done => self.outstanding = self.outstanding.saturating_sub(1),
                // The `lane` of an arrival is the rank of its sender.
                Ending::Arrived if self.answers => self.unanswered.push(completion.lane.0),
                _ => {}
            }
        }
        Ok(count)
    }

    /// Waits for the answer of the `index`-th peer.
    #[inline]
    fn wait(&mut self, index: usize, port: &mut Port, before: u64) -> Result<()> {
        loop {
            if let Some(signal) = self.signals.get_mut(index) {
                for look in (0..self.looks_per_poll).rev() {
                    if signal.arrived().map_err(out_of_range_error)? {
                        return self.limit_outstanding(port);
                    }
                    if look > 0 {
                        std::hint::spin_loop();
                    }
                }
            } else if port.arrivals.count > before {
                return self.limit_outstanding(port);
            }
            self.poll(port)?;
        }
    }

    #[inline]
    fn limit_outstanding(&mut self, port: &mut Port) -> Result<()> {
        while self.outstanding >= OUTSTANDING_MAX {
            self.poll(port)?;
        }
        Ok(())
    }

    fn drain(&mut self, port: &mut Port) -> Result<()> {
        while self.outstanding > 0 {
            self.poll(port)?;
        }
        Ok(())
    }
}

/// The initiating side: makes round trips with each peer in turn until `until` ends the loop. Returns the number of
/// round trips.
pub fn serve_first<R: Recorder>(
    port: &mut Port,
    table: &mut PingPongEnd,
    until: &mut Until,
    recorder: &mut R,
) -> Result<u64> {
    let (mut trips, mut index) = (0, table.active.start);
    while until.grant(1) == 1 {
        let start_ns = recorder.now_ns();
        let before = port.arrivals.count;
        table.post_next(index, port)?;
        // A transport may complete this side's operation before the peer has the data, so only the answer counts as
        // progress.
        port.awaited = 1;
        table.wait(index, port, before)?;
        port.awaited = 0;
        port.answered += 1;
        recorder.sample(recorder.now_ns().saturating_sub(start_ns) / 2);
        trips += 1;
        recorder.progress(2 * trips);
        index = if index + 1 == table.active.end {
            table.active.start
        } else {
            index + 1
        };
    }
    table.drain(port)?;
    Ok(trips)
}

/// Makes one read at a time, rotating over the flows, until `until` ends the loop. Returns the number of reads.
pub fn read_round_robin<R: Recorder>(
    port: &mut Port,
    flows: &mut [Flow],
    until: &mut Until,
    recorder: &mut R,
) -> Result<u64> {
    let mut done = [Completion::EMPTY; BURST];
    let (mut reads, mut index) = (0, 0);
    while until.grant(1) == 1 {
        let op = [flows[index].next_op(0)];
        let start_ns = recorder.now_ns();
        port.complete(&op, &mut done)?;
        recorder.sample(recorder.now_ns().saturating_sub(start_ns));
        reads += 1;
        recorder.progress(reads);
        index = if index + 1 == flows.len() {
            0
        } else {
            index + 1
        };
    }
    Ok(reads)
}

/// The answering side: answers until `over` returns true. Returns the number of answers.
pub fn return_all(
    port: &mut Port,
    table: &mut PingPongEnd,
    over: &mut dyn FnMut() -> bool,
) -> Result<u64> {
    let mut answers = 0;
    // With several peers, checking one repeatedly would make the others wait.
    let looks = if table.signals.len() == 1 {
        table.looks_per_poll
    } else {
        1
    };
    while !over() {
        table.poll(port)?;
        port.check_stop()?;
        while let Some(peer) = table.unanswered.pop() {
            let index = table
                .flows
                .iter()
                .position(|flow| flow.peer == peer)
                .ok_or_else(|| {
                    Error::Failed(format!(
                        "an operation arrived from rank {peer}, which is not a peer"
                    ))
                })?;
            table.post_next(index, port)?;
            answers += 1;
        }
        for index in 0..table.signals.len() {
            for look in (0..looks).rev() {
                if table.signals[index].arrived().map_err(out_of_range_error)? {
                    table.post_next(index, port)?;
                    answers += 1;
                    break;
                }
                if look > 0 {
                    std::hint::spin_loop();
                }
            }
        }
    }
    table.drain(port)?;
    Ok(answers)
}

fn out_of_range_error(error: OutOfRange) -> Error {
    Error::Failed(error.to_string())
}

#[cfg(test)]
mod tests;
