//! Words and constants that several lines of file experiments share.

use tonnage_record::files::PhaseTrial;

/// Beginning of the striping of a storage where it was asked for and could not be.
pub const SKIPPED: &str = "skip: ";

/// Bytes of a MiB.
pub const MIB: f64 = 1_048_576.0;

/// Repetitions of which each gets a line of its own; of more, only the slowest does.
const TRIALS_MAX: usize = 3;

/// The repetitions that get lines of their own, each with the words that tell it from others: all of few, the slowest
/// of many.
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
