//! Operations through the library for other programs: `--api` and `--session`.

use tempfile::tempdir;
use tonnage_record::Record;

use super::support::records::measured;
use super::support::tonnage;

/// The point's api and session as the record writes them, and operations.
fn figures(records: &[Record]) -> Vec<(String, String, u64)> {
    let of = |record: &Record| {
        let body = record.transfer().unwrap();
        let point = serde_json::to_value(&body.point).unwrap();
        let said = |name: &str| point[name].as_str().unwrap_or("-").to_owned();
        let operations = body.summary.as_ref().unwrap().operations;
        (said("api"), said("session"), operations)
    };
    records.iter().map(of).collect()
}

/// Two trials of 40 operations by every way, and every byte of each is right.
#[test]
fn every_byte_arrives_through_the_library() {
    for engine in ["shm", "fabric:shm", "fabric:tcp"] {
        for op in ["write", "write-imm", "read"] {
            let line =
                format!("--engine {engine} --op {op} --ranks 2 --sizes 100 --window 8 --verify");
            let (polled, _) = measured(&format!("{line} --session on,off,fresh,register"));
            let expected = ["on", "off", "fresh", "register"];
            let expected = expected.map(|session| ("poll".into(), session.into(), 80));
            assert_eq!(figures(&polled), expected, "{engine} {op}");
            let (all, _) = measured(&format!("{line} --api engine,async"));
            let expected = [
                ("-".into(), "-".into(), 80),
                ("async".into(), "on".into(), 80),
            ];
            assert_eq!(figures(&all), expected, "{engine} {op}");
        }
    }
}

/// Both ends of a ping-pong, several workers and peers, and operations in parts go through it too.
#[test]
fn every_pacing_goes_through_the_library() {
    for (line, operations) in [
        ("--engine shm --op write --ping-pong", 80 * 2),
        ("--engine fabric:tcp --op write-imm --ping-pong", 80 * 2),
        ("--engine shm --op read --ping-pong --workers 2", 80 * 2),
        (
            "--engine shm --op write --batch 100 --workers 2",
            80 * 2 * 100,
        ),
        ("--engine shm --op write --rate 1k --window 4", 80),
        ("--engine null --op write-imm --window 16", 80),
        (
            "--engine fabric:tcp --op write --window 4 --qps 2 --chunk 1000",
            80,
        ),
    ] {
        let verify = if line.contains("null") {
            ""
        } else {
            "--verify"
        };
        for way in ["--session on,off,register", "--api async"] {
            let (records, _) = measured(&format!("{line} --ranks 2 --sizes 3000 {way} {verify}"));
            for (_, _, moved) in figures(&records) {
                assert_eq!(moved, operations, "{line} {way}");
            }
        }
    }
    // Workers that sleep, and several devices.
    for line in [
        "--engine fabric:tcp --op write-imm --window 4 --cq event",
        "--engine fabric:tcp --op write-imm --ping-pong --cq event",
        "--engine fabric:tcp --op read --batch 5 --cq event --qps 2",
        "--engine fabric:tcp --op write --window 4 --rails stripe --devices lo,lo",
    ] {
        for way in ["--session on,off,fresh,register", "--api async"] {
            let (records, _) = measured(&format!("{line} --ranks 2 --sizes 3000 {way} --verify"));
            assert!(!records.is_empty());
            for record in &records {
                let point = &record.transfer().unwrap().point;
                let summary = record.transfer().unwrap().summary.as_ref().unwrap();
                assert_eq!(
                    summary.rails.is_empty(),
                    point.rails.name() == "single",
                    "{line} {way}"
                );
            }
        }
    }
    let fan =
        "--engine shm --op write --ranks 3 --traffic all-to-all --sizes 64 --window 4 --verify";
    let (records, _) = measured(&format!("{fan} --api poll,async"));
    for (_, _, moved) in figures(&records) {
        // A worker issues 40, towards both of its peers in turn.
        assert_eq!(moved, 80 * 3);
    }
}

#[test]
fn the_way_is_a_column_where_rows_differ_in_it_and_in_the_title_else() {
    let line = "--engine null --op write --ranks 2 --sizes 64";
    let (_, one) = measured(&format!("{line} --session fresh"));
    assert!(
        one.contains("library polled, a lane made for each operation;"),
        "{one}"
    );
    assert!(!one.contains(" Session "), "{one}");
    let (_, sessions) = measured(&format!("{line} --session on,off"));
    assert!(sessions.contains("library polled;") && sessions.contains(" Session "));
    assert!(!sessions.contains(" API "), "{sessions}");
    let (_, apis) = measured(&format!("{line} --api engine,poll"));
    assert!(
        apis.contains(" API ") && apis.contains(" engine "),
        "{apis}"
    );
    let (_, plain) = measured(line);
    assert!(!plain.contains("library"), "{plain}");
    let dir = tempdir().unwrap();
    let explained = tonnage(dir.path(), "explain Session").succeed();
    assert!(explained.stdout.contains("looked up by their names"));
}

#[test]
fn what_the_library_lacks_is_refused_before_a_rank_starts() {
    let dir = tempdir().unwrap();
    for (arguments, refusal) in [
        (
            "--op send --session on",
            "api poll has no op send, for its sessions name the memory at both ends: use op write-imm, or api engine",
        ),
        (
            "--op write --api engine --session on",
            "leave api out, or write api poll",
        ),
        (
            "--op write --api async --session fresh",
            "write api poll, or session on",
        ),
        ("--op write --api pol", "did you mean \"poll\"?"),
        ("--op write --session frsh", "did you mean \"fresh\"?"),
    ] {
        let line = format!("transfer --engine shm --ranks 2 --sizes 4k {arguments}");
        let run = tonnage(dir.path(), &line).run().with_code(2);
        assert!(run.stderr.contains(refusal), "{arguments}: {run:#?}");
    }
}
