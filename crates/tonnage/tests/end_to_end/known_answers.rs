//! Answers that are known before anything is measured: links of known speed, links that are cut, and which CPUs and
//! devices ranks get that a real Slurm starts on hosts of one machine.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use tempfile::tempdir;
use tonnage_record::transfer::Trial;
use tonnage_record::{Outcome, Record};
use tonnage_testbed::{Hosts, HostsSpec, Rate, Slurm};

use super::fabric::installed;
use super::hosts::{all_good, end, hosts, hosts_of, start};
use super::slurm_scripts::{said, start_slurm};
use super::support::records::{body, summary};
use super::support::{BRIEF, Ended, LONG, Started, records, tonnage_by, wait_until};

/// Greatest distance of a figure from theory.
const TOLERANCE: f64 = 0.03;

/// Spinning workers use all of their CPUs; with less than this, others took it.
const CPU_SHARE_MIN: f64 = 0.9;

/// A frame has 1514 bytes for 1448 of payload; with acknowledgements, requests and what is sent again it is a little
/// more.
const BYTES_PER_PAYLOAD_MAX: f64 = 1.08;

const STREAM: &str = "--trials 2 --trial-time 500ms --warmup 200ms --limit none";

/// Runs two ranks on two hosts into a file; all must go well.
fn measure(hosts: &Hosts, arguments: &str) -> Vec<Record> {
    let dir = tempdir().unwrap();
    let arguments = format!("transfer --engine fabric:tcp --sizes 1M {arguments} -o r.jsonl");
    let ended = end(start(hosts, 1, dir.path(), &arguments, |rank| rank));
    all_good(&ended);
    let records = records::read(&dir.path().join("r.jsonl"));
    assert!(!records.is_empty());
    assert!(
        records
            .iter()
            .all(|record| record.outcome == Outcome::Measured)
    );
    records
}

/// Part of its time that the busier of two workers was on its CPU, at the worse of both.
fn cpu_share(trial: &Trial) -> f64 {
    trial.initiator_cpu_ns.min(trial.target_cpu_ns) as f64 / trial.window_ns as f64
}

/// No trial is above the link's speed, and one of them reaches it. Where other programs took the CPU, which shapers and
/// switches need too, it may be less, and that is said.
fn reads_the_link(record: &Record, rate: Rate) {
    let link = rate.tcp_payload_bytes_per_s();
    let what = format!("{} over {rate}", body(record).point.op.name());
    let of_link = |trial: &Trial| trial.bandwidth_bytes_per_s / link;
    let trials = &body(record).trials;
    let is_within = |trial: &Trial| of_link(trial) < 1.0 + TOLERANCE;
    assert!(trials.iter().all(is_within), "{what}: {trials:#?}");
    let best = trials
        .iter()
        .max_by(|one, other| of_link(one).total_cmp(&of_link(other)));
    let best = best.unwrap();
    if of_link(best) > 1.0 - TOLERANCE {
        return;
    }
    let share = cpu_share(best);
    let said = format!(
        "{what} reads {:.1} MB/s of {:.1} where the workers had {:.0} % of their CPUs",
        best.bandwidth_bytes_per_s / 1e6,
        link / 1e6,
        100.0 * share
    );
    assert!(share < CPU_SHARE_MIN, "{said}: {record:#?}");
    println!("skip: {said}");
}

/// The counters of both hosts' interfaces saw the payload and its headers, and no more; and both saw the same.
fn both_ends_agree(record: &Record) {
    let path = record.wire_proof.as_ref().unwrap();
    assert!(path.crossed && path.devices.len() == 2, "{path:#?}");
    let [one, other] = [&path.devices[0], &path.devices[1]];
    for (from, to) in [(one, other), (other, one)] {
        assert_eq!(from.name, "eth0");
        let [sent, received] =
            [from.sent_bytes, to.received_bytes].map(|bytes| bytes.unwrap() as f64);
        let payload = from.sent_bytes_expected as f64;
        assert_eq!(from.sent_bytes_expected, to.received_bytes_expected);
        if payload == 0.0 {
            continue;
        }
        let expected = payload..BYTES_PER_PAYLOAD_MAX * payload;
        assert!(
            expected.contains(&sent) && expected.contains(&received),
            "{path:#?}"
        );
        assert!((sent / received - 1.0).abs() < 0.02, "{path:#?}");
    }
}

