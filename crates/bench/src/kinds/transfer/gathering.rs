//! Results of all ranks, brought together after the trials of a point.

use super::crew::CrewOrder;
use super::point::Lead;
use crate::deadlines::DEADLINES;
use crate::drive::recorder::PhaseHistograms;
use crate::latencies::merge_all;
use tonnage_record::WireProof;
use tonnage_units::{Reduce, Result};

impl Lead<'_, '_> {
    /// Proves that the payload crossed the devices that the engines named, by what their hosts read.
    pub(super) fn prove(&mut self) -> Result<Option<WireProof>> {
        let Some(watch) = self.taken.watch.take() else {
            return Ok(None);
        };
        self.rank.phase("reading the devices' counters");
        let mut loads = watch.loads(self.point, &self.own.operations());
        let reports = self.everybody(&CrewOrder::Operations)?;
        for (worker, report) in (1..).zip(&reports) {
            loads.merge(watch.loads(self.points.of(worker), &report.operations));
        }
        let loads = self
            .rank
            .reduce("payload of devices", loads, DEADLINES.step)?;
        let mine = watch.judge(&loads);
        let all = self
            .rank
            .reduce("counters of devices", mine, DEADLINES.step)?;
        Ok(Some(watch.conclude(all)))
    }

    /// Merges the latencies of all workers of all ranks.
    pub(super) fn gather_latencies(&mut self) -> Result<()> {
        let mut histogram = self.own.histogram().clone();
        let mut phases = self.own.phases().cloned();
        for report in self.everybody(&CrewOrder::Latencies)? {
            if let Some(latencies) = &report.latencies {
                histogram.merge(latencies);
            }
            if let (Some(phases), Some(others)) = (&mut phases, &report.phases) {
                phases.merge(others);
            }
        }
        let mut merged = |own| merge_all(self.rank, "merge histograms", own, DEADLINES.step);
        self.taken.histogram = Some(merged(&histogram)?);
        if let Some(phases) = &phases {
            self.taken.phases = Some(PhaseHistograms {
                prepare: merged(&phases.prepare)?,
                post: merged(&phases.post)?,
                complete: merged(&phases.complete)?,
            });
        }
        Ok(())
    }
}
