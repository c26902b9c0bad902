//! Workers with several rails, and traffic in rounds. The loopback named twice stands for two devices; links of known
//! speed are those of hosts in network namespaces.

use tempfile::{TempDir, tempdir};
use tonnage_record::transfer::Trial;
use tonnage_record::{Outcome, Record};
use tonnage_testbed::{Hosts, HostsSpec, Rate};

use super::hosts::{all_good, end, hosts_of, start};
use super::support::records::{body, measured, summary};
use super::support::{BRIEF, records, tonnage, wait_for_records, wait_until};

fn rail_bytes(record: &Record) -> Vec<u64> {
    let rails = summary(record).rails.iter();
    rails.map(|rail| rail.payload_bytes).collect()
}

#[test]
fn a_stripe_has_half_of_every_operation_on_each_of_two_rails() {
    for op in ["write", "write-imm", "read"] {
        let (records, _) = measured(&format!(
            "--engine fabric:tcp --op {op} --ranks 2 --sizes 5000 --window 8 --rails single,stripe --devices lo,lo --qps 1,2 --verify"
        ));
        let bytes: Vec<_> = records.iter().map(rail_bytes).collect();
        // Two trials of 40 operations.
        let half = vec![80 * 2500; 2];
        assert_eq!(bytes, [vec![], vec![], half.clone(), half], "{op}");
        for record in &records {
            assert_eq!(summary(record).operations, 80, "{op}");
        }
        let engine = serde_json::to_value(&records[2].effective[0].engine).unwrap();
        assert_eq!(engine["rails"], "stripe", "{engine}");
        assert_eq!(engine["devices"].as_array().unwrap().len(), 2, "{engine}");
        let rails = &summary(&records[2]).rails;
        assert!(
            rails
                .iter()
                .all(|rail| rail.device.as_deref() == Some("lo"))
        );
    }
    // A share of an odd size, cut further; and an operation too small for two.
    let (records, _) = measured(
        "--engine fabric:tcp --op write-imm --ranks 2 --sizes 1,5001 --window 8 --rails stripe --devices lo,lo --chunk 1000 --verify",
    );
    let bytes: Vec<_> = records.iter().map(rail_bytes).collect();
    assert_eq!(bytes, [vec![80, 0], vec![80 * 2501, 80 * 2500]]);
}

#[test]
fn round_robin_gives_each_peer_a_rail() {
    // Peers 1, 2 and 3 of rank 0 have rails 1, 0 and 1.
    for op in ["write", "write-imm", "read", "send"] {
        let (records, _) = measured(&format!(
            "--engine fabric:tcp --op {op} --ranks 4 --traffic fan-out --sizes 3000 --batch 4 --rails round-robin --devices lo,lo --verify"
        ));
        let part = 80 * 4 * 3000;
        assert_eq!(rail_bytes(&records[0]), [part, 2 * part], "{op}");
    }
    // A peer has one path, so that the last byte of a write is still the last; answers count as any other operation.
    let (records, _) = measured(
        "--engine fabric:tcp --op write,write-imm,send --ranks 3 --traffic fan-in --ping-pong --sizes 64 --rails round-robin --devices lo,lo,lo --verify",
    );
    assert!(
        records
            .iter()
            .all(|record| summary(record).operations == 2 * 2 * 80)
    );
    let (records, _) = measured(
        "--engine fabric:tcp --op write --ranks 3 --traffic all-to-all --sizes 100 --rails round-robin --devices lo,lo,lo --verify",
    );
    // Pairs 0-1, 0-2 and 1-2 have rails 1, 2 and 0, each taken by two of the three ranks.
    let bytes = rail_bytes(&records[0]);
    assert_eq!(
        bytes.iter().sum::<u64>(),
        summary(&records[0]).payload_bytes
    );
    assert!(bytes.iter().all(|&bytes| bytes > 0), "{bytes:?}");
}

#[test]
fn a_rank_may_have_devices_of_its_own_and_a_turned_list() {
    let (records, _) = measured(
        "--engine fabric:tcp --op write --ranks 2 --sizes 3000 --rails stripe --devices-of 0=lo,127.0.0.1 \
         --devices-of 1=127.0.0.1,lo --rail-shift 1 --verify --link-speed 10Gb/s",
    );
    let said = |rank: usize| {
        let engine = serde_json::to_value(&records[0].effective[rank].engine).unwrap();
        let devices = engine["devices"].as_array().unwrap();
        devices.len()
    };
    assert_eq!(said(0), 2);
    let limit = records[0].limit.as_ref().unwrap();
    // One device, however often it is named.
    assert_eq!(limit.what, "stated link speed of lo");
    let links = limit.links.unwrap();
    assert_eq!((links.used, links.used_bytes_per_s), (1, 1.25e9));
}

