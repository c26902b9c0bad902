//! Runs a trial's loop. It is compiled here once per recorder, so that recording nothing reads no clock.

use tonnage_units::Result;
use tonnage_units::histogram::LatencyHistogram;

use super::Scratch;
use super::batch::{BatchLoop, BatchPart, Batched, SharedBatches, batch};
use super::extent::FlowLoads;
use super::flow::Flow;
use super::paced::{Punctuality, Timetable, paced};
use super::ping_pong::{Table, read_in_turn, serve_first};
use super::port::Port;
use super::pulse::{Counted, Pulse};
use super::recorder::{PerBatch, PerOperation, PhaseHistograms, Recorder, Silent};
use super::stream::{stream, stream_extents};
use super::until::Until;

/// The order in which operations are issued and completed.
pub enum Pace<'a> {
    /// Round trips with peers that answer.
    PingPong(&'a mut Table),
    /// One read at a time.
    ReadInTurn,
    /// A window on each flow. With loads, flows end on their own.
    Stream(Option<&'a mut FlowLoads>),
    /// Batches that the worker has to itself.
    Batch(BatchLoop),
    /// A worker's share of batches that its rank's workers share. The first one begins them.
    SharedBatch(BatchLoop, &'a SharedBatches, u32),
    /// Operations due at fixed times.
    Paced(&'a Timetable),
}

/// Where a trial's times go.
pub struct Recording<'a> {
    /// Latencies of operations, or of batches.
    pub latencies: Option<&'a mut LatencyHistogram>,
    /// Phases of batches, in addition to their latencies.
    pub phases: Option<&'a mut PhaseHistograms>,
    /// Progress, for a thread that samples it once per interval.
    pub pulse: Option<&'a Pulse>,
}

/// Results of a loop.
#[derive(Default)]
pub struct Driven {
    /// Completed operations.
    pub operations: u64,
    /// Operations actually posted for batches, after merging.
    pub handed_over: u64,
    /// Results of a paced loop.
    pub punctuality: Option<Punctuality>,
}

/// A loop with everything it needs except a recorder.
pub struct TimedLoop<'a, 'p> {
    /// The kind of loop.
    pub pace: Pace<'a>,
    /// The worker's engine.
    pub port: &'a mut Port<'p>,
    /// Flows that take part.
    pub flows: &'a mut [Flow],
    /// Buffers, large enough for these flows.
    pub scratch: &'a mut Scratch,
    /// Ends the loop. Not used by paced loops, nor by shares of batches that another worker begins.
    pub until: &'a mut Until,
}

impl TimedLoop<'_, '_> {
    /// Runs the loop to its end.
    pub fn run(self, recording: Recording<'_>) -> Result<Driven> {
        let clock = self.port.clock;
        let pulse = recording.pulse;
        match (recording.latencies, recording.phases) {
            (None, _) => self.counted(Silent, pulse),
            (Some(histogram), None) => self.counted(PerOperation { clock, histogram }, pulse),
            (Some(histogram), Some(phases)) => {
                let whole = PerOperation { clock, histogram };
                self.counted(PerBatch { whole, phases }, pulse)
            }
        }
    }

    fn counted<R: Recorder>(self, mut recorder: R, pulse: Option<&Pulse>) -> Result<Driven> {
        match pulse {
            None => self.recorded(&mut recorder),
            Some(pulse) => self.recorded(&mut Counted::new(recorder, pulse)),
        }
    }

    fn recorded<R: Recorder>(self, recorder: &mut R) -> Result<Driven> {
        let Self {
            pace,
            port,
            flows,
            scratch,
            until,
        } = self;
        let of = |operations| Driven {
            operations,
            ..Driven::default()
        };
        let of_batches = |batched: Batched| Driven {
            operations: batched.completed,
            handed_over: batched.handed_over,
            punctuality: None,
        };
        match pace {
            Pace::PingPong(table) => {
                serve_first(port, table, until, recorder).map(|trips| of(2 * trips))
            }
            Pace::ReadInTurn => read_in_turn(port, flows, until, recorder).map(of),
            Pace::Stream(None) => stream(port, flows, scratch, until, recorder).map(of),
            Pace::Stream(Some(loads)) => {
                stream_extents(port, flows, scratch, until, recorder, loads).map(of)
            }
            Pace::Batch(batching) => {
                let part = BatchPart::Whole(until);
                batch(port, flows, &batching, scratch, part, recorder).map(of_batches)
            }
            Pace::SharedBatch(batching, shared, worker) => {
                let part = if worker == 0 {
                    BatchPart::Lead(shared, until)
                } else {
                    BatchPart::Follow(shared)
                };
                batch(port, flows, &batching, scratch, part, recorder).map(of_batches)
            }
            Pace::Paced(timetable) => {
                let punctuality = paced(port, flows, timetable, scratch, recorder)?;
                Ok(Driven {
                    punctuality: Some(punctuality),
                    ..of(punctuality.completed)
                })
            }
        }
    }
}