fn every_operation(rate: Rate) {
    let Some(hosts) = hosts(2, Some(rate)) else {
        return;
    };
    let operations = "--op write,read,write-imm --window 8 --devices eth0 --require-path";
    let records = measure(&hosts, &format!("{operations} {STREAM}"));
    assert_eq!(records.len(), 3);
    for record in &records {
        reads_the_link(record, rate);
        both_ends_agree(record);
        let payload: u64 = body(record)
            .trials
            .iter()
            .map(|trial| trial.payload_bytes)
            .sum();
        let mut devices = record.wire_proof.as_ref().unwrap().devices.iter();
        assert!(devices.any(|device| device.sent_bytes_expected >= payload));
    }
    if rate == Rate::GBIT_1 {
        bursts(&hosts, rate);
    }
}

/// Batches and timetables do not exceed the link either: what is on its way when a trial ends is waited for.
fn bursts(hosts: &Hosts, rate: Rate) {
    let link = rate.tcp_payload_bytes_per_s();
    let offered = 40.0 * f64::from(1 << 20);
    for (pacing, most) in [("--batch 1,8", link), ("--rate 40 --window 8", offered)] {
        for record in measure(hosts, &format!("--op write {pacing} {STREAM}")) {
            let mut trials = body(&record).trials.iter();
            let is_within = |it: &Trial| it.bandwidth_bytes_per_s < most * (1.0 + TOLERANCE);
            assert!(trials.all(is_within), "{pacing}: {record:#?}");
        }
    }
}

#[test]
fn a_link_of_1_gigabit_reads_119_6_megabytes() {
    every_operation(Rate::GBIT_1);
}

#[test]
fn a_link_of_10_gigabits_reads_1196_megabytes() {
    every_operation(Rate::GBIT_10);
}

/// Two ranks in a long point over `interface`, which have begun to transfer.
fn streaming(hosts: &Hosts, dir: &Path, interface: &str, length: &str) -> Vec<Started> {
    let arguments = format!(
        "transfer --engine fabric:tcp --devices {interface} --op write --sizes 1M {length} -o r.jsonl"
    );
    let runs = start(hosts, 1, dir, &arguments, |rank| rank);
    let sent = || {
        let counter = format!("/sys/class/net/{interface}/statistics/tx_bytes");
        let read = hosts.command(0, "cat").arg(counter).output().unwrap();
        String::from_utf8(read.stdout)
            .unwrap()
            .trim()
            .parse()
            .unwrap_or(0_u64)
    };
    wait_until("payload goes over the link", || sent() > 64 << 20);
    runs
}

/// The option that takes the libfabric which most machines have, where there is one.
fn of_the_system() -> String {
    installed().map_or_else(String::new, |path| format!("--libfabric {path}"))
}

#[test]
fn an_outage_of_two_seconds_shows_and_the_run_goes_on() {
    let Some(hosts) = hosts(2, Some(Rate::GBIT_1)) else {
        return;
    };
    let dir = tempdir().unwrap();
    let library = of_the_system();
    let length =
        format!("--window 8 --duration 6s --interval 250ms --warmup 0 --limit none {library}");
    let runs = streaming(&hosts, dir.path(), "eth0", &length);
    hosts.link(1, 0).cut().unwrap();
    std::thread::sleep(Duration::from_secs(2));
    hosts.link(1, 0).mend().unwrap();
    let ended = end(runs);
    assert!(ended.iter().all(|run| run.code == Some(0)), "{ended:#?}");
    assert!(
        ended[0].stderr.contains("nothing moved: rank 0"),
        "{ended:#?}"
    );
    let record = &records::read(&dir.path().join("r.jsonl"))[0];
    assert_eq!(record.outcome, Outcome::Measured);
    let latency = summary(record).latency.as_ref().unwrap();
    assert!(latency.latency_ns_max > 1_900_000_000, "{latency:#?}");
    // The gap is in the series: 2 s of it, and the time until the connection tries again.
    let standstills = &body(record).trials[0].series.as_ref().unwrap().standstills;
    let longest = standstills
        .iter()
        .map(|known| known.end_ns - known.begin_ns)
        .max();
    assert!(longest >= Some(1_500_000_000), "{standstills:?}");
    assert!(standstills.iter().all(|known| known.rank == 0));
}

#[test]
fn an_outage_for_ever_ends_the_run_and_names_both_ends() {
    let Some(hosts) = hosts(2, Some(Rate::GBIT_1)) else {
        return;
    };
    let dir = tempdir().unwrap();
    let runs = streaming(&hosts, dir.path(), "eth0", &format!("--window 8 {LONG}"));
    hosts.link(1, 0).cut().unwrap();
    let since = Instant::now();
    let ended = end(runs);
    assert!(since.elapsed() < Duration::from_secs(15), "{ended:#?}");
    for (run, parts) in ended.iter().zip([
        ["rank 1 on h1: ", "rank 0 on h0 has heard nothing of it"],
        ["rank 0 on h0: ", "rank 1 on h1 has heard nothing of it"],
    ]) {
        assert_eq!(run.code, Some(1), "{ended:#?}");
        for part in parts {
            assert!(run.stderr.contains(part), "no {part:?} in {run:#?}");
        }
    }
    // The point that was interrupted may be there as a failure.
    let records = records::read(&dir.path().join("r.jsonl"));
    assert!(
        records
            .iter()
            .all(|it| matches!(it.outcome, Outcome::Failed { .. }))
    );
}