/// What only the devices can say is a skip, with what to do.
#[test]
fn rails_that_this_machine_lacks_are_told() {
    let dir = tempdir().unwrap();
    let line = "transfer --engine fabric:tcp --op write --ranks 2 --sizes 64 --rails stripe";
    let run = tonnage(dir.path(), &format!("{line} {BRIEF}"))
        .run()
        .with_code(1);
    run.printing(&[
        "it is about several devices, and this is one",
        "--devices lo,lo",
    ]);
}

#[test]
fn pairs_take_turns_and_each_is_in_the_record() {
    for (engine, op, more) in [
        ("shm", "write", "--window 4"),
        ("shm", "send", "--batch 3 --workers 2"),
        ("fabric:tcp", "write-imm", "--window 4 --qps 2"),
        ("shm", "read", "--ping-pong"),
        ("shm", "write", "--ping-pong"),
        ("fabric:shm", "send", "--ping-pong"),
    ] {
        let (records, table) = measured(&format!(
            "--engine {engine} --op {op} --ranks 4 --traffic in-turn --sizes 3000 {more} --verify"
        ));
        let summary = summary(&records[0]);
        let pairs = summary
            .pairs
            .iter()
            .map(|pair| (pair.initiator, pair.target));
        assert!(pairs.eq([(0, 1), (0, 2), (0, 3)]), "{engine} {op} {more}");
        let mut rates: Vec<_> = summary
            .pairs
            .iter()
            .map(|it| it.bandwidth_bytes_per_s)
            .collect();
        rates.sort_by(f64::total_cmp);
        // The mean of a trial lies between its pairs, as their sums do.
        let window_ns: u64 = body(&records[0]).trials.iter().map(|it| it.window_ns).sum();
        let mean = summary.payload_bytes as f64 * 1e9 / window_ns as f64;
        let between = rates[0] * 0.99..rates[2] * 1.01;
        assert!(between.contains(&mean), "{summary:#?}");
        assert!(table.contains("pairs at 3000 B: 0-1 "), "{table}");
    }
}

#[test]
fn a_rank_that_is_killed_in_its_turn_or_another_s_ends_the_run() {
    for victim in [1, 3] {
        let dir = tempdir().unwrap();
        let arguments = "transfer --engine shm --op write --ranks 4 --traffic in-turn --sizes 4k,64k --trials 1 \
                         --warmup 0 --trial-time 400ms --limit none -o r.jsonl";
        let run = tonnage(dir.path(), arguments).start();
        wait_for_records(dir.path(), 1);
        run.kill_rank(victim);
        let records = records::read(&dir.path().join("r.jsonl"));
        let measured = records.iter().filter(|it| it.outcome == Outcome::Measured);
        assert_eq!(measured.count(), 1, "{records:#?}");
    }
}

fn two_rails(count: usize) -> Option<Hosts> {
    hosts_of(HostsSpec {
        count,
        links: 2,
        rates: Rate::GBIT_1.into(),
    })
}

/// Ranks on all hosts, one on each, over both links.
fn over_links(hosts: &Hosts, arguments: &str) -> (TempDir, Vec<Record>) {
    let dir = tempdir().unwrap();
    let arguments = format!(
        "transfer --engine fabric:tcp --op write --sizes 1M --window 8 --trials 2 --trial-time 500ms \
         --warmup 200ms {arguments} -o r.jsonl"
    );
    let ended = end(start(hosts, 1, dir.path(), &arguments, |rank| rank));
    all_good(&ended);
    let records = records::read(&dir.path().join("r.jsonl"));
    assert!(
        records
            .iter()
            .all(|record| record.outcome == Outcome::Measured)
    );
    (dir, records)
}

/// Payload bytes per second of a link of 1 Gb/s.
fn gigabit() -> f64 {
    Rate::GBIT_1.tcp_payload_bytes_per_s()
}

/// The best trial in links of 1 Gb/s; `None`, said as a skip, where it is less than it should be and others had the
/// CPUs.
fn links(record: &Record, expected: f64) -> Option<f64> {
    let trials = body(record).trials.iter();
    let rate = |trial: &&Trial| trial.bandwidth_bytes_per_s;
    let best = trials
        .max_by(|one, other| rate(one).total_cmp(&rate(other)))
        .unwrap();
    let links = best.bandwidth_bytes_per_s / gigabit();
    let share = best.initiator_cpu_ns as f64 / best.window_ns as f64;
    if links < expected * 0.95 && share < 0.9 {
        println!(
            "skip: {links:.2} of {expected} links where the workers had {:.0} % of a CPU",
            100.0 * share
        );
        return None;
    }
    Some(links)
}

