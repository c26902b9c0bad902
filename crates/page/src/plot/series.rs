//! Draws rates over time, with standstills, for trials that were divided into intervals.

use maud::{Markup, html};
use tonnage_record::Record;
use tonnage_record::transfer::TrialSeries;
use tonnage_units::quantity::human::{number, prefixed};

use super::axis::Axis;
use super::chart::{Chart, ChartLine, ChartMark};
use super::numbers::Numbers;
use crate::findings::name;
use crate::tables;

/// Maximum number of trials to draw per configuration.
const TRIALS_DRAWN_MAX: usize = 32;

/// Maximum number of standstills to mark and list.
const STANDSTILLS_MAX: usize = 64;

/// Maximum number of clients that get a line of their own.
const CLIENTS_DRAWN_MAX: usize = 7;

/// Plots of all recorded series, including the series of a trial that failed midway.
pub(crate) fn series(records: &[Record], numbers: &mut Numbers) -> Vec<Markup> {
    let mut drawn: Vec<Markup> = Vec::new();
    let mut left_out = 0;
    for record in records {
        let Some(body) = record.transfer() else {
            continue;
        };
        let trials = body.trials.iter().zip(1u64..);
        let ended = trials
            .filter_map(|(trial, at)| Some((trial.series.as_ref()?, trial.window_ns, at, "")));
        let broken = body.broken_off.iter();
        let broken = broken.map(|it| (&it.series, 0, it.trial, ", until the point failed"));
        for (series, window_ns, trial, until) in ended.chain(broken) {
            if drawn.len() == TRIALS_DRAWN_MAX {
                left_out += 1;
                continue;
            }
            let title = format!("Rate over time: {}, trial {trial}{until}", name(record));
            drawn.push(one(&title, series, window_ns, numbers));
        }
    }
    if left_out > 0 {
        drawn.push(html! { p { (left_out) " more series are in the records and are not drawn." } });
    }
    drawn
}

/// Draws one series. A `window_ns` of 0 means unknown.
fn one(title: &str, series: &TrialSeries, window_ns: u64, numbers: &mut Numbers) -> Markup {
    let seconds = |ns: u64| ns as f64 / 1e9;
    let begins: Vec<u64> = (0..series.operations.len() as u64)
        .map(|at| at * series.interval_ns)
        .collect();
    let lengths: Vec<u64> = (0..begins.len())
        .map(|at| series.length_ns(at, window_ns))
        .collect();
    let lines = lines(series, &begins, &lengths);
    let end = begins
        .last()
        .zip(lengths.last())
        .map_or(1.0, |(begin, length)| seconds(begin + length));
    let values: Vec<f64> = lines
        .iter()
        .flat_map(|line| &line.marks)
        .map(|mark| mark.y)
        .collect();
    let most = values.iter().copied().fold(0.0, f64::max);
    let (spans, stalls) = standstills(series);
    let (unit, scale) = match most {
        1e6.. => ("million op/s", 1e-6),
        1e3.. => ("thousand op/s", 1e-3),
        _ => ("op/s", 1.0),
    };
    let chart = Chart {
        number: numbers.next(),
        title: title.to_owned(),
        description: format!(
            "{title}. {} intervals, up to {} op/s. {} The numbers are in the table below.",
            begins.len(),
            prefixed(most),
            match stalls.len() {
                0 => "Nothing stood still.".to_owned(),
                count => format!("{count} standstills, which crosses mark."),
            }
        ),
        x: Axis::linear("s", 0.0, end, 1.0),
        y: Axis::linear(unit, 0.0, most * 1.05, scale),
        lines,
        spans,
        note: String::new(),
    };
    chart.draw(html! {
        @if !stalls.is_empty() { ul { @for stall in &stalls { li { (stall) } } } }
        details open class="numbers" {
            summary { "Numbers of this series" }
            (tables::rows(&table(series, &begins, &lengths), |_| true))
        }
    })
}

/// A line for all clients together, and one for each of the first `CLIENTS_DRAWN_MAX` clients.
fn lines(series: &TrialSeries, begins: &[u64], lengths: &[u64]) -> Vec<ChartLine> {
    let line = |name: String, look: usize, operations: &[u64]| {
        let each = operations.iter().zip(begins.iter().zip(lengths));
        let marks = each.map(|(&count, (&begin_ns, &length_ns))| {
            let y = count as f64 * 1e9 / length_ns as f64;
            let middle_ns = begin_ns + length_ns / 2;
            let text = format!("{:.2} s: {} op/s", begin_ns as f64 / 1e9, prefixed(y));
            ChartMark::at(middle_ns as f64 / 1e9, y, text)
        });
        ChartLine::measured(name, look, marks)
    };
    let all = line("all clients together".to_owned(), 0, &series.operations);
    let alone = series.clients.len() <= 1;
    let clients = series
        .clients
        .iter()
        .take(if alone { 0 } else { CLIENTS_DRAWN_MAX });
    let clients = clients.zip(1..);
    let clients = clients.map(|(client, look)| {
        let name = format!("rank {}", client.rank);
        line(name, look, &client.operations)
    });
    std::iter::once(all).chain(clients).collect()
}

/// Time spans in which a client moved nothing, and a sentence about each.
fn standstills(series: &TrialSeries) -> (Vec<(f64, f64, String)>, Vec<String>) {
    let words = |it: &tonnage_record::transfer::Standstill| {
        let (begin, end) = (it.begin_ns as f64 / 1e9, it.end_ns as f64 / 1e9);
        format!(
            "rank {} moved nothing from {begin:.2} to {end:.2} s",
            it.rank
        )
    };
    let some = || series.standstills.iter().take(STANDSTILLS_MAX);
    let spans = some().map(|it| (it.begin_ns as f64 / 1e9, it.end_ns as f64 / 1e9, words(it)));
    let mut sentences: Vec<String> = some().map(words).collect();
    let more = (series.standstills.len() - sentences.len()) as u64 + series.more_standstills;
    if more > 0 {
        sentences.push(format!(
            "and {more} more standstills, which are in the record"
        ));
    }
    (spans.collect(), sentences)
}

fn table(series: &TrialSeries, begins: &[u64], lengths: &[u64]) -> Vec<Vec<String>> {
    let has_latencies = !series.latencies.is_empty();
    let mut header = vec![
        "From (s)".to_owned(),
        "Operations".to_owned(),
        "Rate (op/s)".to_owned(),
    ];
    if has_latencies {
        header.extend(["p50 (us)", "p99 (us)", "Max Lat (us)"].map(str::to_owned));
    }
    header.extend(
        series
            .clients
            .iter()
            .map(|client| format!("Rank {}", client.rank)),
    );
    let line = |at: usize| {
        let operations = series.operations[at];
        let rate = operations as f64 * 1e9 / lengths[at] as f64;
        let begin = format!("{:.3}", begins[at] as f64 / 1e9);
        let mut cells = vec![begin, operations.to_string(), number(rate)];
        if has_latencies {
            let latency = series.latencies.get(at).copied().unwrap_or_default();
            cells.extend(latency.shown_us().map(|us| match latency.samples {
                0 => String::new(),
                _ => us,
            }));
        }
        let clients = series.clients.iter();
        cells.extend(clients.map(|client| {
            client
                .operations
                .get(at)
                .map_or_else(String::new, u64::to_string)
        }));
        cells
    };
    std::iter::once(header)
        .chain((0..begins.len()).map(line))
        .collect()
}
