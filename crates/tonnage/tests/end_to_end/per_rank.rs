//! A table for each initiating rank.

use super::support::records::{body, measured, summary};

#[test]
fn each_initiator_has_a_table_of_its_own_operations() {
    for (more, ranks, batches) in [
        ("--ranks 4 --batch 5", vec![0, 1], 5),
        ("--ranks 4 --traffic fan-in --batch 5", vec![1, 2, 3], 5),
        ("--ranks 2 --bidirectional --batch 5", vec![0, 1], 5),
        ("--ranks 2 --depth 4 --threads 2", vec![0], 2),
        ("--ranks 3 --traffic in-turn --depth 4", vec![0], 2),
        ("--ranks 2 --ping-pong", vec![0], 2),
    ] {
        // `measured` checks that showing the file prints these tables as the run did.
        let (records, table) = measured(&format!(
            "--engine shm --op write --sizes 3000,64k {more} --per-rank --verify"
        ));
        for record in &records {
            let summary = summary(record);
            let listed: Vec<u32> = summary.initiators.iter().map(|one| one.rank).collect();
            assert_eq!(listed, ranks, "{more}");
            let window_ns: u64 = body(record).trials.iter().map(|it| it.window_ns).sum();
            for one in &summary.initiators {
                assert_eq!(one.operations, 2 * 40 * batches, "{more}: {one:?}");
                // An initiator's own time cannot be longer than the time of all ranks, so its rate is at least this.
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
                .filter_map(|one| one.latency_ns_min);
            let all = summary.latency.as_ref().map(|all| all.latency_ns_min);
            assert_eq!(least.min(), all, "{more}");
        }
        for rank in 0..4 {
            let has = table.contains(&format!("initiator rank {rank}:"));
            assert_eq!(has, ranks.contains(&rank), "{more}: {table}");
        }
    }
    // Without `--per-rank`, there are no such tables.
    let (records, table) = measured("--engine shm --op write --ranks 2 --sizes 64");
    assert!(!table.contains("initiator rank"), "{table}");
    let text = serde_json::to_string(&records).unwrap();
    assert!(!text.contains("per_rank") && !text.contains("\"initiators\":["));
}
