//! Pages of records, which are read from them again.

use std::fs;

use tempfile::tempdir;

use super::support::tonnage;

#[test]
fn a_page_holds_the_records_and_a_comparison() {
    let dir = tempdir().unwrap();
    let run = |arguments: &str| tonnage(dir.path(), arguments).run();
    let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
    let brief = "transfer --engine null --op write --ranks 2 --sizes 64,4k --duration 6ms --trials 2 --warmup 1ms";
    run(&format!("{brief} -o a.jsonl")).with_code(0);
    run(&format!("{brief} -o b.jsonl")).with_code(0);

    // What is shown of a page is what is shown of the file, in every format.
    run("report a.jsonl -o a.html").with_code(0);
    for format in ["table", "csv", "jsonl"] {
        let of = |file: &str| run(&format!("show {file} --format {format}")).with_code(0);
        assert_eq!(of("a.html").stdout, of("a.jsonl").stdout, "{format}");
    }

    // A comparison brings its files along, and comes first.
    run("report a.jsonl --compare a.jsonl b.jsonl --title Both -o both.html").with_code(0);
    let page = read("both.html");
    let places = [
        "<h1>Both</h1>",
        "<h2>Verdicts</h2>",
        "B: ",
        "<h2>Results</h2>",
    ]
    .map(|part| page.find(part));
    assert!(
        places.iter().all(Option::is_some) && places.is_sorted(),
        "{places:?}"
    );
    let shown = run("show both.html").with_code(0).stdout;
    let table = |file: &str| run(&format!("show {file}")).stdout;
    assert_eq!(
        shown,
        format!(
            "a.jsonl\n\n{}\nb.jsonl\n\n{}",
            table("a.jsonl"),
            table("b.jsonl")
        )
    );

    run("report a.jsonl --plain -o plain.html").with_code(0);
    assert!(!read("plain.html").contains("<script") && !read("plain.html").contains("<style"));
}

#[test]
fn pages_that_cannot_be_are_refused() {
    let dir = tempdir().unwrap();
    let run = |arguments: &str| tonnage(dir.path(), arguments).run();
    let brief = "transfer --engine null --op write --ranks 2 --sizes 64 --duration 6ms --trials 2 --warmup 1ms";
    run(&format!("{brief} -o a.jsonl")).with_code(0);
    run("report a.jsonl -o a.html").with_code(0);
    fs::write(
        dir.path().join("other.html"),
        "<!DOCTYPE html><title>x</title>",
    )
    .unwrap();
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
