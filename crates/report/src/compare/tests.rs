//! Golden output of comparisons, and labels that could break CSV or Markdown.

use tonnage_judge::compare::{CompareRequest, Comparison, compare};
use tonnage_judge::criteria::{FailOn, PointVerdict};
use tonnage_judge::sides::sides_of_two_files;
use tonnage_record::{Body, Canary, Outcome, Record};

use super::{CompareFormat, render};
use crate::csv::csv;
use crate::samples;
use crate::tests::fits;

/// Three runs of these records, with bandwidths scaled by these factors.
fn runs(records: &[Record], name: &str, factors: [f64; 3]) -> Vec<Record> {
    let each = factors.iter().enumerate().flat_map(|(run, factor)| {
        records.iter().cloned().map(move |mut record| {
            record.run_id = format!("{name}{run}");
            if let Body::Transfer(body) = &mut record.body
                && let Some(summary) = &mut body.summary
            {
                summary.bandwidth_bytes_per_s.mean *= factor;
            }
            record
        })
    });
    each.collect()
}

/// Points with these sizes.
fn points(sizes: &[u32]) -> Vec<Record> {
    let sample = samples::streams().remove(0);
    let sized = |size: &u32| {
        let mut record = sample.clone();
        let point = &mut samples::transfer(&mut record).point;
        (point.label, point.slots.size_bytes) = (None, *size);
        record
    };
    sizes.iter().map(sized).collect()
}

/// Points that are worse, better, the same, unclear, not comparable and missing, with an ignored key.
fn comparison() -> Comparison {
    let factors = [
        (64, [0.8, 0.81, 0.79]),
        (1024, [1.2, 1.21, 1.19]),
        (4096, [1.0, 1.005, 1.001]),
        (16384, [0.8, 0.95, 1.1]),
        (65536, [1.0; 3]),
    ];
    let sizes = factors.map(|(size, _)| size);
    let mut a = runs(&points(&sizes), "a", [1.0, 1.01, 0.99]);
    a.extend(runs(&points(&[1 << 20]), "a", [1.0; 3]));
    let mut b: Vec<Record> = Vec::new();
    for (size, factors) in factors {
        let mut records = points(&[size]);
        samples::transfer(&mut records[0]).point.engine = "null".to_owned();
        records[0].tonnage.git_revision = "89abcde".to_owned();
        if size == 65536 {
            records[0].canary = Some(Canary::Measured {
                cpus: [0, 1],
                before_ns: 52.1,
                after_ns: 99.0,
                changed: true,
            });
        }
        b.extend(runs(&records, "b", factors));
    }
    let request = CompareRequest {
        ignore: vec!["engine".to_owned()],
        ..CompareRequest::default()
    };
    compare(
        &sides_of_two_files([(&a, "a"), (&b, "b")]).unwrap(),
        &request,
    )
    .unwrap()
}

fn compared(a: &[Record], b: &[Record]) -> Comparison {
    let sides = sides_of_two_files([(a, "a"), (b, "b")]).unwrap();
    compare(&sides, &CompareRequest::default()).unwrap()
}

#[test]
fn comparisons_look_as_agreed() {
    let comparison = comparison();
    let drawn = |format| {
        render(
            format,
            &comparison,
            ["old.jsonl", "new.jsonl"],
            &[FailOn::Worse],
        )
        .unwrap()
    };
    let table = drawn(CompareFormat::Table);
    fits(&table);
    insta::assert_snapshot!("compare_table", table);
    insta::assert_snapshot!("compare_markdown", drawn(CompareFormat::Markdown));
    insta::assert_snapshot!("compare_csv", drawn(CompareFormat::Csv));
    insta::assert_snapshot!("compare_json", drawn(CompareFormat::Json));
}

