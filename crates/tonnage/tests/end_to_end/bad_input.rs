//! Requests that are refused before a rank starts: one error that names what is wrong and what to write instead, exit
//! code 2.

use std::fs;
use std::time::Duration;

use tempfile::tempdir;

use super::support::{Ended, tonnage};

fn refused(arguments: &str, parts: &[&str]) -> Ended {
    let dir = tempdir().unwrap();
    let ended = tonnage(dir.path(), &format!("{arguments} -o r.jsonl")).run();
    assert!(
        !dir.path().join("r.jsonl").exists(),
        "{arguments} left a file"
    );
    looked_at(arguments, ended, parts)
}

fn looked_at(arguments: &str, ended: Ended, parts: &[&str]) -> Ended {
    assert_eq!(ended.code, Some(2), "{arguments}: {ended:#?}");
    assert!(ended.stdout.is_empty(), "{arguments}: {ended:#?}");
    // Far less than any run takes, with much room for a busy machine.
    assert!(
        ended.took < Duration::from_secs(5),
        "{arguments}: {ended:#?}"
    );
    ended.with_one_error(parts)
}

/// Options of transfers that are refused, and what the message must hold.
const TRANSFERS: &[(&str, &[&str])] = &[
    (
        "--engine shmm --op write --sizes 8",
        &["unknown engine \"shmm\"", "did you mean \"shm\"?"],
    ),
    (
        "--engine sockets --op write --sizes 8",
        &["unknown engine \"sockets\"", "null, shm"],
    ),
    (
        "--engine shm --op wirte --sizes 8",
        &["did you mean \"write\"?"],
    ),
    (
        "--engine shm --op write --sizes 0",
        &["the smallest size is 1"],
    ),
    (
        "--engine shm --op write --sizes 8G",
        &["the largest size is 1G"],
    ),
    (
        "--engine shm --op write --sizes 8..99999999999T",
        &["8..99999999999T"],
    ),
    ("--engine shm --op write --sizes 1..1G+1", &["1..1G+1"]),
    (
        "--engine shm --op write --sizes 8..64+0",
        &["never ends", "write 8..64+8"],
    ),
    ("--engine shm --op write --sizes 8..64*1", &["never ends"]),
    ("--engine shm --op write --sizes 64..8", &["write 8..64"]),
    ("--engine shm --op write --sizes eight", &["eight"]),
    (
        "--engine shm --op write --sizes 8 --place nere",
        &["unknown place of pairs \"nere\"", "did you mean \"near\"?"],
    ),
    (
        "--engine shm --op write --sizes 8 --place near,near",
        &["the same point is asked for twice"],
    ),
    (
        "--engine shm --op write --sizes 8 --place far --cpus 0",
        &["--cpus 0 and place far contradict each other"],
    ),
    (
        "--engine shm --op write --sizes 8 --place near --cpus none",
        &["--cpus none and place near contradict each other"],
    ),
    (
        "--engine shm --op write --sizes 8 --place far --numa 0",
        &["--numa 0 and place far contradict each other", "on node 0"],
    ),
    (
        "--engine shm --op write --sizes 8 --window 0",
        &["the smallest window is 1"],
    ),
    (
        "--engine shm --op write --sizes 8 --batch 0",
        &["the smallest batch is 1"],
    ),
    (
        "--engine shm --op write --sizes 8 --batch 2M",
        &["the largest batch is"],
    ),
    (
        "--engine shm --op write --sizes 8 --rate 0",
        &["rate 0", "above 0"],
    ),
    (
        "--engine shm --op write --sizes 8 --rate 0.1",
        &["less than one operation", "trial-time"],
    ),
    (
        "--engine shm --op write --sizes 8 --ping-pong --window 8",
        &["ping-pong and window contradict"],
    ),
    (
        "--engine shm --op write --sizes 8 --batch 8 --window 8",
        &["window and batch contradict"],
    ),
    (
        "--engine shm --op write --sizes 8 --batch 8 --rate 9",
        &["batch and rate contradict"],
    ),
    (
        "--engine shm --op write --sizes 8 --iters 5 --duration 1s",
        &["iters and duration contradict"],
    ),
    (
        "--engine shm --op write --sizes 8 --duration 1s --until-ci 2%",
        &["duration and until-ci contradict"],
    ),
    (
        "--engine shm --op write --sizes 8 --max-duration 1s",
        &["add until-ci 2%"],
    ),
    (
        "--engine shm --op write --sizes 8 --duration 5",
        &["with its unit"],
    ),
    (
        "--engine shm --op write --sizes 8 --footprint 4",
        &["write footprint 8 or more"],
    ),
    (
        "--engine shm --op write --sizes 64 --stride 8",
        &["write stride 64 or more"],
    ),
    (
        "--engine shm --op write --sizes 64 --stride 128 --gap 64",
        &["gap 64 and stride 128 contradict each other"],
    ),
    (
        "--engine shm --op write --sizes 64 --gap 2T",
        &["gap 2T is too large"],
    ),
    (
        "--engine shm --op write --sizes 64 --traffic fan-in --target-footprint shared",
        &["target-footprint shared and op write contradict each other"],
    ),
    (
        "--engine shm --op read --sizes 64 --target-footprint shared",
        &["use traffic fan-in"],
    ),
    (
        "--engine shm --op write --sizes 64 --local-addresses fixd",
        &["did you mean \"fixed\"?"],
    ),
    (
        "--engine shm --op read --sizes 64 --addresses random --local-addresses fixed --window 12 --verify",
        &["landings overlap", "write window 1, or leave verify out"],
    ),
    (
        "--engine shm --op write --sizes 8 --footprint 9999G",
        &["the largest footprint is 1T"],
    ),
    (
        "--engine shm --op write --sizes 8 --workers 0",
        &["the fewest is workers 1"],
    ),
    (
        "--engine null --op write --sizes 8 --verify",
        &["moves no bytes", "or use engine shm"],
    ),
    (
        "--engine shm --op write --sizes 8 --traffic all-to-all --ping-pong",
        &["or op read"],
    ),
    (
        "--engine shm --op write --sizes 8 --interface lo",
        &["leave --interface out"],
    ),
    (
        "--engine shm --op write --sizes 8 --cpus 1-0",
        &["write 0-1"],
    ),
    ("--engine shm --op write --sizes 8,8", &["8,8"]),
    ("--engine shm --op write --sizes 8 --windw 8", &["--window"]),
    ("--engine shm --op write", &["sizes is missing"]),
    ("--op write --sizes 8", &["--engine"]),
];

