//! Sizes, times and rates of file experiments as sentences print them.

use tonnage_record::files::PhaseTrial;

use crate::text::{bytes, number};

/// Beginning of the striping of a storage where it was asked for and could not be.
pub const SKIPPED: &str = "skip: ";

/// Bytes of a MiB.
pub const MIB: f64 = 1_048_576.0;

/// Repetitions of which each gets a line of its own; of more, only the slowest does.
const TRIALS_MAX: usize = 3;

/// A size: exact where a unit divides it into less than 1024, else with one decimal.
pub fn size(value: u64) -> String {
    for (shift, unit) in [(40, "TiB"), (30, "GiB"), (20, "MiB")] {
        if value >> shift > 0 {
            return match value.trailing_zeros() >= shift {
                true => format!("{} {unit}", value >> shift),
                false => format!("{:.1} {unit}", value as f64 / (1_u64 << shift) as f64),
            };
        }
    }
    bytes(value)
}

/// A time in seconds.
pub fn seconds(value_ns: u64) -> String {
    format!("{} s", number(value_ns as f64 * 1e-9))
}

/// A rate, GB of 1e9 bytes.
pub fn giga(bytes_per_s: f64) -> String {
    format!("{} GB/s", number(bytes_per_s * 1e-9))
}

/// Whole percents; what is small is printed neither as nothing, nor what is nearly all as all.
pub fn percent(part: f64) -> String {
    match part * 100.0 {
        value if value > 0.0 && value < 1.0 => "less than 1 %".to_owned(),
        value if value > 99.0 && value < 100.0 => "more than 99 %".to_owned(),
        value => format!("{value:.0} %"),
    }
}

/// The repetitions that get lines of their own, each with the words that tell it from others: all of few, the slowest of
/// many.
pub fn detailed<'a>(phase: &str, trials: &'a [PhaseTrial]) -> Vec<(String, &'a PhaseTrial)> {
    if let [trial] = trials {
        return vec![(phase.to_owned(), trial)];
    }
    if trials.len() <= TRIALS_MAX {
        let named = trials
            .iter()
            .map(|trial| (format!("{phase}, trial {}", trial.trial), trial));
        return named.collect();
    }
    let slowest = trials.iter().min_by(|left, right| {
        left.bandwidth_bytes_per_s
            .total_cmp(&right.bandwidth_bytes_per_s)
    });
    let of = |trial: &PhaseTrial| {
        format!(
            "{phase}, trial {} (the slowest of {})",
            trial.trial,
            trials.len()
        )
    };
    slowest
        .into_iter()
        .map(|trial| (of(trial), trial))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_exact_or_rounded() {
        for (value, text) in [
            (512, "512 B"),
            (512 << 20, "512 MiB"),
            ((5 << 30) / 2, "2.5 GiB"),
            (24 << 40, "24 TiB"),
        ] {
            assert_eq!(size(value), text);
        }
    }

    #[test]
    fn parts_are_never_rounded_to_nothing_or_all() {
        for (part, text) in [
            (0.0, "0 %"),
            (1e-6, "less than 1 %"),
            (0.5, "50 %"),
            (0.9999, "more than 99 %"),
            (1.0, "100 %"),
        ] {
            assert_eq!(percent(part), text);
        }
    }
}
