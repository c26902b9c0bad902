//! Length of a point's measurement: the combined meaning of `trials`, `trial-time`, `iters`, `duration`, `warmup`,
//! `until-ci`, `max-duration`, `interval` and `checkpoint`.

use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};

use crate::conflicts::Conflict;
use crate::options::{Group, with_default};
use crate::refuse::{repetition_count, time_within, usage_error};
use crate::roles::Roles;
use tonnage_units::{Count, Fraction, Nanos, Result};

/// Length of a point's measurement.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PointLength {
    /// Number of trials; with `until_ci`, the minimum.
    pub trials: u32,
    /// Length of one trial.
    pub trial: TrialLength,
    /// Minimum time of the untimed operations before the first trial; 0 turns the warm-up off.
    pub warmup_ns: u64,
    /// Trials are added until the 95 % confidence interval of the mean bandwidth extends at most this fraction of the
    /// mean to either side.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_ci: Option<f64>,
    /// Maximum time of all trials with `until_ci`. Measuring then stops even if the interval is still too wide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_duration_ns: Option<u64>,
    /// Length of the intervals into which each trial is divided; absent if trials are not divided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_ns: Option<u64>,
    /// Time between two checkpoints of a trial; absent if there are no checkpoints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_ns: Option<u64>,
}

impl PointLength {
    /// Time of the warm-up and one trial. Zero if trials are counted in operations.
    pub fn least_time(&self) -> Duration {
        match self.trial {
            TrialLength::DurationNs(trial_ns) => {
                Duration::from_nanos(self.warmup_ns.saturating_add(trial_ns))
            }
            TrialLength::Iterations(_) => Duration::ZERO,
        }
    }

    /// Minimum time of the warm-up and all trials. `None` if the trials are counted in operations.
    pub fn planned_time(&self) -> Option<Duration> {
        let TrialLength::DurationNs(trial_ns) = self.trial else {
            return None;
        };
        let trials_ns = trial_ns.saturating_mul(u64::from(self.trials));
        Some(Duration::from_nanos(
            self.warmup_ns.saturating_add(trials_ns),
        ))
    }
}

/// Length of one trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TrialLength {
    /// Trials last at least this long. Operations in flight at the end are finished and counted. Verified trials of
    /// atomic operations end earlier if no place is left for another old value.
    DurationNs(u64),
    /// Operations of each thread (batches under `batch`, round trips under `ping-pong`).
    Iterations(u64),
}

const TRIALS_DEFAULT: u32 = 5;
const TRIALS_MAX: u64 = 100_000;
const MILLISECOND_NS: u64 = 1_000_000;
const HOUR_NS: u64 = 3_600_000_000_000;
const TRIAL_NS_DEFAULT: u64 = 200 * MILLISECOND_NS;
/// Starting and ending a trial takes microseconds, which would be a notable part of shorter trials.
const TRIAL_NS_MIN: u64 = MILLISECOND_NS;
const TRIAL_NS_MAX: u64 = 24 * HOUR_NS;
const ITERATIONS_MAX: u64 = 1_000_000_000_000;
const WARMUP_NS_DEFAULT: u64 = 50 * MILLISECOND_NS;
const WARMUP_NS_MAX: u64 = HOUR_NS;
const MAX_DURATION_NS_DEFAULT: u64 = 60_000 * MILLISECOND_NS;
const MAX_DURATION_NS_MAX: u64 = 7 * 24 * HOUR_NS;

/// Length of the measurement.
#[derive(Debug, Clone, PartialEq, Default, Args, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
#[command(next_help_heading = "Length", mut_args = with_default::<Self>)]
pub struct LengthOptions {
    /// Timed repetitions of each point; with --until-ci the fewest.
    #[arg(long, value_name = "N")]
    pub trials: Option<Count>,

    /// Length of one trial.
    #[arg(long, value_name = "TIME")]
    pub trial_time: Option<Nanos>,

