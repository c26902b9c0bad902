//! Background load during a latency measurement, moved by separate threads: its syntax, target ranks and rates, and the
//! threads that it uses.

use std::fmt;
use std::str::FromStr;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::batching::Batching;
use super::layout::{SlotLayout, check_memory, slot_layout};
use super::length::{PointLength, TrialLength};
use super::options::{MemoryOptions, Transfer};
use super::paced::{AskedRate, OVERSLEEPS, Rate};
use super::point::{CqMode, Pacing, TransferApi, TransferPoint};
use super::slots::{Access, Slots, TargetFootprint};
use crate::bounds::{DEPTH_MAX, SIZE_BYTES_MAX, THREADS_MAX};
use crate::conflicts::Conflict;
use crate::options::{Group, Many, text, with_default};
use crate::point::Traffic;
use crate::refuse::usage_error;
use crate::roles::Roles;
use tonnage_engine::{Entry, Verb};
use tonnage_units::names::quote;
use tonnage_units::{Bytes, Error, Nanos, Result};

tonnage_units::names! {
    /// Pairs of ranks between which a background moves its bytes.
    pub enum BackgroundPair: "background pair" {
        /// The measured pairs themselves.
        Same = "same",
        /// Each initiator goes to the target of the next one.
        Other = "other",
    }
}

/// Background load on the paths during a latency measurement. Some threads of each initiating rank move it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Background {
    /// Operation.
    pub op: Verb,
    /// Payload bytes of one operation.
    pub size_bytes: u32,
    /// Operations in flight on each lane.
    #[serde(alias = "window")]
    pub depth: u32,
    /// Pairs of ranks.
    pub pair: BackgroundPair,
    /// Number of threads of each rank that move the load. They are the rank's last threads.
    #[serde(alias = "workers")]
    pub threads: u32,
    /// Operations per second of each initiating rank. Absent if the rate is not limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_per_s: Option<f64>,
}

/// Writes a background as `op=write,size=1M,depth=8,pair=same`, followed by the number of threads if it is more than 1.
impl fmt::Display for Background {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (op, size) = (self.op.name(), Bytes(self.size_bytes.into()));
        let pair = self.pair.name();
        write!(f, "op={op},size={size},depth={},pair={pair}", self.depth)?;
        match self.threads {
            1 => Ok(()),
            threads => write!(f, ",threads={threads}"),
        }
    }
}

const KEYS: &str = "op, size, depth, pair and threads";

impl FromStr for Background {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut read = Self {
            op: Verb::Write,
            size_bytes: 1 << 20,
            depth: 8,
            pair: BackgroundPair::Same,
            threads: 1,
            rate_per_s: None,
        };
        let mut seen: Vec<&str> = Vec::new();
        for part in text.split(',') {
            let Some((key, value)) = part.split_once('=') else {
                return usage_error(format!(
                    "{} is not a setting of a background: use KEY=VALUE, with {KEYS} as keys, such as \
                     op=write,size=1M,depth=8,pair=same",
                    quote(part)
                ));
            };
            let (key, value) = (key.trim(), value.trim());
            if seen.contains(&key) {
                return usage_error(format!("{} is given twice for one background", quote(key)));
            }
            seen.push(key);
            match key {
                "op" => read.op = value.parse()?,
                "size" => {
                    let Bytes(bytes) = value.parse()?;
                    read.size_bytes = checked_count((key, bytes), SIZE_BYTES_MAX)?;
                }
                "depth" | "window" => {
                    read.depth = checked_count((key, count(key, value)?), DEPTH_MAX)?
                }
                "pair" => read.pair = value.parse()?,
                "threads" | "workers" => {
                    let most = THREADS_MAX - 1;
                    read.threads = checked_count((key, count(key, value)?), most)?;
                }
                _ => {
                    return usage_error(format!(
                        "{} is not a key of a background: use {KEYS}",
                        quote(key)
                    ));
                }
            }
        }
        Ok(read)
    }
}

fn count(key: &str, value: &str) -> Result<u64> {
    let wrong = |_| {
        Error::Usage(format!(
            "{key}={} of a background is not a number",
            quote(value)
        ))
    };
    value.parse().map_err(wrong)
}

fn checked_count((key, value): (&str, u64), most: u32) -> Result<u32> {
    match u32::try_from(value) {
        Ok(narrow) if (1..=most).contains(&narrow) => Ok(narrow),
        _ if key == "size" => usage_error(format!(
            "size={} of a background is out of range: it is from 1 to {}",
            Bytes(value),
            Bytes(most.into())
        )),
        _ => usage_error(format!(
            "{key}={value} of a background is out of range: it is from 1 to {most}"
        )),
    }
}

/// Rate of a background.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum BackgroundRate {
    /// Rate of each initiating rank.
    PerSecond(AskedRate),
    /// As many operations as the depth allows.
    Full,
}