#[test]
fn a_stripe_over_two_links_of_1_gigabit_is_twice_one() {
    let Some(hosts) = two_rails(2) else { return };
    let (_dir, records) = over_links(
        &hosts,
        "--devices eth0,eth1 --rails single,stripe --require-path --link-speed 1Gb/s",
    );
    for (record, expected) in records.iter().zip([1.0, 2.0]) {
        if let Some(links) = links(record, expected) {
            assert!(
                (links / expected - 1.0).abs() < 0.05,
                "{links}: {record:#?}"
            );
        }
        let limit = record.limit.as_ref().unwrap();
        assert_eq!(limit.bytes_per_s, expected * 1.25e8, "{limit:?}");
    }
    let proof = records[1].wire_proof.as_ref().unwrap();
    let sent = proof
        .devices
        .iter()
        .filter(|device| device.sent_bytes_expected > 0);
    let names: Vec<_> = sent.map(|device| device.name.as_str()).collect();
    assert_eq!(names, ["eth0", "eth1"], "{proof:#?}");
    assert!(
        summary(&records[1]).slow_rail.is_none(),
        "{:#?}",
        records[1]
    );
}

#[test]
fn the_slower_of_two_links_holds_a_stripe_up_and_is_named() {
    let Some(hosts) = two_rails(2) else { return };
    let half: Rate = "500mbit".parse().unwrap();
    hosts.link(0, 1).set_rates(half.into()).unwrap();
    let (dir, records) = over_links(&hosts, "--devices eth0,eth1 --rails stripe --limit none");
    if let Some(links) = links(&records[0], 1.0) {
        // Twice the slower one.
        assert!((links - 1.0).abs() < 0.05, "{links}: {:#?}", records[0]);
    }
    let slow = summary(&records[0]).slow_rail.as_ref().unwrap();
    assert_eq!(
        (slow.rank, slow.rail, slow.device.as_deref()),
        (0, 1, Some("eth1"))
    );
    let shown = tonnage(dir.path(), "show r.jsonl").succeed();
    shown.printing(&["rail 1 (eth1) of rank 0 on h0 carries"]);
    let [fast, slow] = &summary(&records[0]).rails[..] else {
        panic!("{:#?}", records[0])
    };
    assert!(
        slow.busy_fraction > 0.9 && fast.busy_fraction < 0.8,
        "{fast:?} {slow:?}"
    );
}

#[test]
fn three_targets_take_three_links_in_turn() {
    let spec = HostsSpec {
        count: 4,
        links: 3,
        rates: "300mbit".parse::<Rate>().unwrap().into(),
    };
    let Some(hosts) = hosts_of(spec) else { return };
    let before: Vec<_> = (0..3)
        .map(|rail| hosts.link(0, rail).counters().unwrap().sent_bytes)
        .collect();
    let (_dir, records) = over_links(
        &hosts,
        "--devices eth0,eth1,eth2 --rails single,round-robin --traffic fan-out --limit none",
    );
    let link = 0.3;
    for (record, expected) in records.iter().zip([link, 3.0 * link]) {
        if let Some(links) = links(record, expected) {
            assert!(
                (links / expected - 1.0).abs() < 0.05,
                "{links}: {record:#?}"
            );
        }
    }
    let sent = |rail| hosts.link(0, rail).counters().unwrap().sent_bytes - before[rail];
    let payload: Vec<u64> = rail_bytes(&records[1]);
    for (rail, payload) in payload.into_iter().enumerate() {
        assert!(sent(rail) > payload && payload > 0, "rail {rail}");
    }
}

#[test]
fn a_rail_whose_link_goes_down_is_named_in_time() {
    let Some(hosts) = two_rails(2) else { return };
    let dir = tempdir().unwrap();
    let arguments = "transfer --engine fabric:tcp --op write --sizes 1M --window 8 --devices eth0,eth1 --rails stripe \
                     --trials 1 --trial-time 60s --limit none -o r.jsonl";
    let runs = start(&hosts, 1, dir.path(), arguments, |rank| rank);
    let sent = || hosts.link(0, 1).counters().unwrap().sent_bytes;
    wait_until("payload goes over the second link", || sent() > 32 << 20);
    let cut = std::time::Instant::now();
    hosts.link(1, 1).cut().unwrap();
    let ended = end(runs);
    // The network's time-out of 7 s, and 5 s beside it; a busy machine may take longer.
    assert!(cut.elapsed().as_secs() < 20, "{:?}", cut.elapsed());
    for run in &ended {
        assert_eq!(run.code, Some(1), "{ended:#?}");
    }
    // Rank 0 waits for it in vain, and says so for both.
    let said = &ended[0].stderr;
    assert!(
        said.contains("eth1") && !said.contains("eth0"),
        "{ended:#?}"
    );
}
