//! Pacing of operations: the meaning of `ping-pong`, `depth` and `batch`. Rates are in `paced`.

use clap::Args;
use serde::{Deserialize, Serialize};

use super::paced::Rate;
use super::point::{CqMode, Pacing, TransferPoint};
use crate::bounds::DEPTH_MAX;
use crate::conflicts::Conflict;
use crate::options::{Group, Many, SWEEP, many_of, several, with_default};
use crate::refuse::usage_error;
use crate::sweep::Sweep;
use tonnage_engine::Verb;
use tonnage_units::Result;

/// Default number of operations in flight on each lane.
pub const DEPTH_DEFAULT: u32 = 64;

/// Pacing of operations.
#[derive(Debug, Clone, PartialEq, Default, Args, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
#[command(next_help_heading = "Pacing", mut_args = with_default::<Self>)]
pub struct PacingOptions {
    /// Keep this many operations in flight on each lane: a value or a sweep.
    #[arg(long, aliases = ["window", "iodepth"], value_name = SWEEP)]
    #[serde(alias = "window", alias = "iodepth")]
    pub depth: Option<Sweep>,

    /// Post this many operations, wait for all of them, and start again: a value or a sweep.
    #[arg(long, value_name = SWEEP)]
    pub batch: Option<Sweep>,

    /// Issue one operation and wait for the answer. Latency is half the round trip, except for read.
    #[arg(long)]
    pub ping_pong: bool,

    /// Wait for completions by polling without end (busy) or by sleeping (event), at both ends; several are joined by
    /// commas. CPU time of both ends is reported.
    #[arg(long, value_name = "NAMES", value_parser = many_of::<CqMode>(), value_delimiter = ',')]
    pub cq: Option<Many<CqMode>>,
}

impl Group for PacingOptions {
    fn defaults() -> Self {
        Self {
            depth: Some(Sweep::single(DEPTH_DEFAULT.into())),
            cq: Some(Many(vec![CqMode::Busy])),
            ..Self::default()
        }
    }
}

/// Options that cannot be combined with a ping-pong.
pub(crate) const CONFLICTS: &[Conflict] = &[
    Conflict::both("ping-pong", "depth", IN_TURN, "leave one of them out"),
    Conflict::both("ping-pong", "batch", IN_TURN, "leave one of them out"),
    Conflict::both(
        "ping-pong",
        "latency off",
        "a ping-pong measures latency",
        "leave --latency out, or use --depth 1 in place of --ping-pong",
    ),
];

const IN_TURN: &str = "a ping-pong has one operation in flight";

/// A transfer has either a depth or a batch. A search may have both, as competitors.
pub(super) const DEPTHS: &[Conflict] = &[Conflict::both(
    "depth",
    "batch",
    "a batch is posted whole and then waited for",
    "leave one of them out",
)];

/// Returns the requested pacings, one for each value of the depth or batch.
pub(super) fn pacings(options: &PacingOptions, rate: Option<Rate>) -> Result<Vec<Pacing>> {
    if options.ping_pong {
        return Ok(vec![Pacing::PingPong]);
    }
    if let Some(batch) = &options.batch {
        let batches = depths("batch", batch)?.into_iter();
        return Ok(batches.map(|batch| Pacing::Batch { batch }).collect());
    }
    let depths = match &options.depth {
        Some(depth) => depths("depth", depth)?,
        None => vec![DEPTH_DEFAULT],
    };
    let pacing = |depth| match rate {
        Some(rate) => Pacing::Paced { depth, rate },
        None => Pacing::Stream { depth },
    };
    Ok(depths.into_iter().map(pacing).collect())
}

/// Returns the modes of waiting for completions to measure.
pub(super) fn cq_modes(options: &PacingOptions) -> Result<&[CqMode]> {
    Ok(several("cq", &options.cq, "busy")?.unwrap_or(&[CqMode::Busy]))
}

/// Refuses a ping-pong of plain writes with sleeping threads, because a sleeping thread cannot see the last byte
/// arrive.
pub(super) fn check_waiting(point: &TransferPoint) -> Result<()> {
    if point.cq == CqMode::Event && point.pacing == Pacing::PingPong && point.op == Verb::Write {
        return usage_error(
            "--cq event and a ping-pong with --op write are mutually exclusive, because the latter polls memory for \
             the last byte: use --op write-imm, or --cq busy",
        );
    }
    Ok(())
}

/// Checks and returns the values of a depth or batch sweep.
fn depths(what: &str, sweep: &Sweep) -> Result<Vec<u32>> {
    let checked = |&value: &u64| match u32::try_from(value) {
        Ok(0) => usage_error(format!(
            "--{what} 0 would move nothing: the smallest is 1, as in --{what} 1..64"
        )),
        Ok(depth) if depth <= DEPTH_MAX => Ok(depth),
        _ => usage_error(format!(
            "--{what} {value} is too large: the largest is {DEPTH_MAX}"
        )),
    };
    sweep.values().iter().map(checked).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Refused, cases, options};

    #[test]
    fn each_form_becomes_its_pacing() {
        let stream = |depth| Pacing::Stream { depth };
        for (lines, expected) in [
            ("", vec![stream(64)]),
            ("ping-pong = true", vec![Pacing::PingPong]),
            (
                "batch = '1..4'",
                [1, 2, 4].map(|batch| Pacing::Batch { batch }).to_vec(),
            ),
            ("depth = '1,8'", [1, 8].map(stream).to_vec()),
        ] {
            assert_eq!(pacings(&options(lines), None).unwrap(), expected, "{lines}");
        }
        let rate = Rate::per_s(2e5);
        let paced = pacings(&options("depth = 4"), Some(rate)).unwrap();
        assert_eq!(paced, [Pacing::Paced { depth: 4, rate }]);
    }

    #[test]
    fn depths_out_of_range_are_refused_with_valid_ones() {
        for (lines, part) in cases([
            "depth = 0 => --depth 0 would move nothing: the smallest is 1, as in --depth 1..64",
            "batch = 0 => the smallest is 1",
            "batch = 1048577 => batch 1048577 is too large: the largest is 1048576",
            "depth = '8G' => the largest is 1048576",
        ]) {
            pacings(&options(lines), None).refused(part);
        }
    }
}