    /// Operations of each thread in one trial, instead of a time: batches with --batch (of each rank with --batch-of
    /// rank), round trips with --ping-pong.
    #[arg(long, value_name = "N")]
    pub iters: Option<Count>,

    /// Measured time of each point, split evenly over its trials; each round of a matrix takes as long as one trial.
    #[arg(long, value_name = "TIME")]
    pub duration: Option<Nanos>,

    /// Cut each trial into intervals of this length; print the bytes of each while the trial runs, and record the
    /// series. There is one trial, unless --trials asks for more.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub interval: Option<Nanos>,

    /// With --interval: write the series so far to the file of records each time this much of a trial has passed. Only
    /// the last part of a trial can then be lost.
    #[arg(long, value_name = "TIME")]
    pub checkpoint: Option<Nanos>,

    /// Untimed operations before the first trial of each point; 0 leaves them out.
    #[arg(long, value_name = "TIME")]
    pub warmup: Option<Nanos>,

    /// Add trials until the 95 % interval of the mean bandwidth, or of p50 / idle, is within this percentage of it.
    #[arg(long, value_name = "PERCENT")]
    pub until_ci: Option<Fraction>,

    /// With --until-ci: stop when the trials of a point have taken this long, even if the interval is still too wide.
    #[arg(long, value_name = "TIME")]
    pub max_duration: Option<Nanos>,
}

impl Group for LengthOptions {
    fn defaults() -> Self {
        Self {
            trials: Some(Count(TRIALS_DEFAULT.into())),
            trial_time: Some(Nanos(TRIAL_NS_DEFAULT)),
            warmup: Some(Nanos(WARMUP_NS_DEFAULT)),
            max_duration: Some(Nanos(MAX_DURATION_NS_DEFAULT)),
            ..Self::default()
        }
    }
}

/// Returns the length of every point of a transfer, with defaults filled in.
pub(crate) fn length(options: &LengthOptions) -> Result<PointLength> {
    let trials = trials(options)?;
    let trial = trial(options, trials)?;
    let warmup_ns = options.warmup.map_or(WARMUP_NS_DEFAULT, |Nanos(ns)| ns);
    if warmup_ns > WARMUP_NS_MAX {
        return usage_error(format!(
            "--warmup {} is too long: the longest is {}",
            Nanos(warmup_ns),
            Nanos(WARMUP_NS_MAX)
        ));
    }
    let interval_ns = interval(options.interval, trial)?;
    let checkpoint_ns = checkpoint(options.checkpoint, interval_ns, trial)?;
    let (until_ci, max_duration_ns) = confidence(options, trials, trial)?;
    Ok(PointLength {
        trials,
        trial,
        warmup_ns,
        until_ci,
        max_duration_ns,
        interval_ns,
        checkpoint_ns,
    })
}

pub(crate) const CONFLICTS: &[Conflict] = &[
    Conflict::both(
        "iters",
        "duration",
        "both set the length of a point",
        "leave one of them out",
    ),
    Conflict::both(
        "iters",
        "trial-time",
        "both set the length of a trial",
        "leave one of them out",
    ),
    Conflict::both(
        "duration",
        "trial-time",
        "--duration is split over the trials",
        "leave one of them out",
    ),
    Conflict::both(
        "duration",
        "until-ci",
        "a search for --until-ci goes on as long as it needs",
        "use --max-duration 5s in place of --duration, or leave --until-ci out",
    ),
    Conflict::both(
        "trials 1",
        "until-ci",
        "a confidence interval needs two trials",
        "use --trials 2 or more",
    ),
    Conflict::without(
        "max-duration",
        "until-ci",
        "add --until-ci 2%, or use --duration 5s in place of --max-duration",
    ),
    Conflict::without(
        "checkpoint",
        "interval",
        "add --interval 1s, or leave --checkpoint out",
    ),
];

