//! Pacing of operations: what `ping-pong`, `window`, `batch` and `rate` mean together.

use clap::Args;
use serde::{Deserialize, Serialize};

use super::length::TrialLength;
use super::point::{CqMode, Pacing, TransferPoint};
use crate::bounds::DEPTH_MAX;
use crate::options::{Group, Many, SWEEP, many_of, several, with_default};
use crate::refuse::usage;
use crate::sweep::Sweep;
use tonnage_engine::Verb;
use tonnage_units::{Nanos, PerSecond, Result};

/// Operations in flight on each lane where nothing else is said.
pub const WINDOW_DEFAULT: u32 = 64;

/// Pacing of operations.
#[derive(Debug, Clone, PartialEq, Default, Args, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
#[command(next_help_heading = "Pacing", mut_args = with_default::<Self>)]
pub struct PacingOptions {
    /// Keep this many operations in flight on each lane: a value or a sweep.
    #[arg(long, value_name = SWEEP)]
    pub window: Option<Sweep>,

    /// Post this many operations, wait for all of them, and start again: a value or a sweep.
    #[arg(long, value_name = SWEEP)]
    pub batch: Option<Sweep>,

    /// Issue one operation and wait for the answer. Latency is half the round trip, except for read.
    #[arg(long)]
    pub ping_pong: bool,

    /// Issue this many operations per second in each initiating rank, whether earlier ones are done or not (at most
    /// the window in flight), and measure latency from when each was due. k and M are decimal.
    #[arg(long, value_name = "OPS", allow_hyphen_values = true)]
    pub rate: Option<PerSecond>,

    /// Wait for completions by polling without end (busy) or by sleeping (event), at both ends; several are joined by
    /// commas. CPU time of both ends is reported.
    #[arg(long, value_name = "NAMES", value_parser = many_of::<CqMode>(), value_delimiter = ',')]
    pub cq: Option<Many<CqMode>>,
}

impl Group for PacingOptions {
    fn defaults() -> Self {
        Self {
            window: Some(Sweep::one(WINDOW_DEFAULT.into())),
            cq: Some(Many(vec![CqMode::Busy])),
            ..Self::default()
        }
    }
}

/// The highest rate of one rank: no engine comes within ten times of it.
const RATE_PER_S_MAX: f64 = 1e10;

/// The pacings of these options, one for each value of its window or batch.
pub(super) fn pacings(options: &PacingOptions, latency: Option<bool>) -> Result<Vec<Pacing>> {
    contradictions(options, latency)?;
    if options.ping_pong {
        return Ok(vec![Pacing::PingPong]);
    }
    if let Some(batch) = &options.batch {
        let batches = depths("batch", batch)?.into_iter();
        return Ok(batches.map(|batch| Pacing::Batch { batch }).collect());
    }
    let windows = match &options.window {
        Some(window) => depths("window", window)?,
        None => vec![WINDOW_DEFAULT],
    };
    let rate = options
        .rate
        .map(|rate| checked_rate("rate", rate))
        .transpose()?;
    let pacing = |window| match rate {
        Some(rate_per_s) => Pacing::Paced { window, rate_per_s },
        None => Pacing::Stream { window },
    };
    Ok(windows.into_iter().map(pacing).collect())
}

/// The ways of waiting to measure.
pub(super) fn cq_modes(options: &PacingOptions) -> Result<&[CqMode]> {
    let modes = several("cq", &options.cq, "busy")?.unwrap_or(&[CqMode::Busy]);
    if modes.contains(&CqMode::Event)
        && let Some(rate) = options.rate
    {
        return usage(format!(
            "cq event and rate {rate} contradict each other, for whoever sleeps misses when the next operation is due: \
             leave rate out, or use cq busy"
        ));
    }
    Ok(modes)
}

/// Refuses an operation under a ping-pong whose end somebody who sleeps cannot see.
pub(super) fn check_waiting(point: &TransferPoint) -> Result<()> {
    if point.cq == CqMode::Event && point.pacing == Pacing::PingPong && point.op == Verb::Write {
        return usage(
            "cq event and a ping-pong with op write contradict each other, for that waits for the last byte by looking \
             at memory: use op write-imm, or cq busy",
        );
    }
    Ok(())
}

