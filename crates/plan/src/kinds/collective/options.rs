//! The options of an experiment with collectives. `expand` checks their combinations.

use clap::Args;
use serde::{Deserialize, Serialize};

use super::groups::Groups;
use super::point::{Align, RankTime, Refill};
use crate::options::{
    Group, Many, Pair, SWEEP, many_of, one_of, one_or_many, pairs, text, with_default,
};
use crate::point::BoundChoice;
use crate::published::PublishedTable;
use crate::skipping::SkippingOptions;
use crate::sweep::Sweep;
use crate::transfer::LengthOptions;
use tonnage_collective::{Algorithm, Collective, Dtype, Reduction};
use tonnage_units::{Count, Nanos, PairPlace};

/// One experiment with collectives.
#[derive(Debug, Clone, PartialEq, Default, Args)]
pub struct CollectiveJob {
    /// Calls to measure.
    #[command(flatten)]
    pub call: CallOptions,
    /// Length of the measurement.
    #[command(flatten)]
    pub length: LengthOptions,
    /// Comparisons and checks.
    #[command(flatten)]
    pub check: CheckOptions,
    /// Whether missing hardware or libraries fail the run.
    #[command(flatten)]
    pub skipping: SkippingOptions,
}

crate::options::groups! {
    CollectiveJob: "collective", "an experiment with collectives",
    needs &[("backend", "native:shm"), ("op", "all-reduce")];
    call, check, skipping, length
}

/// Calls to measure.
#[derive(Debug, Clone, PartialEq, Default, Args, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
#[command(next_help_heading = "Collectives", mut_args = with_default::<Self>)]
pub struct CallOptions {
    /// Heading under which tables put the points.
    #[arg(long, value_name = "TEXT")]
    pub label: Option<String>,

    /// Library that carries out the calls; several are joined by commas, and their trials alternate. native:ENGINE is
    /// tonnage's own library over one of its engines. mpi is the launcher's MPI. torch:gloo, torch:nccl and torch:mpi
    /// are torch.distributed, and torch:null calls nothing.
    #[arg(long, value_name = "NAMES", required = true, value_delimiter = ',')]
    pub backend: Option<Many<String>>,

    /// An option of the engine of native backends, such as completion=delivery for fabric; may be repeated.
    /// `tonnage engines NAME` lists them.
    #[arg(long = "engine-option", value_name = "NAME=VALUE", value_parser = pairs::engine_option)]
    #[serde(with = "pairs")]
    pub engine_options: Vec<Pair>,

    /// Operation to measure; several are joined by commas.
    #[arg(long, value_name = "NAMES", required = true, value_parser = many_of::<Collective>(), value_delimiter = ',')]
    pub op: Option<Many<Collective>>,

    /// Size of a call: a value or a sweep; barrier has none. It is the bytes of each rank for all-reduce, reduce,
    /// broadcast and send-recv-*, and the bytes of all ranks together for other operations. It is rounded down to whole
    /// elements for each rank.
    #[arg(short, long, alias = "size", value_name = SWEEP)]
    #[serde(alias = "size")]
    pub sizes: Option<Sweep>,

    /// Type of the elements; several are joined by commas. [default: float32]
    #[arg(long, value_name = "NAMES", value_parser = many_of::<Dtype>(), value_delimiter = ',')]
    pub dtype: Option<Many<Dtype>>,

    /// Reduction of the elements, for operations that reduce; several are joined by commas. [default: sum]
    #[arg(long, value_name = "NAMES", value_parser = many_of::<Reduction>(), value_delimiter = ',')]
    pub reduce: Option<Many<Reduction>>,

    /// Rank that broadcasts, scatters, or gets the result of a reduce or gather; counted within a group.
    #[arg(long, value_name = "RANK")]
    pub root: Option<Count>,

    /// Groups of ranks that call at once, independently of each other: all, div:K (K consecutive ranks) or mod:K (every
    /// K-th rank). Sizes are those of one group, and the time is that of the slowest group.
    #[arg(long, value_name = "GROUPS")]
    #[serde(with = "text")]
    pub groups: Option<Groups>,

    /// Results take the place of the inputs.
    #[arg(long)]
    pub in_place: bool,

    /// Algorithm of native backends; several are joined by commas. By default, the warm-up finds the fastest algorithm
    /// of the operation.
    #[arg(long, value_name = "NAMES", value_parser = many_of::<Algorithm>(), value_delimiter = ',')]
    pub algorithm: Option<Many<Algorithm>>,

