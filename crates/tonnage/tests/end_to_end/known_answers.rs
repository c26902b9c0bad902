//! Results that are known in advance: rates of links of known speed, cut links, and CPUs and devices of ranks. A real
//! Slurm starts ranks on hosts of one machine.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use tempfile::tempdir;
use tonnage_record::{Outcome, Record};
use tonnage_testbed::{Hosts, LinkRates, Rate};

use super::fabric::installed;
use super::hosts::{end, hosts, hosts_with_links, initiator_share, measured, reads, start};
use super::slurm_scripts::{said, start_slurm};
use super::support::records::{body, summary};
use super::support::{BRIEF, LONG, Started, records, tonnage_by, wait_until};

/// Tolerance of a figure compared with theory.
const TOLERANCE: f64 = 0.03;

/// A frame has 1514 bytes for 1448 bytes of payload. Acknowledgements, requests and retransmissions add a little more.
const BYTES_PER_PAYLOAD_MAX: f64 = 1.08;

const STREAM: &str = "--trials 2 --trial-time 500ms --warmup 200ms --bound none";

/// Checks that the interface counters of both hosts show the payload with its headers and nothing else. Both hosts must
/// agree.
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
        let is_right = expected.contains(&sent) && expected.contains(&received);
        assert!(is_right, "{path:#?}");
        assert!((sent / received - 1.0).abs() < 0.02, "{path:#?}");
    }
    let trials = body(record).trials.iter();
    let payload: u64 = trials.map(|trial| trial.payload_bytes).sum();
    assert!(one.sent_bytes_expected.max(other.sent_bytes_expected) >= payload);
}

#[test]
fn links_of_1_and_10_gigabits_read_119_6_and_1196_megabytes() {
    let Some(hosts) = hosts(2, Some(Rate::GBIT_1)) else {
        return;
    };
    let transfer = "transfer --engine fabric:tcp --sizes 1M --op";
    for rate in [Rate::GBIT_1, Rate::GBIT_10] {
        for host in 0..2 {
            hosts.link(host, 0).set_rates(Some(rate).into()).unwrap();
        }
        let link = rate.tcp_payload_bytes_per_s();
        let operations = "write,read,write-imm --depth 8 --devices eth0 --require-path";
        let records = measured(&hosts, &format!("{transfer} {operations} {STREAM}"));
        assert_eq!(records.len(), 3);
        for record in &records {
            reads(record, link, TOLERANCE, |trial| {
                let busier = trial.initiator_cpu_ns.min(trial.target_cpu_ns);
                busier as f64 / trial.window_ns as f64
            });
            both_ends_agree(record);
        }
        // Batches and rates must not exceed the link's rate either: a trial waits for the operations that are in flight
        // at its end.
        let offered = 40.0 * f64::from(1 << 20);
        let bursts = [("--batch 8", link), ("--rate 40 --depth 8", offered)];
        for (pacing, most) in bursts.into_iter().filter(|_| rate == Rate::GBIT_1) {
            for record in measured(&hosts, &format!("{transfer} write {pacing} {STREAM}")) {
                let mut trials = body(&record).trials.iter();
                let most = most * (1.0 + TOLERANCE);
                let is_within = trials.all(|it| it.bandwidth_bytes_per_s < most);
                assert!(is_within, "{pacing}: {record:#?}");
            }
        }
    }
}

/// A link of 1 Gb/s sends and receives at the same time. Each direction must reach the full rate, and the sum must be
/// twice as much.
#[test]
fn a_link_of_1_gigabit_carries_twice_as_much_both_ways() {
    let Some(hosts) = hosts(2, Some(Rate::GBIT_1)) else {
        return;
    };
    let records = measured(
        &hosts,
        &format!(
            "transfer --engine fabric:tcp --op write,read --sizes 1M --depth 8 --bidirectional --devices eth0 \
             --link-speed 1Gb/s --require-path {}",
            STREAM.replace("--bound none", "")
        ),
    );
    assert_eq!(records.len(), 2);
    let link = Rate::GBIT_1.tcp_payload_bytes_per_s();
    for record in &records {
        let bound = record.bound.as_ref().unwrap();
        let what = "stated link speed of eth0, both directions added up";
        assert_eq!((bound.what.as_str(), bound.bytes_per_s), (what, 2.5e8));
        reads(record, 2.0 * link, 0.075, |trial| {
            initiator_share(trial) / 2.0
        });
        let both = summary(record).directions.as_ref().unwrap();
        for direction in [&both.forward, &both.back] {
            let links = direction.bandwidth_bytes_per_s.mean / link;
            assert!(links < 1.05, "{links}: {record:#?}");
        }
        let proof = record.wire_proof.as_ref().unwrap();
        assert!(proof.crossed, "{proof:#?}");
        for device in &proof.devices {
            let expected = [device.sent_bytes_expected, device.received_bytes_expected];
            assert!(expected.iter().all(|&bytes| bytes > 0), "{proof:#?}");
        }
    }
}

