//! Latency beside a load: every byte of both is right, the sums agree, a queue of known length adds the time that it
//! takes to drain, and what has no latency or no workers to spare is refused.

use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::tempdir;
use tonnage_record::Record;
use tonnage_record::transfer::{BackgroundSummary, MeasuringCpus, Summary};
use tonnage_testbed::{Hosts, LinkRates, Rate};

use super::hosts::{all_good, end, hosts, start, wait_for_a_record};
use super::support::{records, tonnage};

fn figures(record: &Record) -> (&Summary, &BackgroundSummary) {
    let summary = record.transfer().unwrap().summary.as_ref().unwrap();
    (summary, summary.background.as_ref().unwrap())
}

/// Sums of the trials are those of the summary, of both halves and of the load.
fn adds_up(record: &Record, line: &str) {
    let (summary, load) = figures(record);
    let trials = &record.transfer().unwrap().trials;
    let each = || {
        trials
            .iter()
            .map(|trial| trial.background.as_ref().unwrap())
    };
    assert_eq!(trials.len(), 3, "{line}");
    let point = &record.transfer().unwrap().point;
    let background = point.background.unwrap();
    let size = u64::from(background.size_bytes);
    assert!(load.operations > 0, "{line}: {load:?}");
    assert_eq!(load.payload_bytes, load.operations * size);
    assert_eq!(
        each().map(|one| one.operations).sum::<u64>(),
        load.operations
    );
    let loaded: u64 = each().map(|one| one.loaded.samples).sum();
    let idle: u64 = each().map(|one| one.idle.samples).sum();
    let latency = summary.latency.as_ref().unwrap();
    assert_eq!(
        (loaded, idle),
        (latency.samples, load.idle.as_ref().unwrap().samples),
        "{line}"
    );
    // Each slot that was used is checked once, at the end of a trial. Each flow has as many as its window.
    let slots = u64::from(background.window);
    let flows = point.roles().flows() * u64::from(background.workers);
    for one in each() {
        let checked = one.verified_bytes.unwrap() / size;
        let least = one.operations.min(slots);
        let most = one.operations.min(slots * flows);
        assert!((least..=most).contains(&checked), "{line}: {one:?}");
        assert_eq!(one.verified_bytes.unwrap() % size, 0, "{line}: {one:?}");
    }
}

#[test]
fn every_byte_of_both_is_right_and_the_sums_agree() {
    for (engine, latency, background) in [
        (
            "shm",
            "--op write --ping-pong",
            "op=write,size=64k,window=4",
        ),
        ("shm", "--op send --ping-pong", "op=read,size=4k,pair=other"),
        ("shm", "--op read --rate 2k", "op=send,size=64k,window=4"),
        (
            "shm",
            "--op write-imm --rate 2k",
            "op=write-imm,size=1000,workers=2",
        ),
        (
            "fabric:tcp",
            "--op write-imm --ping-pong",
            "op=write,size=64k",
        ),
        (
            "fabric:tcp",
            "--op send --rate 1k",
            "op=write-imm,size=8k,pair=other",
        ),
        ("fabric:tcp", "--op read --ping-pong", "op=send,size=8k"),
    ] {
        let dir = tempdir().unwrap();
        let line = format!(
            "transfer --engine {engine} {latency} --ranks 4 --sizes 64 --background {background} --verify --trials 3 \
             --trial-time 20ms --warmup 1ms -o r.jsonl"
        );
        let run = tonnage(dir.path(), &line).succeed();
        let records = records::shown(dir.path(), "r.jsonl", &run, "table");
        adds_up(&records[0], &line);
        assert!(run.stdout.contains("p50 / idle"), "{}", run.stdout);
        assert!(run.stdout.contains("; background "), "{}", run.stdout);
    }
}

#[test]
fn latency_over_load_has_a_row_for_each_rate() {
    let dir = tempdir().unwrap();
    let line = "transfer --engine shm --op write --ping-pong --ranks 2 --sizes 8 --background op=write,size=64k \
                --background-rate 200,400,full --trials 2 --trial-time 30ms --warmup 1ms -o r.jsonl";
    let run = tonnage(dir.path(), line).succeed();
    let records = records::shown(dir.path(), "r.jsonl", &run, "table");
    assert_eq!(records.len(), 3);
    for (record, per_s) in records.iter().zip([200.0, 400.0]) {
        let trials = &record.transfer().unwrap().trials;
        // All but two of what is due, which are seven and fourteen: a trial of 36 ms has few operations.
        for trial in trials {
            let load = trial.background.as_ref().unwrap();
            let due = per_s * 0.036_f64;
            assert!(load.operations as f64 <= due + 1.0, "{load:?}");
            assert!(load.operations as f64 >= due - 2.0, "{load:?}");
        }
    }
    let (_, full) = figures(&records[2]);
    let (_, some) = figures(&records[1]);
    assert!(full.bandwidth_bytes_per_s.mean > some.bandwidth_bytes_per_s.mean);
    assert!(run.stdout.contains("knee"), "{}", run.stdout);
}