/// Name of an unlimited rate.
const FULL: &str = "full";

impl FromStr for BackgroundRate {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            FULL => Ok(Self::Full),
            _ => text.parse().map(Self::PerSecond),
        }
    }
}

impl fmt::Display for BackgroundRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PerSecond(rate) => rate.fmt(f),
            Self::Full => f.write_str(FULL),
        }
    }
}

/// Background load during a latency measurement.
#[derive(Debug, Clone, PartialEq, Default, Args, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
#[command(next_help_heading = "Background", mut_args = with_default::<Self>)]
pub struct BackgroundOptions {
    /// Load during a ping-pong or a rate, from separate threads: op=write,size=1M,depth=8,pair=same are its keys and
    /// their defaults. Each trial measures the latency without the load and with it. pair=other loads the path from
    /// each initiator to the next initiator's target. threads=N uses the last N threads of a rank.
    #[arg(long, value_name = "KEY=VALUE,...")]
    #[serde(with = "text")]
    pub background: Option<Background>,

    /// Rate of the background in each initiating rank, as in --rate; several are joined by commas, for latency over
    /// load. full is as many operations as the depth allows. [default: full]
    #[arg(long, value_name = "RATES", value_delimiter = ',')]
    pub background_rate: Option<Many<BackgroundRate>>,
}

impl Group for BackgroundOptions {}

pub(super) const CONFLICTS: &[Conflict] = &[
    Conflict::both(
        "background",
        "interval",
        "each trial is measured once without the load and once with it",
        "leave one of them out",
    ),
    Conflict::both(
        "background",
        "iters",
        "a background lasts as long as a trial, which --iters leaves open",
        "use --trial-time 200ms in place of --iters, or leave --background out",
    ),
    Conflict::without(
        "background-rate",
        "background",
        "use --background op=write,size=1M, or leave --background-rate out",
    ),
];

/// Returns the default number of threads of a rank with a background: the background's threads and one that measures.
pub(super) fn threads_default(options: &BackgroundOptions) -> Option<u32> {
    let background = options.background.as_ref();
    background.map(|background| background.threads + 1)
}

/// A rate in bytes per nanosecond that no path between two ranks reaches.
const BYTES_PER_NS_MAX: u64 = 100;

/// Returns the background loads, one for each rate. Without a background, the result is a single `None`.
pub(super) fn backgrounds(
    transfer: &Transfer,
    roles: &[Roles],
    threads: &[u32],
    length: PointLength,
) -> Result<Vec<Option<Background>>> {
    let options = &transfer.background;
    let Some(background) = options.background else {
        return Ok(vec![None]);
    };
    check_conflicts(transfer)?;
    check_in_flight(background, length.trial)?;
    check_threads(background, threads)?;
    for roles in roles {
        check_pairs(background, *roles)?;
    }
    let rates = match options.background_rate.as_ref().map(Many::values) {
        None => &[BackgroundRate::Full][..],
        Some([]) => return usage_error("--background-rate is empty: leave it out"),
        Some(rates) => rates,
    };
    let at = |rate: &BackgroundRate| {
        let rate_per_s = match rate {
            BackgroundRate::Full => None,
            BackgroundRate::PerSecond(rate) => {
                if Many::all(&transfer.pacing.cq).contains(&CqMode::Event) {
                    return usage_error(format!(
                        "--cq event and --background-rate {rate} are mutually exclusive, because {OVERSLEEPS}: use \
                         --background-rate full, or --cq busy"
                    ));
                }
                Some(rate.per_s("background-rate", background.size_bytes, length.trial)?)
            }
        };
        Ok(Some(Background {
            rate_per_s,
            ..background
        }))
    };
    rates.iter().map(at).collect()
}

/// Refuses a background without a ping-pong or a rate, because there would be no latency for it to affect.
fn check_conflicts(transfer: &Transfer) -> Result<()> {
    if !transfer.pacing.ping_pong && transfer.paced.rate.is_none() {
        return usage_error(
            "--background loads the path of a latency measurement, and a stream or batch already loads it: add \
             --ping-pong, or a rate such as --rate 1k",
        );
    }
    Ok(())
}

/// Refuses a background with more bytes in flight than any path can move in a trial, because the trial would end too
/// late.
fn check_in_flight(background: Background, trial: TrialLength) -> Result<()> {
    let TrialLength::DurationNs(trial_ns) = trial else {
        return Ok(());
    };
    let (size_bytes, depth) = (background.size_bytes.into(), u64::from(background.depth));
    let in_flight: u64 = size_bytes * depth;
    let most = trial_ns.saturating_mul(BYTES_PER_NS_MAX);
    if in_flight <= most {
        return Ok(());
    }
    let enough_ms = in_flight.div_ceil(BYTES_PER_NS_MAX * 1_000_000);
    usage_error(format!(
        "--background has depth={depth} of size={} in flight, and no path moves {} in a trial of {}: use a \
         smaller depth or size, or --trial-time {} or more",
        Bytes(size_bytes),
        Bytes(in_flight),
        Nanos(trial_ns),
        Nanos(enough_ms * 1_000_000)
    ))
}