/// Several clients of one server must measure the rate of the slowest link. Their shares must add up to it.
#[test]
fn clients_of_one_server_share_the_link_that_holds_them_up() {
    let Some(hosts) = hosts(4, None) else { return };
    let (gigabit, slow) = (Some(Rate::GBIT_1), "300mbit".parse::<Rate>().ok());
    let none = LinkRates::UNSHAPED;
    let sends = |send| LinkRates { send, ..none };
    let receives = |receive| LinkRates { receive, ..none };
    for (op, server, client, expected) in [
        ("read", sends(gigabit), none, 1.0),
        ("write", receives(gigabit), none, 1.0),
        // Three links at once need lower rates, so that two CPUs can sustain them.
        ("write", none, sends(slow), 0.9),
    ] {
        hosts.link(0, 0).set_rates(server).unwrap();
        for host in 1..4 {
            hosts.link(host, 0).set_rates(client).unwrap();
        }
        let line = format!(
            "transfer --engine fabric:tcp --op {op} --traffic fan-in --sizes 256k --depth 8 --per-rank {STREAM}"
        );
        let record = &measured(&hosts, &line)[0];
        let shares = &summary(record).initiators;
        assert!(shares.iter().map(|share| share.rank).eq(1..4));
        assert!(shares.iter().all(|share| share.payload_bytes > 0));
        let sum: u64 = shares.iter().map(|share| share.payload_bytes).sum();
        assert_eq!(sum, summary(record).payload_bytes, "{shares:#?}");
        let link = expected * Rate::GBIT_1.tcp_payload_bytes_per_s();
        reads(record, link, 0.05, initiator_share);
    }
}

/// Starts two ranks with a long point over `interface`, and waits until payload flows.
fn streaming(hosts: &Hosts, dir: &Path, interface: &str, length: &str) -> Vec<Started> {
    let arguments = format!(
        "transfer --engine fabric:tcp --devices {interface} --op write --sizes 1M {length} -o r.jsonl"
    );
    let runs = start(hosts, dir, &arguments);
    let last = interface.bytes().last().unwrap() - b'0';
    let sent = || hosts.link(0, last.into()).counters().unwrap().sent_bytes;
    wait_until("payload goes over the link", || sent() > 32 << 20);
    runs
}

#[test]
fn an_outage_of_two_seconds_shows_and_the_run_goes_on() {
    let Some(hosts) = hosts(2, Some(Rate::GBIT_1)) else {
        return;
    };
    let dir = tempdir().unwrap();
    // Most machines have this libfabric version, if any is installed.
    let library = installed().map_or_else(String::new, |path| format!("--libfabric {path}"));
    let length =
        format!("--depth 8 --duration 5s --interval 250ms --warmup 0 --bound none {library}");
    let runs = streaming(&hosts, dir.path(), "eth0", &length);
    hosts.link(1, 0).cut().unwrap();
    std::thread::sleep(Duration::from_secs(2));
    hosts.link(1, 0).mend().unwrap();
    let ended = end(runs);
    assert!(ended.iter().all(|run| run.code == Some(0)), "{ended:#?}");
    let is_told = ended[0].stderr.contains("nothing moved: rank 0");
    assert!(is_told, "{ended:#?}");
    let record = &records::read(&dir.path().join("r.jsonl"))[0];
    assert_eq!(record.outcome, Outcome::Measured);
    let latency = summary(record).latency.as_ref().unwrap();
    assert!(latency.latency_ns_max > 1_900_000_000, "{latency:#?}");
    // The gap must be in the series. It lasts 2 s and until the connection retries.
    let standstills = &body(record).trials[0].series.as_ref().unwrap().standstills;
    let lengths = standstills.iter().map(|it| it.end_ns - it.begin_ns);
    assert!(lengths.max() >= Some(1_500_000_000), "{standstills:?}");
    assert!(standstills.iter().all(|known| known.rank == 0));
}

