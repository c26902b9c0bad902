//! Trials in two halves, without a background and with it. They follow each other, in turns the one and the other
//! first, so that what drifts is in both.

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

/// One half of a trial.
struct Half {
    is_loaded: bool,
    totals: TrialTotals,
    latencies: LatencyHistogram,
}

/// Refuses a half without the load in which it moved something: the ratio would be of the load to itself.
fn check_quiet(totals: &TrialTotals) -> Result<()> {
    match totals.background.operations {
        0 => Ok(()),
        moved => Err(Error::Failed(format!(
            "the background moved {moved} operations in the half of a trial that is without it"
        ))),
    }
}

impl Lead<'_, '_> {
    /// One trial in two halves, without the load and beside it; every second trial begins beside it, so that whatever
    /// the first half does to the second is in both alike. The totals are of the half beside the load.
    pub(super) fn trial_of_halves(
        &mut self,
        trial: u64,
        length: TrialLength,
        name: &str,
    ) -> Result<TrialTotals, StepFailure> {
        if trial == WARM_UP {
            return self.warm_up_of_halves(length, name);
        }
        // Each half has data of its own.
        let quiet = RoundStretch::quiet(2 * trial - 1, length);
        let loaded = RoundStretch::trial(2 * trial, [0], length);
        let mut halves = [quiet, loaded];
        if trial.is_multiple_of(2) {
            halves.reverse();
        }
        let [first, second] = halves;
        let first = self.half(&first, name)?;
        let second = self.half(&second, name)?;
        let elapsed_ns = second.totals.elapsed_ns;
        let [idle, loaded] = match second.is_loaded {
            true => [first, second],
            false => [second, first],
        };
        let background = self.compared(&loaded.totals, &idle.latencies, &loaded.latencies)?;
        self.taken.backgrounds.push(background);
        let all = &mut self.taken.idle;
        let all = all.get_or_insert_with(LatencyHistogram::new);
        all.merge(&idle.latencies);
        Ok(TrialTotals {
            elapsed_ns,
            ..loaded.totals
        })
    }

    /// Warms both halves up, each for half of the time.
    fn warm_up_of_halves(
        &mut self,
        length: TrialLength,
        name: &str,
    ) -> Result<TrialTotals, StepFailure> {
        let length = match length {
            TrialLength::DurationNs(ns) => TrialLength::DurationNs(ns.div_ceil(2)),
            length @ TrialLength::Iterations(_) => length,
        };
        let quiet = self
            .half(&RoundStretch::quiet(WARM_UP, length), name)?
            .totals;
        let loaded = RoundStretch::trial(WARM_UP, [0], length);
        let loaded = self.half(&loaded, name)?.totals;
        Ok(TrialTotals {
            unsettled: quiet.unsettled.max(loaded.unsettled),
            ..loaded
        })
    }

    fn half(&mut self, stretch: &RoundStretch, name: &str) -> Result<Half, StepFailure> {
        let how = if stretch.is_loaded {
            "beside"
        } else {
            "without"
        };
        let totals = self.stretch(stretch, &format!("{name} {how} the background"))?;
        if !stretch.is_loaded {
            check_quiet(&totals)?;
        }
        Ok(Half {
            latencies: self.latencies_of_half()?,
            is_loaded: stretch.is_loaded,
            totals,
        })
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
            verified_bytes: self.point.verify.is_on().then_some(load.verified_bytes),
            stall: load.stall,
            idle: of(idle, "without")?,
            loaded: of(loaded, "with")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::background_totals::BackgroundTotals;
    use super::*;

    #[test]
    fn a_load_that_does_not_rest_is_an_error() {
        assert!(check_quiet(&TrialTotals::NONE).is_ok());
        let moved = TrialTotals {
            background: BackgroundTotals {
                operations: 3,
                ..BackgroundTotals::NONE
            },
            ..TrialTotals::NONE
        };
        let error = check_quiet(&moved).unwrap_err().to_string();
        assert!(error.contains("moved 3 operations"), "{error}");
    }
}
