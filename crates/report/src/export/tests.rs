//! Golden exports, and exports parsed by parsers written from the format specifications.

mod exposition;
mod xml;

use std::collections::BTreeSet;

use tonnage_record::{Outcome, Record};

use super::{ExportFormat, export};
use crate::samples;

fn exported(format: ExportFormat, records: &[Record], metrics: &[&str]) -> String {
    let metrics: Vec<_> = metrics.iter().map(|name| name.parse().unwrap()).collect();
    export(format, &[records.to_vec()], &metrics).unwrap().text
}

fn refused(format: ExportFormat, records: &[Record], metrics: &[&str]) -> String {
    let metrics: Vec<_> = metrics.iter().map(|name| name.parse().unwrap()).collect();
    let error = export(format, &[records.to_vec()], &metrics).unwrap_err();
    assert_eq!(error.exit_code(), 2, "{error}");
    error.to_string()
}

/// Records of every kind.
fn all() -> Vec<Record> {
    let mut all = samples::batches();
    all.extend(samples::streams());
    all.extend(samples::matrices());
    all.extend(samples::paths());
    all.extend(samples::files::all());
    all.extend(samples::verifies());
    all.extend(samples::connect::connections());
    all.extend(samples::stress::stresses());
    all.extend(samples::tune::searches());
    all.extend(samples::collective::collectives());
    all
}

/// Three points: one with text that can break formats, a failed one with the same text as its reason, and a harmless
/// one.
fn hostile() -> Vec<Record> {
    let words = format!(
        "<script>alert(1)</script>\" ' & ]]> \\ \n\r\t\u{0}\u{1b}[2J|`x`\u{202e} {}",
        "long ".repeat(2048)
    );
    let mut records = samples::streams();
    records.truncate(1);
    let labelled = |mut record: Record, label: &str| {
        samples::transfer(&mut record).point.label = Some(label.to_owned());
        record.environment = vec![samples::on_host(label)];
        record
    };
    let bad = labelled(records[0].clone(), &words);
    let mut failed = labelled(records[0].clone(), &(words.clone() + "2"));
    failed.outcome = Outcome::Failed { why: words };
    vec![bad, failed, labelled(records[0].clone(), "plain")]
}

#[test]
fn exports_look_as_agreed() {
    let some = [samples::batches(), samples::collective::collectives()].concat();
    let markdown = exported(ExportFormat::Markdown, &all(), &[]);
    insta::assert_snapshot!("export_markdown", markdown);
    let series = exported(ExportFormat::Prometheus, &some, &[]);
    insta::assert_snapshot!("export_prometheus", series);
    insta::assert_snapshot!("export_junit", exported(ExportFormat::Junit, &some, &[]));
    let array = exported(ExportFormat::GithubBenchmark, &samples::batches(), &[]);
    insta::assert_snapshot!("export_github_benchmark", array);
    insta::assert_snapshot!(
        "export_prometheus_hostile",
        exported(ExportFormat::Prometheus, &hostile(), &["bandwidth"])
    );
}

#[test]
fn every_kind_has_series_and_none_is_repeated() {
    for record in all() {
        let text = exported(ExportFormat::Prometheus, std::slice::from_ref(&record), &[]);
        let families = exposition::parse(&text).unwrap_or_else(|why| panic!("{why}:\n{text}"));
        assert!(
            families
                .iter()
                .all(|family| family.name.starts_with("tonnage_"))
        );
        let measured = families.iter().find(|it| it.name == "tonnage_measured");
        let any = measured.unwrap().samples.iter().any(|it| it.value > 0.0);
        let is_measured = record.outcome == Outcome::Measured;
        assert!(any || !is_measured, "{text}");
        // Pairs of ranks are not exported, so only these labels can occur.
        let labels = families.iter().flat_map(|it| &it.samples);
        let labels: BTreeSet<_> = labels.flat_map(|it| it.labels.keys()).collect();
        for label in labels {
            assert!(["host", "device", "point", "engine", "op"].contains(&label.as_str()));
        }
    }
    let text = exported(ExportFormat::Prometheus, &hostile(), &[]);
    let families = exposition::parse(&text).unwrap_or_else(|why| panic!("{why}:\n{text}"));
    let measured = families.iter().find(|it| it.name == "tonnage_measured");
    assert_eq!(measured.unwrap().samples.len(), 3);
}

