//! `tonnage verify`: checks all data that engines or collectives move.
//!
//! For engines, a batch has four operations, and there is a batch for every operation and size. Each operation has its
//! own slot, which is used once, so that all bytes are checked. Words that atomic operations change are checked too.
//! For collectives (in `collectives`), every operation of every backend runs, and every element is checked.

mod collectives;

use std::path::PathBuf;

use clap::Args;
use tonnage_collective::Collective;
use tonnage_engine::memory::MemoryEntry;
use tonnage_engine::{Entry, Lists, Verb, WORD_BYTES};
use tonnage_plan::options::one_of;
use tonnage_plan::options::pairs::{self, Pair};
use tonnage_plan::point::{BoundChoice, Traffic};
use tonnage_plan::sweep::Sweep;
use tonnage_plan::transfer::{
    LengthOptions, MeasureOptions, MemoryOptions, OperationOptions, PacingOptions, Transfer,
    Verification,
};
use tonnage_plan::{Experiment, Plan};

use tonnage_units::identity::{Identity, Meeting};
use tonnage_units::{Bytes, Count, Error, Nanos, Result};

use super::common::RankArgs;
use super::view::ViewArgs;

/// Number of batches, each with four atomic operations, in a trial.
const ATOMIC_BATCHES: u64 = 256;

/// Default number of ranks.
pub const RANKS_DEFAULT: u32 = 2;

/// The ranks for which a plan is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ranks {
    /// Number of ranks.
    pub size: u32,
    /// True if a launcher has started the ranks and lets them exchange messages, as MPI's launchers do.
    pub launched: bool,
}

impl Ranks {
    /// Returns the ranks that a launcher has started, or else the requested number.
    pub fn of(identity: Option<&Identity>, asked: u32) -> Self {
        Self {
            size: identity.map_or(asked, |identity| identity.size),
            launched: identity
                .is_some_and(|identity| matches!(identity.meeting, Meeting::Exchange(_))),
        }
    }
}

/// `tonnage verify`.
#[derive(Debug, Clone, PartialEq, Args)]
pub struct VerifyArgs {
    /// Engines to check, joined by commas. [default: all that move bytes]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub engine: Vec<String>,

    /// An option of the engine's own, such as retry=6 for verbs:rc; may be repeated.
    #[arg(long = "engine-option", value_name = "NAME=VALUE", value_parser = pairs::engine_option)]
    pub engine_options: Vec<Pair>,

    /// An option of the memory's own, such as alloc=vmm for cuda or hip; may be repeated.
    #[arg(long = "memory-option", value_name = "NAME=VALUE", value_parser = pairs::memory_option)]
    pub memory_options: Vec<Pair>,

    /// Operations to check, joined by commas. [default: all that the engine can do]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = one_of::<Verb>())]
    pub op: Vec<Verb>,

    /// Payload bytes of one operation: a value or a sweep. [default: 1 B, odd sizes, and around words, cache lines,
    /// pages, 64k and 1M; atomic operations have words of 8 B]
    #[arg(
        short,
        long,
        alias = "size",
        value_name = "SWEEP",
        allow_hyphen_values = true,
        value_delimiter = ','
    )]
    pub sizes: Vec<Sweep>,

    /// Traffic pattern. [default: pair, or all-to-all for an odd number of ranks]
    #[arg(long, value_name = "PATTERN", value_parser = one_of::<Traffic>())]
    pub traffic: Option<Traffic>,

    /// Check collective operations instead: all, or only named ones, as in --collectives=all-reduce,gather. Each is
    /// checked with every element type, reduction and algorithm that a backend has.
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        num_args = 0..,
        require_equals = true,
        value_parser = one_of::<Collective>(),
        conflicts_with_all = ["engine", "engine_options", "memory_options", "op", "traffic"]
    )]
    pub collectives: Option<Vec<Collective>>,

    /// Backends of collectives to check, joined by commas. [default: native backends over every engine, torch:gloo, and
    /// mpi if its launcher started the ranks]
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        requires = "collectives"
    )]
    pub backend: Vec<String>,

    /// Python with PyTorch, for torch backends. [default: python3]
    #[arg(long, value_name = "PATH", requires = "collectives")]
    pub python: Option<String>,

    /// Append one JSON line for each point to this file.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// End the whole command within this time, with the results so far. Points that no longer fit are not begun. The
    /// exit code is 0 if at least one point was verified and no byte was wrong.
    #[arg(long, value_name = "TIME")]
    pub time_limit: Option<Nanos>,

    /// Tables.
    #[command(flatten)]
    pub view: ViewArgs,

    /// Print the plan as TOML instead of running it.
    #[arg(long, help_heading = "Results")]
    pub print_plan: bool,

    /// Placement of ranks. There are two by default.
    #[command(flatten)]
    pub ranks: RankArgs,
}

