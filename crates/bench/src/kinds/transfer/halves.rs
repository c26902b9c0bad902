//! Trials in two halves, without a background and with it. They follow each other, so that what drifts is in both.

use super::crew::CrewOrder;
use super::point::Lead;
use super::totals::TrialTotals;
use super::trial::{RoundStretch, Schedule, WARM_UP};
use super::work::Work;
use crate::deadlines::DEADLINES;
use crate::failure::StepFailure;
use crate::latencies::merge_all;
use tonnage_plan::transfer::TrialLength;
use tonnage_record::histogram::LatencyHistogram;
use tonnage_record::transfer::{TrialBackground, TrialLatency};
use tonnage_units::{Error, Result};

impl Work<'_> {
    /// Returns whether this worker rests: it moves a background, in the half of a trial without one.
    pub(super) fn rests(&self, schedule: &Schedule) -> bool {
        self.part.is_background && !schedule.is_loaded
    }

    /// Sums of this worker, where they belong.
    pub(super) fn placed(&self, totals: TrialTotals) -> TrialTotals {
        match self.part.is_background {
            true => totals.beside(),
            false => totals,
        }
    }

    /// Latencies of the trial that was just driven; `None` of a worker that measures none.
    pub(super) fn latencies_of_trial(&self) -> Option<&LatencyHistogram> {
        self.trial.as_ref().filter(|_| !self.part.is_background)
    }
}

impl Lead<'_, '_> {
    /// One trial in two halves: without the load, then beside it. The totals are of the second one.
    pub(super) fn trial_of_halves(
        &mut self,
        trial: u64,
        length: TrialLength,
        name: &str,
    ) -> Result<TrialTotals, StepFailure> {
        if trial == WARM_UP {
            return self.stretch(&RoundStretch::trial(WARM_UP, [0], length), name);
        }
        // Each half has data of its own.
        let quiet = RoundStretch {
            is_loaded: false,
            ..RoundStretch::beside(2 * trial - 1, [0], length)
        };
        self.stretch(&quiet, &format!("{name} without the background"))?;
        let idle = self.latencies_of_half()?;
        let totals = self.stretch(&RoundStretch::trial(2 * trial, [0], length), name)?;
        let loaded = self.latencies_of_half()?;
        let background = self.compared(&totals, &idle, &loaded)?;
        self.taken.backgrounds.push(background);
        let all = &mut self.taken.idle;
        all.get_or_insert_with(LatencyHistogram::new).merge(&idle);
        Ok(totals)
    }

    /// Latencies of all ranks in the half that just ended.
    fn latencies_of_half(&mut self) -> Result<LatencyHistogram> {
        let mut own = self.own.latencies_of_trial().cloned().unwrap_or_default();
        for report in self.everybody(&CrewOrder::LatenciesOfTrial)? {
            if let Some(latencies) = &report.latencies {
                own.merge(latencies);
            }
        }
        merge_all(self.rank, "latencies of a half", &own, DEADLINES.step)
    }

    fn compared(
        &self,
        totals: &TrialTotals,
        idle: &LatencyHistogram,
        loaded: &LatencyHistogram,
    ) -> Result<TrialBackground> {
        let of = |histogram: &LatencyHistogram, how: &str| {
            let none = || {
                Error::Failed(format!(
                    "no operation was timed in a half of a trial {how} the background: use a longer --trial-time"
                ))
            };
            TrialLatency::of(histogram).ok_or_else(none)
        };
        let load = totals.background;
        Ok(TrialBackground {
            window_ns: load.window_ns,
            operations: load.operations,
            payload_bytes: load.payload_bytes,
            bandwidth_bytes_per_s: load.payload_bytes as f64 * 1e9 / load.window_ns.max(1) as f64,
            verified_bytes: self.point.verify.then_some(load.verified_bytes),
            idle: of(idle, "without")?,
            loaded: of(loaded, "with")?,
        })
    }
}
