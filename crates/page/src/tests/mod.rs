//! Whole pages from synthetic records: required and forbidden content, and drawings that match the records.

mod drawings;
mod hostile;
mod samples;

use std::path::Path;

use tonnage_judge::baseline::build::{BaselineRequest, baseline};
use tonnage_record::Record;
use tonnage_record::figures::{Row, Value, of};

use super::embed::{PageFile, is_page, records_of_page};
use super::{PageRequest, page};
use samples::{SIZES, record, sweep};

fn file(records: Vec<Record>) -> PageFile {
    PageFile {
        name: "r.jsonl".to_owned(),
        records,
        left_out: None,
    }
}

/// A plain page of these files.
fn request(files: Vec<PageFile>) -> PageRequest {
    PageRequest {
        title: "A title".to_owned(),
        files,
        comparison: None,
        baseline: None,
        plain: true,
    }
}

/// A page of one file.
pub(super) fn page_of(records: &[Record], plain: bool) -> String {
    let files = vec![file(records.to_vec())];
    page(PageRequest {
        plain,
        ..request(files)
    })
    .unwrap()
}

#[test]
fn every_figure_of_the_records_is_on_the_page() {
    let records = sweep();
    let text = page_of(&records, true);
    for row in records.iter().flat_map(Row::all_of_record) {
        for figure in of(&row.record.body) {
            let shown = match (figure.value)(&row) {
                Value::Unknown => continue,
                Value::Text(text) => text,
                Value::Count(count) => count.to_string(),
                Value::Number(number) => number.to_string(),
                Value::AtLeast(number) => format!("≥{number}"),
            };
            assert!(text.contains(figure.field), "{}", figure.field);
            let ends = ["<td>", "<td align=left dir=auto>", "</code> <bdi>"]
                .map(|end| text.contains(&format!("{end}{shown}")));
            assert!(ends.contains(&true), "{}: {shown}", figure.field);
        }
    }
}

#[test]
fn a_page_makes_no_requests() {
    for plain in [true, false] {
        let text = page_of(&sweep(), plain);
        for word in [
            "http", "src=", "url(", "@import", "style=\"", "<link", "<iframe", "onload",
        ] {
            assert!(!text.contains(word), "{word}");
        }
        assert_eq!(text.matches("<script").count(), usize::from(!plain));
        assert_eq!(text.matches("<style").count(), usize::from(!plain));
        // Everything else on the page is the same with and without style and script.
        assert!(text.contains("color-scheme"));
    }
}

#[test]
fn every_plot_has_words_and_a_name() {
    let text = page_of(&sweep(), true);
    let plots = text.matches("<svg").count();
    assert!(plots >= 4, "{plots}");
    for part in [
        "role=\"img\"",
        "<desc id=\"plot-",
        "aria-labelledby=\"plot-",
        "aria-describedby=\"plot-",
    ] {
        assert_eq!(text.matches(part).count(), plots, "{part}");
    }
    for number in 1..=plots {
        assert_eq!(
            text.matches(&format!("id=\"plot-{number}-title\"")).count(),
            1
        );
    }
}

#[test]
fn failures_skips_and_remarks_are_listed_once() {
    let mut records = sweep();
    records.push(record(64, |it| {
        it["outcome"] =
            serde_json::json!({"status": "failed", "why": "rank 1 on n2: killed by signal 9"});
        it["point"]["seed"] = 7.into();
    }));
    for seed in [8, 9] {
        records.push(record(64, |it| {
            it["outcome"] = serde_json::json!({"status": "skipped", "why": "no card here"});
            it["point"]["seed"] = seed.into();
        }));
    }
    records[0].remarks = vec!["a remark".to_owned()];
    let text = page_of(&records, true);
    let findings = text.split("id=\"findings\"").nth(1).unwrap();
    let findings = findings.split("</section>").next().unwrap();
    for (words, times) in [
        ("rank 1 on n2: killed by signal 9", 1),
        ("skipped: no card here", 1),
        ("2 points: <bdi>shm write 64 B</bdi>", 1),
        ("a remark", 1),
    ] {
        assert_eq!(
            findings.matches(words).count(),
            times,
            "{words}: {findings}"
        );
    }
    let clean = page_of(&sweep(), true);
    assert!(clean.contains("Nothing failed, nothing was skipped, and no record has a remark."));
}

#[test]
fn embedded_records_are_unchanged() {
    let files = ["a & \"b\".jsonl", "<c>.jsonl"].map(|name| PageFile {
        name: name.to_owned(),
        ..file(sweep())
    });
    let text = page(PageRequest {
        title: "</title><script>".to_owned(),
        plain: false,
        ..request(files.to_vec())
    });
    let text = text.unwrap();
    assert!(is_page(text.as_bytes()));
    assert_eq!(records_of_page(&text, Path::new("p.html")).unwrap(), files);
}

#[test]
fn unreadable_lines_are_reported() {
    let words = "1 of 5 lines of r.jsonl left out: line 3: <cut> short";
    let broken = PageFile {
        left_out: Some(words.to_owned()),
        ..file(sweep())
    };
    let text = page(request(vec![file(sweep()), broken])).unwrap();
    let said = "<h3>Not on this page</h3><ul><li><bdi>1 of 5 lines of r.jsonl left out: line 3: &lt;cut&gt; short</bdi></li></ul>";
    assert!(text.contains(said));
    assert!(!page_of(&sweep(), true).contains("Not on this page"));
}