/// Returns the default number of trials: one with intervals, unless `until-ci` asks for more trials.
fn trials_default(options: &LengthOptions) -> u32 {
    if options.interval.is_some() && options.until_ci.is_none() {
        1
    } else {
        TRIALS_DEFAULT
    }
}

fn trials(options: &LengthOptions) -> Result<u32> {
    let Some(Count(trials)) = options.trials else {
        return Ok(trials_default(options));
    };
    // Fits: at most `TRIALS_MAX`.
    repetition_count("trials", trials, TRIALS_MAX).map(|trials| trials as u32)
}

fn trial(options: &LengthOptions, trials: u32) -> Result<TrialLength> {
    if let Some(Count(iterations)) = options.iters {
        return repetition_count("iters", iterations, ITERATIONS_MAX).map(TrialLength::Iterations);
    }
    let (what, share, Nanos(given)) = match (options.duration, options.trial_time) {
        (Some(duration), _) => ("duration", u64::from(trials), duration),
        (None, Some(trial_time)) => ("trial-time", 1, trial_time),
        (None, None) => return Ok(TrialLength::DurationNs(TRIAL_NS_DEFAULT)),
    };
    let over = if share > 1 {
        format!(" over {trials} trials")
    } else {
        String::new()
    };
    let bounds = TRIAL_NS_MIN * share..=TRIAL_NS_MAX * share;
    let given = time_within(what, &over, given, " to be timed", bounds)?;
    Ok(TrialLength::DurationNs(given / share))
}

/// Returns the relative width to reach and the time limit. Without `until-ci`, both are `None`.
fn confidence(
    options: &LengthOptions,
    trials: u32,
    trial: TrialLength,
) -> Result<(Option<f64>, Option<u64>)> {
    let Some(until_ci) = options.until_ci else {
        return Ok((None, None));
    };
    if !(until_ci.0 > 0.0 && until_ci.0 < 1.0) {
        return usage_error(format!(
            "--until-ci {until_ci} makes no sense: use a percentage above 0% and below 100%, such as 2%"
        ));
    }
    let fewest_ns = match trial {
        TrialLength::DurationNs(ns) => ns.saturating_mul(trials.into()),
        TrialLength::Iterations(_) => TRIAL_NS_MIN,
    };
    let Some(Nanos(max_duration_ns)) = options.max_duration else {
        return Ok((
            Some(until_ci.0),
            Some(MAX_DURATION_NS_DEFAULT.max(fewest_ns)),
        ));
    };
    if max_duration_ns < fewest_ns {
        return usage_error(format!(
            "--max-duration {} is shorter than the fewest trials take: use --max-duration {} or more, or a shorter \
             --trial-time",
            Nanos(max_duration_ns),
            Nanos(fewest_ns)
        ));
    }
    let most = time_within(
        "max-duration",
        "",
        max_duration_ns,
        "",
        0..=MAX_DURATION_NS_MAX,
    )?;
    Ok((Some(until_ci.0), Some(most)))
}