#[test]
fn values_are_in_base_units_and_of_the_newest_record() {
    let mut old = samples::streams();
    old.truncate(1);
    let mut new = old[0].clone();
    new.time_unix_ns += 1_000_000_000;
    let body = samples::transfer(&mut new);
    let summary = body.summary.as_mut().unwrap();
    summary.bandwidth_bytes_per_s.mean = 1.25e9;
    let p50_ns = summary.latency.as_ref().unwrap().latency_ns_p50 as f64;
    // The newest record must win although it comes first in the file.
    let text = exported(
        ExportFormat::Prometheus,
        &[new.clone(), old[0].clone()],
        &[],
    );
    let families = exposition::parse(&text).unwrap();
    let value = |name: &str| {
        let family = families.iter().find(|family| family.name == name).unwrap();
        assert_eq!((family.kind.as_str(), family.samples.len()), ("gauge", 1));
        family.samples[0].value
    };
    assert_eq!(value("tonnage_bandwidth_bytes_per_second"), 1.25e9);
    assert!((value("tonnage_latency_p50_seconds") - p50_ns * 1e-9).abs() < 1e-15);
    let time = new.time_unix_ns as f64 * 1e-9;
    assert!((value("tonnage_last_record_time_seconds") - time).abs() < 1e-3);
    // If the newest attempt failed, the export shows the failure and no older values.
    let mut failed = new.clone();
    failed.time_unix_ns += 1;
    failed.outcome = Outcome::Failed {
        why: "x".to_owned(),
    };
    samples::transfer(&mut failed).summary = None;
    failed.effective.clear();
    let text = exported(ExportFormat::Prometheus, &[new, failed], &[]);
    let families = exposition::parse(&text).unwrap();
    assert!(!text.contains("tonnage_bandwidth"), "{text}");
    let measured = families.iter().find(|it| it.name == "tonnage_measured");
    let samples = &measured.unwrap().samples;
    assert_eq!((samples.len(), samples[0].value), (1, 0.0));
}

