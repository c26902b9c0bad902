//! Decision criteria and possible verdicts.

use tonnage_units::{Error, Result, names};

/// Fraction of reported differences that may be false.
pub const FALSE_DISCOVERY_RATE: f64 = 0.05;

/// Minimum number of runs per side for a verdict, because one run is a single sample of the machine.
pub const RUNS_MIN: usize = 3;

/// Criteria of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Criteria {
    /// Largest difference that does not matter, as a fraction of the first side.
    pub margin: f64,
    /// Confidence level of intervals.
    pub confidence: f64,
    /// Uses trials instead of runs if a side has fewer than [`RUNS_MIN`] runs. The verdict then holds only for these
    /// runs.
    pub by_trials: bool,
}

impl Default for Criteria {
    fn default() -> Self {
        Self {
            margin: 0.05,
            confidence: 0.95,
            by_trials: false,
        }
    }
}

impl Criteria {
    /// Creates criteria, and checks their ranges.
    ///
    /// # Errors
    /// `Usage` for a margin outside 0..1 (1 excluded), or a confidence outside 0.5..=0.9999.
    pub fn new(margin: f64, confidence: f64) -> Result<Self> {
        if !(0.0..1.0).contains(&margin) {
            return Err(Error::Usage(format!(
                "a margin of {} % is out of range: use 0 to below 100 %, e.g. 5%",
                margin * 100.0
            )));
        }
        if !(0.5..=0.9999).contains(&confidence) {
            return Err(Error::Usage(format!(
                "a confidence of {} % is out of range: use 50 to 99.99 %, e.g. 95%",
                confidence * 100.0
            )));
        }
        Ok(Self {
            margin,
            confidence,
            by_trials: false,
        })
    }

    /// Returns the logarithms of the smallest and largest ratio within the margin.
    pub fn log_margins(&self) -> (f64, f64) {
        ((-self.margin).ln_1p(), self.margin.ln_1p())
    }
}

names! {
    /// Verdict on a point.
    pub enum PointVerdict: "verdict" {
        /// The whole interval of the ratio is beyond the margin, on the bad side.
        Worse = "worse",
        /// The whole interval of the ratio is beyond the margin, on the good side.
        Better = "better",
        /// The whole interval of the ratio is within the margin.
        Same = "same",
        /// None of these; more runs may decide.
        Unclear = "unclear",
        /// The machine or its setup differs, so the result would not reflect the compared change.
        NotComparable = "not-comparable",
        /// One side does not have the point, or did not measure it in every run.
        Missing = "missing",
        /// Neither side has a value.
        NotMeasured = "not-measured",
    }
}

names! {
    /// Verdicts that make a comparison fail.
    pub enum FailOn: "condition" {
        /// A point that is worse.
        Worse = "worse",
        /// A point that is unclear or not comparable.
        Unclear = "unclear",
        /// A point that only one side has or measured.
        Missing = "missing",
    }
}

impl FailOn {
    /// Returns whether this condition includes the verdict.
    pub fn includes(self, verdict: PointVerdict) -> bool {
        match self {
            Self::Worse => verdict == PointVerdict::Worse,
            Self::Unclear => matches!(verdict, PointVerdict::Unclear | PointVerdict::NotComparable),
            Self::Missing => verdict == PointVerdict::Missing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn senseless_criteria_are_refused() {
        assert!(Criteria::new(0.0, 0.99).is_ok());
        for (margin, confidence) in [
            (-0.01, 0.95),
            (1.0, 0.95),
            (f64::NAN, 0.95),
            (0.05, 0.1),
            (0.05, 1.0),
            (0.05, f64::NAN),
        ] {
            let error = Criteria::new(margin, confidence).unwrap_err();
            assert_eq!(error.exit_code(), 2);
        }
    }

    #[test]
    fn a_verdict_fails_by_its_name() {
        let failing = |on: FailOn| {
            let all = PointVerdict::ALL.into_iter();
            all.filter(|verdict| on.includes(*verdict))
                .collect::<Vec<_>>()
        };
        assert_eq!(failing(FailOn::Worse), [PointVerdict::Worse]);
        assert_eq!(
            failing(FailOn::Unclear),
            [PointVerdict::Unclear, PointVerdict::NotComparable]
        );
        assert_eq!(failing(FailOn::Missing), [PointVerdict::Missing]);
    }
}
