//! Paths from a thread to a peer: the combined meaning of `rails`, `queue-pairs`, `chunk` and `max-chunks`.

use clap::Args;
use serde::{Deserialize, Serialize};

use super::point::{Pacing, TransferPoint};
use crate::cells::cross_product;
use crate::options::{Group, Many, SWEEP, many_of, several, with_default};
use crate::refuse::{mover_count, usage_error};
use crate::roles::Roles;
use crate::sweep::Sweep;
use tonnage_engine::paths::{Cut, Division, Rails};
use tonnage_engine::{Entry, Verb};
use tonnage_units::{Bytes, Count, Result};

/// Default maximum number of parts of an operation.
const CHUNKS_MAX_DEFAULT: u32 = 64;

/// Largest accepted value of `max-chunks`.
const CHUNKS_MAX: u32 = 4096;

/// Options of the paths from a thread to a peer.
#[derive(Debug, Clone, PartialEq, Default, Args, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
#[command(next_help_heading = "Paths", mut_args = with_default::<Self>)]
pub struct IssuingOptions {
    /// Use of the devices of a rank; several are joined by commas. stripe and round-robin use all devices that
    /// --devices or --devices-of names, or else all that the engine finds.
    #[arg(long, value_name = "NAMES", value_parser = many_of::<Rails>(), value_delimiter = ',')]
    pub rails: Option<Many<Rails>>,

    /// Rotate the device lists of ranks that only serve by K. Device i of an initiator then talks to device i + K of
    /// its target (cross-rail).
    #[arg(long, value_name = "K")]
    pub rail_shift: Option<Count>,

    /// Endpoints (queue pairs) between a thread and a peer, used in turn: a value or a sweep.
    #[arg(long, alias = "qps", value_name = SWEEP)]
    #[serde(alias = "qps")]
    pub queue_pairs: Option<Sweep>,

    /// Cut longer operations into parts of this many bytes, which use the queue pairs in turn: a value or a sweep. An
    /// operation is complete when its last part is. [default: operations are not cut]
    #[arg(long, value_name = SWEEP)]
    pub chunk: Option<Sweep>,

    /// Cut an operation into at most this many parts; longer operations get longer parts. [default: 64]
    #[arg(long, value_name = "N")]
    pub max_chunks: Option<Count>,
}

impl Group for IssuingOptions {
    fn defaults() -> Self {
        Self {
            rails: Some(Many(vec![Rails::Single])),
            queue_pairs: Some(Sweep::single(Division::NONE.queue_pairs.into())),
            ..Self::default()
        }
    }
}

/// Returns the divisions to measure: each combination of the use of devices, the number of queue pairs and the part
/// length. The part length varies fastest.
pub(super) fn divisions(options: &IssuingOptions, sizes: &[u32]) -> Result<Vec<Division>> {
    let queue_pairs = Sweep::values_or(&options.queue_pairs, Division::NONE.queue_pairs.into());
    let checked = |queue_pairs| mover_count("queue-pairs", queue_pairs, Division::QUEUE_PAIRS_MAX);
    let queue_pairs: Vec<_> = queue_pairs
        .into_iter()
        .map(checked)
        .collect::<Result<_>>()?;
    let cuts = cut_sizes(options, sizes.iter().copied().max().unwrap_or(0))?;
    let rails = several("rails", &options.rails, "single")?.unwrap_or(&[Rails::Single]);
    let all = cross_product(vec![Division::NONE], rails, |division, &rails| {
        division.rails = rails
    });
    let all = cross_product(all, &queue_pairs, |division, &count| {
        division.queue_pairs = count
    });
    Ok(cross_product(all, &cuts, |division, &cut| {
        division.cut = cut
    }))
}

/// Refuses several rails or a rail shift if the engine has no devices to choose from.
pub(super) fn check_devices(options: &IssuingOptions, rails: Rails, entry: &Entry) -> Result<()> {
    let option = match options.rail_shift {
        _ if entry.has_devices => return Ok(()),
        _ if !rails.is_single() => format!("rails {rails}"),
        Some(Count(shift)) => format!("rail-shift {shift}"),
        None => return Ok(()),
    };
    let name = entry.name;
    usage_error(format!(
        "--{option} is about devices, and --engine {name} has none to choose from: leave it out, or use an engine \
         such as fabric:tcp"
    ))
}

/// Returns the number of positions by which the device lists of ranks that only serve are rotated.
pub(super) fn rail_shift(options: &IssuingOptions, roles: &[Roles]) -> Result<u32> {
    let Some(Count(shift)) = options.rail_shift else {
        return Ok(0);
    };
    if let Some(roles) = roles.iter().find(|roles| roles.all_initiate()) {
        return usage_error(format!(
            "--rail-shift {shift} turns the devices of ranks that only serve, and with --traffic {} all initiate: \
             leave it out, or use --traffic pair",
            roles.traffic.name()
        ));
    }
    let most = u32::from(u16::MAX);
    match u32::try_from(shift) {
        Ok(narrow) if narrow <= most => Ok(narrow),
        _ => usage_error(format!(
            "--rail-shift {shift} is too far: the most is --rail-shift {most}"
        )),
    }
}

