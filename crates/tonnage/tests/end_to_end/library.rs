//! Operations through tonnage's transfer library: `--api` and `--session`.

use tonnage_record::Record;

use super::support::records::{body, measured, summary};

/// Returns the api, the session and the number of operations of each record.
fn figures(records: &[Record]) -> Vec<(String, String, u64)> {
    let of = |record: &Record| {
        let point = serde_json::to_value(&body(record).point).unwrap();
        let said = |name: &str| point[name].as_str().unwrap_or("-").to_owned();
        (said("api"), said("session"), summary(record).operations)
    };
    records.iter().map(of).collect()
}

/// Runs two trials of 40 operations through every API. Every byte must be right.
#[test]
fn every_byte_arrives_through_the_library() {
    for engine in ["shm", "fabric:shm", "fabric:tcp"] {
        for op in ["write", "write-imm", "read"] {
            let line =
                format!("--engine {engine} --op {op} --ranks 2 --sizes 100 --depth 8 --verify");
            let (polled, _) = measured(&format!("{line} --session on,off,fresh,register"));
            let expected = ["on", "off", "fresh", "register"];
            let expected = expected.map(|session| ("poll".into(), session.into(), 80));
            assert_eq!(figures(&polled), expected, "{engine} {op}");
            let (all, _) = measured(&format!("{line} --api engine,async"));
            let expected = [("-", "-"), ("async", "on")];
            let expected = expected.map(|(api, session)| (api.into(), session.into(), 80));
            assert_eq!(figures(&all), expected, "{engine} {op}");
        }
    }
}

/// Runs ping-pongs, several threads and peers, operations in parts, sleeping threads, and several devices through the
/// library.
#[test]
fn every_pacing_goes_through_the_library() {
    for (operations, line) in [
        (80 * 2, "shm --op write --ping-pong --verify"),
        (80 * 2, "fabric:tcp --op write-imm --ping-pong --verify"),
        (80 * 2, "shm --op read --ping-pong --threads 2 --verify"),
        (80 * 200, "shm --op write --batch 100 --threads 2 --verify"),
        (80, "shm --op write --rate 1k --depth 4 --verify"),
        (80, "null --op write-imm --depth 16"),
        (
            80,
            "fabric:tcp --op write --depth 4 --queue-pairs 2 --chunk 1000 --verify",
        ),
        (
            80,
            "fabric:tcp --op write-imm --depth 4 --cq event --verify",
        ),
        (
            80 * 2,
            "fabric:tcp --op write-imm --ping-pong --cq event --verify",
        ),
        (
            80 * 5,
            "fabric:tcp --op read --batch 5 --cq event --queue-pairs 2 --verify",
        ),
        (
            80,
            "fabric:tcp --op write --depth 4 --rails stripe --devices lo,lo --verify",
        ),
    ] {
        for way in ["--session on,off,fresh,register", "--api async"] {
            let (records, _) = measured(&format!("--engine {line} --ranks 2 --sizes 3000 {way}"));
            assert!(!records.is_empty());
            for record in &records {
                assert_eq!(summary(record).operations, operations, "{line} {way}");
                let is_single = body(record).point.division.rails.name() == "single";
                assert_eq!(summary(record).rails.is_empty(), is_single, "{line} {way}");
            }
        }
    }
    let fan =
        "--engine shm --op write --ranks 3 --traffic all-to-all --sizes 64 --depth 4 --verify";
    let (records, _) = measured(&format!("{fan} --api poll,async"));
    // Each thread issues 40 operations, alternating between its two peers.
    assert!(
        records
            .iter()
            .all(|record| summary(record).operations == 80 * 3)
    );
}

#[test]
fn the_way_is_a_column_where_rows_differ_in_it_and_in_the_title_else() {
    let table = |more: &str| {
        measured(&format!(
            "--engine null --op write --ranks 2 --sizes 64 {more}"
        ))
        .1
    };
    let one = table("--session fresh");
    assert!(
        one.contains("library polled, a lane made for each operation;"),
        "{one}"
    );
    assert!(!one.contains(" Session "), "{one}");
    let sessions = table("--session on,off");
    assert!(sessions.contains("library polled;") && sessions.contains(" Session "));
    assert!(!sessions.contains(" API "), "{sessions}");
    let apis = table("--api engine,poll");
    assert!(
        apis.contains(" API ") && apis.contains(" engine "),
        "{apis}"
    );
    assert!(!table("").contains("library"));
}
