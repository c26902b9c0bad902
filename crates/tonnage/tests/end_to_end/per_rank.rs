//! A table for each initiating rank.

use tempfile::tempdir;

use super::support::{BRIEF, records, tonnage};

#[test]
fn each_initiator_has_a_table_of_its_own_operations() {
    for (more, ranks, batches) in [
        ("--ranks 4 --batch 5", vec![0, 1], 5),
        ("--ranks 4 --traffic fan-in --batch 5", vec![1, 2, 3], 5),
        ("--ranks 2 --bidirectional --batch 5", vec![0, 1], 5),
        ("--ranks 2 --window 4 --workers 2", vec![0], 2),
        ("--ranks 3 --traffic in-turn --window 4", vec![0], 2),
        ("--ranks 2 --ping-pong", vec![0], 2),
    ] {
        let dir = tempdir().unwrap();
        let brief = BRIEF.replace("--trial-time 5ms", "--iters 40");
        let arguments = format!(
            "transfer --engine shm --op write --sizes 3000,64k {more} --per-rank --verify {brief} -o r.jsonl"
        );
        let run = tonnage(dir.path(), &arguments).succeed();
        // What is shown of the file is what the run printed, with these tables.
        let records = records::shown(dir.path(), "r.jsonl", &run, "table");
        for record in &records {
            let summary = record.transfer().unwrap().summary.as_ref().unwrap();
            let listed: Vec<u32> = summary.initiators.iter().map(|one| one.rank).collect();
            assert_eq!(listed, ranks, "{more}");
            for one in &summary.initiators {
                assert_eq!(one.operations, 2 * 40 * batches, "{more}: {one:?}");
                // Its own time is no longer than that of all.
                let windows = &record.transfer().unwrap().trials;
                let window_ns: u64 = windows.iter().map(|trial| trial.window_ns).sum();
                let least = one.payload_bytes as f64 * 1e9 / window_ns as f64;
                assert!(
                    one.bandwidth_bytes_per_s >= 0.999 * least,
                    "{more}: {one:?}"
                );
                assert!(one.latency_ns_mean.unwrap() >= one.latency_ns_min.unwrap() as f64 * 0.99);
            }
            let sum: u64 = summary.initiators.iter().map(|one| one.payload_bytes).sum();
            assert_eq!(sum, summary.payload_bytes, "{more}");
            let least = summary
                .initiators
                .iter()
                .filter_map(|one| one.latency_ns_min)
                .min();
            assert_eq!(
                least,
                summary.latency.as_ref().map(|all| all.latency_ns_min),
                "{more}"
            );
        }
        for rank in 0..4 {
            let has = run.stdout.contains(&format!("initiator rank {rank}:"));
            assert_eq!(has, ranks.contains(&rank), "{more}: {run:#?}");
        }
    }
    // Nothing of it where it was not asked for.
    let dir = tempdir().unwrap();
    let arguments =
        format!("transfer --engine shm --op write --ranks 2 --sizes 64 {BRIEF} -o r.jsonl");
    let run = tonnage(dir.path(), &arguments).succeed();
    assert!(!run.stdout.contains("initiator rank"), "{run:#?}");
    let text = std::fs::read_to_string(dir.path().join("r.jsonl")).unwrap();
    assert!(!text.contains("per_rank") && !text.contains("\"initiators\":["));
}
