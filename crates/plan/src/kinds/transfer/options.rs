//! The options of a transfer. `expand` checks their combinations, with one module next to it for each group of options.

use clap::Args;
use serde::{Deserialize, Serialize};

use super::background::BackgroundOptions;
use super::batching::BatchingOptions;
use super::issuing::IssuingOptions;
use super::length::LengthOptions;
use super::library::LibraryOptions;
use super::loads::{PairLoads, TrafficFile};
use super::paced::PacedOptions;
use super::pacing::PacingOptions;
use super::slots::{Access, TargetFootprint};
use super::verification::Verification;
use crate::options::{
    Group, Many, Pair, SWEEP, many_of, on_off, one_of, one_or_many, pairs, text, with_default,
};
use crate::point::{BoundChoice, MatrixRounds, Traffic};
use crate::published::PublishedTable;
use crate::skipping::SkippingOptions;
use crate::sweep::Sweep;
use tonnage_engine::Verb;
use tonnage_units::{Bytes, Count, PairPlace};

/// One experiment between memories. Options that are not given get their defaults when the plan is expanded. Several
/// values of one option make several points.
#[derive(Debug, Clone, PartialEq, Default, Args)]
pub struct Transfer {
    /// Operations to measure.
    #[command(flatten)]
    pub what: OperationOptions,
    /// Pacing of operations.
    #[command(flatten)]
    pub pacing: PacingOptions,
    /// Rate of operations.
    #[command(flatten)]
    pub paced: PacedOptions,
    /// Options of batches.
    #[command(flatten)]
    pub batching: BatchingOptions,
    /// Background load during a latency measurement.
    #[command(flatten)]
    pub background: BackgroundOptions,
    /// Paths from a thread to a peer.
    #[command(flatten)]
    pub issuing: IssuingOptions,
    /// Calls between the loops and an engine.
    #[command(flatten)]
    pub library: LibraryOptions,
    /// Length of the measurement.
    #[command(flatten)]
    pub length: LengthOptions,
    /// Kind of memory.
    #[command(flatten)]
    pub memory: MemoryOptions,
    /// Comparisons and checks.
    #[command(flatten)]
    pub measure: MeasureOptions,
    /// Whether missing hardware or libraries fail the run.
    #[command(flatten)]
    pub skipping: SkippingOptions,
}

impl Transfer {
    /// Returns which operations have verified data.
    pub fn verification(&self) -> Verification {
        self.measure.verify.unwrap_or_default()
    }
}

crate::options::groups! {
    Transfer: "transfer", "a transfer", needs &[("engine", "shm"), ("op", "write")];
    what, pacing, paced, batching, background, issuing, library, memory, measure, skipping, length
}

/// Operations to measure.
#[derive(Debug, Clone, PartialEq, Default, Args, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
#[command(next_help_heading = "Operations", mut_args = with_default::<Self>)]
pub struct OperationOptions {
    /// Heading under which tables put the points.
    #[arg(long, value_name = "TEXT")]
    pub label: Option<String>,

    /// Engine that moves the bytes, such as shm or fabric:tcp; several are joined by commas. `tonnage engines` lists
    /// them.
    #[arg(long, value_name = "NAMES", required = true, value_delimiter = ',')]
    pub engine: Option<Many<String>>,

    /// An option of the engine's own, such as completion=delivery for fabric; may be repeated. `tonnage engines
    /// NAME` lists them.
    #[arg(long = "engine-option", value_name = "NAME=VALUE", value_parser = pairs::engine_option)]
    #[serde(with = "pairs")]
    pub engine_options: Vec<Pair>,

    /// Operation to measure; several are joined by commas.
    #[arg(long, value_name = "NAMES", required = true, value_parser = many_of::<Verb>(), value_delimiter = ',')]
    pub op: Option<Many<Verb>>,

    /// Traffic pattern between ranks.
    #[arg(long, value_name = "PATTERN", value_parser = one_of::<Traffic>())]
    pub traffic: Option<Traffic>,