#[test]
fn transfers_that_cannot_be() {
    for (options, parts) in TRANSFERS {
        refused(&format!("transfer --ranks 2 {options}"), parts);
    }
}

#[test]
fn ranks_that_are_too_few_or_too_many() {
    let transfer = "transfer --engine shm --op write --sizes 8";
    refused(
        &format!("{transfer} --ranks 1"),
        &["needs two ranks", "use --ranks 2"],
    );
    refused(transfer, &["needs two ranks", "use --ranks 2"]);
    refused(&format!("{transfer} --ranks 0"), &["use --ranks 2"]);
    refused(
        &format!("{transfer} --ranks 3"),
        &["--ranks 4", "--traffic fan-out"],
    );
    refused(
        &format!("{transfer} --ranks 99999999"),
        &["the most is --ranks 65536"],
    );
    refused("verify --ranks 1", &["needs two ranks"]);
}

#[test]
fn plans_that_cannot_be_read() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("p.toml");
    let good =
        "name = \"x\"\nranks = 2\n[[transfer]]\nengine = \"shm\"\nop = \"write\"\nsizes = 8\n";
    for (text, parts) in [
        (
            format!("{good}windoww = 3\n"),
            &[
                "p.toml:7",
                "unknown key \"windoww\"",
                "did you mean \"window\"?",
            ][..],
        ),
        (format!("{good}window = 0\n"), &["the smallest window is 1"]),
        ("name = ".to_owned(), &["p.toml:1"]),
        ("name = \"x\"\n".to_owned(), &["[[transfer]]"]),
        (
            format!("{good}[[transfer]]\nengine = \"shm\"\nop = \"fly\"\nsizes = 8\n"),
            &["\"fly\""],
        ),
        ("\u{0}\u{1}\u{2}".to_owned(), &["p.toml"]),
    ] {
        fs::write(&path, &text).unwrap();
        let ended = tonnage(dir.path(), "run p.toml").run();
        looked_at(&text, ended, parts);
    }
    fs::write(&path, [0xff, 0xfe, 0x00]).unwrap();
    looked_at(
        "not text",
        tonnage(dir.path(), "run p.toml").run(),
        &["p.toml"],
    );
    for missing in ["nowhere.toml", "."] {
        let ended = tonnage(dir.path(), &format!("run {missing}")).run();
        looked_at(missing, ended, &[missing, "cannot be read"]);
    }
}

#[test]
fn what_cannot_be_shown_or_explained() {
    let dir = tempdir().unwrap();
    fs::write(dir.path().join("notes.txt"), "not a record\n").unwrap();
    fs::write(dir.path().join("other.json"), "{\"a\": 1}\n").unwrap();
    fs::write(dir.path().join("newer.jsonl"), "{\"schema_version\": 99}\n").unwrap();
    for (arguments, parts) in [
        ("show nowhere.jsonl", &["no file nowhere.jsonl"][..]),
        ("show notes.txt", &["notes.txt, line 1", "not a record"]),
        ("show other.json", &["other.json, line 1", "not a record"]),
        (
            "show newer.jsonl",
            &["schema version 99, and this tonnage reads version 2 only"],
        ),
        ("explain MsgSiz", &["no column \"MsgSiz\"", "\"MsgSize"]),
        ("expalin", &["explain"]),
    ] {
        looked_at(arguments, tonnage(dir.path(), arguments).run(), parts);
    }
    let resumed = "transfer --engine shm --op write --sizes 8 --ranks 2 --resume notes.txt";
    let ended = tonnage(dir.path(), resumed).run().with_code(2);
    ended.with_one_error(&["notes.txt, line 1"]);
    assert_eq!(
        fs::read_to_string(dir.path().join("notes.txt")).unwrap(),
        "not a record\n"
    );
}

#[test]
fn what_can_be_explained() {
    let dir = tempdir().unwrap();
    let all = tonnage(dir.path(), "explain").succeed();
    let one = tonnage(dir.path(), "explain p99.9").succeed();
    assert!(all.stdout.lines().count() > one.stdout.lines().count());
    for column in [
        "MsgSize",
        "BatchSize",
        "TotalSize",
        "Max BW",
        "Avg BW",
        "Min Lat",
        "Avg Lat",
        "p99.9",
    ] {
        assert!(all.stdout.contains(column), "{column}: {all:#?}");
    }
}