/// The control channel lives, so that no heartbeat finds it. In a ping-pong each side's own operations may be done all
/// the same, since a socket has taken them.
#[test]
fn a_data_path_that_is_cut_for_ever_ends_the_run_and_names_the_pair() {
    for pacing in ["--window 8", "--ping-pong"] {
        let spec = HostsSpec {
            links: 2,
            ..HostsSpec::default()
        };
        let Some(hosts) = hosts_of(spec) else { return };
        let dir = tempdir().unwrap();
        let runs = streaming(&hosts, dir.path(), "eth1", &format!("{pacing} {LONG}"));
        hosts.link(0, 1).cut().unwrap();
        let since = Instant::now();
        let ended = end(runs);
        // Five seconds beside the network's seven.
        assert!(since.elapsed() < Duration::from_secs(12), "{ended:#?}");
        assert!(ended.iter().all(|run| run.code == Some(1)), "{ended:#?}");
        let said = &ended[0].stderr;
        for part in [
            "rank 0 on h0: ",
            "fabric:tcp: no write with rank 1 on h1 has ended for ",
            " by eth1 (10.77.1.1)",
        ] {
            assert!(said.contains(part), "{part}: {ended:#?}");
        }
    }
}

#[test]
fn a_rank_that_is_killed_while_it_streams_is_named_on_the_other_host() {
    let Some(hosts) = hosts(2, None) else { return };
    let dir = tempdir().unwrap();
    // That of libfabric 1.17 can crash by itself when a peer dies, and then says nothing.
    let length = format!("--window 8 --libfabric embedded {LONG}");
    let mut runs = streaming(&hosts, dir.path(), "eth0", &length);
    runs[1].signal_rank(1, rustix::process::Signal::KILL);
    let zero = runs.remove(0).end_soon().with_code(1);
    zero.saying(&["rank 1 on h1"]);
}

fn srun(slurm: &Slurm<'_>, dir: &Path, mpi: &str, arguments: &str) -> Ended {
    let launcher = slurm.srun([&format!("--mpi={mpi}"), "-N2"]);
    tonnage_by(launcher, dir, &format!("{arguments} -o r.jsonl"))
        .env("SLURM_CONF", slurm.configuration())
        .run()
}

/// Slurm calls both ranks the first of their hosts. The hosts are one machine, so they must not share a CPU all the
/// same.
#[test]
fn slurm_starts_ranks_on_two_hosts() {
    let Some(hosts) = hosts(2, None) else { return };
    let Some(slurm) = start_slurm(&hosts, "") else {
        return;
    };
    let plugins = said(&slurm, "srun", &["--mpi=list"]);
    for (mpi, launcher) in [
        ("none", "SLURM_PROCID, SLURM_STEP_NODELIST"),
        ("pmi2", "SLURM_PROCID, PMI-1"),
        ("pmix", "SLURM_PROCID, PMIx"),
    ] {
        if !plugins.split_whitespace().any(|word| word == mpi) {
            println!("skip: this Slurm has no plugin for --mpi={mpi}");
            continue;
        }
        let dir = tempdir().unwrap();
        let arguments = format!(
            "transfer --engine fabric:tcp --op write --sizes 1M --window 8 --require-path {BRIEF}"
        );
        let ended = srun(&slurm, dir.path(), mpi, &arguments).with_code(0);
        let record = &records::read(&dir.path().join("r.jsonl"))[0];
        assert_eq!(record.outcome, Outcome::Measured, "{mpi}: {ended:#?}");
        assert_eq!(record.environment[0].launcher, launcher);
        let facts = record.effective.iter().map(|part| &part.engine.facts);
        let addresses = facts.map(|facts| facts.get("address").unwrap().text().unwrap());
        let expected = [0, 1].map(|host| hosts.address(host).to_string());
        assert!(
            addresses.eq(expected.iter().map(String::as_str)),
            "{record:#?}"
        );
        let cpus: BTreeSet<_> = record
            .effective
            .iter()
            .flat_map(|part| &part.cpus)
            .collect();
        let allowed = std::thread::available_parallelism().map_or(1, |count| count.get());
        assert_eq!(cpus.len(), allowed.min(2), "{:#?}", record.effective);
    }
}
