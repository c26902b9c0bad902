//! `tonnage transfer`: one experiment, said on the command line.

use clap::Args;
use tonnage_engine::Verb;
use tonnage_plan::point::{LimitChoice, Traffic};
use tonnage_plan::sweep::Sweep;
use tonnage_plan::transfer::Addresses;
use tonnage_plan::{Experiment, Plan, Transfer};
use tonnage_units::{Bytes, Count, Fraction, Nanos, PerSecond};

use super::common::{RankArgs, ResultArgs};
use super::values::{engine_option, on_off};

/// `tonnage transfer`.
#[derive(Debug, Clone, PartialEq, Args)]
#[command(
    after_help = "A sweep is one value (4096), a doubling range (8..1M), a linear range (1M..32M+1M), a range \
    with a factor (1..1000*10), or several of these joined by commas. Several sweeps multiply. k, M and G are powers \
    of two in sizes and sweeps; kB, MB and GB are decimal.\n\n\
    Examples:\n  \
    tonnage transfer --engine shm --op read --ranks 2 --sizes 8..1M --batch 128\n  \
    tonnage transfer --engine shm --op write-imm --ranks 2 --sizes 8,4k --ping-pong --duration 2s"
)]
pub struct TransferArgs {
    /// What is moved.
    #[command(flatten)]
    pub what: WhatArgs,
    /// How operations are issued.
    #[command(flatten)]
    pub pacing: PacingArgs,
    /// How long it is measured.
    #[command(flatten)]
    pub length: LengthArgs,
    /// Where the bytes live.
    #[command(flatten)]
    pub memory: MemoryArgs,
    /// Where ranks run.
    #[command(flatten)]
    pub ranks: RankArgs,
    /// What is measured beside it.
    #[command(flatten)]
    pub measure: MeasureArgs,
    /// What becomes of results.
    #[command(flatten)]
    pub results: ResultArgs,
}

/// What is moved.
#[derive(Debug, Clone, PartialEq, Args)]
#[command(next_help_heading = "What is moved")]
pub struct WhatArgs {
    /// What moves the bytes, such as shm or fabric:tcp; several are joined by commas. `tonnage devices` lists them.
    #[arg(long, value_name = "NAMES", required = true, value_delimiter = ',')]
    pub engine: Vec<String>,

    /// An option of the engine's own, such as completion=delivery for fabric; may be repeated. `tonnage devices` ends with
    /// the engines and all their options.
    #[arg(long, value_name = "NAME=VALUE", value_parser = engine_option)]
    pub engine_option: Vec<(String, String)>,

    /// What each operation does: write, write-imm, read or send; several are joined by commas.
    #[arg(long, value_name = "NAMES", required = true, value_delimiter = ',')]
    pub op: Vec<Verb>,

    /// Payload bytes of one operation: a value or a sweep.
    #[arg(
        long,
        value_name = "SWEEP",
        required = true,
        allow_hyphen_values = true
    )]
    pub sizes: Sweep,

    /// Who talks to whom: pair (rank i to rank i + N/2), fan-out (rank 0 to all), fan-in (all to rank 0) or
    /// all-to-all. [default: pair]
    #[arg(long, value_name = "PATTERN")]
    pub traffic: Option<Traffic>,

    /// Pinned threads in each rank, each with queues of its own. [default: 1]
    #[arg(long, value_name = "N")]
    pub workers: Option<Count>,

    /// Heading under which tables put the points.
    #[arg(long, value_name = "TEXT")]
    pub label: Option<String>,
}

/// How operations are issued.
#[derive(Debug, Clone, PartialEq, Args)]
#[command(next_help_heading = "Pacing")]
pub struct PacingArgs {
    /// Issue one operation and wait for the answer. Latency is half the round trip, except for read.
    #[arg(long)]
    pub ping_pong: bool,

    /// Keep this many operations in flight on each lane: a value or a sweep. [default: 64]
    #[arg(long, value_name = "SWEEP", allow_hyphen_values = true)]
    pub window: Option<Sweep>,

    /// Post this many operations, wait for all of them, and start again: a value or a sweep.
    #[arg(long, value_name = "SWEEP", allow_hyphen_values = true)]
    pub batch: Option<Sweep>,

    /// Issue this many operations per second in each initiating rank, whether earlier ones are done or not (at most
    /// the window in flight), and measure latency from when each was due. k and M are decimal.
    #[arg(long, value_name = "OPS", allow_hyphen_values = true)]
    pub rate: Option<PerSecond>,
}

