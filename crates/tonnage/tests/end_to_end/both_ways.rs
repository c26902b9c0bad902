//! Pairs that move bytes in both directions at once.

use tempfile::tempdir;
use tonnage_record::transfer::{Directions, Summary};
use tonnage_record::{Outcome, Record};
use tonnage_testbed::{HostsSpec, Rate};

use super::hosts::{all_good, end, hosts_of, start};
use super::support::{BRIEF, records, tonnage};

fn measured(arguments: &str) -> Vec<Record> {
    let dir = tempdir().unwrap();
    let brief = BRIEF.replace("--trial-time 5ms", "--iters 40");
    let arguments = format!("transfer {arguments} --bidirectional {brief} -o r.jsonl");
    let run = tonnage(dir.path(), &arguments).succeed();
    records::shown(dir.path(), "r.jsonl", &run, "table")
}

fn summary(record: &Record) -> &Summary {
    record.transfer().unwrap().summary.as_ref().unwrap()
}

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
            let records = measured(&format!(
                "--engine {engine} --op {ops} --ranks 4 --sizes 3000 {more} --verify"
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
                    let trials = &record.transfer().unwrap().trials;
                    let checked = trials.iter().map(|trial| trial.verified_bytes.unwrap());
                    assert!(checked.eq([2 * 2 * 8 * 3000; 2]), "{engine}: {trials:#?}");
                }
            }
        }
    }
}

/// Of three initiators two have the same target, which goes back to both of them and to nobody else.
#[test]
fn the_way_back_goes_to_whom_it_came_from() {
    for (more, back) in [("", [0, 2]), ("--target-shift 1", [1, 1])] {
        for op in ["write", "write-imm", "read", "send"] {
            let records = measured(&format!(
                "--engine shm --op {op} --ranks 5 --initiators 3 --sizes 64 --window 4 --verify {more}"
            ));
            let both = directions(&records[0]);
            assert_eq!(both.forward.operations, 3 * 80, "{op} {back:?}");
            assert_eq!(both.back.operations, 2 * 80, "{op} {back:?}");
        }
    }
}

#[test]
fn tables_and_csv_give_each_direction_and_the_sum() {
    let dir = tempdir().unwrap();
    let arguments = format!(
        "transfer --engine shm --op write --ranks 2 --sizes 64k --bidirectional {BRIEF} -o r.jsonl"
    );
    let run = tonnage(dir.path(), &arguments).succeed();
    let said = run.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        said.contains("one pair of ranks, both ways") && said.contains("BW forward BW back"),
        "{run:#?}"
    );
    let csv = tonnage(dir.path(), "show r.jsonl --format csv").succeed();
    let mut lines = csv.stdout.lines();
    let names: Vec<_> = lines.next().unwrap().split(',').collect();
    let values: Vec<_> = lines.next().unwrap().split(',').collect();
    let of = |name: &str| {
        let at = names.iter().position(|known| *known == name).unwrap();
        values[at].parse::<f64>().unwrap()
    };
    let sum = of("forward_bandwidth_bytes_per_s_mean") + of("back_bandwidth_bytes_per_s_mean");
    assert!(
        (sum / of("bandwidth_bytes_per_s_mean") - 1.0).abs() < 1e-6,
        "{csv:#?}"
    );
    assert_eq!(of("directions"), 2.0);
    // One way has neither.
    let arguments = format!("transfer --engine shm --op write --ranks 2 --sizes 64k {BRIEF}");
    let run = tonnage(dir.path(), &arguments).succeed();
    assert!(!run.stdout.contains("forward"), "{run:#?}");
}

/// Both ends initiate, so that both copy at once.
#[test]
fn the_copy_limit_is_of_both_ranks_together() {
    let dir = tempdir().unwrap();
    let brief = BRIEF.replace("--limit none", "");
    let arguments = format!(
        "transfer --engine shm --op write --ranks 2 --sizes 64k --bidirectional {brief} -o r.jsonl"
    );
    let run = tonnage(dir.path(), &arguments).run();
    let records = records::read(&dir.path().join("r.jsonl"));
    // Ranks that share a CPU have no limit.
    let Some(limit) = &records[0].limit else {
        println!("skip: no copy limit, as workers yield: {}", run.stdout);
        return;
    };
    assert!(limit.what.contains("2 copiers at once"), "{limit:?}");
}

#[test]
fn what_has_no_two_directions_is_refused_before_a_rank_starts() {
    let dir = tempdir().unwrap();
    for (more, said) in [
        ("--ping-pong", "use window 1 or batch 1"),
        ("--ping-pong --cq event", "use window 1 or batch 1"),
        (
            "--traffic all-to-all",
            "leave bidirectional out, or use traffic pair",
        ),
        (
            "--traffic fan-in",
            "traffic fan-in has none: use traffic pair",
        ),
        ("--traffic in-turn", "traffic in-turn has none"),
        ("--ranks 3", "pair traffic needs an even number of ranks"),
    ] {
        let ranks = if more.contains("--ranks") {
            ""
        } else {
            "--ranks 2"
        };
        let arguments = format!(
            "transfer --engine fabric:tcp --op write-imm --bidirectional {ranks} --sizes 64 {more}"
        );
        let run = tonnage(dir.path(), &arguments).run().with_code(2);
        assert!(run.stderr.contains(said), "{more}: {run:#?}");
    }
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
                     --trials 2 --trial-time 1s --warmup 200ms --link-speed 1Gb/s --require-path -o r.jsonl";
    let ended = end(start(&hosts, 1, dir.path(), arguments, |rank| rank));
    all_good(&ended);
    let records = records::read(&dir.path().join("r.jsonl"));
    assert_eq!(records.len(), 2);
    let link = Rate::GBIT_1.tcp_payload_bytes_per_s();
    for record in &records {
        assert_eq!(record.outcome, Outcome::Measured, "{record:#?}");
        let limit = record.limit.as_ref().unwrap();
        assert_eq!(
            (limit.what.as_str(), limit.bytes_per_s),
            ("stated link speed of eth0, both directions added up", 2.5e8)
        );
        let both = directions(record);
        let sum = summary(record).bandwidth_bytes_per_s.mean / link;
        let each = [&both.forward, &both.back]
            .map(|direction| direction.bandwidth_bytes_per_s.mean / link);
        assert!(
            each.iter().all(|&links| links < 1.05),
            "{each:?}: {record:#?}"
        );
        let trials = &record.transfer().unwrap().trials;
        let share = |trial: &tonnage_record::transfer::Trial| {
            trial.initiator_cpu_ns as f64 / (2 * trial.window_ns) as f64
        };
        let starved = trials.iter().map(share).fold(1.0, f64::min);
        if (sum - 2.0).abs() > 0.15 && starved < 0.9 {
            println!(
                "skip: {sum:.2} of 2 links where the workers had {:.0} % of their CPUs",
                100.0 * starved
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
            assert!(
                device.sent_bytes_expected > 0 && device.received_bytes_expected > 0,
                "{proof:#?}"
            );
        }
    }
}
