//! Draws the rate over time as a line with one digit per interval, which makes stalls visible.

use tonnage_record::files::Series;
use tonnage_units::quantity::human::{gigabytes_per_s, number};

/// Maximum number of digits.
const DIGITS_MAX: usize = 60;

/// Minimum number of intervals for a line.
const INTERVALS_MIN: usize = 4;

/// Minimum number of transfers per digit. With fewer, the line would show individual completions.
const TRANSFERS_MIN: usize = 4;

/// Digits, with the minimum, median and maximum rate. `None` for a phase with few intervals. The last, partial interval
/// is left out because it would look like a stall.
pub fn line(series: &Series, transfers: u64) -> Option<String> {
    let whole = series.bytes.len().saturating_sub(1);
    let transfers = usize::try_from(transfers).unwrap_or(usize::MAX).max(1);
    let for_transfers = whole.saturating_mul(TRANSFERS_MIN).div_ceil(transfers);
    let group = whole.div_ceil(DIGITS_MAX).max(for_transfers).max(1);
    if whole / group < INTERVALS_MIN {
        return None;
    }
    let group_ns = series.interval_ns.saturating_mul(group as u64);
    let seconds = group_ns as f64 * 1e-9;
    let groups = series.bytes[..whole].chunks_exact(group);
    let rates: Vec<f64> = groups
        .map(|bytes| bytes.iter().sum::<u64>() as f64 / seconds)
        .collect();
    let mut sorted = rates.clone();
    sorted.sort_by(f64::total_cmp);
    let (least, most) = (*sorted.first()?, *sorted.last()?);
    let middle = *sorted.get(sorted.len() / 2)?;
    let digits: String = rates.iter().map(|rate| digit(*rate, most)).collect();
    Some(format!(
        "{digits} ({} s each; 9 is {}, . is nothing; least {}, median {} GB/s)",
        number(seconds),
        gigabytes_per_s(most),
        number(least * 1e-9),
        number(middle * 1e-9)
    ))
}

/// Digit from 1 to 9: the rate in ninths of the maximum. Rounded up, so that a low rate differs from zero, which is
/// `.`.
fn digit(rate: f64, most: f64) -> char {
    if rate <= 0.0 {
        return '.';
    }
    let ninths = (rate / most * 9.0).ceil().clamp(1.0, 9.0) as u32;
    char::from_digit(ninths, 10).unwrap_or('9')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bytes: Vec<u64>) -> Option<String> {
        of_transfers(bytes, 1 << 40)
    }

    fn of_transfers(bytes: Vec<u64>, transfers: u64) -> Option<String> {
        let series = Series {
            interval_ns: 100_000_000,
            bytes,
        };
        line(&series, transfers)
    }

    #[test]
    fn few_transfers_give_no_line() {
        let bytes: Vec<u64> = (0..41).map(|at| at % 2 * 100).collect();
        let text = of_transfers(bytes.clone(), 20).unwrap();
        assert!(text.starts_with("99999 (0.800 s each"), "{text}");
        assert_eq!(of_transfers(bytes.clone(), 4), None);
        assert_eq!(of_transfers(bytes, 0), None);
    }

    #[test]
    fn a_stall_is_visible_and_the_end_is_not_one() {
        let text = of(vec![90, 90, 0, 1, 45, 90, 3]).unwrap();
        assert!(text.starts_with("99.159 "), "{text}");
    }

    #[test]
    fn many_intervals_are_taken_together_and_few_have_no_line() {
        let text = of(vec![5_000_000; 1201]).unwrap();
        assert!(
            text.starts_with(&("9".repeat(60) + " (2.00 s each")),
            "{text}"
        );
        assert!(text.contains("9 is 0.0500 GB/s"), "{text}");
        let odd = of(vec![7; 100]).unwrap();
        assert!(odd.starts_with(&("9".repeat(49) + " ")), "{odd}");
        assert_eq!(of(vec![1; 4]), None);
        assert_eq!(of(Vec::new()), None);
    }
}
