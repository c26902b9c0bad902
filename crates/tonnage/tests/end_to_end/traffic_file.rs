//! Traffic files. Every pair must move the bytes in the file, and take the time that its link's known speed implies. A
//! file that is not a matrix of bytes must be refused.

use std::path::Path;

use tempfile::tempdir;
use tonnage_plan::point::Traffic;
use tonnage_record::transfer::PairRate;
use tonnage_testbed::{Hosts, Rate};

use super::hosts::{hosts, measured_in};
use super::support::records::{body, summary};
use super::support::{records, rows, tonnage};

/// Loads of four ranks. One rank initiates nothing, and one is never a target.
const UNEVEN: &str = "# to 0 1 2 3\n0 640k 80k 0\n160k 0 40k 0\n0 320k 0 0\n20k 10k 0 0 # from 3\n";

const BRIEF: &str = "--trials 3 --warmup 1ms --bound none";

/// Writes a file of loads.
fn write(dir: &Path, text: &str) {
    std::fs::write(dir.join("m.txt"), text).unwrap();
}

#[test]
fn pairs_and_ranks_add_up_to_the_file_and_every_byte_is_right() {
    for (engine, op, workers) in [
        ("shm", "write-imm", 2),
        ("shm", "send", 3),
        ("shm", "read", 1),
        ("fabric:tcp", "write", 2),
        ("fabric:tcp", "send", 1),
    ] {
        let dir = tempdir().unwrap();
        write(dir.path(), UNEVEN);
        let line = format!(
            "transfer --engine {engine} --op {op} --ranks 4 --traffic-file m.txt --threads {workers} --depth 4 --verify \
             {BRIEF} -o r.jsonl"
        );
        let run = tonnage(dir.path(), &line).succeed();
        let records = records::shown(dir.path(), &run);
        let point = &body(&records[0]).point;
        let loads = point.loads.as_ref().unwrap();
        assert_eq!(
            (point.roles.traffic, point.slots.size_bytes),
            (Traffic::File, 10 << 10)
        );
        let summary = summary(&records[0]);
        let said = loads.pairs().map(|(pair, bytes)| (pair, 3 * bytes));
        let moved = |pair: &PairRate| ((pair.initiator, pair.target), pair.payload_bytes);
        let pairs: Vec<_> = summary.pairs.iter().map(moved).collect();
        assert!(said.eq(pairs.iter().copied()), "{line}: {pairs:?}");
        let of_pairs: u64 = pairs.iter().map(|(_, bytes)| bytes).sum();
        let of_ranks: u64 = summary.initiators.iter().map(|one| one.payload_bytes).sum();
        let all = 3 * loads.total();
        assert_eq!([of_pairs, of_ranks, summary.payload_bytes], [all; 3]);
        for one in &summary.initiators {
            let own = pairs.iter().filter(|((from, _), _)| *from == one.rank);
            assert_eq!(own.map(|(_, bytes)| bytes).sum::<u64>(), one.payload_bytes);
        }
        for pair in &summary.pairs {
            let times = [pair.time_ns_alone, pair.time_ns_together];
            assert!(times.iter().all(|ns| *ns > Some(0.0)), "{pair:?}");
        }
        run.printing(&["Slowdown", "3 trials of one execution"]);
    }
}

/// Runs the command as in the manual. Its operations must have the largest size that divides all loads.
#[test]
fn the_file_is_the_only_required_option() {
    let dir = tempdir().unwrap();
    write(dir.path(), "0 3M\n2M 0\n");
    let line = "transfer --engine shm --op write --traffic-file m.txt --ranks 2 --trials 2";
    let run = tonnage(dir.path(), line).succeed().printing(&[
        "5 MiB of 2 pairs of a traffic file",
        "no bound: the file loads links unevenly",
    ]);
    assert!(run.rows()[0].trim_start().starts_with("1 MiB"), "{run:#?}");
    let plan = tonnage(dir.path(), &format!("{line} --print-plan"))
        .succeed()
        .stdout;
    std::fs::remove_file(dir.path().join("m.txt")).unwrap();
    // The printed plan contains the loads themselves, so it does not need the file.
    std::fs::write(dir.path().join("p.toml"), plan).unwrap();
    let run = tonnage(dir.path(), "run p.toml --ranks 2").succeed();
    run.printing(&["5 MiB of 2 pairs"]);
}

