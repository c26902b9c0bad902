//! Compares drawings with their records. Each mark is converted back to a value with the axis ticks, and must match the
//! record within a pixel.

use std::str::FromStr;

use tonnage_judge::compare::{CompareRequest, compare};
use tonnage_judge::sides::sides_of_two_files;

use super::page_of;
use super::samples::{SIZES, matrix, record, series, sweep};
use crate::plot::{Numbers, ratios};

/// Values of an attribute in a text, in order.
fn attributes<T: FromStr>(text: &str, name: &str) -> Vec<T> {
    let begin = format!(" {name}=\"");
    let parts = text.split(&begin).skip(1);
    let values = parts.filter_map(|part| part.split('"').next()?.parse().ok());
    values.collect()
}

/// Text after the first `begin`, up to the next `end`.
fn between<'a>(text: &'a str, begin: &str, end: &str) -> &'a str {
    let rest = text
        .split_once(begin)
        .unwrap_or_else(|| panic!("no {begin}"))
        .1;
    rest.split(end).next().unwrap()
}

/// The drawing with this text in its title.
fn plot<'a>(page: &'a str, title: &str) -> &'a str {
    let plots = page
        .split("<svg")
        .skip(1)
        .map(|it| it.split("</svg>").next().unwrap());
    let mut titled = plots.filter(|it| between(it, "<title", "</title>").contains(title));
    titled.next().unwrap_or_else(|| panic!("no plot {title}"))
}

/// Ticks of an axis, as values and positions.
struct Ticks(Vec<(f64, f64)>);

impl Ticks {
    fn of(plot: &str, axis: &str, place: &str) -> Self {
        let group = between(plot, &format!("<g class=\"{axis}\">"), "</g>");
        let texts = group
            .split("<text")
            .skip(1)
            .filter(|it| it.contains("data-at"));
        let pairs = texts.map(|it| (attributes(it, "data-at")[0], attributes(it, place)[0]));
        Self(pairs.collect())
    }

    /// Position of a value, from the first and the last tick, on a linear or logarithmic scale.
    fn place(&self, value: f64, log: bool) -> f64 {
        let of = |value: f64| if log { value.ln() } else { value };
        let ((first, begin), (last, end)) = (self.0[0], self.0[self.0.len() - 1]);
        begin + (of(value) - of(first)) / (of(last) - of(first)) * (end - begin)
    }
}

/// Centres of a drawing's circles: the marks of the first line, and one in the legend.
fn circles(plot: &str) -> Vec<(f64, f64)> {
    let xs: Vec<f64> = attributes(plot, "cx");
    let marks = xs.into_iter().zip(attributes::<f64>(plot, "cy"));
    marks.collect()
}

fn assert_near(found: f64, expected: f64, what: &str) {
    assert!(
        (found - expected).abs() <= 1.0,
        "{what}: {found}, not {expected}"
    );
}

#[test]
fn bandwidths_match_the_ticks() {
    let records = sweep();
    let page = page_of(&records, true);
    let plot = plot(&page, "Avg BW (GB/s) over the size");
    let (x, y) = (Ticks::of(plot, "x", "x"), Ticks::of(plot, "y", "y"));
    let marks = circles(plot);
    assert!(marks.len() > 2 * SIZES.len(), "measured, published, legend");
    for (at, (size, record)) in SIZES.iter().zip(&records).enumerate() {
        let summary = record.transfer().unwrap().summary.as_ref().unwrap();
        let mean = summary.bandwidth_bytes_per_s.mean;
        let ours = marks[at];
        assert_near(ours.0, x.place(*size as f64, true), "size");
        assert_near(ours.1, y.place(mean, true), "bandwidth");
        let theirs = marks[SIZES.len() + at];
        assert_near(theirs.1, y.place(1.5 * mean, true), "published");
    }
    // The ends of the error bars.
    let bars = between(plot, "<path d=\"M", "h6M").to_owned();
    assert!(!bars.is_empty());
    let bound = records[0].bound.as_ref().unwrap().bytes_per_s;
    let mut paths = plot.split("<path");
    let dashed = paths.find(|it| it.contains("stroke-dasharray=\"6 4\""));
    let (_, first) = between(dashed.unwrap(), "d=\"M", "L")
        .split_once(' ')
        .unwrap();
    assert_near(first.parse().unwrap(), y.place(bound, true), "bound");
}

