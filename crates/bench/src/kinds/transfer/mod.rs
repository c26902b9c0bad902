//! Transfers between the memories of ranks.
//!
//! | file | what lives there |
//! | --- | --- |
//! | [`open`], `caps` | an open engine for points, and what its devices cannot do |
//! | `telling` | moments at which receivers tell their senders what they have taken |
//! | [`driven`] | the engine that a worker drives during a point |
//! | [`effective`] | what was really done, and on which CPUs |
//! | [`layout`] | division of a worker's memory among its flows |
//! | [`point`], `rounds`, `gathering` | one point from warm-up to its figures; the rounds of a trial |
//! | [`crew`], [`work`], `driving`, `flows` | the workers of a rank, the work of each in a trial, and the flows that it drives |
//! | `carried`, `carried_caps` | trials that are carried out elsewhere, and points that cannot be |
//! | `background`, `background_totals`, `halves` | the load beside a latency, trials without it and with it, and who shares a CPU with it |
//! | `intervals` | what moves in each interval of a trial, told while it runs |
//! | `shared_device` | the remark about a GPU that processes have in turn |
//! | `stalled` | words about operations that make no progress |
//! | [`trial`], [`verify`] | orders and reports of a trial, and the expected state after it |
//! | [`totals`], `stretch_totals`, [`rails`], `rail_report`, `pairs`, `pair_turns`, `pair_times`, `per_rank`, [`directions`], [`direction_totals`], [`summary`] | sums of workers and ranks, of each rail and of each pair, and the
//! summary of trials |

mod background;
mod background_totals;
mod caps;
mod carried;
mod carried_caps;
pub mod crew;
pub mod direction_totals;
pub mod directions;
pub mod driven;
mod driving;
pub mod effective;
pub(crate) mod flows;
mod gathering;
mod halves;
mod intervals;
pub mod layout;
pub mod measured;
pub mod open;
mod pair_times;
mod pair_turns;
mod pairs;
mod per_rank;
pub mod point;
mod rail_report;
pub mod rails;
mod rounds;
mod shared_device;
mod stalled;
mod stations;
mod stretch_totals;
pub mod summary;
mod telling;
pub mod totals;
pub mod trial;
pub mod verify;
mod waits;
pub mod work;

use crate::deadlines::DEADLINES;
use crate::failure::{StepFailure, agree};
use crate::kinds::kind::{AnnotatedPoint, Course, Kind, Stage};
use crate::limit::unknown_links;
use crate::opening::engine::OpenEngine;
use measured::Kept;
use open::EngineKey;
use tonnage_plan::transfer::TransferPoint;
use tonnage_plan::{Planned, Point};
use tonnage_ranks::Alike;
use tonnage_record::{Body, Record, TransferBody};

/// The kind: points share an open engine, have a warm-up, a canary, and a limit before and after their trials.
#[derive(Default)]
pub struct Transfers;

impl Kind for Transfers {
    type Point = TransferPoint;
    type Open = OpenEngine;

    fn point(planned: &Planned) -> Option<&TransferPoint> {
        match &planned.point {
            Point::Transfer(point) => Some(point),
            _ => None,
        }
    }

    fn shares(first: &TransferPoint, next: &TransferPoint) -> bool {
        EngineKey::of(first) == EngineKey::of(next)
    }

    fn asks_bytes(point: &TransferPoint) -> u64 {
        point.footprint_bytes
    }

    fn body(asked: AnnotatedPoint<'_, TransferPoint>) -> Body {
        TransferBody::new(asked.point.clone()).into()
    }

    fn open(
        &mut self,
        points: &[&TransferPoint],
        stage: &mut Stage<'_>,
    ) -> Result<OpenEngine, StepFailure> {
        open::open(points, stage).map_err(|error| match stage.rank.why_stopped() {
            Some(_) => StepFailure::Run(error),
            None => StepFailure::Point(error),
        })
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
        course: Course<'_>,
    ) -> Result<(), StepFailure> {
        let fits = open::check(open, point);
        agree(stage.rank, "the engine's limits", fits, DEADLINES.step)?;
        record.effective = effective::effective(open, &Alike::default());
        let common = &open.opened.common;
        record.placed = common.placed;
        let mut kept = Kept::default();
        let driver_start_ns = open.driver_start_ns;
        let measuring_cpus = point.background.map(|_| common.measuring_cpus);
        let measured = point::measure(point, open, stage, (Some(record), &mut kept), course);
        if measured.is_err() {
            record.body = Body::from(TransferBody {
                trials: kept.trials,
                broken_off: kept.broken_off,
                measuring_cpus,
                driver_start_ns,
                ..TransferBody::new(point.clone())
            });
        }
        let mut measured = measured?;
        pairs::mark_shared(&mut measured.pairs, &open.opened.places, stage.rank.hosts());
        record.effective = effective::effective(open, &measured.chosen);
        let mut summary = summary::summarize(point, &measured);
        summary.rails = rail_report::summary(point, &open.opened.all, &measured.totals);
        pairs::add_to(&mut summary, point, &measured.pairs);
        summary.initiators.clone_from(&measured.initiators);
        summary.slow_rail = rail_report::slow(&open.opened, stage.rank.infos(), &measured.totals);
        if let Some(latency) = &mut summary.latency {
            latency.delivered = flows::delivered(point, open);
        }
        let histogram = &measured.histogram;
        record.body = Body::from(TransferBody {
            summary: Some(summary),
            histogram: (histogram.count() > 0).then(|| histogram.to_data()),
            trials: measured.trials,
            measuring_cpus,
            driver_start_ns,
            ..TransferBody::new(point.clone())
        });
        let lacking = unknown_links(point, &open.opened, measured.limit.is_some());
        record.limit = measured.limit;
        (record.remarks).extend(effective::remarks(&record.effective));
        record.remarks.extend(measured.why_no_limit);
        record.remarks.extend(lacking);
        let opened = &open.opened.all;
        let turns = shared_device::remark(point, opened, (stage.rank.infos(), stage.rank.hosts()));
        record.remarks.extend(turns);
        record.remarks.extend(pair_times::why_none(point));
        record.wire_proof = measured.wire_proof;
        Ok(())
    }
}
