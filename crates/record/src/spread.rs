//! Mean and confidence interval of a figure over trials. They are never computed over the operations of one trial,
//! because these are correlated.

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

/// Mean and spread of one figure over the trials.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Spread {
    /// Arithmetic mean.
    pub mean: f64,
    /// Smallest value of a trial.
    pub min: f64,
    /// Largest value of a trial.
    pub max: f64,
    /// Sample standard deviation; absent for one trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stddev: Option<f64>,
    /// Half width of the 95 % confidence interval of the mean (Student's t); absent for one trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ci95: Option<f64>,
}

impl Spread {
    /// Returns the half width of the 95 % confidence interval as a fraction of the mean. `None` for a single trial, and
    /// if the mean is 0.
    pub fn ci95_fraction(&self) -> Option<f64> {
        let known = self.ci95.filter(|_| self.mean > 0.0);
        known.map(|ci95| ci95 / self.mean)
    }
}

/// Minimum number of trials to judge an interval. With two trials, Student's t alone makes the interval very wide.
const CONFIDENCE_TRIALS_MIN: usize = 3;

/// Computes mean, extremes, sample standard deviation and 95 % confidence interval of one figure over the trials. The
/// unit is that of the values. A single value has no deviation and no interval; an empty slice gives zeros.
pub fn spread(values: &[f64]) -> Spread {
    if values.is_empty() {
        return Spread::default();
    }
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let min = values.iter().copied().fold(f64::INFINITY, f64::min);
    let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let stddev = (values.len() > 1).then(|| (sum_of_squares(values) / (n - 1.0)).sqrt());
    let ci95 =
        stddev.map(|stddev| student_t_quantile(0.975, values.len() as u32 - 1) * stddev / n.sqrt());
    Spread {
        mean,
        min,
        max,
        stddev,
        ci95,
    }
}

/// A mean that a few outliers barely affect, with its standard error.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trimmed {
    /// Mean without the lowest and the highest fifth of the values.
    pub mean: f64,
    /// Standard error of the mean; infinite with fewer than three values.
    pub error: f64,
    /// Degrees of freedom of the standard error.
    pub freedom: u32,
}

/// At each end, 1/`TRIMMED_PART` of the values is left out. For example, of five values, the smallest and the largest
/// are ignored.
const TRIMMED_PART: usize = 5;

/// Computes a trimmed mean and its standard error, which follows Yuen (1974): it is derived from the winsorized values.
/// `None` without values.
pub fn trimmed_mean(values: &[f64]) -> Option<Trimmed> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let cut = sorted.len() / TRIMMED_PART;
    let inner = sorted.get(cut..sorted.len() - cut)?;
    let (&first, &last, kept) = (inner.first()?, inner.last()?, inner.len());
    let mean = inner.iter().sum::<f64>() / kept as f64;
    for value in &mut sorted {
        *value = value.clamp(first, last);
    }
    let error = match kept < CONFIDENCE_TRIALS_MIN {
        true => f64::INFINITY,
        false => (sum_of_squares(&sorted) / (kept * (kept - 1)) as f64).sqrt(),
    };
    Some(Trimmed {
        mean,
        error,
        freedom: kept as u32 - 1,
    })
}

/// Returns the median; `None` without values.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    match sorted.len() % 2 {
        1 => Some(upper),
        _ => Some(f64::midpoint(sorted[middle - 1], upper)),
    }
}

/// Returns the quantile of Student's t distribution; infinite without degrees of freedom.
pub fn student_t_quantile(probability: f64, freedom: impl Into<f64>) -> f64 {
    let student = StudentsT::new(0.0, 1.0, freedom.into());
    student.map_or(f64::INFINITY, |student| student.inverse_cdf(probability))
}

/// Sum of squared deviations from the mean.
fn sum_of_squares(values: &[f64]) -> f64 {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    values.iter().map(|value| (value - mean).powi(2)).sum()
}

/// Returns whether the half width of the 95 % confidence interval is at most `fraction` of the mean. Always false with
/// fewer than three trials.
pub fn ci_narrow_enough(values: &[f64], fraction: f64) -> bool {
    if values.len() < CONFIDENCE_TRIALS_MIN {
        return false;
    }
    let spread = spread(values);
    spread
        .ci95
        .is_some_and(|ci95| ci95 <= fraction * spread.mean.abs())
}

/// Geometric mean of a figure over the trials, with a 95 % confidence interval computed on the logarithms.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GeometricSpread {
    /// Geometric mean.
    pub mean: f64,
    /// Lower end of the 95 % confidence interval, computed by Student's t on the logarithms; absent for one trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<f64>,
    /// Upper end of the 95 % confidence interval; absent for one trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<f64>,
}

impl GeometricSpread {
    /// Computes the geometric spread of positive values; `None` without values.
    pub fn from_values(values: &[f64]) -> Option<Self> {
        if values.is_empty() {
            return None;
        }
        let logs: Vec<f64> = values.iter().map(|value| value.ln()).collect();
        let Spread { mean, ci95, .. } = spread(&logs);
        Some(Self {
            mean: mean.exp(),
            low: ci95.map(|half| (mean - half).exp()),
            high: ci95.map(|half| (mean + half).exp()),
        })
    }