/// Options beside `--op write` of four ranks, and a part of what is said about them.
const REFUSED: &[(&str, &str)] = &[
    (
        "--background op=write",
        "add ping-pong, or a rate such as rate 1k",
    ),
    (
        "--ping-pong --background op=write --workers 1",
        "write workers 2 or more",
    ),
    (
        "--ping-pong --background op=read,workers=3 --workers 3",
        "write workers 4 or more",
    ),
    (
        "--ping-pong --background op=write --iters 5",
        "use trial-time or duration",
    ),
    (
        "--ping-pong --background op=write --traffic matrix",
        "traffic matrix has rounds",
    ),
    (
        "--ping-pong --background pair=other --ranks 2",
        "use more ranks",
    ),
    (
        "--ping-pong --background pair=other --traffic fan-in",
        "use traffic pair or shift",
    ),
    (
        "--ping-pong --background op=write --interval 10ms",
        "contradict each other",
    ),
    (
        "--ping-pong --background-rate 1k",
        "there is none: write background",
    ),
    (
        "--ping-pong --background op=write --background-rate 0",
        "background-rate 0 would move nothing",
    ),
    (
        "--ping-pong --background op=write --background-rate 1",
        "use trial-time 1s or more",
    ),
    ("--ping-pong --background size=0", "it is from 1 to 1G"),
    (
        "--ping-pong --background size=99T",
        "size=99T of a background is out of range: it is from 1 to 1G",
    ),
    (
        "--ping-pong --background size=1G,window=64 --trial-time 50ms",
        "no path moves 64G in a trial of 50ms: use a smaller window or size, or trial-time 688ms or more",
    ),
    ("--ping-pong --background window=x", "is no count"),
    (
        "--ping-pong --background colour=red",
        "is no key of a background",
    ),
    ("--ping-pong --background op=write,op=read", "is said twice"),
    (
        "--ping-pong --background fast",
        "is no part of a background",
    ),
    ("--ping-pong --background op=fly", "fly"),
];

#[test]
fn what_has_no_latency_or_no_workers_to_spare_is_refused() {
    let dir = tempdir().unwrap();
    for (options, refusal) in REFUSED {
        let ranks = if options.contains("--ranks") {
            ""
        } else {
            "--ranks 4"
        };
        let line = format!("transfer --engine shm --op write {ranks} --sizes 8 {options}");
        tonnage(dir.path(), &line)
            .run()
            .with_code(2)
            .saying(&[refusal]);
    }
}

#[test]
fn a_rank_that_is_killed_beside_a_load_is_named() {
    let dir = tempdir().unwrap();
    let plan = "name = 'p'\n[[transfer]]\nengine = 'shm'\nop = 'write'\nping-pong = true\nsizes = 8\ntrials = 1\n\
                trial-time = '5ms'\nwarmup = '0'\nbackground = 'op=write,window=2'\n\
                [[transfer]]\nengine = 'shm'\nop = 'write'\nping-pong = true\nsizes = 8\ntrials = 1\n\
                trial-time = '1m'\nwarmup = '0'\nbackground = 'op=write,window=2'\n";
    std::fs::write(dir.path().join("p.toml"), plan).unwrap();
    let run = tonnage(dir.path(), "run p.toml --ranks 4 -o r.jsonl").start();
    wait_for_a_record(dir.path());
    std::thread::sleep(Duration::from_millis(300));
    run.signal_rank(3, Signal::KILL);
    let killed = Instant::now();
    run.end().with_code(1).saying(&["rank 3"]);
    assert!(killed.elapsed() < Duration::from_secs(5));
    assert_eq!(records::read(&dir.path().join("r.jsonl")).len(), 2);
}

/// Bytes that wait at the switch's port to host 1, now.
fn backlog(hosts: &Hosts) -> u64 {
    let mut tc: Command = hosts.switch_command("tc");
    let said = tc
        .args(["-j", "-s", "qdisc", "show", "dev", "h1"])
        .output()
        .unwrap();
    let queues: serde_json::Value = serde_json::from_slice(&said.stdout).unwrap();
    queues[0]["backlog"].as_u64().unwrap()
}

