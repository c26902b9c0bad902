//! Intervals of a trial: what `interval` and `checkpoint` mean beside the length of a point.

use super::point_length::TrialLength;
use crate::refuse::usage;
use crate::roles::Roles;
use tonnage_units::{Nanos, Result};

/// Shorter ones say more about the system's scheduler than about the path.
pub(super) const INTERVAL_NS_MIN: u64 = 10_000_000;

/// As long as the longest trial.
const INTERVAL_NS_MAX: u64 = 24 * 3_600_000_000_000;

/// The most checkpoints of a trial: each of them has all of the series so far.
const CHECKPOINTS_MAX: u64 = 100;

/// The most intervals of a trial: a week of seconds.
const INTERVALS_MAX: u64 = 604_800;

/// The length of an interval, if trials are cut.
///
/// # Errors
/// `Usage` for one that is too short, or longer than a trial.
pub(super) fn interval(asked: Option<Nanos>, trial: TrialLength) -> Result<Option<u64>> {
    let Some(Nanos(interval_ns)) = asked else {
        return Ok(None);
    };
    if interval_ns < INTERVAL_NS_MIN {
        return usage(format!(
            "interval {} is too short to be told from the system's own pauses: the shortest is interval {}",
            Nanos(interval_ns),
            Nanos(INTERVAL_NS_MIN)
        ));
    }
    if interval_ns > INTERVAL_NS_MAX {
        return usage(format!(
            "interval {} is too long: the longest is interval {}",
            Nanos(interval_ns),
            Nanos(INTERVAL_NS_MAX)
        ));
    }
    match trial {
        TrialLength::DurationNs(trial_ns) if interval_ns > trial_ns => usage(format!(
            "interval {} is longer than a trial of {}: write duration {}, or a shorter interval",
            Nanos(interval_ns),
            Nanos(trial_ns),
            Nanos(interval_ns.saturating_mul(10))
        )),
        TrialLength::DurationNs(trial_ns) if trial_ns / interval_ns > INTERVALS_MAX => {
            usage(format!(
                "interval {} cuts a trial of {} into more than {INTERVALS_MAX} intervals: write interval {} or more",
                Nanos(interval_ns),
                Nanos(trial_ns),
                Nanos(trial_ns.div_ceil(INTERVALS_MAX).next_multiple_of(1_000_000))
            ))
        }
        TrialLength::DurationNs(_) | TrialLength::Iterations(_) => Ok(Some(interval_ns)),
    }
}

/// The time between two checkpoints, if the series so far is written.
///
/// # Errors
/// `Usage` where there is no series, or no checkpoint would be written.
pub(super) fn checkpoint(
    asked: Option<Nanos>,
    interval_ns: Option<u64>,
    trial: TrialLength,
) -> Result<Option<u64>> {
    let Some(asked) = asked else {
        return Ok(None);
    };
    let Some(interval_ns) = interval_ns else {
        return usage(format!(
            "checkpoint {asked} writes the series so far, and there is none: add interval 1s, or leave checkpoint out"
        ));
    };
    let Nanos(checkpoint_ns) = asked;
    match trial {
        _ if checkpoint_ns < interval_ns => usage(format!(
            "checkpoint {asked} is shorter than an interval: write checkpoint {} or more",
            Nanos(interval_ns)
        )),
        TrialLength::DurationNs(trial_ns) if checkpoint_ns > trial_ns => usage(format!(
            "checkpoint {asked} is longer than a trial of {}: write a shorter one, or a longer duration",
            Nanos(trial_ns)
        )),
        TrialLength::DurationNs(trial_ns) if trial_ns / checkpoint_ns > CHECKPOINTS_MAX => {
            let least = trial_ns.div_ceil(CHECKPOINTS_MAX);
            usage(format!(
                "checkpoint {asked} of a trial of {} would be written more than {CHECKPOINTS_MAX} times, each time with \
                 all of the series so far: write checkpoint {} or more",
                Nanos(trial_ns),
                Nanos(least.next_multiple_of(1_000_000))
            ))
        }
        TrialLength::DurationNs(_) | TrialLength::Iterations(_) => Ok(Some(checkpoint_ns)),
    }
}