    /// Bytes of each pair, from a file: row i has the bytes that rank i moves to rank 0, rank 1 and so on; # begins a
    /// comment. A trial is one execution. Reports the time of each pair, both together with all other pairs and alone.
    #[arg(long, value_name = "FILE")]
    #[serde(with = "text")]
    pub traffic_file: Option<TrafficFile>,

    /// Number of ranks that initiate: a value or a sweep. With pairs, the first N ranks initiate, and the ranks after
    /// them are their targets in turn. With a fan-in, the N ranks after rank 0 initiate. Other ranks take no part.
    /// [default: half of the ranks, or all but rank 0]
    #[arg(long, value_name = SWEEP)]
    pub initiators: Option<Sweep>,

    /// Distance from each rank to its target with traffic shift: rank r goes to (r + K) mod ranks. [default: 1]
    #[arg(long, value_name = "K")]
    pub shift: Option<Count>,

    /// Rounds of traffic matrix: one ordered pair per round, in N(N - 1) rounds, or disjoint pairs at once, in about
    /// 2(N - 1) rounds. [default: alone]
    #[arg(long, value_name = "ROUNDS", value_parser = one_of::<MatrixRounds>())]
    pub matrix: Option<MatrixRounds>,

    /// Rotate the targets of pairs: with M initiators, rank i goes to rank M + (i + K) mod (ranks - M).
    #[arg(long, value_name = "K")]
    pub target_shift: Option<Count>,

    /// Move bytes both ways at once: each target of a pair also initiates towards its initiators. Bandwidth is the sum
    /// of both directions, and tables also show each direction.
    #[arg(long, alias = "bidir")]
    #[serde(alias = "bidir")]
    pub bidirectional: bool,

    /// Payload bytes of one operation: a value or a sweep. [default: none, but 8 for atomic operations, and with
    /// --traffic-file the largest up to 1M that divides all its loads]
    #[arg(short, long, aliases = ["size", "bs"], value_name = SWEEP)]
    #[serde(alias = "size", alias = "bs")]
    pub sizes: Option<Sweep>,

    /// Pinned threads in each rank, each with queues of its own: a value or a sweep.
    #[arg(long, alias = "workers", value_name = SWEEP)]
    #[serde(alias = "workers")]
    pub threads: Option<Sweep>,

    /// Sockets of threads that exchange bytes, on one host; several are joined by commas. [default: near, unless that
    /// leaves cores unused]
    #[arg(long, value_name = "NAMES", value_parser = many_of::<PairPlace>(), value_delimiter = ',')]
    pub place: Option<Many<PairPlace>>,
}

impl OperationOptions {
    /// Loads of the traffic file, if there is one.
    pub(super) fn loads(&self) -> Option<&PairLoads> {
        self.traffic_file.as_ref().map(|file| &file.loads)
    }
}

pub(super) const TRAFFIC_DEFAULT: Traffic = Traffic::Pair;
pub(super) const THREADS_DEFAULT: u32 = 1;

impl Group for OperationOptions {
    fn defaults() -> Self {
        Self {
            traffic: Some(TRAFFIC_DEFAULT),
            threads: Some(Sweep::single(THREADS_DEFAULT.into())),
            ..Self::default()
        }
    }
}

/// Kind of memory.
#[derive(Debug, Clone, PartialEq, Default, Args, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
#[command(next_help_heading = "Memory", mut_args = with_default::<Self>)]
pub struct MemoryOptions {
    /// Memory that the bytes live in; several are joined by commas. `tonnage engines` lists them.
    /// [default: host]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub memory: Option<Many<String>>,

    /// Memory of the target ranks, if it differs; several are joined by commas. [default: that of --memory]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub target_memory: Option<Many<String>>,