impl VerifyArgs {
    /// Creates the plan. Requested operations that are impossible stay in the plan, because expanding the plan reports
    /// the reason. The number of ranks decides the default traffic.
    pub fn to_plan(&self, lists: &Lists, ranks: Ranks) -> Result<Plan> {
        let experiments = match &self.collectives {
            Some(ops) => self.collective_jobs(ops, lists, ranks)?,
            None => self.transfers(lists, ranks.size)?,
        };
        Ok(Plan {
            name: "verify".to_owned(),
            ranks: Some(ranks.size),
            experiments,
            ..Plan::default()
        })
    }

    /// Returns one verified batch for each operation and size, in four slots.
    fn transfers(&self, lists: &Lists, ranks: u32) -> Result<Vec<Experiment>> {
        let engines = lists.engines;
        let asked: Vec<u64> = self.sizes.iter().flat_map(Sweep::values).copied().collect();
        let sizes = if asked.is_empty() {
            default_sizes()?
        } else {
            Sweep::from_values(&asked)?
        };
        let names: Vec<String> = if self.engine.is_empty() {
            engines
                .iter()
                .filter(|entry| entry.moves_bytes)
                .flat_map(Entry::names_everywhere)
                .collect()
        } else {
            self.engine.clone()
        };
        if let Some(still) = names.iter().find(|name| !moves_bytes(engines, name)) {
            return Err(Error::Usage(format!(
                "engine {still} moves no bytes, so there is nothing to verify: name another --engine"
            )));
        }
        // Pairs include every rank only if the number of ranks is even.
        let traffic = self.traffic.unwrap_or(match ranks % 2 {
            0 => Traffic::Pair,
            _ => Traffic::AllToAll,
        });
        Ok(names
            .into_iter()
            .flat_map(|name| self.transfers_of(&name, &sizes, lists, traffic))
            .map(Experiment::from)
            .collect())
    }

