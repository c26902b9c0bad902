//! Pages of `tonnage report`, and reading the records from a page.

use std::fs;

use tempfile::tempdir;

use super::support::{rows, tonnage};

/// Checks that the page contains these parts, in this order.
fn follow_each_other(page: &str, parts: &[&str]) {
    let places: Vec<_> = parts.iter().map(|part| page.find(part)).collect();
    assert!(
        !places.contains(&None) && places.is_sorted(),
        "{parts:?}: {places:?}"
    );
}

#[test]
fn a_page_holds_the_records_and_a_comparison() {
    let dir = tempdir().unwrap();
    let run = |arguments: &str| tonnage(dir.path(), arguments).run();
    let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
    let brief = "transfer --engine null --op write --ranks 2 --sizes 64,4k --duration 6ms --trials 2 --warmup 1ms";
    run(&format!("{brief} -o a.jsonl")).with_code(0);
    run(&format!("{brief} -o b.jsonl")).with_code(0);

    // `show` must print the same from a page as from the file, in every format.
    run("report a.jsonl -o a.html").with_code(0);
    for format in ["table", "csv", "jsonl"] {
        let of = |file: &str| run(&format!("show {file} --format {format}")).with_code(0);
        assert_eq!(of("a.html").stdout, of("a.jsonl").stdout, "{format}");
    }

    // A comparison includes the records of its files, and is the first part of the page.
    run("report a.jsonl --compare a.jsonl b.jsonl --title Both -o both.html").with_code(0);
    let page = read("both.html");
    follow_each_other(
        &page,
        &[
            "<h1>Both</h1>",
            "<h2>Verdicts</h2>",
            "; B ",
            "<h2>Results</h2>",
        ],
    );
    let shown = run("show both.html").with_code(0).stdout;
    let table = |file: &str| run(&format!("show {file}")).stdout;
    let (a, b) = (table("a.jsonl"), table("b.jsonl"));
    assert_eq!(shown, format!("a.jsonl\n\n{a}\nb.jsonl\n\n{b}"));

    // The page must report unreadable lines too.
    let cut = read("a.jsonl") + "{\"schema_version\":2,\n";
    fs::write(dir.path().join("cut.jsonl"), cut).unwrap();
    run("report cut.jsonl --plain -o cut.html").with_code(0);
    assert!(read("cut.html").contains("1 of 3 lines of cut.jsonl left out: line 3"));
    run("report a.jsonl --plain -o plain.html").with_code(0);
    assert!(!read("plain.html").contains("<script") && !read("plain.html").contains("<style"));
}

/// The baseline's own records must pass. Records of a slow host must fail, and the page must show that first.
#[test]
fn a_page_judges_hosts_beside_a_baseline() {
    let dir = tempdir().unwrap();
    let run = |arguments: &str| tonnage(dir.path(), arguments).run();
    let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
    run("transfer --engine shm --op write --ranks 2 --sizes 1M --bound none --duration 4ms --trials 2 --warmup 1ms -o a.jsonl")
        .with_code(0);
    // The runs have a known spread, so this machine's noise does not matter.
    let line: serde_json::Value = serde_json::from_str(read("a.jsonl").trim()).unwrap();
    let of = |host: &str, runs: &[f64]| {
        let lines = runs.iter().enumerate().map(|(run, rate)| {
            let mut line = line.clone();
            line.as_object_mut().unwrap().remove("checksum");
            line["run_id"] = format!("{host}-{run}").into();
            line["environment"][0]["hosts"][0]["name"] = host.into();
            line["summary"]["bandwidth_bytes_per_s"]["mean"] = (rate * 1e9).into();
            line.to_string() + "\n"
        });
        let text: String = lines.collect();
        fs::write(dir.path().join(format!("{host}.jsonl")), text).unwrap();
    };
    of("n1", &[10.0, 10.1, 9.9, 10.0, 10.0]);
    of("n2", &[8.0, 8.1, 12.0]);
    run("baseline n1.jsonl -o fleet.toml").with_code(0);
    run("report n1.jsonl --baseline fleet.toml -o good.html").with_code(0);
    assert!(read("good.html").contains("pass: 1 figure within the baseline"));
    run("report n1.jsonl n2.jsonl --compare n1.jsonl n2.jsonl --baseline fleet.toml -o both.html")
        .with_code(0);
    let page = read("both.html");
    let parts = [
        "<h2>Verdicts</h2>",
        "What differs between the sides",
        "Hosts compared with the baseline <bdi>fleet.toml</bdi>",
        "8.10 GB/s, fleet 10.00, least 9.00",
        "1 pass, 1 fail; failed: n2",
        "<h2>Failures, skips and remarks</h2>",
    ];
    follow_each_other(&page, &parts);
    let broken = read("fleet.toml").replace("median =", "medium =");
    fs::write(dir.path().join("broken.toml"), broken).unwrap();
    let cases = "
        --baseline broken.toml -o b.html            => medium
        --baseline none.toml -o b.html              => tonnage baseline
        --baseline fleet.toml -o fleet.toml --force => would be replaced
    ";
    for [arguments, words] in rows(cases) {
        let refused = run(&format!("report n1.jsonl {arguments}")).with_code(2);
        refused.with_one_error(&[words]);
    }
}

#[test]
fn pages_that_cannot_be_are_refused() {
    let dir = tempdir().unwrap();
    let run = |arguments: &str| tonnage(dir.path(), arguments).run();
    let brief = "transfer --engine null --op write --ranks 2 --sizes 64 --duration 6ms --trials 2 --warmup 1ms";
    run(&format!("{brief} -o a.jsonl")).with_code(0);
    run("report a.jsonl -o a.html").with_code(0);
    let other = "<!DOCTYPE html><title>x</title>";
    fs::write(dir.path().join("other.html"), other).unwrap();
    fs::write(dir.path().join("empty.jsonl"), "").unwrap();
    for (arguments, words) in [
        ("report a.jsonl -o a.html", "--force"),
        ("report a.jsonl a.jsonl -o b.html", "name it once"),
        ("report a.jsonl -o a.jsonl --force", "would be replaced"),
        ("report none.jsonl -o b.html", "none.jsonl"),
        ("report empty.jsonl -o b.html", "holds no records"),
        ("report a.jsonl --compare a.jsonl -o b.html", "tonnage ab"),
        (
            "report a.jsonl --compare a.jsonl a.jsonl -o b.html",
            "same file",
        ),
        ("show other.html", "without records"),
    ] {
        run(arguments).with_code(2).with_one_error(&[words]);
    }
    run("report a.jsonl --margin 1% -o b.html")
        .with_code(2)
        .saying(&["--compare"]);
    assert!(!dir.path().join("b.html").exists());
    run("report a.jsonl -o a.html --force").with_code(0);
}
