//! Runs exchanges of ranks, one kind after the other. Measures the cost for a rank: bytes on the control channel, wall
//! time and CPU time. The test compares the bytes with docs/SCALE.md. `benches/growth.rs` prints all figures.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tonnage_bench::cpu_loss::CpuLossMeter;
use tonnage_bench::host::RankHost;
use tonnage_bench::kinds::kind::Stage;
use tonnage_bench::kinds::transfer::open::open;
use tonnage_bench::network_paths::PathWatch;
use tonnage_bench::observer::{Observer, Progress};
use tonnage_bench::opening::engine::OpenEngine;
use tonnage_bench::settings::{Numa, Settings};
use tonnage_machine::kernel_files::Tree;
use tonnage_machine::{CpuChoice, Topology};
use tonnage_plan::transfer::TransferPoint;
use tonnage_plan::{Plan, Point};
use tonnage_ranks::{JoinOptions, Rank, pack, unpack};
use tonnage_record::{Program, Record};
use tonnage_sys::clock::{Clock, process_cpu_ns};
use tonnage_units::reduce::ReduceMax;
use tonnage_units::{Error, Result};

/// Deadline of every exchange.
const DEADLINE: Duration = Duration::from_secs(300);

/// Engines for sessions of pairs. The first moves nothing and has empty endpoint addresses; the second has real
/// addresses.
pub const ENGINES: [&str; 2] = ["null", "fabric:tcp"];

/// Cost of one kind of exchange for one rank.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Cost {
    /// Name of the exchange in docs/SCALE.md.
    pub name: String,
    /// Number of bytes that the rank received per exchange.
    pub received: f64,
    /// Number of bytes that the rank sent per exchange.
    pub sent: f64,
    /// Median time of an exchange.
    pub wall_ns_p50: u64,
    /// CPU time of the rank's process; 0 if rank 0 is in the same process, because rank 0 then reports the time.
    pub cpu_ns: u64,
}

/// Costs at the two ends of the tree. Only rank 0 gets them.
pub struct BothEnds {
    pub root: Vec<Cost>,
    pub leaf: Vec<Cost>,
}

struct NoObserver;

impl Observer for NoObserver {
    fn begin(&mut self, _: usize, _: usize, _: &Point) {}

    fn progress(&mut self, _: &Progress) {}

    fn record(&mut self, _: Record) -> Result<()> {
        Ok(())
    }
}

/// Sets options such that a rank sends no heartbeats, because these would be counted too.
pub fn quiet(options: &mut JoinOptions) {
    options.fanout = 32;
    options.host = "here".into();
    options.heartbeat_timeout = Duration::from_secs(3600);
    options.network_timeout = options.heartbeat_timeout;
    options.join_timeout = DEADLINE;
}

/// Runs `count` exchanges of each kind on a rank, and opens `sessions` sessions of each of the `engines`. Returns their
/// costs for this rank; rank 0 also gets those of the last rank. `all_have_read` is called after each reading of the
/// counters. It may wait until all ranks have read theirs. Otherwise bytes of the next exchange could be counted for
/// the previous one.
pub fn take(
    rank: &mut Rank,
    count: u32,
    (sessions, engines): (u32, &[&str]),
    all_have_read: &dyn Fn(),
) -> Result<(Vec<Cost>, Option<BothEnds>)> {
    let joined = Cost {
        name: "list of ranks".into(),
        received: rank.received_bytes() as f64,
        sent: rank.sent_bytes() as f64,
        wall_ns_p50: 0,
        cpu_ns: cpu_ns(rank),
    };
    let bytes = rank.join_bytes();
    all_have_read();
    let way = |name: &str, received, sent| Cost {
        name: name.into(),
        received: received as f64,
        sent: sent as f64,
        wall_ns_p50: 0,
        cpu_ns: 0,
    };
    let mut steps = vec![
        joined,
        way("coming to rank 0", bytes.got, bytes.said),
        way(
            "going to a parent",
            bytes.got_of_parent,
            bytes.said_to_parent,
        ),
        step(rank, "barrier", count, all_have_read, |rank| {
            rank.barrier("barrier", DEADLINE)
        })?,
        step(rank, "reduce", count, all_have_read, |rank| {
            rank.reduce("reduce", ReduceMax(1 << 40), DEADLINE)
                .map(drop)
        })?,
        step(rank, "start", count, all_have_read, |rank| {
            rank.aligned_start("start", DEADLINE).map(drop)
        })?,
    ];
    for engine in engines {
        steps.push(session(rank, engine, sessions, all_have_read)?);
    }
    let ends = ends(rank, steps.clone())?;
    Ok((steps, ends))
}

/// A session: ranks open an engine together, to exchange bytes in pairs.
pub struct PairSession {
    settings: Settings,
    point: TransferPoint,
}