#[test]
fn an_outage_for_ever_ends_the_run_and_names_both_ends() {
    let Some(hosts) = hosts(2, Some(Rate::GBIT_1)) else {
        return;
    };
    let dir = tempdir().unwrap();
    let runs = streaming(&hosts, dir.path(), "eth0", &format!("--depth 8 {LONG}"));
    hosts.link(1, 0).cut().unwrap();
    let since = Instant::now();
    let ended = end(runs);
    assert!(since.elapsed() < Duration::from_secs(15), "{ended:#?}");
    for (run, [hit, silent]) in ended
        .iter()
        .zip([["1 on h1", "0 on h0"], ["0 on h0", "1 on h1"]])
    {
        assert_eq!(run.code, Some(1), "{ended:#?}");
        let heard = format!("rank {silent} has heard nothing from it");
        for part in [&format!("rank {hit}: "), &heard] {
            assert!(run.stderr.contains(part), "no {part:?} in {run:#?}");
        }
    }
    // The interrupted point may have a record as a failure.
    for record in records::read(&dir.path().join("r.jsonl")) {
        records::why_failed(&record);
    }
}

/// The control channel works, so no heartbeat fails. In a ping-pong, a side's own operations may still complete,
/// because a socket has taken them. With a stripe, only the device name shows which rail was cut.
#[test]
fn a_data_path_that_is_cut_for_ever_ends_the_run_and_names_the_pair() {
    let lengths = ["--depth 8", "--ping-pong", "--depth 8 --rails stripe"];
    let Some(cut) = lengths
        .map(|length| {
            let hosts = hosts_with_links(2, 2, Some(Rate::GBIT_1))?;
            let dir = tempdir().unwrap();
            // Sleeping threads are used, because polling ranks would compete for CPUs and slow the end down.
            let length = format!("{length} --cq event {LONG}");
            let length = length.replace("--ping-pong --cq event", "--ping-pong");
            let devices = if length.contains("stripe") {
                "eth0,eth1"
            } else {
                "eth1"
            };
            let runs = streaming(&hosts, dir.path(), devices, &length);
            hosts.link(0, 1).cut().unwrap();
            Some((hosts, dir, runs, Instant::now()))
        })
        .into_iter()
        .collect::<Option<Vec<_>>>()
    else {
        return;
    };
    for (_hosts, _dir, runs, since) in cut {
        let ended = end(runs);
        // The limit is seven seconds for the network and five for the end, with a reserve for busy CPUs.
        assert!(since.elapsed() < Duration::from_secs(20), "{ended:#?}");
        assert!(ended.iter().all(|run| run.code == Some(1)), "{ended:#?}");
        let said = &ended[0].stderr;
        for part in [
            "rank 0 on h0: ",
            "fabric:tcp: no write with rank 1 on h1 has ended for ",
            " by eth1 (10.77.1.1)",
        ] {
            assert!(said.contains(part), "{part}: {ended:#?}");
        }
        assert!(!said.contains("eth0"), "{ended:#?}");
    }
}

#[test]
fn a_rank_that_is_killed_while_it_streams_is_named_on_the_other_host() {
    let Some(hosts) = hosts(2, None) else { return };
    let dir = tempdir().unwrap();
    // With libfabric 1.17, the process may crash when a peer dies, and then reports nothing.
    let length = format!("--depth 8 --libfabric embedded {LONG}");
    let mut runs = streaming(&hosts, dir.path(), "eth0", &length);
    runs[1].signal_rank(1, rustix::process::Signal::KILL);
    let zero = runs.remove(0).end_soon().with_code(1);
    zero.saying(&["rank 1 on h1"]);
}

/// On both hosts, Slurm gives the rank the local rank 0. The hosts are one machine, so the ranks must still not share a
/// CPU.
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
            "transfer --engine fabric:tcp --op write --sizes 1M --depth 8 --require-path {BRIEF} -o r.jsonl"
        );
        let srun = slurm.srun([&format!("--mpi={mpi}"), "-N2"]);
        let run = tonnage_by(srun, dir.path(), &arguments);
        let ended = run
            .env("SLURM_CONF", slurm.configuration())
            .run()
            .with_code(0);
        let record = &records::read(&dir.path().join("r.jsonl"))[0];
        assert_eq!(record.outcome, Outcome::Measured, "{mpi}: {ended:#?}");
        assert_eq!(record.environment[0].launcher, launcher);
        let facts = record.effective.iter().map(|part| &part.engine.facts);
        let addresses = facts.map(|facts| facts.get("address").unwrap().text().unwrap());
        let expected = [0, 1].map(|host| hosts.address(host).to_string());
        assert!(addresses.eq(expected.iter().map(String::as_str)));
        let cpus = record.effective.iter().flat_map(|part| &part.cpus);
        let cpus: BTreeSet<_> = cpus.collect();
        let allowed = std::thread::available_parallelism().map_or(1, |count| count.get());
        assert_eq!(cpus.len(), allowed.min(2), "{:#?}", record.effective);
    }
}
