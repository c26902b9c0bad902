//! Records in the formats of other programs.

use std::fs;
use std::os::unix::fs::MetadataExt;

use tempfile::tempdir;

use super::support::{parts, rows, tonnage};

/// Exports one measurement in all formats.
#[test]
fn records_are_exported_and_files_replaced_whole() {
    let dir = tempdir().unwrap();
    let run = |arguments: &str| tonnage(dir.path(), arguments).run();
    let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
    let brief = "--duration 6ms --trials 2 --warmup 1ms";
    run(&format!(
        "transfer --engine shm --op write --ranks 2 --sizes 64,4k {brief} -o r.jsonl"
    ))
    .with_code(0);

    let prometheus = "export r.jsonl --to prometheus -o t.prom";
    run(prometheus).with_code(0);
    let text = read("t.prom");
    let name = "\ntonnage_bandwidth_bytes_per_second{host=\"";
    assert_eq!(text.matches(name).count(), 2, "{text}");
    run(prometheus)
        .with_code(2)
        .with_one_error(&["t.prom", "--force"]);
    let inode = || fs::metadata(dir.path().join("t.prom")).unwrap().ino();
    let before = inode();
    run(&format!("{prometheus} --force --metric latency-p50")).with_code(0);
    assert_ne!(inode(), before, "a new file has taken the name");
    assert!(!read("t.prom").contains("bandwidth"));
    let files = fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(files, 2, "nothing stays beside it");

    let array = run("export r.jsonl --to github-benchmark").with_code(0);
    let array: serde_json::Value = serde_json::from_str(&array.stdout).unwrap();
    assert_eq!(array.as_array().unwrap().len(), 2);
    let page = run("export r.jsonl --to markdown").with_code(0);
    page.printing(&["| MsgSize (B) |"]);

    // A broken line is left out and reported.
    let broken = read("r.jsonl") + "{\"schema_version\":\n";
    fs::write(dir.path().join("broken.jsonl"), broken).unwrap();
    let cases = run("export broken.jsonl --to junit").with_code(0);
    let cases = cases.printing(&["tests=\"2\" failures=\"0\""]);
    cases.saying(&["1 of 3 lines of broken.jsonl left out: line 3"]);

    // Requests that are refused before any file is touched.
    fs::write(dir.path().join("empty.jsonl"), "").unwrap();
    let cases = "
        empty.jsonl --to junit                                       => empty.jsonl | no records
        r.jsonl r.jsonl --to junit                                   => same file | once
        r.jsonl --to junit --metric bandwidth                        => --metric | junit
        r.jsonl --to github-benchmark --metric bandwidth,latency-p50 => one direction | latency-p50
        r.jsonl --to github-benchmark --metric busbw                 => busbw | they have bandwidth
        r.jsonl --to junit -o r.jsonl --force                        => r.jsonl | another file
    ";
    for [arguments, reason] in rows(cases) {
        run(&format!("export {arguments}"))
            .with_code(2)
            .with_one_error(&parts(reason));
    }
}