    /// Returns separate transfers for copies and for atomic operations. Atomic operations use words, unless only they
    /// were requested and with a size.
    fn transfers_of(
        &self,
        engine: &str,
        sizes: &Sweep,
        lists: &Lists,
        traffic: Traffic,
    ) -> Vec<Transfer> {
        let known = tonnage_engine::find(lists.engines, engine).ok();
        let ops = match known {
            // For an unknown engine, the operation does not matter, because expanding the plan refuses the engine.
            _ if !self.op.is_empty() => self.op.clone(),
            Some(entry) => entry.verbs_for(engine).to_vec(),
            None => vec![Verb::Write],
        };
        let memory = known.and_then(|entry| entry.device_memory);
        let (atomics, copies): (Vec<Verb>, Vec<Verb>) =
            ops.into_iter().partition(|verb| verb.is_atomic());
        let words = if copies.is_empty() && !self.sizes.is_empty() {
            sizes.clone()
        } else {
            Sweep::single(WORD_BYTES.into())
        };
        let mut transfers = Vec::new();
        if !copies.is_empty() {
            transfers.push(self.transfer(engine, copies, sizes, traffic));
        }
        // In a matrix, pairs take turns and do not contend, so atomic operations are left out. If the user names one,
        // expanding the plan reports the reason.
        let fits = traffic != Traffic::Matrix || !self.op.is_empty();
        if !atomics.is_empty() && fits {
            let mut transfer = self.transfer(engine, atomics, &words, traffic);
            // There are fewer words than operations in flight, so that concurrent updates reveal one that is not
            // atomic.
            transfer.length.iters = Some(Count(ATOMIC_BATCHES));
            transfer.memory.footprint = Some(Bytes((2 * WORD_BYTES).into()));
            transfers.push(transfer);
        }
        for transfer in &mut transfers {
            let Some(device) = memory else { continue };
            // Uses the device's own memory and other memories of the same driver, such as host memory that the device
            // copies. These take different paths.
            let own = lists.memories.iter().find(|entry| entry.name == device);
            let others = lists.memories.iter().filter(|entry| {
                entry.takes_gpu && own.is_some_and(|own| have_one_driver(own, entry))
            });
            let others = others
                .map(|entry| entry.name)
                .filter(|name| *name != device);
            let all = std::iter::once(device).chain(others).map(str::to_owned);
            transfer.memory.memory = Some(all.collect::<Vec<_>>().into());
            transfer.memory.target_memory = Some(vec![device.to_owned()].into());
        }
        transfers
    }

    fn transfer(&self, engine: &str, op: Vec<Verb>, sizes: &Sweep, traffic: Traffic) -> Transfer {
        Transfer {
            what: OperationOptions {
                engine: Some(vec![engine.to_owned()].into()),
                engine_options: self.engine_options.clone(),
                op: Some(op.into()),
                sizes: Some(sizes.clone()),
                traffic: Some(traffic),
                ..OperationOptions::default()
            },
            pacing: PacingOptions {
                // Several slots reveal data that went to the wrong slot.
                batch: Some(Sweep::single(4)),
                ..PacingOptions::default()
            },
            memory: MemoryOptions {
                memory_options: self.memory_options.clone(),
                ..MemoryOptions::default()
            },
            measure: MeasureOptions {
                verify: Some(Verification::Last),
                latency: Some(false),
                bound: Some(BoundChoice::None),
                ..MeasureOptions::default()
            },
            length: LengthOptions {
                trials: Some(Count(1)),
                iters: Some(Count(1)),
                warmup: Some(Nanos(0)),
                ..LengthOptions::default()
            },
            ..Transfer::default()
        }
    }
}

/// Returns sizes that reveal errors: one byte, odd sizes, and sizes around a word, a cache line, a page, 64 KiB and
/// 1 MiB.
fn default_sizes() -> Result<Sweep> {
    let page = rustix::param::page_size() as u64;
    let mut sizes = vec![
        1, 2, 3, 4, 5, 7, 8, 9, 15, 17, 31, 63, 64, 65, 127, 129, 1000,
    ];
    for edge in [page, 64 << 10, 1 << 20] {
        sizes.extend([edge - 1, edge, edge + 1]);
    }
    sizes.push((2 << 20) + 7);
    sizes.sort_unstable();
    sizes.dedup();
    Sweep::from_values(&sizes)
}
/// Returns whether an engine moves bytes. Counts an unknown engine as one that does, because expanding the plan refuses
/// it.
fn moves_bytes(engines: &[Entry], name: &str) -> bool {
    tonnage_engine::find(engines, name).map_or(true, |entry| entry.moves_bytes)
}

/// Returns whether two memories belong to GPUs with the same driver.
fn have_one_driver(one: &MemoryEntry, other: &MemoryEntry) -> bool {
    let mut libraries = one.libraries.iter();
    libraries.any(|library| {
        let mut others = other.libraries.iter();
        others.any(|other| other.name == library.name)
    })
}