    /// Longest message of native backends: a value or a sweep. Longer data is sent in parts, so that work on one part
    /// overlaps with the next. [default: found in the warm-up]
    #[arg(long, value_name = SWEEP)]
    pub chunk: Option<Sweep>,

    /// Alignment of the ranks before each call: the library's own barrier, outside the clock; or none. With none, calls
    /// follow each other, and a trial's time is divided by their number.
    #[arg(long, value_name = "HOW", value_parser = one_of::<Align>())]
    pub align: Option<Align>,

    /// When inputs are written again, outside the clock: before each iteration, or only before each trial. [default:
    /// iteration, or trial with --align none]
    #[arg(long, value_name = "WHEN", value_parser = one_of::<Refill>())]
    pub refill: Option<Refill>,

    /// Memory that the elements live in. [default: host]
    #[arg(long, value_name = "NAME")]
    pub memory: Option<String>,

    /// Sockets of ranks that exchange bytes, on one host; torch's workers are not pinned. [default: near, unless that
    /// leaves cores unused]
    #[arg(long, value_name = "NAME", value_parser = one_of::<PairPlace>())]
    pub place: Option<PairPlace>,

    /// Seed of the data.
    #[arg(long, value_name = "N")]
    pub seed: Option<Count>,

    /// Python with PyTorch, for torch backends: a path, or a name to look up in PATH. [default: python3]
    #[arg(long, value_name = "PATH")]
    pub python: Option<String>,

    /// Longest time of one call; a longer call ends its backend with a report of where each rank is. With mpi, it ends
    /// the run.
    #[arg(long, value_name = "TIME")]
    pub timeout: Option<Nanos>,
}

pub(super) const ALIGN_DEFAULT: Align = Align::Barrier;
pub(super) const SEED_DEFAULT: Count = Count(1);
pub(super) const TIMEOUT_DEFAULT: Nanos = Nanos(60_000_000_000);

impl Group for CallOptions {
    fn defaults() -> Self {
        Self {
            root: Some(Count(0)),
            groups: Some(Groups::All),
            align: Some(ALIGN_DEFAULT),
            seed: Some(SEED_DEFAULT),
            timeout: Some(TIMEOUT_DEFAULT),
            ..Self::default()
        }
    }
}

/// Comparisons and checks.
#[derive(Debug, Clone, PartialEq, Default, Args, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
#[command(next_help_heading = "Results", mut_args = with_default::<Self>)]
pub struct CheckOptions {
    /// Check every element after the last iteration of each trial, outside the clock. The first iteration of each point
    /// is always checked.
    #[arg(long)]
    pub verify: bool,

    /// Time of an iteration in the table: that of the slowest rank, the mean of all ranks, or that of the fastest rank.
    /// The record has all three.
    #[arg(long, alias = "across", value_name = "WHICH", value_parser = one_of::<RankTime>())]
    #[serde(alias = "across")]
    pub rank_time: Option<RankTime>,

    /// Show each rank's mean time, and how often it began last, in a table below.
    #[arg(long)]
    pub per_rank: bool,

    /// Print a line for each call of each rank when its trial has ended, as scripts of torch.distributed do.
    #[arg(long, alias = "each")]
    #[serde(alias = "each")]
    pub print_calls: bool,

    /// Upper bound to compare bus bandwidth with: auto (native backends: copies by all ranks that send at once, or the
    /// speed of the links), none, or a bandwidth such as 12.5GB/s or 100Gb/s.
    #[arg(long, alias = "limit", value_name = "BOUND")]
    #[serde(alias = "limit", with = "text")]
    pub bound: Option<BoundChoice>,

    /// Published figures for the same options, to compare with. Only plans can have them.
    #[arg(skip)]
    #[serde(with = "one_or_many")]
    pub published: Vec<PublishedTable>,
}

pub(super) const ACROSS_DEFAULT: RankTime = RankTime::Max;
pub(super) const BOUND_DEFAULT: BoundChoice = BoundChoice::Auto;

impl Group for CheckOptions {
    fn defaults() -> Self {
        Self {
            rank_time: Some(ACROSS_DEFAULT),
            bound: Some(BOUND_DEFAULT),
            ..Self::default()
        }
    }
}
