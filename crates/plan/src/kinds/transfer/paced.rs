//! Operations at a rate, whether earlier ones are done or not: what `rate` means, alone and beside other options.

use std::fmt;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::length::TrialLength;
use crate::conflicts::Conflict;
use crate::options::{Group, with_default};
use crate::refuse::usage;
use tonnage_units::quantity::human;
use tonnage_units::{Nanos, PerSecond, Result};

/// Rate of operations.
#[derive(Debug, Clone, PartialEq, Default, Args, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
#[command(next_help_heading = "Pacing", mut_args = with_default::<Self>)]
pub struct PacedOptions {
    /// Issue this many operations per second in each initiating rank, whether earlier ones are done or not (at most
    /// the window in flight), and measure latency from when each was due. k and M are decimal.
    #[arg(long, value_name = "OPS", allow_hyphen_values = true)]
    pub rate: Option<PerSecond>,
}

impl Group for PacedOptions {}

/// The rate of a point.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Rate {
    /// Operations per second of each initiating rank, shared by its workers.
    pub rate_per_s: f64,
}

impl Rate {
    /// So many operations per second.
    pub fn per_s(rate_per_s: f64) -> Self {
        Self { rate_per_s }
    }

    /// What rates of one table have in common.
    #[must_use]
    pub fn of_any_speed(self) -> Self {
        Self { rate_per_s: 0.0 }
    }
}

/// Two words, such as `10k operations/s`.
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} operations/s", human::prefixed(self.rate_per_s))
    }
}

pub(crate) const CONFLICTS: &[Conflict] = &[
    Conflict::both(
        "ping-pong",
        "rate",
        "a ping-pong goes as fast as the answers come",
        "leave one of them out, or use rate with window 1",
    ),
    Conflict::both(
        "batch",
        "rate",
        "a rate spaces single operations",
        "use window with rate, or leave rate out",
    ),
    Conflict::both(
        "rate",
        "latency off",
        "a rate is there to measure response latency",
        "leave latency out, or leave rate out",
    ),
    Conflict::both(
        "cq event",
        "rate",
        OVERSLEEPS,
        "leave rate out, or use cq busy",
    ),
    Conflict::both(
        "cq event",
        "background-rate",
        OVERSLEEPS,
        "leave background-rate out, or use cq busy",
    ),
];

const OVERSLEEPS: &str = "a worker that sleeps misses when the next operation is due";

/// The highest rate of one rank: no engine comes within ten times of it.
const RATE_PER_S_MAX: f64 = 1e10;

/// The rate of these options, where there is one.
pub(super) fn rate(options: &PacedOptions, trial: TrialLength) -> Result<Option<Rate>> {
    let Some(asked) = options.rate else {
        return Ok(None);
    };
    let rate_per_s = checked("rate", asked, trial)?;
    Ok(Some(Rate::per_s(rate_per_s)))
}

/// The rate that `option` asks for, where operations are due at it in every trial.
pub(super) fn checked(option: &str, rate: PerSecond, trial: TrialLength) -> Result<f64> {
    let PerSecond(rate_per_s) = rate;
    if rate_per_s <= 0.0 {
        return usage(format!(
            "{option} {rate} would move nothing: write operations per second above 0, such as 200k"
        ));
    }
    if rate_per_s > RATE_PER_S_MAX {
        return usage(format!(
            "{option} {rate} is too high: the highest is {} per second",
            PerSecond(RATE_PER_S_MAX)
        ));
    }
    match trial {
        TrialLength::DurationNs(trial_ns) if rate_per_s * (trial_ns as f64) < 1e9 => {
            usage(format!(
                "{option} {rate} is less than one operation in a trial of {}: use trial-time {} or more",
                Nanos(trial_ns),
                // Whole seconds, saturating for rates that are next to nothing.
                Nanos(((1.0 / rate_per_s).ceil() as u64).saturating_mul(1_000_000_000))
            ))
        }
        _ => Ok(rate_per_s),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Refused, cases, options};

    const SECOND: TrialLength = TrialLength::DurationNs(1_000_000_000);

    #[test]
    fn rates_are_decimal_and_bounded() {
        let read = |lines: &str| rate(&options(lines), SECOND);
        assert_eq!(read("").unwrap(), None);
        assert_eq!(read("rate = '200k'").unwrap(), Some(Rate::per_s(2e5)));
        for (lines, part) in cases([
            "rate = 0 => above 0, such as 200k",
            "rate = '100G' => the highest is 10000000000",
            "rate = '0.25' => in a trial of 1s: use trial-time 4s or more",
        ]) {
            read(lines).refused(part);
        }
    }
}
