//! Carries out the steps of collectives over an engine, with write-imm operations. Each immediate identifies a message
//! and its call.
//!
//! `tonnage_collective::steps` defines the steps and explains why they are correct.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::immediate::{CallMark, CallStream, DecodedImmediate};
use super::layout::MemoryLayout;
use super::script::{LocalWork, ResolvedStep, Script};
use crate::BURST;
use crate::port::Port;
use tonnage_collective::steps::{Buffer, GRANTS_INITIAL, Place};
use tonnage_engine::{Completion, Ending, Engine, Op, Peer};
use tonnage_sys::copy::Method;
use tonnage_sys::fold::FoldError;
use tonnage_sys::mapping::{Arena, OutOfRange};
use tonnage_units::{Error, Result};

/// Polls between two clock reads while waiting for a message.
const LOOK_POLLS: u32 = 4096;

/// Maximum bytes per copy call, because the length argument has 32 bits.
const COPY_BYTES_MAX: u64 = 1 << 30;

/// One rank's part of native collectives, over its engine.
pub struct StepExecutor<'a> {
    port: Port<'a>,
    arena: Arc<Arena>,
    layout: MemoryLayout,
    state: &'a mut CallState,
    /// Longest wait for a message or grant.
    timeout_ns: u64,
    /// Completions of the last poll. Allocated once, because initializing it costs as much as a poll.
    done: [Completion; BURST],
}

/// Call count and arrivals of one stream.
#[derive(Debug, Default)]
struct StreamCalls {
    /// Number of calls so far. It is the same on all ranks between two calls.
    count: u64,
    /// The last mark received under each message number, kept separately for even and odd calls.
    arrived: [Vec<CallMark>; 2],
}

/// State that is kept from point to point: call counts, arrivals and grants.
#[derive(Debug, Default)]
pub struct CallState {
    measured: StreamCalls,
    aligning: StreamCalls,
    /// Peers in ascending order, each with its number of unused grants to this rank.
    grants: Vec<(Peer, u32)>,
}

impl CallState {
    /// Creates the state before the first call. `peers` must be in ascending order.
    pub fn new(peers: &[Peer]) -> Self {
        let granted = |&peer: &Peer| (peer, GRANTS_INITIAL);
        Self {
            grants: peers.iter().map(granted).collect(),
            ..Self::default()
        }
    }

    /// Clears arrivals and makes room for the messages of these scripts. Every rank must call this before it switches
    /// to other scripts, while no rank is in a call. Otherwise an old arrival could be mistaken for a new one, because
    /// marks repeat after about 1,000 calls.
    pub fn prepare_for_scripts(&mut self, measured: &Script, aligning: &Script) {
        for script in [measured, aligning] {
            for arrived in &mut self.calls(script.stream).arrived {
                arrived.clear();
                arrived.resize(script.messages as usize, CallMark::NONE);
            }
        }
    }

    #[inline]
    fn calls(&mut self, stream: CallStream) -> &mut StreamCalls {
        match stream {
            CallStream::Measured => &mut self.measured,
            CallStream::Aligning => &mut self.aligning,
        }
    }

    fn record_arrival(&mut self, completion: &Completion) -> Result<()> {
        match DecodedImmediate::from_immediate(completion.imm) {
            DecodedImmediate::Message {
                stream,
                mark,
                message,
            } => {
                let half = &mut self.calls(stream).arrived[mark.scratch_half()];
                let slot = half.get_mut(message as usize);
                let unknown = || {
                    Error::Failed(format!(
                        "received message {message}, which this call does not use: a peer follows different steps"
                    ))
                };
                *slot.ok_or_else(unknown)? = mark;
            }
            DecodedImmediate::Grant { from } => {
                let known = self.grants.binary_search_by_key(&from, |(peer, _)| *peer);
                let stranger = |_| {
                    Error::Failed(format!(
                        "received a grant from rank {from}, which is not a peer"
                    ))
                };
                self.grants[known.map_err(stranger)?].1 += 1;
            }
        }
        Ok(())
    }
}

impl<'a> StepExecutor<'a> {
    /// Creates an executor over a worker's engine.
    pub fn new(
        engine: &'a mut dyn Engine,
        worker: &WorkerView,
        state: &'a mut CallState,
        stop: &'a AtomicBool,
        timeout_ns: u64,
    ) -> Self {
        let port = Port::new(engine, worker.clock, stop, worker.yielding);
        let port = if worker.arrives_by_polling {
            port.without_pause()
        } else {
            port
        };
        Self {
            port,
            arena: Arc::clone(&worker.arena),
            layout: worker.layout,
            state,
            timeout_ns,
            done: [Completion::EMPTY; BURST],
        }
    }

    /// Carries out one call. All ranks must make the same calls in the same order.
    pub fn call(&mut self, script: &Script) -> Result<()> {
        let calls = self.state.calls(script.stream);
        let mark = CallMark::for_call(calls.count);
        calls.count += 1;
        for step in &script.moves {
            self.run_step(script, step, mark)?;
        }
        while self.port.outstanding() > 0 {
            self.poll()?;
        }
        Ok(())
    }