/// Refuses pacings that contradict each other.
pub(crate) fn contradictions(options: &PacingOptions, latency: Option<bool>) -> Result<()> {
    let ping_pong = options.ping_pong;
    let (window, batch) = (options.window.is_some(), options.batch.is_some());
    let rate = options.rate.is_some();
    let silent = latency == Some(false);
    usage(match () {
        () if ping_pong && window => {
            "ping-pong and window contradict each other, for a ping-pong has one operation in flight: \
             leave one of them out"
        }
        () if ping_pong && batch => {
            "ping-pong and batch contradict each other, for a ping-pong has one operation in flight: \
             leave one of them out"
        }
        () if ping_pong && rate => {
            "ping-pong and rate contradict each other, for a ping-pong goes as fast as the answers come: \
             leave one of them out, or use rate with window 1"
        }
        () if ping_pong && silent => {
            "ping-pong measures latency, so latency cannot be off: leave latency out, or use window 1"
        }
        () if window && batch => {
            "window and batch contradict each other, for a batch is posted whole and then waited for: \
             leave one of them out"
        }
        () if batch && rate => {
            "batch and rate contradict each other, for a rate spaces single operations: \
             use window with rate, or leave rate out"
        }
        () if rate && silent => {
            "rate measures response latency, so latency cannot be off: leave latency out, or leave rate out"
        }
        () => return Ok(()),
    })
}

/// Refuses a rate in whose trial not one operation is due: it would measure nothing.
pub(super) fn check_rate(option: &str, rate_per_s: f64, trial: TrialLength) -> Result<()> {
    match trial {
        TrialLength::DurationNs(trial_ns) if rate_per_s * (trial_ns as f64) < 1e9 => {
            usage(format!(
                "{option} {rate_per_s} is less than one operation in a trial of {}: use trial-time {} or more",
                Nanos(trial_ns),
                // Whole seconds, saturating for rates that are next to nothing.
                Nanos(((1.0 / rate_per_s).ceil() as u64).saturating_mul(1_000_000_000))
            ))
        }
        _ => Ok(()),
    }
}

/// The values of a window or batch sweep, checked.
fn depths(what: &str, sweep: &Sweep) -> Result<Vec<u32>> {
    let checked = |&value: &u64| match u32::try_from(value) {
        Ok(0) => usage(format!(
            "{what} 0 would move nothing: the smallest {what} is 1, as in {what} 1..64"
        )),
        Ok(depth) if depth <= DEPTH_MAX => Ok(depth),
        _ => usage(format!(
            "{what} {value} is too large: the largest {what} is {DEPTH_MAX}"
        )),
    };
    sweep.values().iter().map(checked).collect()
}

/// A rate of one rank, which `option` has.
pub(super) fn checked_rate(option: &str, rate: PerSecond) -> Result<f64> {
    if rate.0 <= 0.0 {
        return usage(format!(
            "{option} {rate} would move nothing: write operations per second above 0, such as 200k"
        ));
    }
    if rate.0 > RATE_PER_S_MAX {
        return usage(format!(
            "{option} {rate} is too high: the highest is {} per second",
            PerSecond(RATE_PER_S_MAX)
        ));
    }
    Ok(rate.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Refused, cases, options};

    fn paced(lines: &str, latency: Option<bool>) -> Result<Vec<Pacing>> {
        pacings(&options(lines), latency)
    }

    #[test]
    fn each_form_becomes_its_pacing() {
        let stream = |window| Pacing::Stream { window };
        for (lines, expected) in [
            ("", vec![stream(64)]),
            ("ping-pong = true", vec![Pacing::PingPong]),
            (
                "batch = '1..4'",
                [1, 2, 4].map(|batch| Pacing::Batch { batch }).to_vec(),
            ),
            ("window = '1,8'", [1, 8].map(stream).to_vec()),
            (
                "rate = '200k'",
                vec![Pacing::Paced {
                    window: 64,
                    rate_per_s: 2e5,
                }],
            ),
        ] {
            assert_eq!(paced(lines, None).unwrap(), expected, "{lines}");
        }
    }

    #[test]
    fn what_contradicts_itself_or_is_out_of_range_names_what_does_not() {
        for (lines, part) in cases([
            "ping-pong = true; window = 4 => ping-pong and window contradict each other",
            "ping-pong = true; batch = 4 => ping-pong and batch contradict",
            "ping-pong = true; rate = 1 => or use rate with window 1",
            "window = 4; batch = 4 => window and batch contradict",
            "batch = 4; rate = 1 => use window with rate",
            "window = 0 => window 0 would move nothing: the smallest window is 1, as in window 1..64",
            "batch = 0 => the smallest batch is 1",
            "batch = 1048577 => batch 1048577 is too large: the largest batch is 1048576",
            "window = '8G' => the largest window is 1048576",
            "rate = 0 => above 0, such as 200k",
            "rate = '100G' => the highest is 10000000000",
        ]) {
            paced(lines, None).refused(part);
        }
        paced("ping-pong = true", Some(false)).refused("ping-pong measures latency");
        paced("rate = 1", Some(false)).refused("response latency");
    }
}
