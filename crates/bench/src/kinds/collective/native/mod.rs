//! This program's own collectives over any engine with write-imm. They show the bandwidth that the path allows.
//!
//! | file | what lives there |
//! | --- | --- |
//! | [`open`] | the engine on all ranks, with the peers and the memory for the points of a stretch |
//! | [`mod@candidates`] | algorithms and message sizes that compete in the warm-up |
//!
//! Algorithms and their proof are in `tonnage_collective::steps`; [`tonnage_loops::collective`] executes a rank's
//! steps.

mod bound;
pub mod candidates;
pub mod open;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::backend::{Backend, Buffers, CallOrder, Choice, Prepared};
use super::trial_times::slowest;
use crate::deadlines::DEADLINES;
use crate::failure::{StepFailure, agree};
use crate::kinds::kind::Stage;
use crate::loop_parameters::call_position;
use candidates::{Candidate, KnownAlgorithms, candidates};
use open::OpenNative;
use tonnage_collective::Collective;
use tonnage_loops::calls::{Caller, time_aligned_calls, time_back_to_back_calls};
use tonnage_loops::collective::executor::{CallState, StepExecutor, WorkerView};
use tonnage_loops::collective::immediate::CallStream;
use tonnage_loops::collective::script::{Script, ScriptParts};
use tonnage_plan::collective::CollectivePoint;
use tonnage_record::{Bound, Effective};
use tonnage_sys::clock::Clock;
use tonnage_units::{Error, Result};

/// Number of calls per candidate. The first call fills caches and is not counted, unless it is the only one.
const TRIES: u64 = 4;

/// If a call takes longer than this, its candidate makes no further calls.
const TRY_NS_MAX: u64 = 200_000_000;

/// A candidate makes no further calls if it takes this many times as long as the best candidate so far.
const TOO_SLOW_FACTOR: u64 = 2;

/// Native collectives over one engine.
pub struct NativeBackend {
    open: OpenNative,
    state: CallState,
    stop: Arc<AtomicBool>,
    clock: Clock,
    known: KnownAlgorithms,
    /// The point that is prepared, if any.
    ready: Option<PreparedPoint>,
}

/// Prepared state for the calls of one point.
struct PreparedPoint {
    point: CollectivePoint,
    candidates: Vec<Candidate>,
    buffers: Buffers,
    barrier: Script,
    call: Script,
}

impl NativeBackend {
    /// Wraps an open engine.
    pub fn new(open: OpenNative, known: &KnownAlgorithms, stage: &Stage<'_>) -> Self {
        Self {
            state: CallState::new(&open.peers),
            open,
            stop: stage.rank.stop_flag(),
            clock: stage.settings.clock,
            known: known.clone(),
            ready: None,
        }
    }

    fn script(
        &self,
        stream: CallStream,
        point: &CollectivePoint,
        candidate: Candidate,
    ) -> Result<Script> {
        let position = point.grouping().position(self.open.rank);
        Script::new(
            &candidate.program(point, position.place)?,
            ScriptParts {
                position: call_position(position),
                stream,
                shape: point.shape(),
                in_place: point.in_place,
                reduction: point.reduction,
                lanes: &self.open.lanes,
            },
        )
    }

    fn prepare_point(&self, point: &CollectivePoint) -> Result<PreparedPoint> {
        let candidates = match self.known.find(&self.open.name, point) {
            Some(known) => known,
            None => candidates(point, self.open.message_bytes_max()),
        };
        let none = || Error::Failed(format!("no algorithm is left for {}", point.op));
        let first = *candidates.first().ok_or_else(none)?;
        let barrier = open::aligning_barrier(point);
        let candidate = open::barrier_algorithm(&barrier);
        let (layout, arena) = (self.open.layout, &self.open.whole.arena);
        Ok(PreparedPoint {
            buffers: Buffers::new(
                arena,
                (layout.input, layout.output),
                &point.shape(),
                point.grouping().position(self.open.rank).place,
                point.in_place,
            ),
            barrier: self.script(CallStream::Aligning, &barrier, candidate)?,
            call: self.script(CallStream::Measured, point, first)?,
            candidates,
            point: point.clone(),
        })
    }

    /// Returns the time of the shortest of several calls with the prepared candidate. The time of a call is the time on
    /// its slowest rank. Ends early if the candidate is much slower than `best_ns`, the best time so far.
    fn shortest_call_ns(
        &mut self,
        fill: &mut dyn FnMut(&Buffers) -> Result<()>,
        best_ns: u64,
        stage: &mut Stage<'_>,
    ) -> Result<u64, StepFailure> {
        self.discard_earlier_messages()?;
        agree(stage.rank, "a way to try", Ok(()), DEADLINES.step)?;
        let mut taken_ns = u64::MAX;
        for tried in 0..TRIES {
            let mut spans = Vec::with_capacity(1);
            let buffers = self.buffers().clone();
            let ended = self.run(&mut CallOrder {
                iterations: 1,
                align: true,
                is_checked: false,
                // Inputs are written only before the first call, because writing long inputs takes longer than a call.
                // Values may grow from call to call, but there are too few calls for an overflow.
                before: &mut |_| match tried {
                    0 => fill(&buffers),
                    _ => Ok(()),
                },
                spans: &mut spans,
            });
            agree(stage.rank, "a call that is tried", ended, DEADLINES.step)?;
            let span = spans.pop().unwrap_or_default();
            let [slowest_ns] = slowest([span], stage.rank)?;
            if tried > 0 || slowest_ns > TRY_NS_MAX {
                taken_ns = taken_ns.min(slowest_ns);
            }
            let is_beaten = taken_ns / TOO_SLOW_FACTOR >= best_ns;
            if slowest_ns > TRY_NS_MAX || tried > 0 && is_beaten {
                break;
            }
        }
        Ok(taken_ns)
    }