#[test]
fn too_many_series_are_refused_with_what_to_leave_out() {
    let sample = samples::streams().remove(0);
    let sized = |size: u32| {
        let mut record = sample.clone();
        samples::transfer(&mut record).point.slots.size_bytes = size;
        record
    };
    let many: Vec<Record> = (1..=200).map(sized).collect();
    let text = refused(ExportFormat::Prometheus, &many, &[]);
    for part in ["1401 series", "500", "bandwidth 200", "--metric bandwidth"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let text = exported(ExportFormat::Prometheus, &many, &["bandwidth"]);
    let families = exposition::parse(&text).unwrap();
    let series: usize = families.iter().map(|it| it.samples.len()).sum();
    assert_eq!(series, 401);
    let more: Vec<Record> = (1..=300).map(sized).collect();
    let text = refused(ExportFormat::Prometheus, &more, &["bandwidth"]);
    assert!(
        text.contains("601 series") && text.contains("fewer files"),
        "{text}"
    );
}

#[test]
fn every_point_is_a_test_case() {
    for records in [all(), hostile()] {
        let text = exported(ExportFormat::Junit, &records, &[]);
        let document = xml::parse(&text).unwrap_or_else(|why| panic!("{why}:\n{text}"));
        let count = |name: &str| document.iter().filter(|tag| tag.name == name).count();
        let total = |attribute: &str| document[0].attributes[attribute].parse::<usize>().unwrap();
        assert_eq!(document[0].name, "testsuites");
        assert_eq!(count("testcase"), total("tests"));
        assert_eq!(count("skipped"), total("skipped"));
        assert_eq!(count("failure"), total("failures"));
        assert!(total("tests") >= records.len());
        for case in document.iter().filter(|tag| tag.name == "testcase") {
            assert!(case.attributes["time"].parse::<f64>().unwrap() >= 0.0);
            assert!(!case.attributes["name"].is_empty());
        }
    }
    let text = exported(ExportFormat::Junit, &hostile(), &[]);
    let document = xml::parse(&text).unwrap();
    let failure = document.iter().find(|tag| tag.name == "failure").unwrap();
    let message = &failure.attributes["message"];
    assert!(message.starts_with("<script>alert(1)</script>\" ' & ]]> \\ \n\r\t\\u{0}\\u{1b}[2J"));
    assert!(message.len() > 10_000);
}

/// A failure must stay if only another file measured the same point, because that file may come from another host. A
/// later measurement in the same file must replace the failure.
#[test]
fn failures_stay_unless_they_were_made_again() {
    let measured = samples::streams().remove(0);
    let mut failed = measured.clone();
    failed.outcome = Outcome::Failed {
        why: "cable".to_owned(),
    };
    let failures = |files: &[Vec<Record>]| {
        let text = export(ExportFormat::Junit, files, &[]).unwrap().text;
        text.matches("<failure ").count()
    };
    assert_eq!(failures(&[vec![failed.clone()], vec![measured.clone()]]), 1);
    assert_eq!(failures(&[vec![failed, measured]]), 0);
}

#[test]
fn a_benchmark_has_one_direction() {
    let records = samples::streams();
    let text = exported(
        ExportFormat::GithubBenchmark,
        &records,
        &["latency-p50", "latency-p99"],
    );
    let entries: serde_json::Value = serde_json::from_str(&text).unwrap();
    let entries = entries.as_array().unwrap();
    assert!(entries.len() >= 2);
    let mut names = BTreeSet::new();
    for entry in entries {
        assert!(
            entry["extra"]
                .as_str()
                .unwrap()
                .starts_with("customSmallerIsBetter; 1 run")
        );
        assert_eq!(entry["unit"], "us");
        assert!(entry["value"].as_f64().unwrap() > 0.0);
        assert!(names.insert(entry["name"].as_str().unwrap()));
    }
    let both = ["bandwidth", "latency-p50"];
    let text = refused(ExportFormat::GithubBenchmark, &records, &both);
    assert!(text.contains("one direction"), "{text}");
    let text = refused(ExportFormat::GithubBenchmark, &records, &["open"]);
    assert!(
        text.contains("--metric open") && text.contains("bandwidth"),
        "{text}"
    );
    let failed = samples::batches().pop().unwrap();
    let text = refused(ExportFormat::GithubBenchmark, &[failed], &[]);
    assert!(text.contains("nothing of them was measured"), "{text}");
    // Points without a bandwidth are reported.
    let metrics = [];
    let some = export(
        ExportFormat::GithubBenchmark,
        &[samples::batches()],
        &metrics,
    )
    .unwrap();
    assert!(some.left_out.unwrap().contains("3 of 7 points"));
}

#[test]
fn metrics_are_refused_by_formats_without_them() {
    for format in [ExportFormat::Markdown, ExportFormat::Junit] {
        let text = refused(format, &samples::streams(), &["bandwidth"]);
        assert!(text.contains("--metric"), "{text}");
    }
}

/// Each row must have as many cells as the header, and text from records must not become HTML or code.
#[test]
fn markdown_has_the_rows_of_the_tables_and_no_markup_of_records() {
    let text = exported(ExportFormat::Markdown, &[all(), hostile()].concat(), &[]);
    let mut columns = None;
    for line in text.lines() {
        let bars = line.replace("\\|", "").matches('|').count();
        match line.starts_with('|') {
            true => {
                let expected = *columns.get_or_insert(bars);
                assert_eq!(bars, expected, "{line}");
            }
            false => columns = None,
        }
        assert!(
            !line.contains("<script>") && !line.contains("`x`"),
            "{line}"
        );
    }
    let size = text
        .lines()
        .filter(|line| line.starts_with("| 65536 |"))
        .count();
    assert!(size >= 2, "{text}");
    assert!(text.contains("| ---: |"));
}