fn check_threads(background: Background, threads: &[u32]) -> Result<()> {
    let least = background.threads + 1;
    match threads.iter().find(|&&threads| threads < least) {
        None => Ok(()),
        Some(threads) => usage_error(format!(
            "--background takes {} of a rank's threads, and --threads {threads} leaves none to measure with: use \
             --threads {least} or more, or leave --threads out",
            background.threads
        )),
    }
}

fn check_pairs(background: Background, roles: Roles) -> Result<()> {
    let name = roles.traffic.name();
    match (roles.traffic, background.pair) {
        (Traffic::InTurn | Traffic::Matrix | Traffic::File, _) => usage_error(format!(
            "--background loads all pairs at once, and --traffic {name} has rounds: use --traffic pair, or another \
             without them"
        )),
        (Traffic::Pair | Traffic::Shift, BackgroundPair::Other) => {
            let others = match roles.traffic {
                Traffic::Pair => roles.pair_sides().1,
                _ => roles.ranks.saturating_sub(1),
            };
            match others {
                0 | 1 => usage_error(
                    "pair=other of a background needs a second target to go to: use more ranks (4 with --traffic \
                     pair), or pair=same",
                ),
                _ => Ok(()),
            }
        }
        (_, BackgroundPair::Other) => usage_error(format!(
            "pair=other of a background goes to the target of the next initiator, and with --traffic {name} there \
             is none: use --traffic pair, or --traffic shift, or pair=same"
        )),
        (_, BackgroundPair::Same) => Ok(()),
    }
}

/// Refuses an atomic background, a background operation that the engine lacks, and an engine that moves no bytes.
pub(super) fn check_op(background: Option<Background>, entry: &Entry) -> Result<()> {
    if background.is_some() && !entry.moves_bytes {
        return usage_error(format!(
            "--engine {} moves no bytes, so it cannot carry a background load: use --engine shm, or another one \
             that does",
            entry.name
        ));
    }
    if let Some(background) = background.filter(|background| background.op.is_atomic()) {
        return usage_error(format!(
            "background op={} is not enough of a load, because it moves single words: use op=write",
            background.op.name()
        ));
    }
    let verbs: Vec<_> = entry.verbs.iter().map(|verb| verb.name()).collect();
    match background {
        Some(Background { op, .. }) if !entry.verbs.contains(&op) => usage_error(format!(
            "--engine {} cannot do op={op} of a background: use one of {}",
            entry.name,
            verbs.join(", ")
        )),
        _ => Ok(()),
    }
}

/// Refuses a background that needs more memory than a rank may use, or has an invalid layout.
pub(super) fn check_footprint(point: &TransferPoint) -> Result<()> {
    let Some(background) = point.background else {
        return Ok(());
    };
    let slots = slots(background)?;
    let roles = point.with_background_pair(background.pair).roles;
    check_memory(slots, TargetFootprint::Own, roles, background.threads)
}

fn slots(background: Background) -> Result<SlotLayout> {
    let options = MemoryOptions::default();
    slot_layout(&options, background.size_bytes, background.depth)
}

impl TransferPoint {
    /// Returns the number of measuring threads of a rank: all threads except those of the background.
    pub fn measuring_threads(&self) -> u32 {
        let taken = self.background.map_or(0, |background| background.threads);
        self.threads.saturating_sub(taken)
    }

    /// Returns the transfer of the background's threads as a separate point.
    pub fn background_point(&self) -> Option<Self> {
        let background = self.background?;
        let depth = background.depth;
        let pacing = match background.rate_per_s {
            None => Pacing::Stream { depth },
            Some(rate_per_s) => Pacing::Paced {
                depth,
                rate: Rate::per_s(rate_per_s),
            },
        };
        // `None` cannot happen here: a plan with an invalid layout was refused.
        let layout = slots(background).ok()?;
        Some(Self {
            op: background.op,
            pacing,
            threads: background.threads,
            background: None,
            slots: Slots {
                size_bytes: background.size_bytes,
                footprint_bytes: layout.footprint_bytes,
                stride_bytes: layout.stride_bytes,
                target_footprint: TargetFootprint::Own,
                access: Access::Sequential,
                local_access: None,
                seed: self.slots.seed,
            },
            batching: Batching::default(),
            api: TransferApi::Engine,
            session: None,
            latency: false,
            ..self.with_background_pair(background.pair)
        })
    }

