//! Ranks on several hosts. The hosts are network namespaces of this machine.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tempfile::tempdir;
use tonnage_record::transfer::Trial;
use tonnage_record::{Outcome, Record};
use tonnage_testbed::{Error, Hosts, HostsSpec, Rate};

use super::support::records::body;
use super::support::{BRIEF, Ended, Started, records, tonnage_by, tonnage_in, wait_for_records};

/// Returns hosts with one link each. All links have the same rate in both directions.
pub(super) fn hosts(count: usize, rate: Option<Rate>) -> Option<Hosts> {
    hosts_with_links(count, 1, rate)
}

/// Returns hosts with links of this rate. If this machine cannot have any, prints the reason and returns `None`.
pub(super) fn hosts_with_links(count: usize, links: usize, rate: Option<Rate>) -> Option<Hosts> {
    let rates = rate.into();
    match Hosts::new(HostsSpec {
        count,
        links,
        rates,
    }) {
        Ok(hosts) => Some(hosts),
        Err(Error::Unavailable(why)) => {
            println!("skip: no hosts in network namespaces: {why}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Starts a rank on each host. All ranks get the same secret, as they would from a common home directory.
pub(super) fn start(hosts: &Hosts, dir: &Path, arguments: &str) -> Vec<Started> {
    let size = hosts.count();
    let start = |rank: usize| {
        let program = tonnage_in(hosts, rank, dir, arguments);
        program.on_hosts(hosts, rank, size).start()
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

/// Runs one rank on each host. All ranks must succeed. Returns the records.
pub(super) fn measured(hosts: &Hosts, arguments: &str) -> Vec<Record> {
    measured_in(tempdir().unwrap().path(), hosts, arguments)
}

/// Like [`measured`], but writes the file of records to this directory.
pub(super) fn measured_in(dir: &Path, hosts: &Hosts, arguments: &str) -> Vec<Record> {
    all_good(&end(start(hosts, dir, &format!("{arguments} -o r.jsonl"))));
    let records = records::read(&dir.join("r.jsonl"));
    let is_measured = |record: &Record| record.outcome == Outcome::Measured;
    assert!(!records.is_empty() && records.iter().all(is_measured));
    records
}

/// Checks that no trial exceeds this rate by more than the fraction `within`, and that at least one reaches it. The
/// rate may be lower if other programs took the CPUs, which shapers and switches need too; this is then printed.
/// `share` returns the fraction of time in which a polling thread had a CPU.
pub(super) fn reads(record: &Record, bytes_per_s: f64, within: f64, share: fn(&Trial) -> f64) {
    let what = format!(
        "{} of {:.1} MB/s",
        body(record).point.op.name(),
        bytes_per_s / 1e6
    );
    let part = |trial: &Trial| trial.bandwidth_bytes_per_s / bytes_per_s;
    let trials = &body(record).trials;
    let is_below = trials.iter().all(|trial| part(trial) < 1.0 + within);
    assert!(is_below, "{what}: {record:#?}");
    let best = trials
        .iter()
        .max_by(|one, other| part(one).total_cmp(&part(other)));
    let best = best.unwrap();
    if part(best) <= 1.0 - within {
        let (read, share) = (100.0 * part(best), share(best));
        let said = format!(
            "{what}: {read:.0} % where threads had {:.0} % of their CPUs",
            100.0 * share
        );
        // A thread without a CPU for part of the time can reach the rate only in the rest.
        let is_explained = share < 0.9 || part(best) > (1.0 - within) * share;
        assert!(is_explained, "{said}: {record:#?}");
        println!("skip: {said}");
    }
}

/// Returns the fraction of time that the only initiator was on its CPU.
pub(super) fn initiator_share(trial: &Trial) -> f64 {
    trial.initiator_cpu_ns as f64 / trial.window_ns as f64
}

/// Returns the hosts in all records' environments with their ranks, sorted.
pub(super) fn named(records: &[Record]) -> Vec<(&str, &str)> {
    let parts = records.iter().flat_map(|record| &record.environment);
    let hosts = parts.flat_map(|part| &part.hosts);
    let mut found: Vec<_> = hosts.map(|it| (&*it.name, &*it.ranks)).collect();
    found.sort_unstable();
    found
}

#[test]
fn networks_of_one_machine_are_not_taken_for_its_loopback() {
    let Some(hosts) = hosts(2, None) else { return };
    // The namespaces share the machine's name and boot ID. In the second case, they are also containers with separate
    // processes.
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
        assert_eq!(
            named(&records).len(),
            1,
            "one name of one machine is one host"
        );
    }
}

#[test]
fn a_cable_that_is_mended_in_time_does_not_end_the_run() {
    let Some(hosts) = hosts(2, None) else { return };
    let dir = tempdir().unwrap();
    let line = "transfer --engine null --op write --sizes 1..128 --trials 3 --trial-time 100ms --warmup 0 --bound none \
                -o r.jsonl";
    let runs = start(&hosts, dir.path(), line);
    wait_for_records(dir.path(), 1);
    hosts.link(1, 0).cut().unwrap();
    std::thread::sleep(Duration::from_secs(2));
    hosts.link(1, 0).mend().unwrap();
    all_good(&end(runs));
    let records = records::read(&dir.path().join("r.jsonl"));
    assert_eq!(records.len(), 8);
    let mut outcomes = records.iter().map(|record| &record.outcome);
    assert!(outcomes.all(|it| *it == Outcome::Measured));
    assert_eq!(named(&records[..1]), [("h0", "0"), ("h1", "1")]);
}
