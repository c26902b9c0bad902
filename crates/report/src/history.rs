//! Reports a history: one line per run of a point, with changes marked.

use jiff::Timestamp;
use tonnage_judge::baseline::unit_of;
use tonnage_judge::check::reason::with_unit;
use tonnage_judge::history::{HistoryChange, PointHistory};
use tonnage_judge::metric::Metric;
use tonnage_judge::surroundings::Difference;
use tonnage_record::Record;
use tonnage_units::quantity::human::{at_least, number, percent};
use tonnage_units::{Error, Result, names};

use crate::baseline::point_namer;
use crate::csv::{harmless, line};
use crate::result::{ReportResult, ResultWord};
use crate::text::{WIDTH, counted, wrap};

/// Width of the longest bar.
const BAR_COLUMNS: usize = 30;

/// Maximum number of differences to list at a change.
const DIFFERENCES_MAX: usize = 6;

/// Maximum length of a difference's value.
const VALUE_CHARS_MAX: usize = 40;

names! {
    /// Formats of a history.
    pub enum HistoryFormat: "format" {
        /// Plain-text lines.
        Table = "table",
        /// One JSON array.
        Json = "json",
        /// A header line, and one row per run of each point.
        Csv = "csv",
    }
}

/// Draws the histories of points whose names contain one of the texts in `only`, or of all points if `only` is empty.
///
/// # Errors
/// `Usage` if no name matches, and an error if JSON serialization fails.
pub fn render(
    format: HistoryFormat,
    histories: &[PointHistory],
    records: &[Record],
    only: &[String],
) -> Result<String> {
    let all: Vec<&Record> = records.iter().collect();
    let name_of = point_namer(&all);
    let named = histories
        .iter()
        .map(|history| (name_of(&history.keys), history));
    let shown: Vec<(String, &PointHistory)> = named
        .filter(|(name, _)| only.is_empty() || only.iter().any(|text| name.contains(text.as_str())))
        .collect();
    if shown.is_empty() {
        return Err(Error::Usage(format!(
            "--only {}: no point name matches; the first is {}",
            only.join(","),
            histories
                .first()
                .map(|history| name_of(&history.keys))
                .unwrap_or_default()
        )));
    }
    match format {
        HistoryFormat::Table => Ok(page(&shown)),
        HistoryFormat::Json => {
            let histories: Vec<&PointHistory> = shown.iter().map(|(_, history)| *history).collect();
            let text = serde_json::to_string_pretty(&histories);
            text.map(|text| text + "\n")
                .map_err(|error| Error::Failed(format!("the history has no JSON form: {error}")))
        }
        HistoryFormat::Csv => Ok(rows(&shown)),
    }
}

fn page(shown: &[(String, &PointHistory)]) -> String {
    let all = shown.iter().map(|(name, history)| one(name, history));
    let result = result(shown).plain(WIDTH) + "\n";
    std::iter::once(result)
        .chain(all)
        .collect::<Vec<_>>()
        .join("\n")
}

/// The number of changes, and the largest change.
fn result(shown: &[(String, &PointHistory)]) -> ReportResult {
    let changes = shown.iter().flat_map(|(name, history)| {
        let changes = history.changes.iter();
        changes.map(move |change| (name, *history, change))
    });
    let changes: Vec<(&String, &PointHistory, &HistoryChange)> = changes.collect();
    let total = format!(
        "{} in {}",
        counted(changes.len() as u64, "change"),
        counted(shown.len() as u64, "point")
    );
    let distance = |change: &HistoryChange| change.ratio.ln().abs();
    let largest = changes
        .iter()
        .max_by(|left, right| distance(left.2).total_cmp(&distance(right.2)));
    ResultWord::Result.with(match largest {
        None => total,
        Some((name, history, change)) => format!(
            "{total}; the largest: {name} on {}, {} is {} of the earlier value from {} on",
            history.hosts,
            history.metric,
            percent(change.ratio),
            history
                .runs
                .get(change.at)
                .map_or_else(String::new, |run| time(run.time_unix_ns))
        ),
    })
}

fn one(name: &str, history: &PointHistory) -> String {
    let unit = history.metric.parse::<Metric>();
    let unit = unit.as_ref().map_or("", unit_of);
    let mut text = format!("{name} on {}: {}\n", history.hosts, history.metric);
    let values = history.runs.iter().map(|run| run.value);
    let most = values.fold(0.0, f64::max);
    for (at, run) in history.runs.iter().enumerate() {
        if let Some(change) = history.changes.iter().find(|change| change.at == at) {
            text += &changed(change);
        }
        let bar = "#".repeat(((run.value / most) * BAR_COLUMNS as f64).round() as usize);
        let remark = match run.canary_changed {
            true => "  (the canary changed: not judged)",
            false => "",
        };
        text += &format!(
            "  {}  {:>14}  {bar}{remark}\n",
            time(run.time_unix_ns),
            at_least(with_unit(unit, run.value), run.is_lower_bound)
        );
    }
    text
}

fn changed(change: &HistoryChange) -> String {
    let shown: Vec<String> = change
        .differences
        .iter()
        .take(DIFFERENCES_MAX)
        .map(difference)
        .collect();
    let more = match change.differences.len().saturating_sub(DIFFERENCES_MAX) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    let then = match shown.is_empty() {
        true => "nothing else in the records changed then".to_owned(),
        false => shown.join("; ") + &more,
    };
    let words = format!(
        "* from here on {} of the earlier value ({}): {then}",
        number(change.ratio),
        percent(change.ratio - 1.0)
    );
    wrap(&words, WIDTH, 4) + "\n"
}

fn difference(difference: &Difference) -> String {
    let value = |values: &[String]| {
        let text = match values.is_empty() {
            true => "-".to_owned(),
            false => values.join(" "),
        };
        match text.char_indices().nth(VALUE_CHARS_MAX) {
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text,
        }
    };
    format!(
        "{} {} -> {}",
        difference.key,
        value(&difference.a),
        value(&difference.b)
    )
}

/// Formats a time in UTC, to the second.
fn time(unix_ns: u64) -> String {
    let time = Timestamp::from_nanosecond(i128::from(unix_ns));
    time.map_or_else(
        |_| "unknown".to_owned(),
        |time| time.strftime("%Y-%m-%d %H:%M:%S").to_string(),
    )
}

fn rows(shown: &[(String, &PointHistory)]) -> String {
    let head = [
        "point",
        "hosts",
        "metric",
        "field",
        "run_id",
        "time_unix_ns",
        "value",
        "lower_bound",
        "changed",
        "ratio_to_before",
        "canary_changed",
    ];
    let mut text = line(head.iter().map(|&name| name.to_owned()));
    for (name, history) in shown {
        for (at, run) in history.runs.iter().enumerate() {
            let change = history.changes.iter().find(|change| change.at == at);
            let ratio = change
                .map(|change| change.ratio.to_string())
                .unwrap_or_default();
            let cells = [
                harmless(name.clone()),
                harmless(history.hosts.clone()),
                history.metric.to_owned(),
                history.field.to_owned(),
                harmless(run.run_id.clone()),
                run.time_unix_ns.to_string(),
                run.value.to_string(),
                if run.is_lower_bound { "yes" } else { "no" }.to_owned(),
                if change.is_some() { "yes" } else { "no" }.to_owned(),
                ratio,
                if run.canary_changed { "yes" } else { "no" }.to_owned(),
            ];
            text += &line(cells.into_iter());
        }
    }
    text
}
