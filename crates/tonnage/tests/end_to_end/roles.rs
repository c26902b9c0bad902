//! Initiators and targets: how many there are, who targets whom, and ranks that take no part.

use tonnage_record::Record;

use super::support::BRIEF;
use super::support::records::{body, measured, summary, transfer};

/// Returns the number of initiators and of all operations of each record.
fn figures(arguments: &str) -> Vec<(Option<u32>, u64)> {
    let of = |record: &Record| {
        (
            body(record).point.roles.initiators,
            summary(record).operations,
        )
    };
    measured(arguments).0.iter().map(of).collect()
}

/// Each client makes two trials of 40 operations, with every byte checked. The other ranks must do nothing.
#[test]
fn clients_of_one_rank_are_as_many_as_were_asked_for() {
    for engine in ["shm", "fabric:tcp"] {
        let found = figures(&format!(
            "--engine {engine} --op read,write,send --traffic fan-in --ranks 5 --initiators 1,3,4 --sizes 64 --depth 4 \
             --verify"
        ));
        assert_eq!(found.len(), 9, "{engine}");
        for clients in [1, 3, 4] {
            let is_right = |it: &&_| **it == (Some(clients), 80 * u64::from(clients));
            assert_eq!(
                found.iter().filter(is_right).count(),
                3,
                "{engine}: {found:?}"
            );
        }
    }
}

/// Each thread of each initiator makes two trials of 40 operations, batches or round trips.
#[test]
fn pairs_may_have_more_of_one_side() {
    for (arguments, of_iteration) in [
        ("--engine shm --op write --batch 4 --verify", 4),
        ("--engine shm --op read --threads 2 --verify", 2),
        ("--engine shm --op write-imm --ping-pong --verify", 2),
        ("--engine fabric:tcp --op send --depth 8 --verify", 1),
        ("--engine null --op write", 1),
    ] {
        for shift in ["", "--target-shift 1"] {
            let line = format!("{arguments} {shift} --ranks 5 --initiators 1,2,3 --sizes 8,4k");
            let of = |initiators| (Some(initiators), 80 * of_iteration * u64::from(initiators));
            assert_eq!(figures(&line), [1, 1, 2, 2, 3, 3].map(of), "{line}");
        }
    }
}

#[test]
fn several_numbers_of_workers_are_rows_of_one_table() {
    let (records, _) = measured("--engine null --op write --ranks 2 --threads 1,2,4 --sizes 64");
    let found = records.iter();
    let found = found.map(|it| (body(it).point.threads, summary(it).operations));
    assert_eq!(found.collect::<Vec<_>>(), [(1, 80), (2, 160), (4, 320)]);
    let line = format!("--engine shm --op read --ranks 2 --threads 1,3 --sizes 64 {BRIEF}");
    let (run, _) = transfer(&line);
    assert_eq!(run.rows().len(), 2, "{run:#?}");
    let title = run.stdout.split("MsgSize").next().unwrap();
    assert!(!title.contains("each"), "{run:#?}");
    run.printing(&["  Threads  "]);
}

/// A rank that takes no part must sleep and must be in no figure. The target CPU time must be that of a single target.
#[test]
fn ranks_that_take_no_part_use_no_cpu() {
    let (_, records) = transfer(
        "--engine shm --op write --traffic fan-in --ranks 9 --initiators 1,8 --sizes 64 --bound none --trials 2 \
         --trial-time 100ms --warmup 1ms",
    );
    for trial in records.iter().flat_map(|record| &body(record).trials) {
        // One target polls slightly longer than the measured interval. Eight polling ranks would use most of two CPUs.
        let most_ns = trial.window_ns * 6 / 5 + 10_000_000;
        assert!(trial.target_cpu_ns < most_ns, "{trial:?}");
    }
}

/// The data that a target expects depends on its initiator. Data from a wrong initiator would therefore be detected.
#[test]
fn turned_targets_get_the_bytes_of_their_own_initiator() {
    let (records, _) =
        measured("--engine shm --op write --ranks 4 --target-shift 1 --sizes 1k --verify");
    let body = body(&records[0]);
    assert_eq!(
        (body.point.roles.initiators, body.point.roles.target_shift),
        (None, 1)
    );
    let checked = body
        .trials
        .iter()
        .map(|trial| trial.verified_bytes.unwrap());
    assert_eq!(checked.collect::<Vec<_>>(), [80 << 10; 2]);
}