#[test]
fn a_file_that_is_not_a_matrix_of_bytes_is_refused_before_a_rank_starts() {
    let dir = tempdir().unwrap();
    // In these cases, `/` separates the rows of a file.
    let refused = r#"
        0 1M 1M / 1M 0           =>                       => line 2 has 2 numbers and the first row 3
        0 1M 1M / 1M 0 1M        =>                       => row 1 has 3 numbers and there are 2 rows
        0 -1M / 1M 0             =>                       => "-1M" is negative: use 0 or more bytes
        0 many / 1M 0            =>                       => line 1: "many" is not a number of bytes
        0 0 / 0 0                =>                       => use bytes for some pair, such as 1M
        8 1M / 1M 0              =>                       => is 8 from rank 0 to itself: use 0
        0 1M 0 / 0 0 0 / 0 0 0   =>                       => use --ranks 3, or a file with 2 rows of 2 sizes
        0 4000001 / 4000000 0    =>                       => round them to multiples of 4k, or use --sizes 1
        0 1M / 0 0               => --sizes 3M            => use --sizes 1M
        0 1M / 0 0               => --batch 4             => leave --batch out
        0 1M / 0 0               => --iters 4             => leave --iters out
        0 1M / 0 0               => --traffic pair        => leave one of them out
        0 1M / 0 0               => --link-speed 100Gb/s  => --traffic-file, which loads links unevenly
    "#;
    for [text, more, refusal] in rows(refused) {
        write(dir.path(), &text.replace(" / ", "\n"));
        let line = format!(
            "transfer --engine fabric:tcp --op write --ranks 2 --traffic-file m.txt {more}"
        );
        let run = tonnage(dir.path(), &line).run();
        run.with_code(2).with_one_error(&[refusal]);
    }
}

/// Runs on hosts and returns the bandwidth of the best trial, and its pairs. Writes complete only when their data has
/// arrived, so at most the depth is in transit. Otherwise a switch that drops packets would make a short load take much
/// longer.
fn on_hosts(hosts: &Hosts, loads: Option<&str>, arguments: &str) -> (f64, Vec<PairRate>) {
    let dir = tempdir().unwrap();
    let file = loads.map_or("", |loads| {
        write(dir.path(), loads);
        "--traffic-file m.txt"
    });
    let line = format!(
        "transfer --engine fabric:tcp --engine-option completion=delivery --op write --sizes 16k --depth 4 --warmup 50ms \
         --bound none {file} {arguments}"
    );
    let records = measured_in(dir.path(), hosts, &line);
    let summary = summary(&records[0]);
    (summary.bandwidth_bytes_per_s.max, summary.pairs.clone())
}

/// A rate that any machine can sustain.
fn slow() -> Rate {
    "80mbit".parse().unwrap()
}

fn is_near(value: f64, expected: f64) -> bool {
    (0.85..1.25).contains(&(value / expected))
}

/// One link carries all loads of a row or of a column. The file must take as long as the same fan-out or fan-in, and
/// each pair alone must take its share of that time. Pairs that share a link get half of it each until the shorter pair
/// has finished.
#[test]
fn a_row_is_a_fan_out_and_a_column_a_fan_in() {
    let Some(hosts) = hosts(3, Some(slow())) else {
        return;
    };
    let link = slow().tcp_payload_bytes_per_s();
    let ns = |mebibytes: u32| f64::from(mebibytes << 20) / link * 1e9;
    // For each pair: mebibytes that the link carries until the pair is finished, alone and together with the other
    // pair.
    for (loads, pattern, alone, together) in [
        ("0 3M 1M\n0 0 0\n0 0 0\n", "fan-out", [3, 1], Some([4, 2])),
        ("0 0 0\n2M 0 0\n2M 0 0\n", "fan-in", [2, 2], None),
    ] {
        let (of_file, pairs) = on_hosts(&hosts, Some(loads), "--trials 3");
        let as_pattern = format!("--traffic {pattern} --trials 2 --trial-time 300ms");
        let (of_pattern, _) = on_hosts(&hosts, None, &as_pattern);
        assert!(
            is_near(of_file, of_pattern),
            "{pattern}: {of_file} {of_pattern}"
        );
        assert!(is_near(of_file, link), "{pattern}: {of_file} {link}");
        let are_near = |of: fn(&PairRate) -> Option<f64>, expected: [u32; 2]| {
            let each = pairs.iter().zip(expected);
            let is_near = each.map(|(pair, size)| is_near(of(pair).unwrap(), ns(size)));
            assert!(
                is_near.min() == Some(true),
                "{pattern}: {pairs:#?} {expected:?}"
            );
        };
        are_near(|pair| pair.time_ns_alone, alone);
        if let Some(together) = together {
            are_near(|pair| pair.time_ns_together, together);
        }
        let last_ns = pairs.iter().filter_map(|pair| pair.time_ns_together);
        assert!(is_near(last_ns.fold(0.0, f64::max), ns(4)), "{pairs:#?}");
    }
}
