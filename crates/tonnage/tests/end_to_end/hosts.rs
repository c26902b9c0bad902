//! Ranks on several hosts, which are network namespaces of this machine.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::tempdir;
use tonnage_record::Outcome;
use tonnage_testbed::{Error, Hosts, HostsSpec, Rate};

use super::support::{
    BRIEF, Ended, Program, SOON, Started, records, tonnage_by, tonnage_in, wait_for_records,
};

/// Hosts with one link each, which carries as much either way.
pub(super) fn hosts(count: usize, rate: Option<Rate>) -> Option<Hosts> {
    hosts_of(HostsSpec {
        count,
        rates: rate.into(),
        ..HostsSpec::default()
    })
}

/// Hosts as they are asked for, or `None` with the reason printed where this machine cannot have any.
pub(super) fn hosts_of(spec: HostsSpec) -> Option<Hosts> {
    match Hosts::new(spec) {
        Ok(hosts) => Some(hosts),
        Err(Error::Unavailable(why)) => {
            println!("skip: no hosts in network namespaces: {why}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Starts the program as `ranks_per_host` ranks in each host, in the order of the hosts. All ranks share a secret as
/// hosts with a common home would.
pub(super) fn start(
    hosts: &Hosts,
    ranks_per_host: usize,
    dir: &Path,
    arguments: &str,
    change: impl Fn(Program) -> Program,
) -> Vec<Started> {
    let size = hosts.count() * ranks_per_host;
    let start = |rank: usize| {
        let program = tonnage_in(hosts, rank / ranks_per_host, dir, arguments);
        change(program.on_hosts(hosts, rank, size)).start()
    };
    (0..size).map(start).collect()
}

pub(super) fn end(started: Vec<Started>) -> Vec<Ended> {
    started.into_iter().map(|run| run.end()).collect()
}

pub(super) fn all_good(runs: &[Ended]) {
    for run in runs {
        assert!(run.code == Some(0) && run.stderr.is_empty(), "{runs:#?}");
    }
}

#[test]
fn the_record_lists_the_hosts() {
    for (count, ranks_per_host, expected) in [
        (2, 1, [("h0", "0"), ("h1", "1")]),
        (2, 2, [("h0", "0-1"), ("h1", "2-3")]),
    ] {
        let Some(hosts) = hosts(count, None) else {
            return;
        };
        let dir = tempdir().unwrap();
        let arguments = format!("transfer --engine null --op write --sizes 64 {BRIEF} -o r.jsonl");
        all_good(&end(start(
            &hosts,
            ranks_per_host,
            dir.path(),
            &arguments,
            |rank| rank,
        )));
        let records = records::read(&dir.path().join("r.jsonl"));
        assert_eq!(
            (records.len(), &records[0].outcome),
            (1, &Outcome::Measured)
        );
        let hosts = records[0].environment.iter().flat_map(|part| &part.hosts);
        let mut found: Vec<_> = hosts
            .map(|it| (it.name.as_str(), it.ranks.as_str()))
            .collect();
        found.sort_unstable();
        assert_eq!(found, expected, "{:#?}", records[0].environment);
    }
}

#[test]
fn networks_of_one_machine_are_not_taken_for_its_loopback() {
    let Some(hosts) = hosts(2, None) else { return };
    // Namespaces with the machine's own name and boot, and the same as containers: with processes of their own.
    let container = ["unshare", "--pid", "--fork", "--mount-proc", "--"];
    for inside in [&[][..], &container] {
        let dir = tempdir().unwrap();
        let start = |rank: usize| {
            let mut command = Command::new("nsenter");
            command.arg(format!("--net=/run/netns/{}", hosts.namespace(rank)));
            command.arg("--").args(inside);
            let arguments =
                format!("transfer --engine fabric:tcp --op write --sizes 4k {BRIEF} -o r.jsonl");
            let rank_there = tonnage_by(command, dir.path(), &arguments);
            rank_there.on_hosts(&hosts, rank, 2).start()
        };
        let ended = end((0..2).map(start).collect());
        all_good(&ended);
        let records = records::read(&dir.path().join("r.jsonl"));
        assert_eq!(records.len(), 1, "{ended:#?}");
        assert_eq!(records[0].outcome, Outcome::Measured, "{ended:#?}");
        for effective in &records[0].effective {
            let engine = format!("{:?}", effective.engine);
            assert!(engine.contains("eth0"), "{inside:?}: {engine}");
        }
        let names = records[0].environment.iter().flat_map(|part| &part.hosts);
        assert_eq!(names.count(), 1, "one name of one machine is one host");
    }
}

/// Some seconds of short points, so that a run is surely in the middle when the first of them is recorded.
const SECONDS: &str = "transfer --engine null --op write --sizes 1..64k --trials 3 --trial-time 100ms --warmup 0 --limit none \
                       -o r.jsonl";

/// The points of [`SECONDS`].
const POINTS: usize = 17;

#[test]
fn a_rank_that_is_killed_on_another_host_is_named() {
    let Some(hosts) = hosts(2, None) else { return };
    let dir = tempdir().unwrap();
    let runs = start(&hosts, 1, dir.path(), SECONDS, |rank| rank);
    wait_for_records(dir.path(), 1);
    runs[1].signal_rank(1, Signal::KILL);
    let since = Instant::now();
    let ended = end(runs);
    assert!(since.elapsed() < SOON, "{:?}: {ended:#?}", since.elapsed());
    assert_eq!(ended[0].code, Some(1), "{ended:#?}");
    assert!(ended[0].stderr.contains("rank 1 on h1"), "{ended:#?}");
}

#[test]
fn a_cable_that_stays_cut_ends_the_run_on_both_sides() {
    let Some(hosts) = hosts(2, None) else { return };
    let dir = tempdir().unwrap();
    let runs = start(&hosts, 1, dir.path(), SECONDS, |rank| rank);
    wait_for_records(dir.path(), 1);
    hosts.link(1, 0).cut().unwrap();
    let since = Instant::now();
    let ended = end(runs);
    assert!(
        since.elapsed() < 2 * SOON,
        "{:?}: {ended:#?}",
        since.elapsed()
    );
    for (run, other) in ended.iter().zip(["rank 1 on h1", "rank 0 on h0"]) {
        assert_eq!(run.code, Some(1), "{ended:#?}");
        assert!(run.stderr.contains(other), "no {other:?} in {run:#?}");
    }
}

#[test]
fn a_cable_that_is_mended_in_time_does_not_end_the_run() {
    let Some(hosts) = hosts(2, None) else { return };
    let dir = tempdir().unwrap();
    let runs = start(&hosts, 1, dir.path(), SECONDS, |rank| rank);
    wait_for_records(dir.path(), 1);
    hosts.link(1, 0).cut().unwrap();
    std::thread::sleep(Duration::from_secs(2));
    hosts.link(1, 0).mend().unwrap();
    all_good(&end(runs));
    let records = records::read(&dir.path().join("r.jsonl"));
    assert_eq!(records.len(), POINTS);
    assert!(
        records
            .iter()
            .all(|record| record.outcome == Outcome::Measured)
    );
}
