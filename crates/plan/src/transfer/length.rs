//! How long a point is measured: what `trials`, `trial-time`, `iters`, `duration`, `warmup`, `until-ci` and
//! `max-duration` mean together.

use super::Transfer;
use super::point::{Length, TrialLength};
use tonnage_units::{Count, Nanos};
use tonnage_units::{Error, Result};

const TRIALS_DEFAULT: u32 = 5;
const TRIALS_MAX: u64 = 100_000;
const MILLISECOND_NS: u64 = 1_000_000;
const HOUR_NS: u64 = 3_600_000_000_000;
const TRIAL_NS_DEFAULT: u64 = 200 * MILLISECOND_NS;
/// Starting and ending a trial costs microseconds: below this they are no longer small.
const TRIAL_NS_MIN: u64 = MILLISECOND_NS;
const TRIAL_NS_MAX: u64 = 24 * HOUR_NS;
const ITERATIONS_MAX: u64 = 1_000_000_000_000;
const WARMUP_NS_DEFAULT: u64 = 50 * MILLISECOND_NS;
const WARMUP_NS_MAX: u64 = HOUR_NS;
const MAX_DURATION_NS_DEFAULT: u64 = 60_000 * MILLISECOND_NS;
const MAX_DURATION_NS_MAX: u64 = 7 * 24 * HOUR_NS;

/// The length of every point of a transfer, defaults filled in.
///
/// # Errors
/// `Usage` for options that contradict each other and for values out of range.
pub(super) fn length(transfer: &Transfer) -> Result<Length> {
    contradictions(transfer)?;
    let trials = trials(transfer)?;
    let trial = trial(transfer, trials)?;
    let warmup_ns = transfer.warmup.map_or(WARMUP_NS_DEFAULT, |Nanos(ns)| ns);
    if warmup_ns > WARMUP_NS_MAX {
        return usage(format!(
            "warmup {} is too long: the longest is {}",
            Nanos(warmup_ns),
            Nanos(WARMUP_NS_MAX)
        ));
    }
    let (until_ci, max_duration_ns) = confidence(transfer, trials, trial)?;
    Ok(Length {
        trials,
        trial,
        warmup_ns,
        until_ci,
        max_duration_ns,
    })
}

fn usage<T>(message: impl Into<String>) -> Result<T> {
    Err(Error::Usage(message.into()))
}

fn contradictions(transfer: &Transfer) -> Result<()> {
    let duration = transfer.duration.is_some();
    if transfer.iters.is_some() && duration {
        return usage(
            "iters and duration contradict each other, for both say how long a point is: leave one of them out",
        );
    }
    if transfer.iters.is_some() && transfer.trial_time.is_some() {
        return usage(
            "iters and trial-time contradict each other, for both say how long a trial is: leave one of them out",
        );
    }
    if duration && transfer.trial_time.is_some() {
        return usage(
            "duration and trial-time contradict each other, for duration is split over the trials: \
             use trial-time with trials, or duration alone",
        );
    }
    if duration && transfer.until_ci.is_some() {
        return usage(
            "duration and until-ci contradict each other, for until-ci goes on as long as it needs: \
             use max-duration to bound it, or leave until-ci out",
        );
    }
    if transfer.max_duration.is_some() && transfer.until_ci.is_none() {
        return usage(
            "max-duration bounds until-ci, which is not asked for: add until-ci 2%, or use duration",
        );
    }
    Ok(())
}

fn trials(transfer: &Transfer) -> Result<u32> {
    let Some(Count(trials)) = transfer.trials else {
        return Ok(TRIALS_DEFAULT);
    };
    if transfer.until_ci.is_some() && trials == 1 {
        return usage(
            "trials 1 and until-ci contradict each other, for a confidence interval needs two trials: \
             write trials 2 or more",
        );
    }
    match u32::try_from(trials) {
        Ok(0) => usage("trials 0 would measure nothing: the fewest is trials 1"),
        Ok(narrow) if trials <= TRIALS_MAX => Ok(narrow),
        _ => usage(format!(
            "trials {trials} is too many: the most is trials {TRIALS_MAX}"
        )),
    }
}

fn trial(transfer: &Transfer, trials: u32) -> Result<TrialLength> {
    if let Some(Count(iterations)) = transfer.iters {
        return match iterations {
            0 => usage("iters 0 would measure nothing: the fewest is iters 1"),
            1..=ITERATIONS_MAX => Ok(TrialLength::Iterations(iterations)),
            _ => usage(format!(
                "iters {iterations} is too many: the most is iters {ITERATIONS_MAX}"
            )),
        };
    }
    let (what, share) = match (transfer.duration, transfer.trial_time) {
        (Some(_), _) => ("duration", u64::from(trials)),
        (None, Some(_)) => ("trial-time", 1),
        (None, None) => return Ok(TrialLength::DurationNs(TRIAL_NS_DEFAULT)),
    };
    let given = transfer
        .duration
        .or(transfer.trial_time)
        .map_or(0, |Nanos(ns)| ns);
    let (shortest, longest) = (TRIAL_NS_MIN * share, TRIAL_NS_MAX * share);
    let over = if share == 1 {
        String::new()
    } else {
        format!(" over {trials} trials")
    };
    if given < shortest {
        return usage(format!(
            "{what} {}{over} is too short to be timed: the shortest is {what} {}",
            Nanos(given),
            Nanos(shortest)
        ));
    }
    if given > longest {
        return usage(format!(
            "{what} {}{over} is too long: the longest is {what} {}",
            Nanos(given),
            Nanos(longest)
        ));
    }
    Ok(TrialLength::DurationNs(given / share))
}