    #[inline]
    fn run_step(&mut self, script: &Script, step: &ResolvedStep, mark: CallMark) -> Result<()> {
        let at = |place: Place| self.memory_offset(place, mark);
        match *step {
            ResolvedStep::Put {
                lane,
                message,
                from,
                to,
                bytes,
            } => {
                let op = match bytes {
                    // Send a dummy token, because not every engine supports empty messages.
                    0 => self.layout.token(),
                    bytes => Op {
                        local: at(from),
                        remote: at(to),
                        len: bytes,
                        ..self.layout.token()
                    },
                };
                let imm = DecodedImmediate::Message {
                    stream: script.stream,
                    mark,
                    message,
                }
                .immediate();
                self.post(Op { lane, imm, ..op })
            }
            ResolvedStep::Grant { lane } => {
                let imm = DecodedImmediate::Grant { from: script.rank }.immediate();
                let op = self.layout.token();
                self.post(Op { lane, imm, ..op })
            }
            ResolvedStep::Await { message } => self
                .wait(|state| {
                    let calls = state.calls(script.stream);
                    calls.arrived[mark.scratch_half()][message as usize] == mark
                })
                .map_err(|error| script.explain_wait(error, &format!("message {message}"))),
            ResolvedStep::Claim { place, peer } => {
                self.wait(|state| state.grants[place as usize].1 > 0)
                    .map_err(|error| {
                        script.explain_wait(error, &format!("a grant from rank {peer}"))
                    })?;
                self.state.grants[place as usize].1 -= 1;
                Ok(())
            }
            ResolvedStep::Work(work) => self.run_local_step(script, work, mark),
        }
    }

    /// Carries out a step that touches only this rank's memory.
    #[inline]
    fn run_local_step(&self, script: &Script, work: LocalWork, mark: CallMark) -> Result<()> {
        let at = |place: Place| self.memory_offset(place, mark);
        let (arena, kernel) = (&*self.arena, &script.kernel);
        let folded = match work {
            LocalWork::Fold { from, to, elements } => {
                arena.fold(kernel, at(to), arena, at(from), elements)
            }
            LocalWork::Combine {
                one,
                other,
                to,
                elements,
            } => arena.combine(
                kernel,
                at(to),
                (arena, at(one)),
                (arena, at(other)),
                elements,
            ),
            LocalWork::Copy { from, to, bytes } => {
                copy(arena, at(from), at(to), bytes).map_err(FoldError::from)
            }
            LocalWork::Divide { place, elements } => {
                arena.divide(kernel, at(place), elements, script.ranks)
            }
        };
        folded.map_err(|error| Error::Failed(error.to_string()))
    }

    /// Returns the offset of `place` in memory. The offset is the same on every rank, because all ranks have the same
    /// layout.
    #[inline]
    fn memory_offset(&self, place: Place, mark: CallMark) -> u64 {
        let base = match place.buffer {
            Buffer::Input => self.layout.input,
            Buffer::Output => self.layout.output,
            Buffer::Scratch => self.layout.scratch[mark.scratch_half()],
        };
        base + place.offset
    }

    #[inline]
    fn post(&mut self, op: Op) -> Result<()> {
        while self.port.post(&[op])? == 0 {
            self.poll()?;
        }
        Ok(())
    }

    /// Polls the engine and records arrivals.
    #[inline]
    fn poll(&mut self) -> Result<usize> {
        let count = self.port.poll(&mut self.done)?;
        for completion in &self.done[..count] {
            if completion.ending == Ending::Arrived {
                self.state.record_arrival(completion)?;
            }
        }
        Ok(count)
    }

    /// Polls until `has_come` holds or the timeout expires.
    #[inline]
    fn wait(&mut self, has_come: impl Fn(&mut CallState) -> bool) -> Result<()> {
        let (mut polls, mut since_ns) = (0u32, None);
        while !has_come(self.state) {
            self.poll()?;
            polls = polls.wrapping_add(1);
            if polls.is_multiple_of(LOOK_POLLS) {
                let now_ns = self.port.clock.now_ns();
                let since_ns = *since_ns.get_or_insert(now_ns);
                if now_ns.saturating_sub(since_ns) > self.timeout_ns {
                    return Err(Error::Failed(format!(
                        "nothing arrived for {:.1} s",
                        self.timeout_ns as f64 / 1e9
                    )));
                }
            }
        }
        Ok(())
    }
}

/// Copies bytes within one memory. The ranges must not overlap.
fn copy(arena: &Arena, from: u64, to: u64, bytes: u64) -> Result<(), OutOfRange> {
    let mut done = 0;
    while done < bytes {
        let piece = (bytes - done).min(COPY_BYTES_MAX);
        arena.copy_to(from + done, arena, to + done, piece as u32, Method::Memcpy)?;
        done += piece;
    }
    Ok(())
}

/// Parts of a worker that an executor needs in addition to its engine.
pub struct WorkerView {
    /// The worker's memory.
    pub arena: Arc<Arena>,
    /// Layout of that memory.
    pub layout: MemoryLayout,
    pub clock: tonnage_sys::clock::Clock,
    /// True if the worker yields its CPU while it waits.
    pub yielding: bool,
    /// True if messages arrive only while the engine is polled.
    pub arrives_by_polling: bool,
}