    /// An option of the memory, such as alloc=vmm for cuda or hip; may be repeated. It applies to every end with a
    /// memory that has it. `tonnage engines NAME` lists them.
    #[arg(long = "memory-option", value_name = "NAME=VALUE", value_parser = pairs::memory_option)]
    #[serde(with = "pairs")]
    pub memory_options: Vec<Pair>,

    /// Bytes over which the operations of one lane walk, rounded down to whole strides. [default: a slot for each
    /// operation in flight, but at most 64M]
    #[arg(long, value_name = "BYTES")]
    pub footprint: Option<Bytes>,

    /// Footprints at a target: each initiator has its own, or all of them read or change the same one.
    #[arg(long, value_name = "WHOSE", value_parser = one_of::<TargetFootprint>())]
    pub target_footprint: Option<TargetFootprint>,

    /// Distance between the starts of two neighbouring slots. [default: the size, rounded up to a multiple of 8]
    #[arg(long, value_name = "BYTES")]
    pub stride: Option<Bytes>,

    /// Bytes between two neighbouring slots, instead of a stride; with 0, each slot begins where the previous one ends.
    #[arg(long, value_name = "BYTES")]
    pub gap: Option<Bytes>,

    /// Order in which slots are used.
    #[arg(long, alias = "addresses", value_name = "ORDER", value_parser = one_of::<Access>())]
    #[serde(alias = "addresses")]
    pub access: Option<Access>,

    /// Order of the slots at the initiator's end, if it differs; with fixed, all data that is read lands in one slot.
    /// [default: that of --access]
    #[arg(long, alias = "local-addresses", value_name = "ORDER", value_parser = one_of::<Access>())]
    #[serde(alias = "local-addresses")]
    pub local_access: Option<Access>,

    /// Seed of random access, and of the data that is verified.
    #[arg(long, value_name = "N")]
    pub seed: Option<Count>,
}

pub(super) const TARGET_FOOTPRINT_DEFAULT: TargetFootprint = TargetFootprint::Own;
pub(super) const ACCESS_DEFAULT: Access = Access::Sequential;
pub(super) const SEED_DEFAULT: Count = Count(1);

impl Group for MemoryOptions {
    fn defaults() -> Self {
        Self {
            target_footprint: Some(TARGET_FOOTPRINT_DEFAULT),
            access: Some(ACCESS_DEFAULT),
            seed: Some(SEED_DEFAULT),
            ..Self::default()
        }
    }
}

/// Comparisons and checks.
#[derive(Debug, Clone, PartialEq, Default, Args, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
#[command(next_help_heading = "Results", mut_args = with_default::<Self>)]
pub struct MeasureOptions {
    /// Record latencies (on) or save the clock reads of each operation (off). [default: on]
    #[arg(long, value_name = "ON|OFF", value_parser = on_off)]
    pub latency: Option<bool>,

    /// Compare the moved data with the expected data: last (also without a value) or each. last compares the last
    /// operation in each slot after each trial, outside the clock. each compares every operation before its slot is
    /// used again, so its figures do not measure speed.
    #[arg(long, value_name = "WHICH", num_args = 0..=1, require_equals = true, default_missing_value = "last")]
    pub verify: Option<Verification>,

    /// Show each initiating rank in a separate table below, and keep its figures in the record.
    #[arg(long)]
    pub per_rank: bool,

    /// Upper bound to compare bandwidth with: auto (the engine's own bound, measured), none, or a bandwidth such as
    /// 12.5GB/s or 100Gb/s.
    #[arg(long, alias = "limit", value_name = "BOUND")]
    #[serde(alias = "limit", with = "text")]
    pub bound: Option<BoundChoice>,

    /// Published figures for the same options, to compare with. Only plans can have them.
    #[arg(skip)]
    #[serde(with = "one_or_many")]
    pub published: Vec<PublishedTable>,
}

pub(super) const BOUND_DEFAULT: BoundChoice = BoundChoice::Auto;

impl Group for MeasureOptions {
    fn defaults() -> Self {
        Self {
            bound: Some(BOUND_DEFAULT),
            ..Self::default()
        }
    }
}
