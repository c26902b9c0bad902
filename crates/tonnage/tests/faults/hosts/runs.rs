//! Runs cases on several hosts. Each rank is started separately, as a launcher would.

use std::collections::BTreeSet;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::{tempdir_in, tempfile_in};
use tonnage_testbed::{Error, Hosts, HostsSpec};

use super::promises::broken;
use super::{Case, Fault, TIMEOUT_SECONDS};
use crate::family::{all_hold, numbers, seed, variable};
use crate::promises::Seen;
use crate::random::{LOOK, MOMENT_MAX, Steps, all_lines, names, new_names, outcomes, said};
use crate::support::{Started, shared_memory, tonnage_in};

/// Number of cases by default. The first two have a cut data link and a killed rank.
const CASES: u64 = 2;

/// For this many cases on one host, there is one case on several hosts.
const ONE_TO: u64 = 10;

#[test]
fn promises_hold_whatever_befalls_a_host() {
    let count = variable("FAULTS").map_or(CASES, |count| count.div_ceil(ONE_TO));
    let Some(numbers) = numbers("FAULT_HOSTS_CASE", "FAULT_CASE", count) else {
        return;
    };
    // If a run ends before its fault, the case counts as late.
    all_hold("FAULT_HOSTS_CASE", numbers, |number, soon| {
        tried(number, &Case::draw(seed(), number), soon)
    });
}

/// Runs a case and returns the broken promises. Returns none if this machine cannot have several hosts.
fn tried(number: u64, case: &Case, soon: Duration) -> Vec<String> {
    let hosts = match hosts(case) {
        Ok(Some(hosts)) => hosts,
        Ok(None) => return Vec::new(),
        Err(error) => return vec![format!("no hosts for it: {error}")],
    };
    match catch_unwind(AssertUnwindSafe(|| run(number, case, &hosts, soon))) {
        Ok(found) => found,
        Err(panic) => vec![format!("a panic: {:?}", panic.downcast_ref::<String>())],
    }
}

/// Creates the hosts of a case. If this machine cannot have any, prints the reason and returns `None`.
fn hosts(case: &Case) -> Result<Option<Hosts>, Error> {
    let spec = HostsSpec {
        count: case.hosts as usize,
        links: 2,
        ..HostsSpec::default()
    };
    match Hosts::new(spec) {
        Ok(hosts) => Ok(Some(hosts)),
        Err(Error::Unavailable(why)) => {
            println!("skip: faults of hosts in network namespaces: {why}");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn run(number: u64, case: &Case, hosts: &Hosts, soon: Duration) -> Vec<String> {
    let dir = tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let memory = shared_memory();
    let arguments = format!("{} --log-level debug", case.arguments());
    let start = |rank: usize| {
        let told = tempfile_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let program = tonnage_in(hosts, rank, dir.path(), &arguments)
            .on_hosts(hosts, rank, hosts.count())
            .env("TONNAGE_HEARTBEAT_TIMEOUT", TIMEOUT_SECONDS.to_string())
            .stderr(told.try_clone().unwrap().into());
        (program.start(), told)
    };
    let mut ranks: Vec<_> = (0..hosts.count()).map(start).collect();
    let (struck_pid, pids) = strike(case, hosts, &mut ranks);
    let struck = Instant::now();
    let mut stdout = String::new();
    let mut ended = Vec::new();
    let mut has_joined = false;
    for (run, mut told) in ranks {
        let end = run.end();
        stdout.push_str(&end.stdout);
        let all = all_lines(&mut told);
        has_joined |= all.contains(" has joined as process ");
        let code = end.code.unwrap_or_else(|| 128 + end.signal.unwrap());
        ended.push((code, said(&all)));
    }
    let took = struck.elapsed();
    let codes: Vec<_> = ended.iter().map(|(code, _)| *code).collect();
    let since = struck_pid.map_or("no fault", |_| "it");
    println!("case {number} of hosts, codes {codes:?}, {took:.1?} after {since}: {case}");
    let seen = Seen {
        struck_pid,
        code: codes[0],
        took,
        records: outcomes(&dir.path().join("r.jsonl")),
        left_in_dir: names(dir.path()),
        left_in_memory: new_names(&memory, &pids),
        stderr: ended.iter().map(|(_, said)| said.as_str()).collect(),
        stdout,
        has_joined,
    };
    broken(case, &seen, &ended, soon)
}

/// Waits for the case's step on its host, and applies the fault unless the run has ended by then. Returns the process
/// that was hit, and all processes that existed.
fn strike(
    case: &Case,
    hosts: &Hosts,
    ranks: &mut [(Started, File)],
) -> (Option<i32>, BTreeSet<i32>) {
    let host = case.host as usize;
    let (run, told) = &mut ranks[host];
    let mut steps = Steps::new(told, case.host, case.step);
    let mut begun = false;
    let since = Instant::now();
    while !begun && run.is_running() && since.elapsed() < MOMENT_MAX {
        begun = steps.have_begun();
        if !begun {
            std::thread::sleep(LOOK);
        }
    }
    let processes = run.processes();
    let rank = processes
        .iter()
        .find(|process| process.rank == Some(case.host));
    let is_struck = begun
        && rank.is_some_and(|rank| match case.fault {
            Fault::DataCut => {
                hosts.link(host, 1).cut().unwrap();
                true
            }
            Fault::HostCut => {
                for link in [1, 0] {
                    hosts.link(host, link).cut().unwrap();
                }
                true
            }
            Fault::Kill => run.signal_process(rank, Signal::KILL),
            Fault::Stop => run.signal_process(rank, Signal::STOP),
        });
    let pids = ranks.iter().flat_map(|(run, _)| run.processes());
    let pids = pids.map(|process| process.pid).collect();
    let hit = &ranks[host].0;
    (is_struck.then(|| hit.pid()), pids)
}