/// Multiplies the measured time or operations by `factor`, within the bounds that [`length`] checks. Invalid values
/// stay invalid, so that scaling does not hide a mistake.
pub(crate) fn scale(options: &mut LengthOptions, factor: f64) {
    let scaled = |value: u64, least: u64, most: u64| {
        if value < least || value > most {
            return value;
        }
        // `f64` is precise enough below 2^53, and both casts saturate.
        ((value as f64 * factor).round() as u64).clamp(least, most)
    };
    let trials = options
        .trials
        .map_or(trials_default(options).into(), |Count(trials)| trials);
    let share = trials.clamp(1, TRIALS_MAX);
    if let Some(Count(iterations)) = &mut options.iters {
        *iterations = scaled(*iterations, 1, ITERATIONS_MAX);
    }
    if let Some(Nanos(ns)) = &mut options.duration {
        *ns = scaled(*ns, TRIAL_NS_MIN * share, TRIAL_NS_MAX * share);
    }
    let by_time = options.iters.is_none() && options.duration.is_none();
    if by_time || options.trial_time.is_some() {
        let Nanos(ns) = options.trial_time.unwrap_or(Nanos(TRIAL_NS_DEFAULT));
        options.trial_time = Some(Nanos(scaled(ns, TRIAL_NS_MIN, TRIAL_NS_MAX)));
    }
    if let (Some(Nanos(interval)), Some(Nanos(whole))) = (
        &mut options.interval,
        options.duration.or(options.trial_time),
    ) {
        let trial = whole / if options.duration.is_some() { share } else { 1 };
        *interval = (*interval).min(trial);
        if let Some(Nanos(checkpoint)) = &mut options.checkpoint {
            *checkpoint = (*checkpoint).min(trial);
        }
        if trial < INTERVAL_NS_MIN {
            // The trial is too short for intervals. Without intervals, the default number of trials would change, so it
            // is set.
            (options.interval, options.checkpoint) = (None, None);
            options.trials.get_or_insert(Count(trials));
        }
    }
    if options.until_ci.is_some() {
        let Nanos(ns) = options
            .max_duration
            .unwrap_or(Nanos(MAX_DURATION_NS_DEFAULT));
        let fewest = options
            .trial_time
            .map_or(TRIAL_NS_MIN, |Nanos(ns)| ns.saturating_mul(share));
        let fewest = fewest.min(MAX_DURATION_NS_MAX);
        options.max_duration = Some(Nanos(
            scaled(ns, TRIAL_NS_MIN, MAX_DURATION_NS_MAX).max(fewest),
        ));
    }
}

/// Shorter intervals would show the operating system's scheduler instead of the path.
const INTERVAL_NS_MIN: u64 = 10_000_000;

/// The longest possible trial.
const INTERVAL_NS_MAX: u64 = 24 * 3_600_000_000_000;

/// Maximum number of checkpoints of a trial. Each checkpoint contains the whole series up to then.
const CHECKPOINTS_MAX: u64 = 100;

/// Maximum number of intervals of a trial: one per second for a week.
const INTERVALS_MAX: u64 = 604_800;

/// Returns the interval length; `None` if trials are not divided.
fn interval(asked: Option<Nanos>, trial: TrialLength) -> Result<Option<u64>> {
    let Some(Nanos(interval_ns)) = asked else {
        return Ok(None);
    };
    let bounds = INTERVAL_NS_MIN..=INTERVAL_NS_MAX;
    time_within(
        "interval",
        "",
        interval_ns,
        " to be told from the system's own pauses",
        bounds,
    )?;
    match trial {
        TrialLength::DurationNs(trial_ns) if interval_ns > trial_ns => usage_error(format!(
            "--interval {} is longer than a trial of {}: use --duration {}, or a shorter interval",
            Nanos(interval_ns),
            Nanos(trial_ns),
            Nanos(interval_ns.saturating_mul(10))
        )),
        TrialLength::DurationNs(trial_ns) if trial_ns / interval_ns > INTERVALS_MAX => {
            usage_error(format!(
                "--interval {} cuts a trial of {} into more than {INTERVALS_MAX} intervals: use --interval {} or more",
                Nanos(interval_ns),
                Nanos(trial_ns),
                Nanos(trial_ns.div_ceil(INTERVALS_MAX).next_multiple_of(1_000_000))
            ))
        }
        TrialLength::DurationNs(_) | TrialLength::Iterations(_) => Ok(Some(interval_ns)),
    }
}

