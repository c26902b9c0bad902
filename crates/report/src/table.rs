//! Tables for people: consecutive records with the same configuration make one table, with a title that states the
//! configuration, one row for each point, and below it the limit, the canary and whatever a reader has to know.

use comfy_table::{CellAlignment, ContentLineStyle, LineStyle, Table, TableStyle};
use tonnage_plan::point::LimitChoice;
use tonnage_plan::transfer::Pacing;
use tonnage_record::{Canary, Outcome, TransferRecord};

use super::columns::{Column, Style, Value, by_field, cpu_share, lanes};
use super::engine;
use super::text::{WIDTH, bytes_rounded, number, rate, wrap};
use super::title::{same_table, title};
use crate::wire_proof;

/// Columns of a table.
struct Layout {
    /// Shown whatever is known.
    always: &'static [&'static str],
    /// Shown where any row has a value.
    known: &'static [&'static str],
}

const FOOTPRINT: &str = "footprint_bytes";

const BATCH: Layout = Layout {
    always: &[
        "size_bytes",
        "batch",
        "batch_payload_bytes",
        "bandwidth_bytes_per_s_max_batch",
    ],
    known: &[
        "bandwidth_bytes_per_s_mean",
        "latency_ns_min",
        "latency_ns_mean",
        "latency_ns_p50",
        "latency_ns_p99",
        "latency_ns_p999",
        "message_rate_per_s_mean",
        "utilization",
    ],
};

const STREAM: Layout = Layout {
    always: &["size_bytes", "window"],
    known: &[
        "bandwidth_bytes_per_s_mean",
        "bandwidth_ci95_fraction",
        "bandwidth_bytes_per_s_max",
        "message_rate_per_s_mean",
        "latency_ns_p50",
        "latency_ns_p99",
        "latency_ns_p999",
        "latency_ns_max",
        "utilization",
        "initiator_cpu_ns_per_operation",
    ],
};

const PING_PONG: Layout = Layout {
    always: &["size_bytes"],
    known: &[
        "latency_ns_min",
        "latency_ns_mean",
        "latency_ns_p50",
        "latency_ns_p90",
        "latency_ns_p99",
        "latency_ns_p999",
        "latency_ns_max",
        "message_rate_per_s_mean",
    ],
};

const PACED: Layout = Layout {
    always: &["size_bytes", "window"],
    known: &[
        "offered_per_s",
        "reached_per_s",
        "late_fraction",
        "latency_ns_p50",
        "latency_ns_p90",
        "latency_ns_p99",
        "latency_ns_p999",
        "latency_ns_max",
        "initiator_cpu_ns_per_operation",
    ],
};

