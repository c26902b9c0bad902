//! Wrong requests as a user sees them: one error that names the mistake and a correct alternative. The exit code is 2,
//! standard output is empty, and no file is written. `crates/commands/src/refused.rs` has a row for every refused
//! command line.

use std::fs;

use tempfile::tempdir;

use super::support::{SOON, parts, rows, tonnage};

#[test]
fn a_wrong_request_is_one_error_and_leaves_nothing() {
    let dir = tempdir().unwrap();
    let good =
        "name = \"x\"\nranks = 2\n[[transfer]]\nengine = \"shm\"\nop = \"write\"\nsizes = 8\n";
    for (name, text) in [
        ("notes.txt", "not a record\n"),
        ("other.json", "{\"a\": 1}\n"),
        ("newer.jsonl", "{\"schema_version\": 99}\n"),
        ("key.toml", &format!("{good}deptth = 3\n")),
        ("zero.toml", &format!("{good}depth = 0\n")),
        ("cut.toml", "name = "),
        ("none.toml", "name = \"x\"\n"),
        ("fly.toml", &good.replace("write", "fly")),
        ("control.toml", "\u{0}\u{1}\u{2}"),
    ] {
        fs::write(dir.path().join(name), text).unwrap();
    }
    fs::write(dir.path().join("bytes.toml"), [0xff, 0xfe, 0x00]).unwrap();
    let shm = "transfer --engine shm --op write --ranks 2";
    let refused = r#"
        SHM -o r.jsonl                                        => --sizes is required, e.g. --sizes 8..1M
        SHM --sizes 0 -o r.jsonl                              => --sizes 0 would move nothing: the smallest is --sizes 1
        SHM --sizes 8 --control-interface lo -o r.jsonl               => leave --control-interface out
        SHM --sizes 8 --place far --cpus 0 -o r.jsonl         => --cpus 0 and --place far are mutually exclusive
        SHM --sizes 8 --resume notes.txt                      => notes.txt, line 1
        file --path t --block 10k --transfer 4k -o r.jsonl    => use --block 8k
        run key.toml                                          => key.toml:7 | unknown key "deptth" | did you mean "depth"?
        run zero.toml                                         => depth 0 would move nothing: the smallest is 1, as in depth 1..64
        run cut.toml                                          => cut.toml:1
        run none.toml                                         => [[transfer]]
        run fly.toml                                          => "fly"
        run control.toml                                      => control.toml
        run bytes.toml                                        => bytes.toml
        run nowhere.toml                                      => nowhere.toml | cannot be read
        run .                                                 => . | cannot be read
        show nowhere.jsonl                                    => no file nowhere.jsonl
        show notes.txt                                        => notes.txt, line 1 | not a record
        show other.json                                       => other.json, line 1 | not a record
        show newer.jsonl                                      => schema version 99, and this tonnage reads versions 2 to 3
        explain MgsSize                                       => no column or term "MgsSize" | "MsgSize
        expalin                                               => explain
    "#;
    for [arguments, reason] in rows(&refused.replace("SHM", shm)) {
        let ended = tonnage(dir.path(), arguments).run().with_code(2);
        assert!(ended.stdout.is_empty(), "{arguments}: {ended:#?}");
        // This is far less time than any run takes, but enough on a busy machine.
        assert!(ended.took < SOON, "{arguments}: {ended:#?}");
        ended.with_one_error(&parts(reason));
    }
    assert!(!dir.path().join("r.jsonl").exists());
    let notes = fs::read_to_string(dir.path().join("notes.txt")).unwrap();
    assert_eq!(notes, "not a record\n");
}

#[test]
fn what_can_be_explained() {
    let dir = tempdir().unwrap();
    let one = tonnage(dir.path(), "explain p99.9").succeed().stdout;
    let all = tonnage(dir.path(), "explain").succeed();
    assert!(all.stdout.lines().count() > one.lines().count());
    let columns = "MsgSize | BatchSize | TotalSize | Max BW | Avg BW | Min Lat | Avg Lat | p99.9";
    all.printing(&parts(columns));
    let session = tonnage(dir.path(), "explain Session").succeed();
    session.printing(&["looked up by their names"]);
}
