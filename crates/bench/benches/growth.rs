//! Measures how the cost of ranks grows with their number: time to join, time and bytes of each exchange at rank 0 and
//! at a leaf, memory and CPU time per rank. Ranks are first threads of one process, then separate processes.
//!
//! `cargo bench -p tonnage-bench --bench growth` runs all sizes; numbers after `--` select other sizes.

#[path = "../tests/growth/steps.rs"]
mod steps;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use steps::{BothEnds, ENGINES, quiet, take};
use tonnage_ranks::spawn::local::{end_with_supervisor, start_local};
use tonnage_ranks::testing::run_with;
use tonnage_ranks::{JoinOptions, Rank, Secret, detect};
use tonnage_sys::clock::process_cpu_ns;
use tonnage_units::{Error, Reduce, Result};

/// Number of exchanges of each kind.
const COUNT: u32 = 50;
/// Number of sessions of each engine.
const SESSIONS: u32 = 3;
/// For each engine, the largest number of threads that open sessions. If an engine keeps its own table of mappings,
/// looking up memory gets slower with each thread in the process.
const SESSION_THREADS_MAX: [u32; ENGINES.len()] = [1024, 64];
const THREADS_MAX: u32 = 2048;
const PROCESSES_MAX: u32 = 1024;
/// Start time of the first process of a run, in nanoseconds since 1970.
const BEGAN: &str = "TONNAGE_GROWTH_BEGAN";

/// Resident memory and CPU time of all processes until all ranks had joined.
#[derive(Default, Serialize, Deserialize)]
struct Used {
    resident_bytes: u64,
    cpu_ns: Vec<u64>,
}

impl Reduce for Used {
    fn merge(&mut self, other: Self) {
        self.resident_bytes += other.resident_bytes;
        for (sum, one) in self.cpu_ns.iter_mut().zip(other.cpu_ns) {
            *sum += one;
        }
    }
}

/// Results for one number of ranks.
struct Run {
    how: &'static str,
    ranks: u32,
    joined: Duration,
    used: Used,
    ends: BothEnds,
}

fn main() -> Result<()> {
    let env = |name: &str| std::env::var(name).ok();
    end_with_supervisor(&env)?;
    if let Some(identity) = detect(&env, None)? {
        let secret = Secret::find(&env)?;
        let options = JoinOptions::new(&env, &identity, secret, "growth".into())?;
        return as_process(Rank::join(identity, options).map_err(Error::from)?);
    }
    // `cargo test --benches` only checks that the benchmark runs, so it uses a small size.
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    let asked = std::env::args().filter_map(|argument| argument.parse().ok());
    let mut sizes: Vec<u32> = asked.collect();
    if sizes.is_empty() {
        let most = if is_bench { THREADS_MAX } else { 2 };
        sizes.extend(
            (1..)
                .map(|power| 1 << power)
                .take_while(|ranks| *ranks <= most),
        );
    }
    head();
    for ranks in up_to(THREADS_MAX, "threads", &sizes) {
        print(&as_threads(ranks)?);
        for (engine, most) in ENGINES.iter().zip(SESSION_THREADS_MAX) {
            if ranks > most {
                println!(
                    "skip: pairs of {engine} of {ranks} threads: at most {most}; processes have them"
                );
            }
        }
    }
    for ranks in up_to(PROCESSES_MAX, "processes", &sizes) {
        let began = since_1970_ns().to_string();
        let program = std::env::current_exe().map_err(|error| Error::io("this program", error))?;
        let supervisor = start_local(&env, ranks, &program, &[], &[(BEGAN, began)])?;
        if supervisor.wait()? != 0 {
            return Err(Error::Failed(format!("{ranks} processes failed")));
        }
    }
    Ok(())
}

/// Returns the sizes of at most `most` ranks, and prints a line for each larger size, which is skipped.
fn up_to(most: u32, how: &str, sizes: &[u32]) -> Vec<u32> {
    let (taken, left): (Vec<u32>, Vec<u32>) = sizes.iter().partition(|ranks| **ranks <= most);
    for ranks in left {
        println!("skip: {ranks} {how}: at most {most}");
    }
    taken
}

fn since_1970_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}