/// Tables for all records, in their order, with an empty line between two.
pub fn table(records: &[TransferRecord<'_>]) -> String {
    records
        .chunk_by(|left, right| same_table(*left, *right))
        .map(one_table)
        .collect::<Vec<_>>()
        .join("\n")
}

fn one_table(records: &[TransferRecord<'_>]) -> String {
    let columns = columns(records);
    let mut notes = Notes::default();
    let marks: Vec<_> = records.iter().map(|record| notes.mark(*record)).collect();
    let any_mark = marks.iter().any(|mark| !mark.is_empty());
    let header = columns
        .iter()
        .map(|column| column.name.replacen(" (", "\n(", 1));
    let mut rows = vec![header.chain(any_mark.then(|| "Note".to_owned())).collect()];
    for (record, mark) in records.iter().zip(marks) {
        let cells = columns.iter().map(|column| cell(column, *record));
        rows.push(cells.chain(any_mark.then_some(mark)).collect());
    }
    let drawn = draw(rows, |at| at < columns.len());
    let mut lines = vec![title(records), drawn];
    lines.extend(engine::lines(records.iter().copied()));
    lines.extend(
        [limit(records), canary(records), verified(records)]
            .into_iter()
            .flatten(),
    );
    lines.extend(wire_proof::lines(records.iter().copied()));
    lines.extend(remarks(records).map(str::to_owned));
    let below = notes
        .texts
        .iter()
        .enumerate()
        .map(|(at, text)| format!("[{}] {text}", at + 1));
    lines.extend(below);
    let lines = lines.into_iter().enumerate();
    // The drawn table must keep its spaces, and cannot be wider than its columns.
    let lines = lines.map(|(at, line)| if at < 2 { line } else { wrap(&line, WIDTH, 4) });
    lines.collect::<Vec<_>>().join("\n") + "\n"
}

/// Draws rows, the first of which is the header; `right` says which columns are aligned to the right.
pub fn draw(rows: Vec<Vec<String>>, right: impl Fn(usize) -> bool) -> String {
    let lines = ContentLineStyle::none();
    let rule = LineStyle::none().fill('-').junction('-');
    let style = TableStyle::new()
        .header_lines(lines)
        .header_separator(rule)
        .content_lines(lines);
    let mut table = Table::new();
    table.load_style(style);
    let mut rows = rows.into_iter();
    if let Some(header) = rows.next() {
        table.set_header(header);
    }
    table.add_rows(rows);
    for (at, column) in table.column_iter_mut().enumerate() {
        // With the space between columns that makes two.
        column.set_padding((0, 1));
        column.set_cell_alignment(if right(at) {
            CellAlignment::Right
        } else {
            CellAlignment::Left
        });
    }
    table.trim_fmt()
}

fn columns(records: &[TransferRecord<'_>]) -> Vec<&'static Column> {
    let layout = match records.first().map(|record| record.body.point.pacing) {
        Some(Pacing::Batch { .. }) => BATCH,
        Some(Pacing::PingPong) => PING_PONG,
        Some(Pacing::Paced { .. }) => PACED,
        Some(Pacing::Stream { .. }) | None => STREAM,
    };
    let shown = |column: &&Column| {
        records
            .iter()
            .any(|record| (column.value)(*record) != Value::Unknown)
    };
    let footprint = same_size_other_footprint(records).then_some(&FOOTPRINT);
    let always = layout
        .always
        .iter()
        .chain(footprint)
        .filter_map(|field| by_field(field));
    always
        .chain(
            layout
                .known
                .iter()
                .filter_map(|field| by_field(field))
                .filter(shown),
        )
        .collect()
}

/// True when two rows would look alike though they walked over different footprints.
fn same_size_other_footprint(records: &[TransferRecord<'_>]) -> bool {
    let points = || records.iter().map(|record| &record.body.point);
    points().any(|left| {
        points().any(|right| {
            left.size_bytes == right.size_bytes && left.footprint_bytes != right.footprint_bytes
        })
    })
}

/// A value as the table prints it: "n/a" where a measured point has none, "-" where nothing was measured.
fn cell(column: &Column, record: TransferRecord<'_>) -> String {
    let unknown = match record.outcome {
        Outcome::Measured => "n/a",
        _ => "-",
    };
    shown((column.value)(record), column.style, unknown)
}

/// A value as tables print it, and the words for one that is not known.
pub fn shown(value: Value, style: Style, unknown: &str) -> String {
    match (value, style) {
        (Value::Unknown, _) => unknown.to_owned(),
        (Value::Text(text), _) => text,
        (Value::Count(count), Style::Plain) => count.to_string(),
        (Value::Number(value), Style::Plain) => number(value),
        (Value::Count(count), Style::Scaled(scale)) => number(count as f64 * scale),
        (Value::Number(value), Style::Scaled(scale)) => number(value * scale),
        (Value::Count(count), Style::Rate) => rate(count as f64),
        (Value::Number(value), Style::Rate) => rate(value),
    }
}

/// Workers that had less of their CPUs than this were disturbed so much that the figures are about something else.
pub const CPU_SHARE_LEAST: f64 = 0.9;

/// Remarks on single rows, each text once.
#[derive(Default)]
struct Notes {
    texts: Vec<String>,
}

impl Notes {
    /// Text of the row's last column: the outcome unless measured, and the numbers of its notes.
    fn mark(&mut self, record: TransferRecord<'_>) -> String {
        let mut words = Vec::new();
        match &record.outcome {
            Outcome::Measured => {}
            Outcome::Skipped { why } => words.push(format!(
                "skipped {}",
                self.number(format!("skipped: {why}"))
            )),
            Outcome::Failed { why } => {
                words.push(format!("FAILED {}", self.number(format!("failed: {why}"))))
            }
        }
        if let Some(Canary::Measured {
            before_ns,
            after_ns,
            changed: true,
            ..
        }) = record.canary
        {
            let text = format!(
                "the machine changed while this point was measured: its cache-line ping-pong took {} ns before and \
                 {} ns after; distrust small differences",
                number(before_ns),
                number(after_ns)
            );
            words.push(self.number(text));
        }
        if let Some(share) = cpu_share(record).filter(|share| *share < CPU_SHARE_LEAST) {
            // In tens, so that a table does not get a note of its own for every row.
            let percent = (share * 10.0).floor() * 10.0;
            words.push(self.number(format!(
                "other programs took CPU time from the workers, which had less than {:.0} % of it: the figures are too \
                 low",
                percent + 10.0
            )));
        }
        if record
            .body
            .summary
            .as_ref()
            .is_some_and(|summary| summary.converged == Some(false))
        {
            words.push(
                self.number("the time was up before CI95 became as narrow as asked for".to_owned()),
            );
        }
        if let Some(text) = above_limit(record) {
            words.push(self.number(text));
        }
        if let Some(why) = wire_proof::unproven(record) {
            words.push(format!("OFF PATH {}", self.number(why)));
        }
        words.join(" ")
    }

    fn number(&mut self, text: String) -> String {
        let at = self
            .texts
            .iter()
            .position(|known| *known == text)
            .unwrap_or_else(|| {
                self.texts.push(text);
                self.texts.len() - 1
            });
        format!("[{}]", at + 1)
    }
}

/// A limit that is exceeded by more than it may be off deserves a word about why.
const UTILIZATION_MOST: f64 = 1.05;

/// Tells why a point is above its limit, if it is.
fn above_limit(record: TransferRecord<'_>) -> Option<String> {
    let summary = record.body.summary.as_ref()?;
    summary
        .utilization
        .filter(|part| *part > UTILIZATION_MOST)?;
    let what = &record.limit.as_ref()?.what;
    let why = match record.body.point.limit {
        LimitChoice::Auto if what.starts_with("link speed") => {
            "the device is faster than it says, or not all bytes crossed it; --require-path tells"
        }
        LimitChoice::Auto => {
            "it was measured for moments just before and after the trials, and the machine was faster in between (its \
             clock, its caches, other programs); measure longer with --duration"
        }
        _ => "it was stated, not measured; --limit auto measures one",
    };
    Some(format!("above its limit: {why}"))
}

/// Names the upper bounds of the bandwidths, each kind of limit once.
fn limit(records: &[TransferRecord<'_>]) -> Option<String> {
    let limits: Vec<_> = records
        .iter()
        .filter_map(|record| record.limit.as_ref())
        .collect();
    let mut whats: Vec<&str> = limits.iter().map(|limit| limit.what.as_str()).collect();
    whats.sort_unstable();
    whats.dedup();
    let texts = whats.iter().map(|what| {
        let values = limits
            .iter()
            .filter(|limit| limit.what == *what)
            .map(|limit| limit.bytes_per_s);
        let (least, most) = values.fold((f64::INFINITY, 0.0), |(least, most), value| {
            (f64::min(least, value), f64::max(most, value))
        });
        let (least, most) = (number(least * 1e-9), number(most * 1e-9));
        let range = if least == most {
            least
        } else {
            format!("{least} to {most}")
        };
        format!("{range} GB/s ({what})")
    });
    let texts: Vec<_> = texts.collect();
    (!texts.is_empty()).then(|| format!("limit: {}", texts.join("; ")))
}

/// The canaries of all rows together, or why there are none.
fn canary(records: &[TransferRecord<'_>]) -> Option<String> {
    let (mut before, mut after, mut why) = (Vec::new(), Vec::new(), None);
    let mut on = None;
    for record in records {
        match &record.canary {
            Some(Canary::Measured {
                before_ns,
                after_ns,
                cpus,
                ..
            }) => {
                before.push(*before_ns);
                after.push(*after_ns);
                on = Some(*cpus);
            }
            Some(Canary::Skipped { why: reason }) => why = Some(reason),
            None => {}
        }
    }
    match (median(before), median(after), on, why) {
        (Some(before), Some(after), Some([first, second]), _) => Some(format!(
            "canary: a cache line takes {} ns from CPU {first} to CPU {second} before the points and {} ns after \
             (medians)",
            number(before),
            number(after)
        )),
        (_, _, _, Some(why)) => Some(format!("canary: skipped, {why}")),
        _ => None,
    }
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let (lower, upper) = (
        values.get(values.len().saturating_sub(1) / 2)?,
        values.get(values.len() / 2)?,
    );
    Some(f64::midpoint(*lower, *upper))
}

fn verified(records: &[TransferRecord<'_>]) -> Option<String> {
    let trials = records.iter().flat_map(|record| &record.body.trials);
    let sum = trials
        .filter_map(|trial| trial.verified_bytes)
        .reduce(u64::saturating_add)?;
    Some(format!(
        "verified: {} checked and right",
        bytes_rounded(sum)
    ))
}

/// Remarks that hold for the whole table.
fn remarks(records: &[TransferRecord<'_>]) -> impl Iterator<Item = &'static str> {
    let yielding = records
        .iter()
        .any(|record| record.effective.iter().any(|ranks| ranks.yielding));
    let crowd = records.iter().any(|record| {
        let latency = record
            .body
            .summary
            .as_ref()
            .and_then(|summary| summary.latency.as_ref());
        matches!(record.body.point.pacing, Pacing::Batch { .. })
            && latency.is_some()
            && lanes(&record.body.point) > 1
    });
    let yielding = yielding.then_some("workers yield, because there are more of them than CPUs");
    let crowd = crowd.then_some(
        "Max BW is n/a: several lanes post batches at once, and the fastest batch of one says nothing about all",
    );
    yielding.into_iter().chain(crowd)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_layout_names_columns_that_exist() {
        for Layout { always, known } in [BATCH, STREAM, PING_PONG, PACED] {
            for field in always.iter().chain(known).chain([&FOOTPRINT]) {
                assert!(by_field(field).is_some(), "{field}");
            }
        }
    }

    #[test]
    fn medians_are_in_the_middle() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }
}