/// The queue at the port is as long as the load's window, which never overflows it: so it is always the same, and a
/// write takes longer by the time in which the port sends it. Writes are due at fixed times, so that a moment without
/// load has no more of them than one with it.
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
                --background op=write,size=16k,window=8 --trials 2 --trial-time 1500ms --warmup 200ms -o r.jsonl";
    let mut runs = start(&hosts, 1, dir.path(), line, |rank| rank);
    let mut samples = Vec::new();
    while runs[0].is_running() {
        samples.push(backlog(&hosts));
        std::thread::sleep(Duration::from_millis(5));
    }
    all_good(&end(runs));
    // Half of the time there is no load, and a load that begins or ends has not yet or no more filled the queue.
    let most = samples.iter().copied().max().unwrap_or(0);
    samples.retain(|&bytes| bytes > most / 2);
    let waiting = samples.iter().sum::<u64>() as f64 / samples.len() as f64;
    let records = records::read(&dir.path().join("r.jsonl"));
    let (summary, load) = figures(&records[0]);
    let latency = summary.latency.as_ref().unwrap();
    let idle = load.idle.as_ref().unwrap();
    let added_ns = latency.latency_ns_p50 as f64 - idle.latency_ns_p50 as f64;
    let expected_ns = waiting * 8e9 / rate.bits_per_s() as f64;
    let off = added_ns / expected_ns - 1.0;
    println!(
        "{waiting} bytes wait at the port, {expected_ns} ns, and a write takes {added_ns} ns more: {off}"
    );
    assert!(
        off.abs() < 0.1,
        "{waiting} {expected_ns} {added_ns} {load:#?}"
    );
    assert!(samples.len() > 50, "{samples:?}");
}

fn measuring(record: &Record) -> MeasuringCpus {
    record.transfer().unwrap().measuring_cpus.unwrap()
}

/// Workers that measure come first: each has a CPU that no other of them has, and the others share what is left.
#[test]
fn workers_that_measure_have_cpus_of_their_own_where_there_are_enough() {
    let cpus = tonnage_machine::Topology::read().allowed;
    let dir = tempdir().unwrap();
    let line = "transfer --engine shm --op write-imm --ping-pong --ranks 2 --sizes 8 --background op=write,size=64k \
                --trials 2 --trial-time 20ms --warmup 2ms -o r.jsonl";
    let run = tonnage(dir.path(), line).succeed();
    let record = records::shown(dir.path(), "r.jsonl", &run, "table").remove(0);
    let of_rank = |rank: &str| {
        let effective = record.effective.iter().find(|ranks| ranks.ranks == rank);
        effective.unwrap().cpus.clone()
    };
    let expected = match cpus.len() {
        1 => MeasuringCpus::Together,
        2 => MeasuringCpus::WithLoad,
        _ => MeasuringCpus::Own,
    };
    assert_eq!(measuring(&record), expected);
    let said = run.stdout.contains("of the scheduler, not of the path");
    assert_eq!(said, expected != MeasuringCpus::Own, "{}", run.stdout);
    if cpus.len() > 1 {
        assert_ne!(of_rank("0")[0], of_rank("1")[0]);
    }
    let (_, load) = figures(&record);
    let ratio = load.p50.loaded_latency_ns / load.p50.idle_latency_ns;
    assert!((load.p50.ratio.mean / ratio - 1.0).abs() < 1e-9);

    // A list that is too short, though the machine may have enough.
    let line = format!("{line} --cpus {}", cpus[0]);
    let run = tonnage(dir.path(), &line.replace("r.jsonl", "one.jsonl")).succeed();
    let record = records::shown(dir.path(), "one.jsonl", &run, "table").remove(0);
    assert_eq!(measuring(&record), MeasuringCpus::Together);
    assert!(run.stdout.contains("scheduler"), "{}", run.stdout);
}

#[test]
fn trials_that_ended_before_an_interrupt_are_shown() {
    let dir = tempdir().unwrap();
    let line = "transfer --engine shm --op write --ping-pong --ranks 2 --sizes 8 --background op=write,size=64k \
                --trials 1000 --trial-time 30ms --warmup 2ms -o r.jsonl";
    let run = tonnage(dir.path(), line).start();
    std::thread::sleep(Duration::from_secs(3));
    run.signal(Signal::INT);
    let run = run.end();
    assert!(run.stdout.contains("FAILED"), "{}", run.stdout);
    assert!(run.stdout.contains("p50 / idle"), "{}", run.stdout);
    assert!(
        run.stdout.contains("that ended before it failed"),
        "{}",
        run.stdout
    );
}