/// Anonymous resident memory of this process.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("RssAnon:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

fn as_threads(ranks: u32) -> Result<Run> {
    let (began, before) = (Instant::now(), resident_bytes());
    let cpu_before_ns = process_cpu_ns();
    let change = |_, options: &mut JoinOptions| quiet(options);
    let body = move |rank: Result<Rank>| -> Result<_> {
        let mut rank = rank?;
        rank.barrier("all are here", Duration::from_secs(300))?;
        let (joined, resident) = (began.elapsed(), resident_bytes());
        let engines = ENGINES.iter().zip(SESSION_THREADS_MAX);
        let engines = engines.filter(|(_, most)| ranks <= *most);
        let engines: Vec<&str> = engines.map(|(engine, _)| *engine).collect();
        let (_, ends) = take(&mut rank, COUNT, (SESSIONS, &engines), &|| ())?;
        rank.close()?;
        Ok((joined, resident, ends))
    };
    let all = run_with(ranks, change, body)
        .into_iter()
        .collect::<Result<Vec<_>>>()?;
    let joined = all.iter().map(|(joined, ..)| *joined).max();
    let resident = all.iter().map(|(_, resident, _)| *resident).max();
    let none = || Error::Failed("the last rank sent no figures".into());
    let ends = all
        .into_iter()
        .find_map(|(.., ends)| ends)
        .ok_or_else(none)?;
    // One process holds all ranks of this run and of earlier runs, so its earlier CPU time is subtracted.
    let mut cpu_ns: Vec<u64> = ends.root.iter().map(|step| step.cpu_ns).collect();
    if let Some(join) = cpu_ns.first_mut() {
        *join -= cpu_before_ns;
    }
    Ok(Run {
        how: "threads",
        ranks,
        joined: joined.unwrap_or_default(),
        used: Used {
            resident_bytes: resident.unwrap_or(0).saturating_sub(before),
            cpu_ns,
        },
        ends,
    })
}

fn as_process(mut rank: Rank) -> Result<()> {
    rank.barrier("all are here", Duration::from_secs(300))?;
    let began: u64 = std::env::var(BEGAN)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(0);
    let joined = Duration::from_nanos(since_1970_ns().saturating_sub(began));
    let resident_bytes = resident_bytes();
    let (steps, ends) = take(&mut rank, COUNT, (SESSIONS, &ENGINES), &|| ())?;
    let used = Used {
        resident_bytes,
        cpu_ns: steps.iter().map(|step| step.cpu_ns).collect(),
    };
    let used = rank.reduce("what all used", used, Duration::from_secs(300))?;
    if let Some(ends) = ends {
        print(&Run {
            how: "processes",
            ranks: rank.size(),
            joined,
            used,
            ends,
        });
    }
    rank.close().map_err(Error::from)
}

fn head() {
    println!(
        "{:9} {:>5} {:>8} {:>9} {:>9} | {:16} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "ranks are",
        "",
        "joined",
        "join CPU",
        "memory",
        "exchange",
        "p50",
        "CPU/rank",
        "leaf gets",
        "says",
        "0 gets",
        "says"
    );
}

fn print(run: &Run) {
    let ranks = f64::from(run.ranks);
    let of_run = format!(
        "{:9} {:5} {:6.0}ms {:7.0}µs {:6.2}MiB",
        run.how,
        run.ranks,
        run.joined.as_secs_f64() * 1e3,
        run.used
            .cpu_ns
            .first()
            .map_or(0.0, |ns| *ns as f64 / 1e3 / ranks),
        run.used.resident_bytes as f64 / ranks / f64::from(1 << 20),
    );
    let steps = run
        .ends
        .root
        .iter()
        .zip(&run.ends.leaf)
        .zip(&run.used.cpu_ns);
    for ((root, leaf), cpu_ns) in steps {
        println!(
            "{of_run} | {:16} {:7.2}ms {:7.1}µs {:9.0} {:9.0} {:9.0} {:9.0}",
            root.name,
            root.wall_ns_p50 as f64 / 1e6,
            *cpu_ns as f64 / 1e3 / ranks,
            leaf.received,
            leaf.sent,
            root.received,
            root.sent,
        );
    }
}