impl PairSession {
    /// Creates a session over an engine. `cpus` selects the CPUs of its workers.
    pub fn new(rank: &Rank, engine: &str, cpus: CpuChoice) -> Result<Self> {
        let settings = settings(cpus);
        let plan = format!(
            "name = \"growth\"\n[[transfer]]\nengine = \"{engine}\"\nop = \"write\"\nsizes = 64\n"
        );
        let points = Plan::from_toml(&plan, "growth")?.points(rank.size(), &settings.lists)?;
        match points.into_iter().next().map(|planned| planned.point) {
            Some(Point::Transfer(point)) => Ok(Self { settings, point }),
            _ => Err(Error::Failed("the plan has no point".into())),
        }
    }

    /// Opens the engine on all ranks.
    pub fn open(&self, rank: &mut Rank, host: &RankHost) -> Result<OpenEngine> {
        let mut stage = Stage {
            rank,
            settings: &self.settings,
            host,
            cpu: &mut CpuLossMeter::new(Tree::host()),
            paths: &mut PathWatch::new(BTreeSet::new()),
            observer: &mut NoObserver,
        };
        open(&[&self.point], &mut stage)
    }
}

/// Opens a session on all ranks and closes it, `count` times.
fn session(rank: &mut Rank, engine: &str, count: u32, all_have_read: &dyn Fn()) -> Result<Cost> {
    // Ranks in one process share its CPU time. Their preparations for a session must not count for the previous step.
    rank.barrier("before a session", DEADLINE)?;
    // Workers are not pinned, because the assignment of CPUs would differ between machines.
    let session = PairSession::new(rank, engine, CpuChoice::None)?;
    let host = RankHost::gather(rank, &session.settings.topology)?;
    let name = format!("pairs of {engine}");
    step(rank, &name, count, all_have_read, |rank| {
        session.open(rank, &host).map(drop)
    })
}

/// Returns the CPU time of this process. If ranks are threads, only rank 0 reads it. The time of this call grows with
/// the number of threads, and would dominate the measurement.
fn cpu_ns(rank: &Rank) -> u64 {
    let pid = |of: u32| rank.rank_infos().get(of as usize).map(|info| info.pid);
    let id = rank.id();
    let is_with_root = rank.hosts().share_processes(0, id) && pid(0) == pid(id);
    match id > 0 && is_with_root {
        true => 0,
        false => process_cpu_ns(),
    }
}

/// Sends the costs of the last rank to rank 0.
fn ends(rank: &mut Rank, steps: Vec<Cost>) -> Result<Option<BothEnds>> {
    let is_leaf = rank.id() + 1 == rank.size();
    let message = match is_leaf {
        true => vec![(0, pack(&steps)?)],
        false => Vec::new(),
    };
    let incoming = rank.exchange("figures of the last rank", message, DEADLINE)?;
    let leaf = incoming
        .first()
        .map(|(_, bytes)| unpack(bytes))
        .transpose()?;
    Ok(leaf.map(|leaf| BothEnds { root: steps, leaf }))
}

fn step(
    rank: &mut Rank,
    name: &str,
    count: u32,
    all_have_read: &dyn Fn(),
    mut exchange: impl FnMut(&mut Rank) -> Result<()>,
) -> Result<Cost> {
    rank.barrier("before", DEADLINE)?;
    let before = (rank.received_bytes(), rank.sent_bytes(), cpu_ns(rank));
    all_have_read();
    let mut took = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let begun = Instant::now();
        exchange(rank)?;
        took.push(begun.elapsed().as_nanos() as u64);
    }
    let after = (rank.received_bytes(), rank.sent_bytes(), cpu_ns(rank));
    all_have_read();
    took.sort_unstable();
    let each = |after: u64, before: u64| (after - before) as f64 / f64::from(count);
    Ok(Cost {
        name: name.to_owned(),
        received: each(after.0, before.0),
        sent: each(after.1, before.1),
        wall_ns_p50: took.get(took.len() / 2).copied().unwrap_or(0),
        cpu_ns: (after.2 - before.2) / u64::from(count),
    })
}

fn settings(cpus: CpuChoice) -> Settings {
    Settings {
        lists: tonnage_engines::LISTS,
        plan: "growth".into(),
        topology: Topology::read().into(),
        cpus,
        numa: Numa::None,
        devices: Default::default(),
        gpus: Vec::new(),
        link_bytes_per_s: None,
        // Other versions may have endpoint addresses of a different length.
        libraries: [("libfabric".to_owned(), "embedded".into())].into(),
        clock: Clock::new(),
        program: Program {
            version: "0".into(),
            git_revision: "unknown".into(),
        },
        time_limit: None,
        repetition: None,
        ledger: None,
    }
}