/// The width to reach and the time to give up at; none of both without `until-ci`.
fn confidence(
    transfer: &Transfer,
    trials: u32,
    trial: TrialLength,
) -> Result<(Option<f64>, Option<u64>)> {
    let Some(until_ci) = transfer.until_ci else {
        return Ok((None, None));
    };
    if !(until_ci.0 > 0.0 && until_ci.0 < 1.0) {
        return usage(format!(
            "until-ci {until_ci} makes no sense: write a percentage above 0% and below 100%, such as 2%"
        ));
    }
    let fewest_ns = match trial {
        TrialLength::DurationNs(ns) => ns.saturating_mul(trials.into()),
        TrialLength::Iterations(_) => TRIAL_NS_MIN,
    };
    let Some(Nanos(max_duration_ns)) = transfer.max_duration else {
        return Ok((
            Some(until_ci.0),
            Some(MAX_DURATION_NS_DEFAULT.max(fewest_ns)),
        ));
    };
    if max_duration_ns < fewest_ns {
        return usage(format!(
            "max-duration {} is shorter than the fewest trials take: \
             write max-duration {} or more, or a shorter trial-time",
            Nanos(max_duration_ns),
            Nanos(fewest_ns)
        ));
    }
    if max_duration_ns > MAX_DURATION_NS_MAX {
        return usage(format!(
            "max-duration {} is too long: the longest is max-duration {}",
            Nanos(max_duration_ns),
            Nanos(MAX_DURATION_NS_MAX)
        ));
    }
    Ok((Some(until_ci.0), Some(max_duration_ns)))
}

