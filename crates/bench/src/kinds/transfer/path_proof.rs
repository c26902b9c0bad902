//! The proof of path for one point, from the first reading of counters to the result.

use super::rank_workers::RankWorkers;
use super::worker_threads::ThreadOrder;
use crate::deadlines::DEADLINES;
use crate::wire_proof::{CounterWatch, RankRoutes};
use tonnage_record::WireProof;
use tonnage_units::{Reduce, Result};

/// Proves that the payload crossed the devices that the engines named.
pub(super) struct PathProof<'a> {
    /// This rank's part in the proof. `None` for points that get no record.
    route: Option<&'a RankRoutes>,
    watch: Option<CounterWatch<'a>>,
}

impl<'a> PathProof<'a> {
    pub(super) fn new(route: Option<&'a RankRoutes>) -> Self {
        Self { route, watch: None }
    }

    /// Reads the counters for the first time, before the warm-up.
    pub(super) fn begin(&mut self, workers: &RankWorkers<'a, '_>) {
        let point = workers.points.own;
        let begun = |route| CounterWatch::begin(point, route, workers.rank.id());
        self.watch = self.route.and_then(begun);
    }

    /// Gives up the proof. If data were wrong, the path does not matter.
    pub(super) fn give_up(&mut self) {
        self.watch = None;
    }

    /// Reads the counters again, and compares them with the payload that was moved since [`Self::begin`].
    pub(super) fn conclude(
        &mut self,
        workers: &mut RankWorkers<'a, '_>,
    ) -> Result<Option<WireProof>> {
        let Some(watch) = self.watch.take() else {
            return Ok(None);
        };
        workers.rank.set_phase("reading the devices' counters");
        let points = workers.points;
        let mut loads = watch.loads(points.own, &workers.own.operations());
        let reports = workers.run_on_followers(&ThreadOrder::Operations)?;
        for (worker, report) in (1..).zip(&reports) {
            loads.merge(watch.loads(points.for_worker(worker), &report.operations));
        }
        let rank = &mut *workers.rank;
        let loads = rank.reduce("payload of devices", loads, DEADLINES.step)?;
        let mine = watch.judge(&loads);
        let all = rank.reduce("counters of devices", mine, DEADLINES.step)?;
        Ok(Some(watch.conclude(all)))
    }
}
