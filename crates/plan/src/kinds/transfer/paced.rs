//! Operations at a rate: the meaning of `rate` and `burst`, and options that cannot be combined with them.

use std::fmt;
use std::str::FromStr;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::length::TrialLength;
use super::point::{Pacing, TransferPoint};
use crate::bounds::DEPTH_MAX;
use crate::conflicts::Conflict;
use crate::options::{Group, text, with_default};
use crate::refuse::{mover_count, usage_error};
use tonnage_units::names::quote;
use tonnage_units::quantity::human;
use tonnage_units::{Bytes, BytesPerSecond, Count, Error, Nanos, PerSecond, Result};

/// Rate of operations.
#[derive(Debug, Clone, PartialEq, Default, Args, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
#[command(next_help_heading = "Pacing", mut_args = with_default::<Self>)]
pub struct PacedOptions {
    /// Issue operations at this rate in each initiating rank: operations per second such as 200k, or payload such as
    /// 10Gb/s or 1.25GB/s. An operation does not wait for earlier ones, unless the depth is reached, and its latency
    /// counts from when it was due. k, M and G are decimal.
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    #[serde(with = "text")]
    pub rate: Option<AskedRate>,

    /// With --rate: this many operations are due at once, and the time between bursts keeps the rate.
    #[arg(long, value_name = "N")]
    pub burst: Option<Count>,
}

/// A rate as the user writes it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum AskedRate {
    /// Operations per second.
    Operations(PerSecond),
    /// Payload per second. Divided by the operation size, this is the operations per second.
    Payload(BytesPerSecond),
}

impl FromStr for AskedRate {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        // A unit of bytes or bits means payload. A rate of operations has no unit, only a prefix such as k.
        if text.ends_with("B/s") || text.ends_with("b/s") {
            return text.parse().map(Self::Payload);
        }
        text.parse().map(Self::Operations).map_err(|_| {
            Error::Usage(format!(
                "{} is not a rate: use operations per second like 200000, 200k or 1.5M (decimal), or payload like \
                 10Gb/s",
                quote(text)
            ))
        })
    }
}

impl fmt::Display for AskedRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operations(rate) => rate.fmt(f),
            Self::Payload(rate) => rate.fmt(f),
        }
    }
}

impl Group for PacedOptions {
    fn defaults() -> Self {
        Self {
            burst: Some(Count(1)),
            ..Self::default()
        }
    }
}

/// The rate of a point.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Rate {
    /// Operations per second of each initiating rank, shared by its threads.
    pub rate_per_s: f64,
    /// Payload per second of each initiating rank, if the rate was requested as payload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bytes_per_s: Option<f64>,
    /// Number of operations that are due at once.
    #[serde(default = "default_burst", skip_serializing_if = "is_default_burst")]
    pub burst: u32,
}

fn default_burst() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_default_burst(burst: &u32) -> bool {
    *burst == 1
}

impl Rate {
    /// Returns a rate of operations without bursts.
    pub fn per_s(rate_per_s: f64) -> Self {
        Self {
            rate_per_s,
            rate_bytes_per_s: None,
            burst: 1,
        }
    }

    /// Returns the properties that all rates of one table share: everything except the speed.
    #[must_use]
    pub fn without_speed(self) -> Self {
        Self {
            rate_per_s: 0.0,
            rate_bytes_per_s: None,
            ..self
        }
    }
}

/// Writes a rate as `10k operations/s`, or `10k operations/s in bursts of 16`.
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} operations/s", human::prefixed(self.rate_per_s))?;
        match self.burst {
            1 => Ok(()),
            burst => write!(f, " in bursts of {burst}"),
        }
    }
}

pub(crate) const CONFLICTS: &[Conflict] = &[
    Conflict::both(
        "ping-pong",
        "rate",
        "a ping-pong is paced by its answers",
        "leave one of them out, or use --depth 1 in place of --ping-pong",
    ),
    Conflict::both(
        "batch",
        "rate",
        "a batch waits for its operations, and a rate does not",
        "use --depth 8 in place of --batch, or leave --rate out",
    ),
    Conflict::both(
        "rate",
        "latency off",
        "a rate measures response latency",
        "leave --latency out, or leave --rate out",
    ),
    Conflict::without("burst", "rate", "add --rate 100k, or leave --burst out"),
    Conflict::both(
        "cq event",
        "rate",
        OVERSLEEPS,
        "leave --rate out, or use --cq busy",
    ),
];