#[test]
fn the_cause_of_incomparable_points_is_named_once_with_the_option_that_accepts_it() {
    let mut records = points(&[64, 1024]);
    for record in &mut records {
        record.environment = vec![samples::on_host("n1")];
    }
    let [a, mut b] = ["a", "b"].map(|name| runs(&records, name, [1.0; 3]));
    for record in &mut b {
        let variables = &mut record.environment[0].machine.variables;
        variables.insert("LD_LIBRARY_PATH".to_owned(), "/x".to_owned());
    }
    let table = |accept: &[&str]| {
        let sides = sides_of_two_files([(&a, "a"), (&b, "b")]).unwrap();
        let request = CompareRequest {
            accept: accept.iter().map(|&key| key.to_owned()).collect(),
            ..CompareRequest::default()
        };
        let comparison = compare(&sides, &request).unwrap();
        render(CompareFormat::Table, &comparison, ["a", "b"], &[]).unwrap()
    };
    let refused = table(&[]);
    let cause = "RESULT  2 of 2 points not comparable: variables.LD_LIBRARY_PATH differs; --accept \
                 variables.LD_LIBRARY_PATH";
    assert!(refused.starts_with(cause), "{refused}");
    assert_eq!(refused.matches("differs;").count(), 1, "{refused}");
    let accepted = table(&["variables.LD_LIBRARY_PATH"]);
    assert!(
        accepted.starts_with("PASS  2 of 2 points same"),
        "{accepted}"
    );
}

#[test]
fn labels_are_neither_formulas_nor_markup() {
    let mut points = samples::streams();
    points.truncate(1);
    samples::transfer(&mut points[0]).point.label = Some("=1+2|<script>".to_owned());
    points.push(points[0].clone());
    samples::transfer(&mut points[1]).point.label = Some("plain".to_owned());
    let (a, b) = (runs(&points, "a", [1.0; 3]), runs(&points, "b", [1.0; 3]));
    let comparison = compared(&a, &b);
    let markdown = render(CompareFormat::Markdown, &comparison, ["a", "b"], &[]).unwrap();
    assert!(markdown.contains(r"| =1+2\|\<script\> |"), "{markdown}");
    for (text, expected) in [
        ("=1+2", "'=1+2"),
        ("-x", "'-x"),
        ("@x", "'@x"),
        ("x=1", "x=1"),
        ("", ""),
    ] {
        assert_eq!(crate::csv::harmless(text.to_owned()), expected);
    }
    // These labels contain no commas, so splitting CSV lines at commas is safe.
    let text = csv(&points);
    let mut cells = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let label = cells
        .next()
        .and_then(|head| head.iter().position(|column| *column == "label"));
    let labels: Vec<&str> = cells.map(|cells| cells[label.unwrap()]).collect();
    assert_eq!(labels, ["'=1+2|<script>", "plain"]);
}

/// A failed record lacks some or all phases. Each lacking phase must be reported as missing, not as an additional
/// point.
#[test]
fn failed_files_belong_to_the_phases_that_they_lack() {
    let of = |name: &str| runs(&[samples::files::buffered()], name, [1.0; 3]);
    let (a, mut b) = (of("a"), of("b"));
    let alike = compared(&a, &b);
    assert_eq!(alike.count(PointVerdict::Missing), 0, "{alike:#?}");
    for (phases_left, lost) in [(0, 1), (1, 2), (0, 3)] {
        for record in b.iter_mut().rev().take(lost) {
            record.outcome = Outcome::Failed {
                why: "no space left".to_owned(),
            };
            samples::files::body(record).phases.truncate(phases_left);
        }
        let comparison = compared(&a, &b);
        assert_eq!(
            comparison.points.len(),
            alike.points.len(),
            "{comparison:#?}"
        );
        for judged in &comparison.points {
            assert_eq!(judged.verdict, PointVerdict::Missing, "{judged:?}");
            assert!(judged.why[0].contains("no space left"), "{judged:?}");
        }
    }
}

/// Keys must not be truncated, because users copy them to --accept. If a point has fewer runs than its side, the table
/// shows the number.
#[test]
fn long_keys_and_fewer_runs_are_shown() {
    let mut comparison = comparison();
    let key = format!("variables.{}", "LONG_NAME_".repeat(6));
    comparison.differences[0].key.clone_from(&key);
    comparison.differences[0].a = vec!["value ".repeat(20)];
    comparison.points[1].b.as_mut().unwrap().runs = 2;
    let table = render(CompareFormat::Table, &comparison, ["a", "b"], &[]).unwrap();
    assert!(table.contains(&key), "{table}");
    assert!(
        table.contains("  Runs") && table.contains("  3, 2"),
        "{table}"
    );
    fits(&table);
}