/// Returns the time between two checkpoints; `None` if none are written.
fn checkpoint(
    asked: Option<Nanos>,
    interval_ns: Option<u64>,
    trial: TrialLength,
) -> Result<Option<u64>> {
    let (Some(asked), Some(interval_ns)) = (asked, interval_ns) else {
        return Ok(None);
    };
    let Nanos(checkpoint_ns) = asked;
    match trial {
        _ if checkpoint_ns < interval_ns => usage_error(format!(
            "--checkpoint {asked} is shorter than an interval: use --checkpoint {} or more",
            Nanos(interval_ns)
        )),
        TrialLength::DurationNs(trial_ns) if checkpoint_ns > trial_ns => usage_error(format!(
            "--checkpoint {asked} is longer than a trial of {}: use a shorter one, or a longer --duration",
            Nanos(trial_ns)
        )),
        TrialLength::DurationNs(trial_ns) if trial_ns / checkpoint_ns > CHECKPOINTS_MAX => {
            let least = trial_ns.div_ceil(CHECKPOINTS_MAX);
            usage_error(format!(
                "--checkpoint {asked} of a trial of {} would be written more than {CHECKPOINTS_MAX} times, each \
                 time with the whole series so far: use --checkpoint {} or more",
                Nanos(trial_ns),
                Nanos(least.next_multiple_of(1_000_000))
            ))
        }
        TrialLength::DurationNs(_) | TrialLength::Iterations(_) => Ok(Some(checkpoint_ns)),
    }
}

