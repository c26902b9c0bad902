//! Axes: map values to positions in a plot, with ticks at round values.

use tonnage_units::quantity::human::{exact_size, number};

/// Minimum ratio of largest to smallest value for a logarithmic axis.
const LOG_FROM: f64 = 30.0;

/// Maximum number of ticks.
const TICKS_MAX: usize = 9;

#[derive(Debug, Clone)]
pub(crate) struct Axis {
    /// Title, with the unit of the labels.
    pub(crate) title: String,
    log: bool,
    low: f64,
    high: f64,
    begin: f64,
    end: f64,
    pub(crate) ticks: Vec<AxisTick>,
}

/// A tick with its value and label.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AxisTick {
    /// Position on the axis, in the unit of the plotted values.
    pub(crate) value: f64,
    /// Label in the unit of the axis title.
    pub(crate) label: String,
}

impl Axis {
    /// An axis of sizes in bytes: logarithmic, with ticks at powers of two.
    pub(crate) fn of_sizes(title: &str, values: &[f64]) -> Self {
        let (low, high) = bounds(values).unwrap_or((1.0, 2.0));
        let (first, last) = (low.max(1.0).log2().floor(), high.max(1.0).log2().ceil());
        let steps = ((last - first) as usize + 1).div_ceil(TICKS_MAX).max(1);
        let exponents = (first as u32..=last as u32).step_by(steps);
        let ticks = exponents.map(|exponent| AxisTick {
            value: (1u64 << exponent.min(62)) as f64,
            label: exact_size(1 << exponent.min(62)),
        });
        let ticks = ticks.collect();
        Self::new(title, true, (low / 1.15, high * 1.15), ticks)
    }

    /// An axis of non-negative values. It starts at 0, or is logarithmic if the values span a large range. Labels show
    /// the values multiplied by `scale`.
    pub(crate) fn of_amounts(title: &str, values: &[f64], scale: f64) -> Self {
        let positive: Vec<f64> = values
            .iter()
            .copied()
            .filter(|value| *value > 0.0)
            .collect();
        match bounds(&positive) {
            Some((low, high)) if positive.len() == values.len() && high / low >= LOG_FROM => {
                Self::log(title, low, high, scale)
            }
            Some((_, high)) => Self::linear(title, 0.0, high * 1.05, scale),
            None => Self::linear(title, 0.0, 1.0, scale),
        }
    }

