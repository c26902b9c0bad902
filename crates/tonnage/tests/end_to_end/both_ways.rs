//! Pairs that move bytes in both directions at once.

use tempfile::tempdir;
use tonnage_record::transfer::{Directions, Trial};
use tonnage_record::{Outcome, Record};
use tonnage_testbed::{HostsSpec, Rate};

use super::hosts::{all_good, end, hosts_of, start};
use super::support::records::{body, first_row, measured, summary};
use super::support::{BRIEF, records, tonnage};

fn directions(record: &Record) -> &Directions {
    summary(record).directions.as_ref().unwrap()
}

/// Two trials of 40 operations (or batches) of each worker of each side; every byte of each is checked.
#[test]
fn both_ranks_of_a_pair_move_as_much() {
    for (engine, ops) in [
        ("shm", "write,write-imm,read,send"),
        ("fabric:tcp", "write,write-imm,read,send"),
        ("fabric:shm", "write,send"),
    ] {
        for (more, of_trial) in [
            ("--window 8", 40),
            ("--batch 5", 200),
            ("--window 4 --workers 2", 80),
            ("--window 4 --rate 100k", 40),
        ] {
            let (records, _) = measured(&format!(
                "--engine {engine} --op {ops} --ranks 4 --sizes 3000 {more} --verify --bidirectional"
            ));
            for record in &records {
                let both = directions(record);
                let counts = [both.forward.operations, both.back.operations];
                // Whoever is far behind a timetable gives the rest of it up.
                let most = 2 * 2 * of_trial;
                let fits = match more.contains("--rate") {
                    true => counts.iter().all(|&count| (1..=most).contains(&count)),
                    false => counts == [most; 2],
                };
                assert!(fits, "{engine} {more}: {:#?}", summary(record));
                if more == "--window 8" {
                    // Two pairs with two directions each, and eight slots.
                    let checked = body(record).trials.iter().map(|trial| trial.verified_bytes);
                    assert!(
                        checked.eq([Some(2 * 2 * 8 * 3000); 2]),
                        "{engine}: {record:#?}"
                    );
                }
            }
        }
    }
}

/// Of three initiators two have the same target, which goes back to both of them and to nobody else.
#[test]
fn the_way_back_goes_to_whom_it_came_from() {
    for more in ["", "--target-shift 1"] {
        let (records, _) = measured(&format!(
            "--engine shm --op write,write-imm,read,send --ranks 5 --initiators 3 --sizes 64 --window 4 --verify \
             --bidirectional {more}"
        ));
        for record in &records {
            let both = directions(record);
            let moved = (both.forward.operations, both.back.operations);
            assert_eq!(moved, (3 * 80, 2 * 80), "{more}: {record:#?}");
        }
    }
}

#[test]
fn tables_and_csv_give_each_direction_and_the_sum() {
    let dir = tempdir().unwrap();
    let line = format!("transfer --engine shm --op write --ranks 2 --sizes 64k {BRIEF}");
    let both = format!("{line} --bidirectional -o r.jsonl");
    let run = tonnage(dir.path(), &both).succeed();
    run.printing(&["one pair of ranks, both ways", "BW forward BW back"]);
    let csv = tonnage(dir.path(), "show r.jsonl --format csv")
        .succeed()
        .stdout;
    let of = |name: &str| first_row(&csv)[name].parse::<f64>().unwrap();
    let sum = of("forward_bandwidth_bytes_per_s_mean") + of("back_bandwidth_bytes_per_s_mean");
    assert!(
        (sum / of("bandwidth_bytes_per_s_mean") - 1.0).abs() < 1e-6,
        "{csv}"
    );
    assert_eq!(of("directions"), 2.0);
    // One way has neither.
    let run = tonnage(dir.path(), &line).succeed();
    assert!(!run.stdout.contains("forward"), "{run:#?}");
}

/// A link of 1 Gb/s sends and receives at once: each direction has it for itself, and the sum is twice as much.
#[test]
fn a_link_of_1_gigabit_carries_twice_as_much_both_ways() {
    let spec = HostsSpec {
        count: 2,
        links: 1,
        rates: Rate::GBIT_1.into(),
    };
    let Some(hosts) = hosts_of(spec) else { return };
    let dir = tempdir().unwrap();
    let arguments = "transfer --engine fabric:tcp --op write,read --sizes 1M --window 8 --bidirectional --devices eth0 \
                     --trials 2 --trial-time 500ms --warmup 200ms --link-speed 1Gb/s --require-path -o r.jsonl";
    all_good(&end(start(&hosts, 1, dir.path(), arguments, |rank| rank)));
    let records = records::read(&dir.path().join("r.jsonl"));
    assert_eq!(records.len(), 2);
    let link = Rate::GBIT_1.tcp_payload_bytes_per_s();
    for record in &records {
        assert_eq!(record.outcome, Outcome::Measured, "{record:#?}");
        let limit = record.limit.as_ref().unwrap();
        let what = "stated link speed of eth0, both directions added up";
        assert_eq!((limit.what.as_str(), limit.bytes_per_s), (what, 2.5e8));
        let both = directions(record);
        let sum = summary(record).bandwidth_bytes_per_s.mean / link;
        let each = [&both.forward, &both.back].map(|it| it.bandwidth_bytes_per_s.mean / link);
        assert!(
            each.iter().all(|&links| links < 1.05),
            "{each:?}: {record:#?}"
        );
        let share = |trial: &Trial| trial.initiator_cpu_ns as f64 / (2 * trial.window_ns) as f64;
        let starved = body(record).trials.iter().map(share).fold(1.0, f64::min);
        if (sum - 2.0).abs() > 0.15 && starved < 0.9 {
            let percent = 100.0 * starved;
            println!(
                "skip: {sum:.2} of 2 links where the workers had {percent:.0} % of their CPUs"
            );
            continue;
        }
        assert!((sum - 2.0).abs() < 0.15, "{sum}: {record:#?}");
        assert!(
            each.iter().all(|&links| links > 0.9),
            "{each:?}: {record:#?}"
        );
        let proof = record.wire_proof.as_ref().unwrap();
        assert!(proof.crossed, "{proof:#?}");
        for device in &proof.devices {
            let expected = [device.sent_bytes_expected, device.received_bytes_expected];
            assert!(expected.iter().all(|&bytes| bytes > 0), "{proof:#?}");
        }
    }
}