/// Refuses intervals if a trial consists of several rounds.
pub(super) fn check_rounds(interval: Option<Nanos>, roles: &[Roles]) -> Result<()> {
    let rounds = roles.iter().find(|roles| roles.round_count() > 1);
    match (interval, rounds) {
        (Some(interval), Some(roles)) => usage_error(format!(
            "--interval {interval} and --traffic {name} are mutually exclusive, because a trial is {rounds} rounds, \
             one after the other: leave --interval out, or use a --traffic with all ranks at once, such as all-to-all",
            name = roles.traffic.name(),
            rounds = roles.round_count()
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Refused, cases, options};
    use crate::point::Traffic;

    const MS: u64 = MILLISECOND_NS;

    fn with(change: impl FnOnce(&mut LengthOptions)) -> LengthOptions {
        let mut options = LengthOptions::default();
        change(&mut options);
        options
    }

    fn ms(count: u64) -> Option<Nanos> {
        Some(Nanos(count * MS))
    }

    #[test]
    fn defaults_are_five_trials_of_200_ms() {
        let default = length(&LengthOptions::default()).unwrap();
        assert_eq!(default, crate::testing::transfer_point().length);
        let split = length(&options("duration = '2s'\ntrials = 4")).unwrap();
        assert_eq!(split.trial, TrialLength::DurationNs(500 * MS));
        let counted = length(&options("iters = 128\nwarmup = 0\ninterval = '1s'")).unwrap();
        let expected = (TrialLength::Iterations(128), 0, Some(1000 * MS));
        assert_eq!(
            (counted.trial, counted.warmup_ns, counted.interval_ns),
            expected
        );
    }

    #[test]
    fn a_series_is_of_one_trial_unless_more_are_asked_for() {
        let cut = |lines: &str| length(&options(&format!("interval = '1s'\n{lines}"))).unwrap();
        for (lines, trials, trial_ms) in [
            ("duration = '6s'\ncheckpoint = '6s'", 1, 6000),
            ("duration = '6s'\ntrials = 3", 3, 2000),
            ("until-ci = '2%'\ntrial-time = '1s'", TRIALS_DEFAULT, 1000),
        ] {
            let found = cut(lines);
            assert_eq!((found.trials, found.interval_ns), (trials, Some(1000 * MS)));
            assert_eq!(found.trial, TrialLength::DurationNs(trial_ms * MS));
        }
        let mut scaled = with(|t| (t.interval, t.duration) = (ms(1000), ms(10_000)));
        scaled.checkpoint = ms(5000);
        scale(&mut scaled, 0.01);
        assert_eq!((scaled.interval, scaled.duration), (ms(100), ms(100)));
        assert_eq!(scaled.checkpoint, ms(100));
        scale(&mut scaled, 0.01);
        assert_eq!((scaled.interval, scaled.checkpoint), (None, None));
        assert!(length(&scaled).is_ok());
    }

    #[test]
    fn until_ci_is_bounded_by_60_s_by_default() {
        for (lines, bound_ms) in [
            ("", 60_000),
            ("max-duration = '5s'", 5000),
            ("trial-time = '100s'", 500_000),
        ] {
            let found = length(&options(&format!("until-ci = '2%'\n{lines}"))).unwrap();
            let bounds = (found.until_ci, found.max_duration_ns);
            assert_eq!(bounds, (Some(0.02), Some(bound_ms * MS)), "{lines}");
        }
    }

    #[test]
    fn values_out_of_range_are_refused_with_valid_ones() {
        for (lines, part) in cases([
            "until-ci = '2%'; max-duration = '500ms' => use --max-duration 1s or more, or a shorter --trial-time",
            "trials = 0 => --trials 0 would measure nothing: the fewest is --trials 1",
            "trials = 1000000 => the most is --trials 100000",
            "iters = 0 => the fewest is --iters 1",
            "iters = 1000000000001 => the most is --iters 1000000000000",
            "duration = '2ms' => --duration 2ms over 5 trials is too short to be timed: the shortest is --duration 5ms",
            "trial-time = 0 => the shortest is --trial-time 1ms",
            "trial-time = '25h' => the longest is --trial-time 24h",
            "warmup = '2h' => the longest is 1h",
            "until-ci = '0%' => above 0% and below 100%",
            "until-ci = '100%' => above 0% and below 100%",
            "until-ci = '200%' => above 0% and below 100%",
            "until-ci = '50%'; max-duration = '169h' => the longest is --max-duration 168h",
            "interval = '1s' => --interval 1s is longer than a trial of 200ms: use --duration 10s, or a shorter interval",
            "interval = 0 => the shortest is --interval 10ms",
            "interval = '10ms'; trial-time = '24h' => use --interval 143ms or more",
            "interval = '25h'; iters = 1 => the longest is --interval 24h",
            "interval = '1s'; checkpoint = '500ms'; trial-time = '10s' => use --checkpoint 1s or more",
            "interval = '1s'; checkpoint = '11s'; trial-time = '10s' => longer than a trial of 10s",
            "interval = '1s'; checkpoint = '1s'; trial-time = '1h' => use --checkpoint 36s or more",
        ]) {
            length(&options(lines)).refused(part);
        }
    }

    #[test]
    fn scaling_stays_valid_and_hides_no_mistake() {
        let mut options = with(|t| t.until_ci = Some(Fraction(0.02)));
        scale(&mut options, 0.1);
        assert_eq!(
            (options.trial_time, options.max_duration),
            (ms(20), ms(6000))
        );
        scale(&mut options, 1e-5);
        assert_eq!((options.trial_time, options.max_duration), (ms(1), ms(5)));
        assert!(length(&options).is_ok());

        let mut options = with(|t| t.iters = Some(Count(100)));
        scale(&mut options, 0.001);
        assert_eq!((options.iters, options.trial_time), (Some(Count(1)), None));

        let mut options = with(|t| t.duration = ms(2000));
        scale(&mut options, 2.0);
        assert_eq!((options.duration, options.trial_time), (ms(4000), None));

        let mut options = with(|t| t.trial_time = ms(0));
        scale(&mut options, 100.0);
        assert!(length(&options).is_err());
    }

    #[test]
    fn rounds_are_not_cut() {
        let of = |traffic| check_rounds(ms(1000), &[Roles::new(traffic, 4)]);
        assert!(of(Traffic::FanIn).is_ok());
        let error = of(Traffic::Matrix).unwrap_err().to_string();
        assert!(error.contains("a trial is 12 rounds"), "{error}");
    }
}