    /// A logarithmic axis with ticks at 1, 2 and 5 times powers of ten.
    pub(crate) fn log(title: &str, low: f64, high: f64, scale: f64) -> Self {
        let (low, high) = (low / 1.12, high * 1.12);
        let first = (low * scale).log10().floor() as i32;
        let last = (high * scale).log10().ceil() as i32;
        let ticks_of = |digits: &[f64], every: usize| -> Vec<AxisTick> {
            let decades = (first..=last).step_by(every);
            let values =
                decades.flat_map(|decade| digits.iter().map(move |it| it * 10f64.powi(decade)));
            let values = values.filter(|it| (low..=high).contains(&(it / scale)));
            let ticks = values.map(|value| AxisTick {
                value: value / scale,
                label: number_short(value),
            });
            ticks.collect()
        };
        let finest = [
            &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0][..],
            &[1.0, 2.0, 5.0],
            &[1.0],
        ];
        let mut choices = finest.iter().map(|digits| ticks_of(digits, 1));
        let fitting = choices.find(|ticks| ticks.len() <= TICKS_MAX);
        let sparse = || {
            let every = ((last - first) as usize).div_ceil(TICKS_MAX).max(1);
            ticks_of(&[1.0], every)
        };
        Self::new(title, true, (low, high), fitting.unwrap_or_else(sparse))
    }

    /// A linear axis with ticks at round values.
    pub(crate) fn linear(title: &str, low: f64, high: f64, scale: f64) -> Self {
        let span = ((high - low) * scale).max(f64::MIN_POSITIVE);
        let rough = span / (TICKS_MAX - 2) as f64;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|digit| digit * power);
        let step = step.into_iter().find(|step| *step >= rough).unwrap_or(span);
        let first = (low * scale / step).ceil() as i64;
        let last = (high * scale / step).floor() as i64;
        let ticks = (first..=last).take(2 * TICKS_MAX).map(|at| {
            let value = at as f64 * step;
            AxisTick {
                value: value / scale,
                label: number_short(value),
            }
        });
        let ticks = ticks.collect();
        Self::new(title, false, (low, high), ticks)
    }

    pub(crate) fn with_ticks(title: &str, low: f64, high: f64, ticks: Vec<AxisTick>) -> Self {
        Self::new(title, false, (low, high), ticks)
    }

    fn new(title: &str, log: bool, (low, high): (f64, f64), ticks: Vec<AxisTick>) -> Self {
        Self {
            title: title.to_owned(),
            log,
            low,
            high: if high > low { high } else { low + 1.0 },
            begin: 0.0,
            end: 1.0,
            ticks,
        }
    }

    /// Sets the coordinates of the axis ends.
    #[must_use]
    pub(crate) fn between(mut self, begin: f64, end: f64) -> Self {
        (self.begin, self.end) = (begin, end);
        self
    }

    /// Coordinate of a value. A value outside the range gets the nearer end of the axis.
    pub(crate) fn place(&self, value: f64) -> f64 {
        let at = |value: f64| {
            if self.log {
                value.max(f64::MIN_POSITIVE).ln()
            } else {
                value
            }
        };
        let part = (at(value) - at(self.low)) / (at(self.high) - at(self.low));
        self.begin + part.clamp(0.0, 1.0) * (self.end - self.begin)
    }
}

/// Minimum and maximum of the finite values.
pub(crate) fn bounds(values: &[f64]) -> Option<(f64, f64)> {
    let finite = values.iter().copied().filter(|value| value.is_finite());
    finite.fold(None, |known, value| match known {
        None => Some((value, value)),
        Some((low, high)) => Some((low.min(value), high.max(value))),
    })
}

/// Formats a round number without trailing zeros.
fn number_short(value: f64) -> String {
    let rounded = (value * 1e9).round() / 1e9;
    match rounded.abs() {
        size if size >= 1e6 || (size > 0.0 && size < 1e-6) => number(value),
        _ => rounded.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_few_and_inside() {
        for (low, high) in [
            (1.0, 31.0),
            (0.003, 8e4),
            (1e-9, 1e12),
            (5.0, 5.0),
            (41.0, 97.0),
        ] {
            let axes = [
                Axis::log("x", low, high, 1e-3),
                Axis::linear("x", 0.0, high, 1e-3),
                Axis::of_amounts("x", &[low, high], 1.0),
                Axis::of_sizes("x", &[low, high]),
            ];
            for axis in axes.map(|axis| axis.between(10.0, 500.0)) {
                let count = axis.ticks.len();
                assert!((1..=10).contains(&count), "{low} {high}: {axis:?}");
                let places: Vec<f64> = axis.ticks.iter().map(|it| axis.place(it.value)).collect();
                assert!(places.is_sorted(), "{places:?}");
            }
        }
        let axis = Axis::linear("x", 0.0, 3.0, 1.0);
        let labels: Vec<&str> = axis.ticks.iter().map(|it| it.label.as_str()).collect();
        assert_eq!(labels, ["0", "0.5", "1", "1.5", "2", "2.5", "3"]);
    }

    #[test]
    fn places_follow_the_scale() {
        let axis = Axis::with_ticks("x", 0.0, 10.0, Vec::new()).between(100.0, 0.0);
        assert_eq!(
            [0.0, 5.0, 10.0, 99.0].map(|it| axis.place(it)),
            [100.0, 50.0, 0.0, 0.0]
        );
        let axis = Axis::log("x", 1.0, 100.0, 1.0).between(0.0, 100.0);
        assert!((axis.place(10.0) - 50.0).abs() < 1e-9);
        assert_eq!(axis.place(0.0), 0.0);
    }
}
