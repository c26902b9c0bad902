//! Connections between ranks, set up and closed repeatedly.
//!
//! | file | what lives there |
//! | --- | --- |
//! | [`opened`] | the engine's devices and the memory to register, on all ranks |
//! | [`worker`] | one worker: a thread that sets up its connections step by step, and closes them |
//! | [`connections`] | the first bytes that one worker sees from each peer, and the connections that count |
//! | [`rank_workers`] | the workers of a rank: rounds, trials and totals, and the exchange of endpoint addresses |
//! | [`figures`] | times of steps, totals of trials, and a record's body |
//! | [`capacity`] | how many workers' connections fit |
//!
//! In a round, every worker of every rank sets up its connections and closes them again. docs/METHODOLOGY.md defines
//! the steps, and what each step includes for each engine. [`super::transfer`] moves bytes over connections that stay
//! open.

pub mod capacity;
pub mod connections;
pub mod figures;
pub mod opened;
pub mod rank_workers;
pub mod worker;

use crate::deadlines::DEADLINES;
use crate::failure::{StepFailure, agree};
use crate::kinds::kind::{AnnotatedPoint, Kind, Stage, StepRunner};
use opened::OpenDevices;
use rank_workers::RankWorkers;
use tonnage_plan::connect::ConnectPoint;
use tonnage_record::{Body, ConnectBody, Record};

/// The `connect` kind. Points don't share an open engine. They have a warm-up, but neither a canary nor a bound.
#[derive(Default)]
pub struct Connects;

impl Kind for Connects {
    type Point = ConnectPoint;
    type Open = OpenDevices;

    fn empty_body(asked: AnnotatedPoint<'_, ConnectPoint>) -> Body {
        ConnectBody::new(asked.point.clone()).into()
    }

    fn open(
        &mut self,
        points: &[&ConnectPoint],
        stage: &mut Stage<'_>,
    ) -> Result<OpenDevices, StepFailure> {
        OpenDevices::open(points[0], stage)
            .map_err(|error| StepFailure::from_agreed(stage.rank, error))
    }

    fn measure(
        &mut self,
        open: &mut OpenDevices,
        asked: AnnotatedPoint<'_, ConnectPoint>,
        stage: &mut Stage<'_>,
        record: &mut Record,
        run_steps: StepRunner<'_>,
    ) -> Result<(), StepFailure> {
        // First, one worker of each rank sets up its connections. This shows how many file descriptors a worker needs.
        // Only then all workers get their memory.
        stage.rank.set_phase("setting up a first connection");
        let mut rehearsed = ConnectBody::new(asked.point.clone());
        let rehearse = |workers: &mut RankWorkers<'_>| workers.rehearse();
        let descriptors =
            RankWorkers::run_with_workers(open, asked.point, stage, &mut rehearsed, rehearse)?;
        let seated = open.allocate_all_workers(asked.point, descriptors, stage);
        agree(stage.rank, "memory of all threads", seated, DEADLINES.step)?;
        (record.effective, record.placed) = open.effective(asked.point, stage)?;
        let mut body = ConnectBody::new(asked.point.clone());
        let ended = RankWorkers::run_with_workers(open, asked.point, stage, &mut body, |workers| {
            run_steps(workers)
        });
        record.body = body.into();
        ended
    }
}
