//! Transfers between the memories of ranks.
//!
//! | file | what lives there |
//! | --- | --- |
//! | [`open`], `caps` | opens an engine for points; checks the capabilities of its devices |
//! | [`point_engine`] | the engine that a worker drives during a point |
//! | [`effective`] | the effective configuration and its CPUs |
//! | [`layout`] | division of a worker's memory among its flows |
//! | [`point`], `rounds`, `pairs` | the steps of a point; the rounds of a trial; figures per pair of ranks |
//! | `rank_workers`, [`worker_threads`], [`transfer_worker`] | the workers of a rank, as their leader uses them; their
//! threads; one worker's part in trials |
//! | `path_proof` | the proof of path of a point |
//! | `assignment` | a worker's part in a point, which the files in the next two rows share |
//! | `flow_driver`, `flows` | a worker's port and flows, and the loop of each round; setting up flows |
//! | `memory_checker`, `worker_latencies`, `idle_policy` | a worker's memory before and after trials; its histograms;
//! when it rests |
//! | `paced` | operations at a rate: the timetable of each worker, and how well it was kept |
//! | `batching` | phases and merged operations of batches |
//! | `background` | the workers that move a load during a latency measurement, and the workers that share a CPU with it
//! |
//! | `intervals` | bytes moved in each interval of a trial, reported during the trial |
//! | `shared_device` | the remark about a GPU that several processes share in time slices |
//! | `stalled` | messages about operations that make no progress |
//! | [`trial`], [`verify`] | orders and reports of a trial, and the expected state after it |
//! | [`totals`], [`rails`], `per_rank`, [`summary`] | sums over workers and ranks; per rail; per rank; the summary of
//! trials |

mod assignment;
mod background;
mod batching;
mod caps;
pub mod effective;
mod flow_driver;
pub(crate) mod flows;
mod idle_policy;
mod intervals;
pub mod layout;
mod memory_checker;
pub mod open;
mod paced;
mod pairs;
mod path_proof;
mod per_rank;
pub mod point;
pub mod point_engine;
pub mod rails;
mod rank_workers;
mod rounds;
mod shared_device;
mod stalled;
pub mod summary;
pub mod totals;
pub mod transfer_worker;
pub mod trial;
pub mod verify;
mod worker_latencies;
pub mod worker_threads;

use crate::bound::unknown_links;
use crate::failure::StepFailure;
use crate::kinds::kind::{AnnotatedPoint, Kind, Stage, StepRunner};
use crate::opening::engine::OpenEngine;
use open::EngineKey;
use point::PointResults;
use summary::Devices;
use tonnage_plan::transfer::TransferPoint;
use tonnage_ranks::Distinct;
use tonnage_record::{Body, HistogramData, Record, TransferBody};

/// The `transfer` kind. Points share an open engine, and have a warm-up and a canary. Their bound is measured before
/// and after their trials.
#[derive(Default)]
pub struct Transfers;

impl Kind for Transfers {
    type Point = TransferPoint;
    type Open = OpenEngine;

    fn shares_resources(first: &TransferPoint, next: &TransferPoint) -> bool {
        // The queues of an engine are as long as the deepest point needs. With queues for 4096, a point of depth 1
        // could give different results, so depths must be equal.
        EngineKey::new(first) == EngineKey::new(next)
            && background::depth(first) == background::depth(next)
    }

    fn requested_bytes(point: &TransferPoint) -> u64 {
        point.slots.footprint_bytes
    }

    fn empty_body(asked: AnnotatedPoint<'_, TransferPoint>) -> Body {
        TransferBody::new(asked.point.clone()).into()
    }

    fn open(
        &mut self,
        points: &[&TransferPoint],
        stage: &mut Stage<'_>,
    ) -> Result<OpenEngine, StepFailure> {
        open::open_or_fail(points, stage)
    }

    fn canary_cpus(
        &self,
        open: &OpenEngine,
        point: &TransferPoint,
        stage: &Stage<'_>,
    ) -> Option<Result<[u32; 2], String>> {
        let allowed = &stage.host.topology.allowed;
        Some(effective::canary_cpus(point, open, stage.rank, allowed))
    }

    fn measure(
        &mut self,
        open: &mut OpenEngine,
        AnnotatedPoint { point, .. }: AnnotatedPoint<'_, TransferPoint>,
        stage: &mut Stage<'_>,
        record: &mut Record,
        run_steps: StepRunner<'_>,
    ) -> Result<(), StepFailure> {
        open::check(open, point, stage)?;
        record.effective = effective::effective(open, &Distinct::default());
        record.placed = open.opened.common.placed;
        let mut measured = PointResults::default();
        let ended = point::measure(point, open, stage, Some(record), &mut measured, run_steps);
        let (opened, infos, hosts) = (&open.opened, stage.rank.rank_infos(), stage.rank.hosts());
        let summary = ended.is_ok().then(|| {
            pairs::mark_shared_cpus(&mut measured.pairs, &opened.places, hosts);
            let devices = Devices {
                opened,
                ranks: infos,
                delivered: flows::is_delivered(point, open),
            };
            summary::summarize(point, &measured, &devices)
        });
        let histogram = Some(&measured.histogram).filter(|it| ended.is_ok() && it.count() > 0);
        record.body = Body::from(TransferBody {
            point: point.clone(),
            summary,
            histogram: histogram.map(HistogramData::from_histogram),
            trials: measured.trials,
            broken_off: measured.broken_off,
            measuring_cpus: point.background.map(|_| opened.common.measuring_cpus),
            driver_start_ns: open.driver_start_ns,
        });
        ended?;
        record.effective = effective::effective(open, &measured.chosen);
        let lacking = unknown_links(point, opened, measured.bound.is_some());
        record.bound = measured.bound;
        let remarks = &mut record.remarks;
        remarks.extend(effective::remarks(&record.effective));
        remarks.extend(measured.why_no_bound);
        remarks.extend(lacking);
        remarks.extend(shared_device::time_slicing_remark(
            point,
            &opened.all,
            (infos, hosts),
        ));
        remarks.extend(pairs::too_many_pairs_remark(point));
        record.wire_proof = measured.wire_proof;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonnage_plan::testing::slots_point;
    use tonnage_plan::transfer::{Access, Pacing};

    #[test]
    fn points_share_an_engine_whose_queues_are_as_long_as_each_would_have_alone() {
        let of = |pacing, size_bytes| {
            let mut point = slots_point(Access::Sequential, 1 << 15);
            (point.pacing, point.slots.size_bytes) = (pacing, size_bytes);
            point
        };
        let depth = |depth| of(Pacing::Stream { depth }, 8);
        let one = depth(1);
        assert!(Transfers::shares_resources(
            &one,
            &of(Pacing::Stream { depth: 1 }, 64)
        ));
        assert!(Transfers::shares_resources(&one, &of(Pacing::PingPong, 8)));
        assert!(!Transfers::shares_resources(&one, &depth(4096)));
        assert!(Transfers::shares_resources(
            &depth(16),
            &of(Pacing::Batch { batch: 16 }, 8)
        ));
    }
}
