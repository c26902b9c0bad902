//! Latency under load. Every byte of both transfers must be right, and sums must add up. A queue of known length must
//! add the time that it takes to drain.

use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use tempfile::tempdir;
use tonnage_record::Record;
use tonnage_record::transfer::{BackgroundSummary, CpuSharing};
use tonnage_testbed::{Hosts, LinkRates, Rate};

use super::hosts::{all_good, end, hosts, start};
use super::support::records::{body, summary, transfer};
use super::support::{records, tonnage};

fn load(record: &Record) -> &BackgroundSummary {
    summary(record).background.as_ref().unwrap()
}

/// Checks that the sums over trials equal the summary: latencies without and with load, and the load itself.
fn adds_up(record: &Record, line: &str) {
    let (body, load) = (body(record), load(record));
    let trials = body
        .trials
        .iter()
        .map(|trial| trial.background.as_ref().unwrap());
    let each: Vec<_> = trials.collect();
    assert_eq!(each.len(), 3, "{line}");
    let background = body.point.background.unwrap();
    let size = u64::from(background.size_bytes);
    assert!(load.operations > 0, "{line}: {load:?}");
    assert_eq!(load.payload_bytes, load.operations * size);
    assert_eq!(
        each.iter().map(|one| one.operations).sum::<u64>(),
        load.operations
    );
    let loaded: u64 = each.iter().map(|one| one.loaded.samples).sum();
    let idle: u64 = each.iter().map(|one| one.idle.samples).sum();
    let latency = summary(record).latency.as_ref().unwrap();
    let samples = (latency.samples, load.idle.as_ref().unwrap().samples);
    assert_eq!((loaded, idle), samples, "{line}");
    // Each used slot is checked once, after the trial. A flow has as many slots as its depth.
    let slots = u64::from(background.depth);
    let flows = body.point.roles.flow_count() * u64::from(background.threads);
    for one in each {
        let verified = one.verified_bytes.unwrap();
        assert_eq!(verified % size, 0, "{line}: {one:?}");
        let (least, most) = (one.operations.min(slots), one.operations.min(slots * flows));
        assert!(
            (least..=most).contains(&(verified / size)),
            "{line}: {one:?}"
        );
    }
}

#[test]
fn every_byte_of_both_is_right_and_the_sums_agree() {
    for line in [
        "shm --op write --ping-pong --background op=write,size=64k,depth=4",
        "shm --op send --ping-pong --background op=read,size=4k,pair=other",
        "shm --op read --rate 2k --background op=send,size=64k,depth=4",
        "shm --op write-imm --rate 2k --background op=write-imm,size=1000,threads=2",
        "fabric:tcp --op write-imm --ping-pong --background op=write,size=64k",
        "fabric:tcp --op send --rate 1k --background op=write-imm,size=8k,pair=other",
        "fabric:tcp --op read --ping-pong --background op=send,size=8k",
    ] {
        let line = format!(
            "--engine {line} --ranks 4 --sizes 64 --verify --trials 3 --trial-time 20ms --warmup 1ms"
        );
        let (run, records) = transfer(&line);
        adds_up(&records[0], &line);
        run.printing(&["p50 / idle", "; background "]);
    }
}

#[test]
fn latency_over_load_has_a_row_for_each_rate() {
    let (run, records) = transfer(
        "--engine shm --op write --ping-pong --ranks 2 --sizes 8 --background op=write,size=64k \
         --background-rate 200,400,full --trials 2 --trial-time 30ms --warmup 1ms",
    );
    assert_eq!(records.len(), 3);
    for (record, per_s) in records.iter().zip([200.0, 400.0]) {
        // Two of the seven or fourteen due operations may be missing: in 36 ms, each one is a large fraction.
        let due = per_s * 0.036_f64;
        for trial in &body(record).trials {
            let operations = trial.background.as_ref().unwrap().operations as f64;
            assert!((due - 2.0..=due + 1.0).contains(&operations), "{trial:?}");
        }
    }
    let rate = |at: usize| load(&records[at]).bandwidth_bytes_per_s.mean;
    assert!(rate(2) > rate(1));
    run.printing(&["knee"]);
}

/// Returns the bytes that are queued now at the switch's port to host 1.
fn backlog(hosts: &Hosts) -> u64 {
    let mut tc: Command = hosts.switch_command("tc");
    let said = tc
        .args(["-j", "-s", "qdisc", "show", "dev", "h1"])
        .output()
        .unwrap();
    let queues: serde_json::Value = serde_json::from_slice(&said.stdout).unwrap();
    queues[0]["backlog"].as_u64().unwrap()
}