    /// Returns whether the part of the interval above the mean is at most `fraction` of the mean. The part below the
    /// mean is always shorter. Always false with fewer than three `trials`.
    pub fn is_narrow(&self, trials: usize, fraction: f64) -> bool {
        let narrow = |high: f64| high <= self.mean * (1.0 + fraction);
        trials >= CONFIDENCE_TRIALS_MIN && self.high.is_some_and(narrow)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_close(found: Option<f64>, expected: f64) {
        let found = found.unwrap();
        assert!(
            (found - expected).abs() <= 1e-9 * expected.abs(),
            "{found} is not {expected}"
        );
    }

    #[test]
    fn spread_of_known_values() {
        // The mean is 5, and the squared deviations add up to 32. 2.3646… is the 97.5 % quantile of t with 7 degrees of
        // freedom.
        let found = spread(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]);
        assert_eq!((found.mean, found.min, found.max), (5.0, 2.0, 9.0));
        assert_close(found.stddev, (32.0f64 / 7.0).sqrt());
        assert_close(
            found.ci95,
            2.364_624_251_592_785 * (32.0f64 / 7.0 / 8.0).sqrt(),
        );
    }

    /// The mean is over 2, 3 and 4. The winsorized values are 2, 2, 3, 4, 4, and their squared deviations from 3 add up
    /// to 4.
    #[test]
    fn a_trimmed_mean_does_not_follow_an_outlier() {
        let of = |last| trimmed_mean(&[2.0, 4.0, 3.0, 1.0, last]).unwrap();
        assert_eq!((of(5.0).mean, of(5.0).freedom), (3.0, 2));
        assert_close(Some(of(5.0).error), (4.0f64 / 6.0).sqrt());
        assert_eq!(of(1e9), of(5.0));
        let three = [1.0, 2.0, 6.0];
        let (all, plain) = (trimmed_mean(&three).unwrap(), spread(&three));
        assert_eq!(all.mean, plain.mean);
        assert_close(
            plain.ci95,
            student_t_quantile(0.975, all.freedom) * all.error,
        );
        assert_eq!(trimmed_mean(&[1.0, 2.0]).unwrap().error, f64::INFINITY);
        assert_eq!(
            (trimmed_mean(&[]), student_t_quantile(0.9, 0_u32)),
            (None, f64::INFINITY)
        );
    }

    #[test]
    fn quantiles_are_those_of_the_published_table() {
        for (trials, t) in [
            (2, 12.706_204_736),
            (3, 4.302_652_730),
            (5, 2.776_445_105),
            (31, 2.042_272_456),
        ] {
            let values: Vec<f64> = (0..trials).map(|i| f64::from(i % 2)).collect();
            let found = spread(&values);
            let root = f64::from(trials).sqrt();
            let quantile = found.ci95.unwrap() * root / found.stddev.unwrap();
            assert!(
                (quantile - t).abs() < 1e-6 * t,
                "{trials} trials: {quantile}, not {t}"
            );
        }
    }

    #[test]
    fn one_value_has_no_interval_and_none_no_figure() {
        let one = spread(&[3.0]);
        assert_eq!(
            (one.mean, one.min, one.max, one.stddev, one.ci95),
            (3.0, 3.0, 3.0, None, None)
        );
        assert_eq!(spread(&[]).mean, 0.0);
    }

    #[test]
    fn an_interval_is_a_part_of_its_mean() {
        let of = |mean: f64, ci95| {
            Spread {
                mean,
                ci95,
                ..spread(&[])
            }
            .ci95_fraction()
        };
        assert_eq!(of(8.0, Some(2.0)), Some(0.25));
        assert_eq!((of(8.0, None), of(0.0, Some(2.0))), (None, None));
    }

    #[test]
    fn ratios_are_taken_together_by_their_logarithms() {
        let of = |ratios: &[f64]| GeometricSpread::from_values(ratios).unwrap();
        let found = of(&[2.0, 8.0]);
        assert!((found.mean - 4.0).abs() < 1e-12);
        // The interval of an ordinary mean would extend below zero because of the outlier.
        let found = of(&[1.2, 1.3, 1.25, 1.2, 30.0]);
        assert!(found.mean < 3.0 && found.low.unwrap() > 0.0, "{found:?}");
        // The reciprocals of the values have the reciprocal interval.
        let (one, other) = (of(&[1.0, 2.0, 4.0]), of(&[1.0, 0.5, 0.25]));
        assert_close(one.high, 1.0 / other.low.unwrap());
        assert_close(Some(one.mean), 1.0 / other.mean);
        assert_eq!((of(&[3.0]).low, of(&[3.0]).high), (None, None));
        assert_eq!(GeometricSpread::from_values(&[]), None);
        assert!(of(&[2.0, 2.0, 2.0]).is_narrow(3, 0.0));
        assert!(!of(&[2.0, 2.0]).is_narrow(2, 1.0));
        assert!(!one.is_narrow(3, 0.5));
    }

    #[test]
    fn confidence_needs_three_trials() {
        assert!(!ci_narrow_enough(&[1.0, 1.0], 0.5));
        assert!(ci_narrow_enough(&[1.0, 1.0, 1.0], 0.0));
        // The half width is 4.3027 × 0.01 / √3 = 0.02484.
        let values = [0.99, 1.0, 1.01];
        assert!(ci_narrow_enough(&values, 0.025));
        assert!(!ci_narrow_enough(&values, 0.0248));
        // The same holds for any other mean.
        let values = values.map(|value| 10.0 * value);
        assert!(ci_narrow_enough(&values, 0.025));
        assert!(!ci_narrow_enough(&values, 0.0248));
    }
}