#[test]
fn pages_that_are_cut_changed_or_of_others_are_refused() {
    let text = page_of(&sweep(), true);
    let begin = text.find("base64,").unwrap() + "base64,".len();
    let changed = text[..begin + 200].to_owned() + "AAAA" + &text[begin + 204..];
    for (page, words) in [
        (&text[..begin + 100], "damaged or cut short"),
        (changed.as_str(), "damaged or cut short"),
        ("<!DOCTYPE html><p>hello", "without records"),
    ] {
        let error = records_of_page(page, Path::new("p.html")).unwrap_err();
        let said = error.to_string();
        assert!(
            error.exit_code() == 2 && said.contains(words) && said.contains("p.html"),
            "{said}"
        );
    }
}

#[test]
fn a_thousand_points_are_three_megabytes_at_most() {
    let records = (0..1000u32).map(|at| {
        record(u64::from(64 + 8 * (at / 4)), |it| {
            it["point"]["pacing"]["depth"] = (1 + at % 4).into();
            let mean = it["summary"]["bandwidth_bytes_per_s"]["mean"]
                .as_f64()
                .unwrap();
            it["summary"]["bandwidth_bytes_per_s"]["mean"] = (mean + f64::from(at) / 7.0).into();
        })
    });
    let bytes = page_of(&records.collect::<Vec<_>>(), false).len();
    assert!(bytes < 3_000_000, "{bytes}");
}

#[test]
fn runs_of_one_point_are_adjacent() {
    let of = |size: u64, run: &str, side: &str| {
        record(size, |it| {
            it["run_id"] = run.into();
            it["side"] = serde_json::json!({"name": side, "turn": 0});
        })
    };
    let records = [("r1", "a"), ("r2", "b"), ("r3", "b"), ("r4", "a")]
        .map(|(run, side)| SIZES.map(|size| of(size, run, side)));
    let text = page_of(&records.concat(), true);
    assert_eq!(text.matches("<section id=\"result-").count(), 2, "A and B");
    assert!(text.contains("Side A: shm write") && text.contains("Side B: shm write"));
    // Each run has its own line.
    assert!(text.contains(">run 1</text>") && text.contains(">run 2</text>"));
}

#[test]
fn hosts_are_compared_with_a_baseline() {
    let on = |host: &str, run: usize, part: f64| {
        record(65536, |it| {
            it["run_id"] = format!("{host}-{run}").into();
            it["environment"][0]["hosts"][0]["name"] = host.into();
            it["summary"]["bandwidth_bytes_per_s"]["mean"] = (part * 1e10).into();
        })
    };
    let fleet: Vec<Record> = (0..5).map(|run| on("n1", run, 1.0)).collect();
    let asked = BaselineRequest {
        metrics: Vec::new(),
        matched: Vec::new(),
        warn: 0.05,
        fail: 0.1,
        runs_min: 5,
        hosts_min: 1,
        leave_out: Vec::new(),
        by_hand: Vec::new(),
    };
    let files = [("fleet.jsonl".to_owned(), fleet)];
    let built = baseline(&files, &asked, &|_| "a point".to_owned()).unwrap();
    let beside = |records: Vec<Record>| {
        page(PageRequest {
            baseline: Some((built.baseline.clone(), "fleet.toml".to_owned())),
            ..request(vec![file(records)])
        })
    };
    let text = beside(vec![on("n1", 0, 1.0), on("n2", 0, 0.8)]).unwrap();
    let section = text.split("<section id=\"verdicts\">").nth(1).unwrap();
    let section = section.split("</section>").next().unwrap();
    for words in [
        "<h3>Hosts compared with the baseline <bdi>fleet.toml</bdi></h3>",
        "<strong>warn: shm write 64k: failed in the only run: measure again</strong>",
        "1 pass, 1 warn",
        "<td>8.00 GB/s<td>10.00 GB/s<td>9.50 GB/s<td>9.00 GB/s",
    ] {
        assert!(section.contains(words), "{words}: {section}");
    }
    insta::assert_snapshot!("beside_a_baseline", section.replace("><", ">\n<"));
    let rows: Vec<&str> = section.split("<tr>").skip(2).collect();
    assert!(
        rows[0].contains(">n2<") && rows[0].contains(">warn"),
        "{rows:?}"
    );
    assert!(
        rows[1].contains(">n1<") && rows[1].contains(">pass"),
        "{rows:?}"
    );
    // The columns of the baseline check are explained like all other columns.
    assert!(text.contains("Median of the runs of all hosts of this kind"));
    assert!(text.contains("<a href=\"#verdicts\">"));
    // A baseline that covers only other kinds of hosts is refused.
    let mut other = on("n3", 0, 1.0);
    other.environment[0].machine.cpu.model = "Another".to_owned();
    let said = beside(vec![other]).unwrap_err().to_string();
    assert!(said.contains("nothing for this kind of host"), "{said}");
}