pub(super) const OVERSLEEPS: &str = "a thread that sleeps misses when the next operation is due";

/// Highest accepted rate of one rank. It is more than ten times what any engine reaches.
const RATE_PER_S_MAX: f64 = 1e10;

/// Returns the requested rate, if any. [`complete`] later knows the operation size and converts payload to operations.
pub(super) fn rate(options: &PacedOptions, trial: TrialLength) -> Result<Option<Rate>> {
    let Some(asked) = options.rate else {
        return Ok(None);
    };
    let Count(burst) = options.burst.unwrap_or(Count(1));
    let rate = match asked {
        AskedRate::Operations(_) => Rate::per_s(asked.per_s("rate", 1, trial)?),
        AskedRate::Payload(BytesPerSecond(bytes_per_s)) => Rate {
            rate_bytes_per_s: Some(bytes_per_s),
            ..Rate::per_s(0.0)
        },
    };
    let burst = mover_count("burst", burst, DEPTH_MAX)?;
    Ok(Some(Rate { burst, ..rate }))
}

/// Converts a point's payload rate to operations per second. Refuses bursts that do not fit into the depth, a trial or
/// an interval.
pub(super) fn complete(point: &mut TransferPoint) -> Result<()> {
    let threads = point.measuring_threads().max(1);
    let (length, size_bytes) = (point.length, point.slots.size_bytes);
    let Pacing::Paced { depth, rate } = &mut point.pacing else {
        return Ok(());
    };
    if let Some(bytes_per_s) = rate.rate_bytes_per_s {
        // The rate is set before the check, so that the record of an impossible cell has it too.
        rate.rate_per_s = bytes_per_s / f64::from(size_bytes);
        let asked = AskedRate::Payload(BytesPerSecond(bytes_per_s));
        asked.per_s("rate", size_bytes, length.trial)?;
    }
    let burst = rate.burst;
    if burst == 1 {
        return Ok(());
    }
    if burst > *depth {
        return usage_error(format!(
            "--burst {burst} does not fit into --depth {depth}: use --depth {burst}, or a smaller burst"
        ));
    }
    let distance_ns = f64::from(burst) * 1e9 / rate.rate_per_s;
    // Casts of floats saturate.
    let round_ns = (distance_ns * f64::from(threads)).ceil() as u64;
    match length.trial {
        TrialLength::DurationNs(trial_ns) if trial_ns < round_ns => usage_error(format!(
            "bursts of {burst} from each of {threads} threads take {} at this rate, longer than a trial of {}: use \
             --trial-time {} or more, or a smaller burst",
            Nanos(round_ns),
            Nanos(trial_ns),
            Nanos(
                round_ns
                    .div_ceil(1_000_000_000)
                    .saturating_mul(1_000_000_000)
            )
        )),
        TrialLength::Iterations(count) if count < burst.into() => usage_error(format!(
            "--iters {count} is less than --burst {burst}: use --iters {burst} or more, or a smaller burst"
        )),
        _ if length
            .interval_ns
            .is_some_and(|ns| (ns as f64) < distance_ns) =>
        {
            usage_error(format!(
                "bursts of {burst} are {0} apart at this rate, so some intervals would be empty: use --interval {0} \
                 or more, or a smaller burst",
                Nanos(distance_ns.ceil() as u64)
            ))
        }
        _ => Ok(()),
    }
}

