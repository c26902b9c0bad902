//! Collectives as a user runs them: records and tables of native backends, and the death of a rank.

use tempfile::tempdir;
use tonnage_collective::Collective;
use tonnage_record::{CollectiveBody, Outcome, Record};

use super::support::records::{are_skipped, succeeded};
use super::support::{Ended, records, tonnage};

/// Runs collectives, which must succeed; returns the output and the records.
fn collective(arguments: &str) -> (Ended, Vec<Record>) {
    succeeded(&format!("collective {arguments}"))
}

fn bodies(records: &[Record]) -> impl Iterator<Item = &CollectiveBody> {
    records.iter().map(|record| record.collective().unwrap())
}

/// In place, the result of a call is the input of the next call. Only one additional call, with known input, is
/// checked.
#[test]
fn calls_in_place_that_follow_each_other_are_checked() {
    for options in ["--align none", "--refill trial"] {
        let (_, records) = collective(&format!(
            "--backend native:shm --in-place --op all-reduce,reduce-scatter,all-gather --sizes 4000 --ranks 2 --trials 2 \
             --iters 5 --verify {options}"
        ));
        for body in bodies(&records) {
            let summary = body.backends[0].summary.as_ref().unwrap();
            let shape = body.point.shape();
            let bytes: u64 = (0..2).map(|rank| shape.output_bytes(rank)).sum();
            assert_eq!(
                (summary.verified_bytes, summary.iterations),
                (bytes * 3, 10),
                "{options}"
            );
        }
    }
}

#[test]
fn backends_take_turns_and_every_result_is_checked() {
    let (run, records) = collective(
        "--backend native:shm,native:fabric:tcp --op all-reduce,barrier --sizes 8,64k --ranks 3 --trials 3 --iters 4 \
         --verify --per-rank",
    );
    assert_eq!(records.len(), 3);
    for body in bodies(&records) {
        let names: Vec<_> = body.backends.iter().map(|it| &*it.backend).collect();
        assert_eq!(names, ["native:shm", "native:fabric:tcp"]);
        for backend in &body.backends {
            let summary = backend.summary.as_ref().unwrap();
            assert_eq!((summary.trials, summary.iterations), (3, 12));
            // The slowest rank cannot be faster than the mean, and the mean cannot be faster than the fastest rank.
            assert!(summary.call_ns_rank_max >= summary.call_ns_rank_mean);
            assert!(summary.call_ns_rank_mean >= summary.call_ns_rank_min);
            let began: u64 = summary.rank_times.iter().map(|it| it.began_last).sum();
            assert_eq!(began, 12, "in each iteration one rank begins last");
            // Checked are the first call and the last call of each trial, on three ranks.
            let bytes = body.point.shape().output_bytes(0);
            assert_eq!(summary.verified_bytes, bytes * 3 * 4);
            let rates = summary.algbw_bytes_per_s.zip(summary.busbw_bytes_per_s);
            if let Some((algbw, busbw)) = rates {
                assert!((busbw.mean / algbw.mean - 4.0 / 3.0).abs() < 1e-9);
            }
        }
    }
    run.printing(&["all-reduce; 3 ranks; sum of float32"]);
}

/// Groups call at the same time. Every result must belong to its own group, and no group's time may exceed that of the
/// whole.
#[test]
fn groups_call_at_once_and_each_has_its_own_result() {
    for groups in ["div:2", "mod:2"] {
        let (run, records) = collective(&format!(
            "--backend native:shm --op all-reduce,reduce-scatter,all-gather,all-to-all,broadcast,reduce,gather,scatter,\
             barrier,send-recv-pairs,send-recv-ring --sizes 4000 --root 1 --groups {groups} --ranks 4 --trials 2 --iters 3 \
             --verify --per-rank"
        ));
        for body in bodies(&records) {
            let summary = body.backends[0].summary.as_ref().unwrap();
            let shape = body.point.shape();
            assert_eq!((shape.ranks, body.point.ranks), (2, 4));
            // Checked are the first call and the last call of each trial, in two groups of two ranks.
            let bytes: u64 = (0..2).map(|place| shape.output_bytes(place)).sum();
            assert_eq!(summary.verified_bytes, 2 * bytes * 3, "{}", body.point.op);
            let times = &summary.group_times;
            assert_eq!(times.len(), 2);
            let most_ns = summary.call_ns_rank_max * 1.000_001;
            let within = |ns: f64| ns > 0.0 && ns <= most_ns;
            assert!(
                times.iter().all(|it| within(it.group_call_ns_rank_max)),
                "{times:?}"
            );
            let mean: f64 = times.iter().map(|it| it.group_call_ns_rank_mean).sum();
            assert!((mean / 2.0 / summary.call_ns_rank_mean - 1.0).abs() < 1e-6);
        }
        run.printing(&[
            &format!("4 ranks in 2 groups of 2 ({groups}) at once"),
            "groups of all-reduce",
        ]);
    }
}

/// A single impossible size must be refused. In a sweep, an impossible size must be a row with its reason, and the
/// other sizes must be measured.
#[test]
fn an_impossible_size_of_a_sweep_is_skipped() {
    let dir = tempdir().unwrap();
    let line = "collective --backend native:shm --op all-gather --ranks 3 --trials 1 --iters 2 -o r.jsonl --sizes";
    let alone = tonnage(dir.path(), &format!("{line} 8")).run().with_code(2);
    alone.with_one_error(&["the smallest is 12"]);
    assert!(!dir.path().join("r.jsonl").exists());
    let run = tonnage(dir.path(), &format!("{line} 8,96"))
        .run()
        .with_code(1);
    run.printing(&["the smallest is 12"]);
    let records = records::read(&dir.path().join("r.jsonl"));
    are_skipped(&records[..1], "the smallest is 12");
    assert_eq!(records[1].outcome, Outcome::Measured);
}

/// For algorithms that copy, concurrent copies by all senders are the bound. The algorithm determines how many ranks of
/// a rooted operation send.
#[test]
fn shared_memory_has_a_bound_that_nothing_passes() {
    let (run, records) = collective(
        "--backend native:shm --op all-reduce,send-recv-pairs,gather --sizes 4k,1M --ranks 2 --trials 3 --trial-time 20ms",
    );
    let mut effective = records.iter().flat_map(|record| &record.effective);
    if effective.any(|it| it.yielding) {
        println!("skip: ranks share a CPU, so nothing is compared with a bound");
        return;
    }
    for body in bodies(&records) {
        let (op, backend) = (body.point.op, &body.backends[0]);
        let is_limited = op != Collective::Gather && body.point.size_bytes > 4096;
        assert_eq!(backend.bus_bound.is_some(), is_limited, "{op}");
        let summary = backend.summary.as_ref().unwrap();
        let Some(bound) = &backend.bus_bound else {
            assert_eq!(summary.busbw_bound_fraction, None);
            continue;
        };
        let busbw = summary.busbw_bytes_per_s.unwrap().mean;
        let fraction = summary.busbw_bound_fraction.unwrap();
        assert!((fraction * bound.bytes_per_s / busbw - 1.0).abs() < 1e-9);
        // The limit is generous: the machine may become faster in between, or other programs may take nearly all of its
        // time.
        assert!(fraction > 0.0 && fraction < 1.5, "{op}: {fraction}");
    }
    run.printing(&["from each rank that sends"]);
    // With `--bound none`, there is no bound.
    let (run, _) = collective(
        "--backend native:shm --op all-reduce --sizes 1M --ranks 2 --trials 2 --trial-time 5ms --bound none",
    );
    assert!(!run.stdout.contains("bound of"), "{}", run.stdout);
}
