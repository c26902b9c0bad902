//! Constants and labels shared by several lines about file experiments.

use tonnage_record::files::PhaseTrial;

/// Prefix of a striping entry that was requested but not possible.
pub const SKIPPED: &str = "skip: ";

/// Bytes of a MiB.
pub const MIB: f64 = 1_048_576.0;

/// Maximum number of trials with individual lines. With more, only the slowest has one.
const TRIALS_MAX: usize = 3;

/// Trials that get individual lines, with their labels: all if there are few, otherwise the slowest.
pub fn detailed_trials<'a>(phase: &str, trials: &'a [PhaseTrial]) -> Vec<(String, &'a PhaseTrial)> {
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