    /// Discards messages of earlier calls. No rank is inside these calls any more.
    fn discard_earlier_messages(&mut self) -> Result<()> {
        let ready = self.ready.as_ref().ok_or_else(not_prepared_error)?;
        self.state.prepare_for_scripts(&ready.call, &ready.barrier);
        Ok(())
    }
}

fn not_prepared_error() -> Error {
    Error::Failed("no point was prepared".into())
}

/// The calls of a trial: the operation, and the barrier that aligns the ranks.
struct NativeCalls<'a> {
    executor: StepExecutor<'a>,
    barrier: &'a Script,
    call: &'a Script,
}

impl Caller for NativeCalls<'_> {
    fn align(&mut self) -> Result<()> {
        self.executor.call(self.barrier)
    }

    fn call(&mut self) -> Result<()> {
        self.executor.call(self.call)
    }
}

impl Backend for NativeBackend {
    fn prepare(
        &mut self,
        point: &CollectivePoint,
        stage: &mut Stage<'_>,
    ) -> Result<Prepared, StepFailure> {
        let ready = self.prepare_point(point);
        let ready = agree(stage.rank, "steps of a collective", ready, DEADLINES.step)?;
        self.ready = Some(ready);
        Ok(Prepared {
            in_place: point.in_place,
            has_results: true,
        })
    }

    fn choose(
        &mut self,
        fill: &mut dyn FnMut(&Buffers) -> Result<()>,
        stage: &mut Stage<'_>,
    ) -> Result<Choice, StepFailure> {
        let ready = self.ready.as_ref().ok_or_else(not_prepared_error)?;
        let (point, all) = (ready.point.clone(), ready.candidates.clone());
        let mut tried: Vec<(u64, Candidate)> = Vec::with_capacity(all.len());
        for &candidate in &all {
            let script = self.script(CallStream::Measured, &point, candidate)?;
            self.ready.as_mut().ok_or_else(not_prepared_error)?.call = script;
            let times = tried.iter().map(|(taken_ns, _)| *taken_ns);
            let best_ns = times.min().unwrap_or(u64::MAX);
            let taken_ns = match all.len() {
                1 => 0,
                _ => self.shortest_call_ns(fill, best_ns, stage)?,
            };
            tried.push((taken_ns, candidate));
        }
        let best = tried.iter().min_by_key(|(taken_ns, _)| *taken_ns);
        let (_, candidate) = *best.ok_or_else(not_prepared_error)?;
        if all.len() > 1 {
            self.known.add(&self.open.name, &point, tried);
        }
        let script = self.script(CallStream::Measured, &point, candidate)?;
        self.ready.as_mut().ok_or_else(not_prepared_error)?.call = script;
        let is_divided = point.shape().ranks > 1;
        Ok(Choice {
            algorithm: is_divided.then_some(candidate.algorithm),
            chunk_bytes: (is_divided && point.op != Collective::Barrier)
                .then_some(candidate.chunk_bytes),
            ..Choice::default()
        })
    }

    fn bound(
        &mut self,
        point: &CollectivePoint,
        stage: &mut Stage<'_>,
    ) -> Result<Option<Bound>, StepFailure> {
        let measured = bound::measure(&self.open, point, stage);
        measured.map_err(|error| StepFailure::from_agreed(stage.rank, error))
    }

    fn settle(&mut self) -> Result<()> {
        self.discard_earlier_messages()
    }

    fn buffers(&self) -> &Buffers {
        match &self.ready {
            Some(ready) => &ready.buffers,
            None => &self.open.whole,
        }
    }

    fn run(&mut self, order: &mut CallOrder<'_>) -> Result<()> {
        let ready = self.ready.as_ref().ok_or_else(not_prepared_error)?;
        let worker = &mut self.open.engine.workers[0];
        let view = WorkerView {
            arena: Arc::clone(worker.memory.mapped("native collectives")?),
            layout: self.open.layout,
            clock: worker.clock,
            yielding: self.open.engine.yielding,
            arrives_by_polling: worker.caps.arrives_by_polling,
        };
        let engine = worker
            .engine
            .as_mut()
            .ok_or_else(not_prepared_error)?
            .as_mut();
        let (state, timeout_ns) = (&mut self.state, ready.point.timeout_ns);
        let mut calls = NativeCalls {
            executor: StepExecutor::new(engine, &view, state, &self.stop, timeout_ns),
            barrier: &ready.barrier,
            call: &ready.call,
        };
        let (iterations, before) = (order.iterations, &mut *order.before);
        let time = if order.align {
            time_aligned_calls
        } else {
            time_back_to_back_calls
        };
        time(&mut calls, &self.clock, iterations, before, order.spans)
    }

    fn effective(&self) -> Vec<Effective> {
        self.open.effective()
    }
}