    /// Returns this point with the targets that `pair` selects.
    fn with_background_pair(&self, pair: BackgroundPair) -> Self {
        let mut point = self.clone();
        if pair == BackgroundPair::Other {
            match self.roles.traffic {
                Traffic::Shift => {
                    point.roles.shift =
                        self.roles.shift % self.roles.ranks.max(2).saturating_sub(1) + 1
                }
                _ => {
                    let (_, targets) = self.roles.pair_sides();
                    point.roles.target_shift = (self.roles.target_shift + 1) % targets.max(1);
                }
            }
        }
        point
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Refused, transfers};
    use tonnage_engine::Verb;

    #[test]
    fn a_load_prints_as_it_parses() {
        let defaults: Background = "op=write".parse().unwrap();
        assert_eq!(defaults.to_string(), "op=write,size=1M,depth=8,pair=same");
        for text in [
            "op=read,size=64k,depth=1,pair=other",
            "op=send,size=1000,depth=64,pair=same,threads=3",
        ] {
            let read: Background = text.parse().unwrap();
            assert_eq!(read.to_string(), text);
        }
        let spaced: Background = "size = 4k, pair = other".parse().unwrap();
        assert_eq!(
            (spaced.size_bytes, spaced.pair),
            (4096, BackgroundPair::Other)
        );
    }

    #[test]
    fn a_rate_is_a_number_or_full() {
        let read = |text: &str| text.parse::<BackgroundRate>().unwrap();
        assert_eq!(
            read("1k"),
            BackgroundRate::PerSecond("1000".parse().unwrap())
        );
        assert_eq!(read("full"), BackgroundRate::Full);
        assert_eq!(
            ["1k", "full"].map(|text| read(text).to_string()),
            ["1000", "full"]
        );
        assert!("half".parse::<BackgroundRate>().is_err());
    }

    fn points(lines: &str) -> Vec<TransferPoint> {
        transfers(
            &format!("engine = 'shm'\nop = 'write'\nsizes = 8\n{lines}"),
            6,
        )
        .unwrap()
    }

    #[test]
    fn each_rate_is_a_point_and_the_load_has_workers_of_its_own() {
        let all = points(
            "ping-pong = true\nbackground = \"op=read,threads=2\"\nbackground-rate = [\"1k\", \"full\"]\n",
        );
        let rates: Vec<_> = all
            .iter()
            .map(|point| point.background.unwrap().rate_per_s)
            .collect();
        assert_eq!(rates, [Some(1000.0), None]);
        let in_bits = transfers(
            "engine = 'shm'\nop = 'write'\nsizes = 8\nping-pong = true\nbackground = 'op=read,size=125000'\n\
             background-rate = '1Gb/s'",
            2,
        );
        assert_eq!(
            in_bits.unwrap()[0].background.unwrap().rate_per_s,
            Some(1000.0)
        );
        let sleeping = |rate: &str| {
            let lines = "engine = 'shm'\nop = 'read'\nsizes = 8\nping-pong = true\ncq = 'event'\nbackground = 'op=read'";
            transfers(&format!("{lines}\nbackground-rate = '{rate}'"), 2)
        };
        assert_eq!(sleeping("full").unwrap().len(), 1);
        sleeping("1k").refused("use background-rate full, or cq busy");
        assert!(
            all.iter()
                .all(|point| (point.threads, point.measuring_threads()) == (3, 1))
        );
        let load = all[0].background_point().unwrap();
        let paced = Pacing::Paced {
            depth: 8,
            rate: Rate::per_s(1000.0),
        };
        assert_eq!((load.op, load.threads, load.pacing), (Verb::Read, 2, paced));
        assert_eq!(
            (load.slots.size_bytes, load.slots.footprint_bytes),
            (1 << 20, 8 << 20)
        );
        assert_eq!((load.background, load.latency), (None, false));
        let alone = points("ping-pong = true\nthreads = 3\n");
        assert_eq!(
            (alone[0].measuring_threads(), alone[0].background_point()),
            (3, None)
        );
    }

    #[test]
    fn the_other_pair_is_that_of_the_next_initiator() {
        let targets = |point: &TransferPoint| -> Vec<_> {
            (0..6).map(|rank| point.roles.targets(rank)).collect()
        };
        for (lines, own, other) in [
            ("", [vec![3], vec![4], vec![5]], [vec![4], vec![5], vec![3]]),
            (
                "traffic = \"shift\"\nshift = 5\n",
                [vec![5], vec![0], vec![1]],
                [vec![1], vec![2], vec![3]],
            ),
        ] {
            let lines = format!("{lines}rate = \"1k\"\nbackground = \"pair=other\"\n");
            let point = points(&lines).remove(0);
            assert_eq!(targets(&point)[..3], own);
            assert_eq!(targets(&point.background_point().unwrap())[..3], other);
        }
    }
}