/// The load keeps a queue at the switch's port. The queue is as long as the load's depth and never overflows. A write
/// therefore takes longer by the time that the port needs to send the queue. Writes are due at fixed times, so that
/// writes without load do not occur more often than others.
#[test]
fn a_queue_of_known_length_adds_the_time_that_it_takes_to_drain() {
    let Some(hosts) = hosts(2, None) else { return };
    let rate = "20mbit".parse::<Rate>().unwrap();
    let rates = LinkRates {
        send: None,
        receive: Some(rate),
    };
    hosts.link(1, 0).set_rates(rates).unwrap();
    let dir = tempdir().unwrap();
    let line = "transfer --engine fabric:tcp --engine-option completion=delivery --op write --rate 100 --sizes 8 \
                --background op=write,size=16k,depth=8 --trials 2 --trial-time 1500ms --warmup 200ms -o r.jsonl";
    let mut runs = start(&hosts, dir.path(), line);
    let mut samples = Vec::new();
    while runs[0].is_running() {
        samples.push(backlog(&hosts));
        std::thread::sleep(Duration::from_millis(5));
    }
    all_good(&end(runs));
    // Half of the time there is no load. While a load starts or ends, the queue is not full either.
    let most = samples.iter().copied().max().unwrap_or(0);
    samples.retain(|&bytes| bytes > most / 2);
    assert!(samples.len() > 50, "{samples:?}");
    let waiting = samples.iter().sum::<u64>() as f64 / samples.len() as f64;
    let record = &records::read(&dir.path().join("r.jsonl"))[0];
    let latency = summary(record).latency.as_ref().unwrap();
    let idle = load(record).idle.as_ref().unwrap();
    let added_ns = latency.latency_ns_p50 as f64 - idle.latency_ns_p50 as f64;
    let expected_ns = waiting * 8e9 / rate.bits_per_s() as f64;
    let said = format!(
        "{waiting} bytes wait at the port, {expected_ns} ns, and a write takes {added_ns} ns more"
    );
    println!("{said}");
    assert!(
        (added_ns / expected_ns - 1.0).abs() < 0.1,
        "{said}: {record:#?}"
    );
}

/// Measuring threads must have CPUs of their own, and the load's threads share the remaining CPUs.
#[test]
fn workers_that_measure_have_cpus_of_their_own_where_there_are_enough() {
    let cpus = tonnage_machine::Topology::read().allowed;
    let line = "--engine shm --op write-imm --ping-pong --ranks 2 --sizes 8 --background op=write,size=64k --trials 2 \
                --trial-time 20ms --warmup 2ms";
    let (run, records) = transfer(line);
    let expected = match cpus.len() {
        1 => CpuSharing::Together,
        2 => CpuSharing::WithLoad,
        _ => CpuSharing::Own,
    };
    assert_eq!(body(&records[0]).measuring_cpus, Some(expected));
    let said = run.stdout.contains("of the scheduler, not of the path");
    assert_eq!(said, expected != CpuSharing::Own, "{}", run.stdout);
    if cpus.len() > 1 {
        let first_cpu = |rank: &str| {
            let mut effective = records[0].effective.iter();
            effective.find(|ranks| ranks.ranks == rank).unwrap().cpus[0]
        };
        assert_ne!(first_cpu("0"), first_cpu("1"));
    }
    let p50 = &load(&records[0]).p50;
    let ratio = p50.loaded_latency_ns / p50.idle_latency_ns;
    assert!((p50.ratio.mean / ratio - 1.0).abs() < 1e-9);
    // The list names too few CPUs, even if the machine has enough.
    let (run, records) = transfer(&format!("{line} --cpus {}", cpus[0]));
    assert_eq!(body(&records[0]).measuring_cpus, Some(CpuSharing::Together));
    run.printing(&["scheduler"]);
}

#[test]
fn trials_that_ended_before_an_interrupt_are_shown() {
    let dir = tempdir().unwrap();
    let line = "transfer --engine shm --op write --ping-pong --ranks 2 --sizes 8 --background op=write,size=64k \
                --trials 1000 --trial-time 30ms --warmup 2ms --log-level debug";
    let run = tonnage(dir.path(), line).start();
    run.wait_until_said("rank 0: trial 3 without");
    run.signal(Signal::INT);
    run.end()
        .printing(&["FAILED", "p50 / idle", "that ended before it failed"]);
}