/// Multiplies how long the transfer is measured, within the bounds that [`length`] checks. Values that are wrong
/// already stay wrong, so that scaling hides no mistake.
pub(crate) fn scale(transfer: &mut Transfer, factor: f64) {
    let scaled = |value: u64, least: u64, most: u64| {
        if value < least || value > most {
            return value;
        }
        // Precise enough below 2^53, and both casts saturate.
        ((value as f64 * factor).round() as u64).clamp(least, most)
    };
    let trials = transfer
        .trials
        .map_or(TRIALS_DEFAULT.into(), |Count(trials)| trials);
    let share = trials.clamp(1, TRIALS_MAX);
    if let Some(Count(iterations)) = &mut transfer.iters {
        *iterations = scaled(*iterations, 1, ITERATIONS_MAX);
    }
    if let Some(Nanos(ns)) = &mut transfer.duration {
        *ns = scaled(*ns, TRIAL_NS_MIN * share, TRIAL_NS_MAX * share);
    }
    let by_time = transfer.iters.is_none() && transfer.duration.is_none();
    if by_time || transfer.trial_time.is_some() {
        let Nanos(ns) = transfer.trial_time.unwrap_or(Nanos(TRIAL_NS_DEFAULT));
        transfer.trial_time = Some(Nanos(scaled(ns, TRIAL_NS_MIN, TRIAL_NS_MAX)));
    }
    if transfer.until_ci.is_some() {
        let Nanos(ns) = transfer
            .max_duration
            .unwrap_or(Nanos(MAX_DURATION_NS_DEFAULT));
        let fewest = transfer
            .trial_time
            .map_or(TRIAL_NS_MIN, |Nanos(ns)| ns.saturating_mul(share));
        let fewest = fewest.min(MAX_DURATION_NS_MAX);
        transfer.max_duration = Some(Nanos(
            scaled(ns, TRIAL_NS_MIN, MAX_DURATION_NS_MAX).max(fewest),
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonnage_units::Fraction;

    const MS: u64 = MILLISECOND_NS;

    fn with(change: impl FnOnce(&mut Transfer)) -> Transfer {
        let mut transfer = Transfer::default();
        change(&mut transfer);
        transfer
    }

    fn message(change: impl FnOnce(&mut Transfer)) -> String {
        length(&with(change)).unwrap_err().to_string()
    }

    fn ms(count: u64) -> Option<Nanos> {
        Some(Nanos(count * MS))
    }

    #[test]
    fn defaults_are_five_trials_of_200_ms() {
        let expected = Length {
            trials: 5,
            trial: TrialLength::DurationNs(200 * MS),
            warmup_ns: 50 * MS,
            until_ci: None,
            max_duration_ns: None,
        };
        assert_eq!(length(&Transfer::default()).unwrap(), expected);
    }

    #[test]
    fn duration_is_split_over_the_trials() {
        let transfer = with(|t| (t.duration, t.trials) = (ms(2000), Some(Count(4))));
        assert_eq!(
            length(&transfer).unwrap().trial,
            TrialLength::DurationNs(500 * MS)
        );
    }

    #[test]
    fn iterations_are_per_trial() {
        let transfer = with(|t| (t.iters, t.warmup) = (Some(Count(128)), ms(0)));
        let length = length(&transfer).unwrap();
        assert_eq!(
            (length.trial, length.warmup_ns),
            (TrialLength::Iterations(128), 0)
        );
    }

    #[test]
    fn until_ci_is_bounded_by_60_s_unless_said_otherwise() {
        let transfer = with(|t| t.until_ci = Some(Fraction(0.02)));
        let found = length(&transfer).unwrap();
        assert_eq!(
            (found.until_ci, found.max_duration_ns),
            (Some(0.02), Some(60_000 * MS))
        );
        let transfer = with(|t| (t.until_ci, t.max_duration) = (Some(Fraction(0.02)), ms(5000)));
        assert_eq!(length(&transfer).unwrap().max_duration_ns, Some(5000 * MS));
        let transfer = with(|t| (t.until_ci, t.trial_time) = (Some(Fraction(0.02)), ms(100_000)));
        assert_eq!(
            length(&transfer).unwrap().max_duration_ns,
            Some(500_000 * MS)
        );
    }

    #[test]
    fn contradictions_are_named() {
        let iters = Some(Count(1));
        let ci = Some(Fraction(0.02));
        assert!(
            message(|t| (t.iters, t.duration) = (iters, ms(5)))
                .starts_with("iters and duration contradict each other")
        );
        assert!(
            message(|t| (t.iters, t.trial_time) = (iters, ms(5)))
                .starts_with("iters and trial-time contradict each other")
        );
        assert!(
            message(|t| (t.duration, t.trial_time) = (ms(5), ms(5)))
                .contains("use trial-time with trials, or duration alone")
        );
        assert!(
            message(|t| (t.duration, t.until_ci) = (ms(5), ci))
                .contains("use max-duration to bound it")
        );
        assert!(message(|t| t.max_duration = ms(5)).contains("add until-ci 2%, or use duration"));
        assert!(
            message(|t| (t.trials, t.until_ci) = (iters, ci)).contains("write trials 2 or more")
        );
        assert_eq!(
            message(|t| (t.until_ci, t.max_duration) = (ci, ms(500))),
            "max-duration 500ms is shorter than the fewest trials take: \
             write max-duration 1s or more, or a shorter trial-time"
        );
    }

    #[test]
    fn values_out_of_range_name_the_nearest_valid_one() {
        let many = Some(Count(u64::MAX));
        let zero = Some(Count(0));
        let ages = Some(Nanos(u64::MAX));
        assert_eq!(
            message(|t| t.trials = zero),
            "trials 0 would measure nothing: the fewest is trials 1"
        );
        assert!(message(|t| t.trials = many).ends_with("the most is trials 100000"));
        assert!(message(|t| t.iters = zero).ends_with("the fewest is iters 1"));
        assert!(message(|t| t.iters = many).ends_with("the most is iters 1000000000000"));
        assert_eq!(
            message(|t| t.duration = ms(2)),
            "duration 2ms over 5 trials is too short to be timed: the shortest is duration 5ms"
        );
        assert!(message(|t| t.trial_time = ms(0)).ends_with("the shortest is trial-time 1ms"));
        assert!(message(|t| t.trial_time = ages).ends_with("the longest is trial-time 24h"));
        assert!(message(|t| t.warmup = ages).ends_with("the longest is 1h"));
        for wrong in [0.0, 1.0, 2.0] {
            assert!(
                message(|t| t.until_ci = Some(Fraction(wrong))).contains("above 0% and below 100%")
            );
        }
        let ci = Some(Fraction(0.5));
        assert!(
            message(|t| (t.until_ci, t.max_duration) = (ci, ages)).ends_with("max-duration 168h")
        );
    }

    #[test]
    fn scaling_stays_valid_and_hides_no_mistake() {
        let mut transfer = with(|t| t.until_ci = Some(Fraction(0.02)));
        scale(&mut transfer, 0.1);
        assert_eq!(
            (transfer.trial_time, transfer.max_duration),
            (ms(20), ms(6000))
        );
        scale(&mut transfer, 1e-5);
        assert_eq!((transfer.trial_time, transfer.max_duration), (ms(1), ms(5)));
        assert!(length(&transfer).is_ok());

        let mut transfer = with(|t| t.iters = Some(Count(100)));
        scale(&mut transfer, 0.001);
        assert_eq!(
            (transfer.iters, transfer.trial_time),
            (Some(Count(1)), None)
        );

        let mut transfer = with(|t| t.duration = ms(2000));
        scale(&mut transfer, 2.0);
        assert_eq!((transfer.duration, transfer.trial_time), (ms(4000), None));

        let mut transfer = with(|t| t.trial_time = ms(0));
        scale(&mut transfer, 100.0);
        assert!(length(&transfer).is_err());
    }
}