/// How long it is measured.
#[derive(Debug, Clone, PartialEq, Args)]
#[command(next_help_heading = "Length")]
pub struct LengthArgs {
    /// Timed repetitions of each point; with --until-ci the fewest. [default: 5]
    #[arg(long, value_name = "N")]
    pub trials: Option<Count>,

    /// Length of one trial. [default: 200ms]
    #[arg(long, value_name = "TIME")]
    pub trial_time: Option<Nanos>,

    /// Operations of each worker in one trial, instead of a time: batches with --batch, round trips with --ping-pong.
    #[arg(long, value_name = "N")]
    pub iters: Option<Count>,

    /// Measured time of each point, split evenly over its trials.
    #[arg(long, value_name = "TIME")]
    pub duration: Option<Nanos>,

    /// Untimed operations before the first trial of each point; 0 leaves them out. [default: 50ms]
    #[arg(long, value_name = "TIME")]
    pub warmup: Option<Nanos>,

    /// Add trials until the 95 % confidence interval of the mean bandwidth is within this percentage of it.
    #[arg(long, value_name = "PERCENT")]
    pub until_ci: Option<Fraction>,

    /// With --until-ci: stop all the same when the trials of a point have taken this long. [default: 60s]
    #[arg(long, value_name = "TIME")]
    pub max_duration: Option<Nanos>,
}

/// Where the bytes live.
#[derive(Debug, Clone, PartialEq, Args)]
#[command(next_help_heading = "Memory")]
pub struct MemoryArgs {
    /// Where the bytes live: host (transparent huge pages where an engine registers memory and the kernel gives them),
    /// small (normal pages only) or huge (the largest pages to be had). [default: host]
    #[arg(long, value_name = "KIND")]
    pub memory: Option<String>,

    /// Bytes over which the operations of one lane walk, rounded down to whole strides. [default: a slot for each
    /// operation in flight, but at most 64M]
    #[arg(long, value_name = "BYTES")]
    pub footprint: Option<Bytes>,

    /// Distance between the starts of two neighbouring slots. [default: the size, rounded up to a multiple of 8]
    #[arg(long, value_name = "BYTES")]
    pub stride: Option<Bytes>,

    /// Order in which slots are used: sequential, random (seeded) or fixed (always the first).
    /// [default: sequential]
    #[arg(long, value_name = "ORDER")]
    pub addresses: Option<Addresses>,

    /// Seed of random addresses and of the data. [default: 1]
    #[arg(long, value_name = "N")]
    pub seed: Option<Count>,
}

/// What is measured beside it.
#[derive(Debug, Clone, PartialEq, Args)]
#[command(next_help_heading = "Results")]
pub struct MeasureArgs {
    /// Record latencies (on) or save the clock reads of each operation (off). [default: on]
    #[arg(long, value_name = "ON|OFF", value_parser = on_off)]
    pub latency: Option<bool>,

    /// Check every byte after each trial, outside the clock.
    #[arg(long)]
    pub verify: bool,

    /// What bandwidth is set beside: auto (the engine's own limit, measured), none, or a bandwidth such as 12.5GB/s or
    /// 100Gb/s. [default: auto]
    #[arg(long, value_name = "LIMIT")]
    pub limit: Option<LimitChoice>,
}

impl TransferArgs {
    /// The plan that this command line stands for, before `--scale`.
    pub fn to_plan(&self) -> Plan {
        let Self {
            what,
            pacing,
            length,
            memory,
            ranks,
            measure,
            results: _,
        } = self.clone();
        let transfer = Transfer {
            label: what.label,
            engine: what.engine,
            engine_options: what.engine_option.into_iter().collect(),
            op: what.op,
            traffic: what.traffic,
            sizes: what.sizes,
            window: pacing.window,
            batch: pacing.batch,
            ping_pong: pacing.ping_pong,
            rate: pacing.rate,
            workers: what.workers,
            memory: memory.memory,
            footprint: memory.footprint,
            stride: memory.stride,
            addresses: memory.addresses,
            seed: memory.seed,
            latency: measure.latency,
            verify: measure.verify,
            limit: measure.limit,
            trials: length.trials,
            trial_time: length.trial_time,
            iters: length.iters,
            duration: length.duration,
            warmup: length.warmup,
            until_ci: length.until_ci,
            max_duration: length.max_duration,
        };
        Plan {
            name: "transfer".to_owned(),
            ranks: ranks.ranks,
            experiments: vec![Experiment::Transfer(transfer)],
            ..Plan::default()
        }
    }
}
