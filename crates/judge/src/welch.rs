//! Welch's t-test on logarithms: estimates the ratio of two sets of values and its uncertainty.

use statrs::distribution::{ContinuousCDF, StudentsT};
use tonnage_record::spread::student_t_quantile;

/// Summary of one side's values for the test.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LogSummary {
    /// Mean of the logarithms.
    pub mean: f64,
    /// Sample variance of the logarithms.
    pub variance: f64,
    /// Number of values.
    pub count: usize,
}

impl LogSummary {
    /// Summarizes values. Returns `None` for fewer than two, or if a value is not a finite number above 0.
    pub fn from_values(values: &[f64]) -> Option<Self> {
        let usable = |value: &f64| value.is_finite() && *value > 0.0;
        if values.len() < 2 || !values.iter().all(usable) {
            return None;
        }
        let count = values.len() as f64;
        // Equal values have zero variance; summing their logarithms would leave a rounding error that looks like
        // variance.
        if values.iter().all(|value| *value == values[0]) {
            return Some(Self {
                mean: values[0].ln(),
                variance: 0.0,
                count: values.len(),
            });
        }
        let logs: Vec<f64> = values.iter().map(|value| value.ln()).collect();
        let mean = logs.iter().sum::<f64>() / count;
        let squares: f64 = logs.iter().map(|log| (log - mean).powi(2)).sum();
        Some(Self {
            mean,
            variance: squares / (count - 1.0),
            count: values.len(),
        })
    }

    /// Returns the same mean and variance with a different number of values.
    #[must_use]
    pub fn with_count(self, count: usize) -> Self {
        Self { count, ..self }
    }

    /// Variance of the mean.
    fn variance_of_mean(&self) -> f64 {
        self.variance / self.count as f64
    }
}

/// Difference of two means of logarithms, which is the logarithm of a ratio.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Welch {
    /// Mean of the second side's logarithms minus the mean of the first side's.
    pub difference: f64,
    /// Standard error of the difference.
    pub error: f64,
    /// Degrees of freedom (Welch-Satterthwaite).
    pub freedom: f64,
    /// Number of values per side.
    counts: [usize; 2],
}

impl Welch {
    /// Compares two sides without assuming equal variances.
    pub fn new(first: &LogSummary, second: &LogSummary) -> Self {
        let parts = [first.variance_of_mean(), second.variance_of_mean()];
        let variance = parts[0] + parts[1];
        let freedoms = [first.count as f64 - 1.0, second.count as f64 - 1.0];
        let squares = parts[0].powi(2) / freedoms[0] + parts[1].powi(2) / freedoms[1];
        Self {
            difference: second.mean - first.mean,
            error: variance.sqrt(),
            freedom: match squares > 0.0 {
                true => variance.powi(2) / squares,
                // This is the case if neither side varies.
                false => freedoms[0] + freedoms[1],
            },
            counts: [first.count, second.count],
        }
    }

    /// Difference divided by its standard error.
    pub fn t(&self) -> f64 {
        match (self.error > 0.0, self.difference == 0.0) {
            (true, _) => self.difference / self.error,
            (false, true) => 0.0,
            (false, false) => f64::INFINITY.copysign(self.difference),
        }
    }

    /// Returns the two-sided probability of a difference at least this large between equal sides.
    ///
    /// If no value varies, the spread is below the figure's resolution and t is infinite. Then only the order of the
    /// values is evidence, and p comes from a Mann-Whitney rank test for sides that do not overlap.
    pub fn p(&self) -> f64 {
        let t = self.t().abs();
        if t.is_infinite() {
            return p_of_separated(self.counts);
        }
        let student = StudentsT::new(0.0, 1.0, self.freedom);
        student.map_or(1.0, |student| (2.0 * student.cdf(-t)).min(1.0))
    }

    /// Ends of the confidence interval of the difference.
    pub fn interval(&self, confidence: f64) -> (f64, f64) {
        let quantile = student_t_quantile(0.5 + confidence / 2.0, self.freedom);
        let half = match self.error > 0.0 {
            true => quantile * self.error,
            false => 0.0,
        };
        (self.difference - half, self.difference + half)
    }
}

/// Returns the two-sided p value of a rank test if all values of one side are above all values of the other. Of all
/// equally likely assignments of values to sides, two are this extreme.
fn p_of_separated([first, second]: [usize; 2]) -> f64 {
    let ways = (1..=first).map(|at| (second + at) as f64 / at as f64);
    (2.0 / ways.product::<f64>()).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_without_spread_are_equal_or_separated() {
        let of = |first: &[f64], second: &[f64]| {
            let sides = [first, second].map(|values| LogSummary::from_values(values).unwrap());
            Welch::new(&sides[0], &sides[1])
        };
        let equal = of(&[2.0, 2.0, 2.0], &[2.0, 2.0]);
        assert_eq!((equal.p(), equal.interval(0.95)), (1.0, (0.0, 0.0)));
        let apart = of(&[2.0, 2.0, 2.0], &[4.0, 4.0]);
        let (low, high) = apart.interval(0.95);
        // There are 10 ways to choose 3 of 5 values, and 2 of them are this extreme.
        assert!((apart.p() - 0.2).abs() < 1e-12);
        assert_eq!(low, high);
        assert!((low.exp() - 2.0).abs() < 1e-12);
        assert_eq!((apart.freedom, apart.t()), (3.0, f64::INFINITY));
        // Equal values must not give p = 0 or a tiny p of Welch's test, for any count and any rounding of their
        // logarithms.
        for (count, ways) in [(3, 20.0), (4, 70.0), (5, 252.0), (7, 3432.0)] {
            for [first, second] in [[197.0, 208.0], [0.1, 0.3], [1.1e9, 3.3e9]] {
                let apart = of(&vec![first; count], &vec![second; count]);
                let p = apart.p();
                assert!((p - 2.0 / ways).abs() < 1e-12, "{count} of {first}: {p}");
            }
        }
    }

    #[test]
    fn values_without_logarithm_or_spread_are_refused() {
        for values in [
            &[][..],
            &[1.0],
            &[1.0, 0.0],
            &[1.0, -1.0],
            &[1.0, f64::NAN],
            &[1.0, f64::INFINITY],
        ] {
            assert_eq!(LogSummary::from_values(values), None, "{values:?}");
        }
    }
}