/// Refuses intervals where a trial is many short rounds.
pub(super) fn check_rounds(interval: Option<Nanos>, roles: &[Roles]) -> Result<()> {
    let rounds = roles.iter().find(|roles| roles.rounds() > 1);
    match (interval, rounds) {
        (Some(interval), Some(roles)) => usage(format!(
            "interval {interval} and traffic {name} contradict each other, for a trial is {rounds} rounds, one after the \
             other: leave interval out, or use a traffic whose ranks move at once, such as all-to-all",
            name = roles.traffic.name(),
            rounds = roles.rounds()
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::point::Traffic;

    const SECOND_NS: u64 = 1_000_000_000;

    #[test]
    fn intervals_that_tell_nothing_name_the_nearest_that_do() {
        let cut = |interval_ns, trial| interval(Some(Nanos(interval_ns)), trial);
        let message = |interval_ns, trial_ns| {
            cut(interval_ns, TrialLength::DurationNs(trial_ns))
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            message(SECOND_NS, SECOND_NS / 5),
            "interval 1s is longer than a trial of 200ms: write duration 10s, or a shorter interval"
        );
        assert!(message(0, SECOND_NS).ends_with("the shortest is interval 10ms"));
        let weeks = message(SECOND_NS / 100, 86_400 * SECOND_NS);
        assert!(weeks.ends_with("write interval 143ms or more"), "{weeks}");
        let whole = cut(SECOND_NS, TrialLength::DurationNs(SECOND_NS));
        assert_eq!(whole.unwrap(), Some(SECOND_NS));
        let counted = cut(SECOND_NS, TrialLength::Iterations(1));
        assert_eq!(counted.unwrap(), Some(SECOND_NS));
        assert_eq!(interval(None, TrialLength::Iterations(1)).unwrap(), None);
        let ages = cut(u64::MAX, TrialLength::Iterations(1)).unwrap_err();
        assert!(ages.to_string().ends_with("the longest is interval 24h"));
    }

    #[test]
    fn checkpoints_need_a_series_and_fit_into_a_trial() {
        let trial = TrialLength::DurationNs(10 * SECOND_NS);
        let of = |ns, interval_ns| checkpoint(Some(Nanos(ns)), interval_ns, trial);
        let message = |ns, interval_ns| of(ns, interval_ns).unwrap_err().to_string();
        assert!(message(SECOND_NS, None).contains("add interval 1s"));
        let short = message(SECOND_NS / 2, Some(SECOND_NS));
        assert!(short.ends_with("write checkpoint 1s or more"), "{short}");
        assert!(message(11 * SECOND_NS, Some(SECOND_NS)).contains("longer than a trial of 10s"));
        let often = checkpoint(
            Some(Nanos(SECOND_NS)),
            Some(SECOND_NS),
            TrialLength::DurationNs(3600 * SECOND_NS),
        );
        let often = often.unwrap_err().to_string();
        assert!(often.ends_with("write checkpoint 36s or more"), "{often}");
        let fits = of(10 * SECOND_NS, Some(SECOND_NS)).unwrap();
        assert_eq!(fits, Some(10 * SECOND_NS));
        assert_eq!(checkpoint(None, None, trial).unwrap(), None);
    }

    #[test]
    fn rounds_are_not_cut() {
        let of = |traffic| check_rounds(Some(Nanos(SECOND_NS)), &[Roles::new(traffic, 4)]);
        assert!(of(Traffic::FanIn).is_ok());
        let error = of(Traffic::Matrix).unwrap_err().to_string();
        assert!(error.contains("a trial is 12 rounds"), "{error}");
    }
}