impl AskedRate {
    /// Converts the rate to operations of `size_bytes` per second; `option` names it in messages. Refuses rates that
    /// are too high, and rates at which a trial may have no operation.
    pub(super) fn per_s(self, option: &str, size_bytes: u32, trial: TrialLength) -> Result<f64> {
        let (rate_per_s, of_size) = match self {
            Self::Operations(PerSecond(rate_per_s)) => (rate_per_s, String::new()),
            Self::Payload(BytesPerSecond(bytes_per_s)) => (
                bytes_per_s / f64::from(size_bytes),
                format!(" of size {}", Bytes(size_bytes.into())),
            ),
        };
        if rate_per_s <= 0.0 {
            return usage_error(format!(
                "--{option} {self} would move nothing: use operations per second above 0, such as 200k, or payload, \
                 such as 10Gb/s"
            ));
        }
        if rate_per_s > RATE_PER_S_MAX {
            return usage_error(format!(
                "--{option} {self}{of_size} is too high: the highest is {} operations per second",
                PerSecond(RATE_PER_S_MAX)
            ));
        }
        match trial {
            TrialLength::DurationNs(trial_ns) if rate_per_s * (trial_ns as f64) < 1e9 => {
                usage_error(format!(
                    "--{option} {self}{of_size} is less than one operation in a trial of {}: use --trial-time {} or \
                     more",
                    Nanos(trial_ns),
                    // Rounded up to whole seconds. Tiny rates saturate.
                    Nanos(((1.0 / rate_per_s).ceil() as u64).saturating_mul(1_000_000_000))
                ))
            }
            _ => Ok(rate_per_s),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Refused, cases, options, transfers};

    const SECOND: TrialLength = TrialLength::DurationNs(1_000_000_000);

    #[test]
    fn rates_are_decimal_and_bounded() {
        let read = |lines: &str| rate(&options(lines), SECOND);
        assert_eq!(read("").unwrap(), None);
        assert_eq!(read("rate = '200k'").unwrap(), Some(Rate::per_s(2e5)));
        for (lines, part) in cases([
            "rate = 0 => above 0, such as 200k",
            "rate = '100G' => the highest is 10000000000",
            "rate = '0.25' => in a trial of 1s: use --trial-time 4s or more",
            "rate = 16; burst = 0 => the fewest is --burst 1",
        ]) {
            read(lines).refused(part);
        }
        assert!("10Gx".parse::<AskedRate>().is_err());
    }

    fn points(lines: &str) -> Result<Vec<TransferPoint>> {
        transfers(&format!("engine = 'shm'\nop = 'write'\n{lines}"), 2)
    }

    fn found(lines: &str) -> Vec<Rate> {
        let rate = |point: TransferPoint| match point.pacing {
            Pacing::Paced { rate, .. } => rate,
            other => unreachable!("{other:?}"),
        };
        points(lines).unwrap().into_iter().map(rate).collect()
    }

    #[test]
    fn payload_becomes_operations_of_each_size() {
        let rates = found("sizes = '1000,50000'\nrate = '10Gb/s'\nburst = 16");
        let per_s: Vec<f64> = rates.iter().map(|rate| rate.rate_per_s).collect();
        assert_eq!(per_s, [1.25e6, 25e3]);
        assert!(
            rates
                .iter()
                .all(|rate| rate.burst == 16 && rate.rate_bytes_per_s == Some(1.25e9))
        );
        let same = found("sizes = 1000\nrate = '1.25GB/s'\nburst = 16");
        assert_eq!(same, rates[..1]);
    }

    #[test]
    fn impossible_payload_and_bursts_are_refused_with_a_valid_choice() {
        for (lines, part) in cases([
            "sizes = 64; rate = '1k'; burst = 65 => burst 65 does not fit into depth 64: use depth 65",
            "sizes = 64; rate = 100; burst = 32 => of 32 from each of 1 threads take 320ms at this rate, longer than a trial \
             of 200ms: use trial-time 1s or more",
            "sizes = 64; rate = 200; burst = 32; threads = 2 => take 320ms at this rate",
            "sizes = 64; rate = '1k'; burst = 32; iters = 31 => iters 31 is less than burst 32: use iters 32 or more",
            "sizes = 64; rate = '1k'; burst = 32; interval = '20ms' => are 32ms apart at this rate, so some intervals would be empty: use interval 32ms",
            "sizes = 64; rate = '0Gb/s' => above 0, such as 200k, or payload, such as 10Gb/s",
            "sizes = 1; rate = '100Gb/s' => rate 12.5GB/s of size 1 is too high",
            "sizes = '1G'; rate = '1Gb/s' => rate 125MB/s of size 1G is less than one operation in a trial of 200ms: use \
             trial-time 9s or more",
        ]) {
            points(lines).refused(part);
        }
    }

    /// Records from before bursts existed.
    #[test]
    fn a_point_without_bursts_has_bursts_of_one() {
        let old = "{\"kind\":\"paced\",\"depth\":8,\"rate_per_s\":1000.0}";
        let read: Pacing = serde_json::from_str(old).unwrap();
        let expected = Pacing::Paced {
            depth: 8,
            rate: Rate::per_s(1000.0),
        };
        assert_eq!(read, expected);
        assert_eq!(serde_json::to_string(&read).unwrap(), old);
    }
}
