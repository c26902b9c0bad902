//! Runs a trial's loop. Each loop is compiled once per recorder, so that a loop that records nothing doesn't read the
//! clock.

use tonnage_units::Result;
use tonnage_units::histogram::LatencyHistogram;

use super::Scratch;
use super::batch::{BatchCounts, BatchLoop, BatchPart, SharedBatches, run_batch_loop};
use super::flow::Flow;
use super::flow_length::FlowLoads;
use super::loop_progress::{LoopProgress, ProgressRecorder};
use super::paced::{Punctuality, Timetable, paced};
use super::ping_pong::{PingPongEnd, read_round_robin, serve_first};
use super::port::Port;
use super::recorder::{PerBatch, PerOperation, PhaseHistograms, Recorder, Silent};
use super::stream::{run_stream, run_stream_of_length};
use super::until::Until;

/// The order in which operations are issued and completed.
pub enum LoopKind<'a> {
    /// Round trips with peers that answer.
    PingPong(&'a mut PingPongEnd),
    /// One read at a time.
    ReadInTurn,
    /// A window on each flow. With loads, flows end on their own.
    Stream(Option<&'a mut FlowLoads>),
    /// Batches of this worker alone.
    Batch(BatchLoop),
    /// This worker's share of batches that the rank's workers share, and the worker's index. Worker 0 begins the
    /// batches.
    SharedBatch(BatchLoop, &'a SharedBatches, u32),
    /// Operations due at fixed times.
    Paced(&'a Timetable),
}

/// Destinations of a trial's times.
pub struct Recording<'a> {
    /// Latencies of operations, or of batches.
    pub latencies: Option<&'a mut LatencyHistogram>,
    /// Phases of batches, in addition to their latencies.
    pub phases: Option<&'a mut PhaseHistograms>,
    /// Progress, for a thread that samples it once per interval.
    pub loop_progress: Option<&'a LoopProgress>,
}

/// Results of a loop.
#[derive(Default)]
pub struct LoopResults {
    /// Completed operations.
    pub operations: u64,
    /// Operations posted for batches, after merging.
    pub handed_over: u64,
    /// Results of a paced loop.
    pub punctuality: Option<Punctuality>,
}

/// A loop with everything it needs except a recorder.
pub struct TimedLoop<'a, 'p> {
    /// The kind of loop.
    pub pace: LoopKind<'a>,
    /// The worker's engine.
    pub port: &'a mut Port<'p>,
    /// Flows that take part.
    pub flows: &'a mut [Flow],
    /// Buffers made for exactly these flows.
    pub scratch: &'a mut Scratch,
    /// Ends the loop. Paced loops ignore it, and so do shares of batches that another worker begins.
    pub until: &'a mut Until,
}

impl TimedLoop<'_, '_> {
    /// Runs the loop to its end.
    pub fn run(self, recording: Recording<'_>) -> Result<LoopResults> {
        let clock = self.port.clock;
        let loop_progress = recording.loop_progress;
        match (recording.latencies, recording.phases) {
            (None, _) => self.run_with_progress(Silent, loop_progress),
            (Some(histogram), None) => {
                self.run_with_progress(PerOperation { clock, histogram }, loop_progress)
            }
            (Some(histogram), Some(phases)) => {
                let whole = PerOperation { clock, histogram };
                self.run_with_progress(PerBatch { whole, phases }, loop_progress)
            }
        }
    }

    fn run_with_progress<R: Recorder>(
        self,
        mut recorder: R,
        loop_progress: Option<&LoopProgress>,
    ) -> Result<LoopResults> {
        match loop_progress {
            None => self.run_with_recorder(&mut recorder),
            Some(loop_progress) => {
                self.run_with_recorder(&mut ProgressRecorder::new(recorder, loop_progress))
            }
        }
    }

    fn run_with_recorder<R: Recorder>(self, recorder: &mut R) -> Result<LoopResults> {
        let Self {
            pace,
            port,
            flows,
            scratch,
            until,
        } = self;
        let of = |operations| LoopResults {
            operations,
            ..LoopResults::default()
        };
        let of_batches = |batched: BatchCounts| LoopResults {
            operations: batched.completed,
            handed_over: batched.handed_over,
            punctuality: None,
        };
        match pace {
            LoopKind::PingPong(table) => {
                serve_first(port, table, until, recorder).map(|trips| of(2 * trips))
            }
            LoopKind::ReadInTurn => read_round_robin(port, flows, until, recorder).map(of),
            LoopKind::Stream(None) => run_stream(port, flows, scratch, until, recorder).map(of),
            LoopKind::Stream(Some(loads)) => {
                run_stream_of_length(port, flows, scratch, until, recorder, loads).map(of)
            }
            LoopKind::Batch(batching) => {
                let part = BatchPart::Whole(until);
                run_batch_loop(port, flows, &batching, scratch, part, recorder).map(of_batches)
            }
            LoopKind::SharedBatch(batching, shared, worker) => {
                let part = if worker == 0 {
                    BatchPart::Lead(shared, until)
                } else {
                    BatchPart::Follow(shared)
                };
                run_batch_loop(port, flows, &batching, scratch, part, recorder).map(of_batches)
            }
            LoopKind::Paced(timetable) => {
                let punctuality = paced(port, flows, timetable, scratch, recorder)?;
                Ok(LoopResults {
                    punctuality: Some(punctuality),
                    ..of(punctuality.completed)
                })
            }
        }
    }
}
