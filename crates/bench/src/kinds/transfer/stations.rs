//! Places of a rank's workers in a point, and the threads of those that follow.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, Sender};

use super::background::WorkerPoints;
use super::crew::{CrewOrder, CrewReport, Deck, follow};
use super::driven::Driven;
use super::intervals::Intervals;
use super::layout::SliceLayout;
use super::stalled::FlowNames;
use super::trial::Station;
use super::work::Work;
use crate::deadlines::DEADLINES;
use crate::drive::batch::SharedBatches;
use crate::opening::engine::{EngineWorker, OpenEngine};
use tonnage_plan::transfer::{BatchOf, CqMode, Pacing, TransferPoint};
use tonnage_ranks::Rank;
use tonnage_units::Result;

/// Places of this rank's workers.
pub(super) fn stations(
    point: &TransferPoint,
    points: &WorkerPoints<'_>,
    open: &OpenEngine,
    rank: &Rank,
    intervals: &Intervals,
) -> Vec<Station> {
    let shared = shared_batches(point, rank).map(Arc::new);
    let cpus = open.opened.common.measuring_cpus;
    let station = |(index, worker): (u32, &EngineWorker)| Station {
        rank: rank.id(),
        worker: index,
        names: {
            let out = SliceLayout::new(points.of(index as usize), rank.id()).out;
            FlowNames::new(&out, rank.infos(), &worker.devices)
        },
        yielding: open.yielding,
        patience: rank.network_timeout() + DEADLINES.stall,
        sleepers: rank.sleepers(),
        shared: shared.clone(),
        pulse: intervals.pulse(index),
        part: points.part(index, cpus),
    };
    (0u32..).zip(&open.workers).map(station).collect()
}

/// Batches that the workers of a rank share, where they do.
fn shared_batches(point: &TransferPoint, rank: &Rank) -> Option<SharedBatches> {
    let shares = matches!(point.pacing, Pacing::Batch { .. }) && point.batching.of == BatchOf::Rank;
    let sleepers = (point.cq == CqMode::Event).then(|| rank.sleepers());
    shares.then(|| SharedBatches::new(point.workers, point.batching.in_flight, sleepers))
}

/// The thread of a following worker: makes it ready, says so, and carries out orders.
///
/// # Errors
/// When it cannot be made ready.
pub(super) fn serve(
    point: &TransferPoint,
    station: Station,
    worker: &mut EngineWorker,
    (deck, stop): (&Deck, &AtomicBool),
    orders: &Receiver<CrewOrder>,
    answers: &Sender<Result<CrewReport>>,
) -> Result<()> {
    if let Some(cpu) = worker.cpu {
        tonnage_machine::pin_thread(cpu)?;
    }
    let index = station.worker as usize;
    let mut driven = Driven::begin(point, (station.rank, station.worker), worker)?;
    let work = Work::new(point, station, driven.engine(), worker, stop)?;
    follow(deck, index, work, orders, answers);
    driven.end(worker);
    Ok(())
}