#[test]
fn percentiles_are_those_of_the_record() {
    let record = record(64, |_| {});
    let page = page_of(std::slice::from_ref(&record), true);
    let plot = plot(&page, "Latency percentiles");
    let y = Ticks::of(plot, "y", "y");
    let marks = circles(plot);
    let body = record.body.any();
    let latency = body.latency(tonnage_record::body::Part::Whole).unwrap();
    for (at, ns) in [
        (0, latency.latency_ns_min),
        (2, latency.latency_ns_p50),
        (5, latency.latency_ns_p99),
        (6, latency.latency_ns_p999),
        (8, latency.latency_ns_max),
    ] {
        assert_near(marks[at].1, y.place(ns as f64, true), "percentile");
    }
}

#[test]
fn rates_and_standstills_match_the_ticks() {
    let page = page_of(&[series()], true);
    let plot = plot(&page, "Rate over time");
    let (x, y) = (Ticks::of(plot, "x", "x"), Ticks::of(plot, "y", "y"));
    let marks = circles(plot);
    for (at, rate) in [5000.0, 0.0, 7000.0, 6000.0].into_iter().enumerate() {
        assert_near(marks[at].0, x.place(at as f64 + 0.5, false), "time");
        assert_near(marks[at].1, y.place(rate, false), "rate");
    }
    let stall = between(plot, "<g class=\"stall\"", "</g>");
    let (from, width) = (
        attributes::<f64>(stall, "x")[0],
        attributes::<f64>(stall, "width")[0],
    );
    assert_near(from, x.place(1.0, false), "begin");
    assert_near(from + width, x.place(2.0, false), "end");
    assert!(page.contains("<li>rank 0 moved nothing from 1.00 to 2.00 s</li>"));
}

#[test]
fn slow_rows_columns_and_pairs_are_marked_in_shape() {
    let page = page_of(&[matrix(64, 5, 40, (7, 9))], true);
    let plot = plot(&page, "Bandwidth from each rank to each");
    assert_eq!(
        plot.matches("<rect").count() - 6,
        64 * 63 + 2,
        "cells, legend, two frames"
    );
    for (mark, rank) in [("slow-row", 5), ("slow-column", 40)] {
        let marked = format!("class=\"{mark}\" data-rank=\"{rank}\"");
        assert_eq!(
            plot.matches(&format!("class=\"{mark}\"")).count(),
            1,
            "{mark}"
        );
        assert!(plot.contains(&marked), "{mark}");
    }
    assert!(page.contains("Rank 5 sends slowly to all others at"));
    assert!(page.contains("From rank 7 to rank 9 it is"));
    // Without slow ranks and pairs, nothing is marked.
    let clean = page_of(&[matrix(8, 99, 99, (9, 9))], true);
    assert!(
        !clean.contains("class=\"slow-row\"") && clean.contains("No rank and no pair is slow.")
    );
}

#[test]
fn ratios_have_their_verdicts_and_their_places() {
    let side = |factor: f64, run: usize| {
        record(64, |it| {
            it["run_id"] = format!("run {factor} {run}").into();
            it["summary"]["bandwidth_bytes_per_s"]["mean"] =
                (1e9 * factor * (1.0 + 0.001 * run as f64)).into();
        })
    };
    let sides = [1.0, 0.5].map(|factor| [0, 1, 2, 3].map(|run| side(factor, run)));
    let sides = sides_of_two_files([(&sides[0][..], "a"), (&sides[1][..], "b")]).unwrap();
    let comparison = compare(&sides, &CompareRequest::default()).unwrap();
    let drawn = ratios::ratios(
        &comparison,
        &["size 64 B".to_owned()],
        &mut Numbers::default(),
    );
    let text = drawn[0].clone().into_string();
    let x = Ticks::of(&text, "x", "x");
    let mark = text.split("class=\"ratio\" d=\"M").nth(1).unwrap();
    let found: f64 = mark.split(' ').next().unwrap().parse().unwrap();
    assert_near(found, x.place(0.5, true), "ratio");
    assert!(text.contains(">worse</text>") && mark.starts_with(|it: char| it.is_numeric()));
    insta::assert_snapshot!(text.replace("><", ">\n<"));
}

/// Pins the complete drawing of one sweep, so that any change of an attribute is noticed.
#[test]
fn the_drawing_of_a_sweep() {
    let page = page_of(&sweep(), true);
    let plot = plot(&page, "Avg BW (GB/s) over the size");
    insta::assert_snapshot!(plot.replace("><", ">\n<"));
}