/// Returns the part lengths, or a single `None` if operations are not cut.
fn cut_sizes(options: &IssuingOptions, largest: u32) -> Result<Vec<Option<Cut>>> {
    let Some(chunk) = &options.chunk else {
        return match options.max_chunks {
            None => Ok(vec![None]),
            Some(Count(most)) => usage_error(format!(
                "--max-chunks {most} bounds the parts that --chunk cuts, and there is none: leave --max-chunks out, \
                 or use --chunk 64k"
            )),
        };
    };
    let chunks_max = chunks_max(options.max_chunks)?;
    let cut = |&chunk: &u64| match u32::try_from(chunk) {
        Ok(0) => usage_error("--chunk 0 would move nothing: the smallest is --chunk 1"),
        Ok(chunk_bytes) if chunk_bytes <= largest => Ok(Some(Cut {
            chunk_bytes,
            chunks_max,
        })),
        _ => usage_error(format!(
            "--chunk {} cuts nothing, because the largest size is {}: use --chunk {} or less, or leave --chunk out",
            Bytes(chunk),
            Bytes(largest.into()),
            Bytes(u64::from(largest / 2).max(1))
        )),
    };
    let cuts: Vec<_> = chunk.values().iter().map(cut).collect::<Result<_>>()?;
    let least = chunk.values().iter().min().copied().unwrap_or(0);
    if least >= u64::from(largest) {
        return usage_error(format!(
            "--chunk {0} cuts nothing, because the largest size is {0}: use a smaller chunk, or leave --chunk out",
            Bytes(least)
        ));
    }
    Ok(cuts)
}

fn chunks_max(asked: Option<Count>) -> Result<u32> {
    let Some(Count(most)) = asked else {
        return Ok(CHUNKS_MAX_DEFAULT);
    };
    match u32::try_from(most) {
        Ok(0 | 1) => usage_error(format!(
            "--max-chunks {most} would leave operations whole: the fewest is --max-chunks 2, or leave --chunk out"
        )),
        Ok(narrow) if narrow <= CHUNKS_MAX => Ok(narrow),
        _ => usage_error(format!(
            "--max-chunks {most} are too many: the most is --max-chunks {CHUNKS_MAX}"
        )),
    }
}

/// Refuses operations that need an order between paths, because different paths have none.
pub(super) fn check_order(point: &TransferPoint) -> Result<()> {
    let division = point.division;
    if point.op == Verb::Send && division.cuts() {
        let option = if division.cut.is_some() {
            "chunk"
        } else {
            "rails"
        };
        return usage_error(format!(
            "--{option} cuts operations into parts that land independently, and a send needs a receive for each: \
             leave --{option} out, or use --op write-imm"
        ));
    }
    if point.op == Verb::Write && point.pacing == Pacing::PingPong && division.divides_flows() {
        let option = match (division.cut, division.rails) {
            (Some(_), _) => "chunk",
            (None, Rails::Stripe) => "rails",
            (None, _) => "queue-pairs",
        };
        return usage_error(format!(
            "--ping-pong with --op write waits for the last byte to appear, and with --{option} any part may be the \
             last: leave --{option} out, or use --op write-imm"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Refused, cases, options};

    #[test]
    fn every_number_of_queue_pairs_goes_with_every_length_of_a_part() {
        let none = divisions(&IssuingOptions::default(), &[8]).unwrap();
        assert_eq!(none, [Division::NONE]);
        let asked = options("queue-pairs = '1,4'\nchunk = '64k,1k'\nmax-chunks = 8");
        let all = divisions(&asked, &[8, 1 << 20]).unwrap();
        let said = all.iter().map(|division| {
            let cut = division.cut.unwrap();
            assert_eq!(cut.chunks_max, 8);
            (division.queue_pairs, cut.chunk_bytes)
        });
        let expected = [(1, 64 << 10), (1, 1 << 10), (4, 64 << 10), (4, 1 << 10)];
        assert!(said.eq(expected));
    }

    #[test]
    fn impossible_divisions_are_refused_with_the_nearest_choice() {
        for (lines, part) in cases([
            "queue-pairs = 0 => --queue-pairs 0 would move nothing: the fewest is --queue-pairs 1",
            "queue-pairs = 65 => --queue-pairs 65 are too many: the most is --queue-pairs 64",
            "chunk = 0 => --chunk 0 would move nothing: the smallest is --chunk 1",
            "chunk = '1k,8k' => --chunk 8k cuts nothing, because the largest size is 4k: use --chunk 2k or less",
            "chunk = '4k' => --chunk 4k cuts nothing, because the largest size is 4k: use a smaller chunk",
            "max-chunks = 8 => bounds the parts that --chunk cuts, and there is none: leave --max-chunks out",
            "chunk = '1k'; max-chunks = 1 => the fewest is --max-chunks 2, or leave --chunk out",
            "chunk = '1k'; max-chunks = 4097 => --max-chunks 4097 are too many: the most is --max-chunks 4096",
        ]) {
            divisions(&options(lines), &[8, 4096]).refused(part);
        }
        // A sweep may compare whole operations with cut ones.
        assert!(divisions(&options("chunk = '1k,4k'"), &[8, 4096]).is_ok());
    }
}
