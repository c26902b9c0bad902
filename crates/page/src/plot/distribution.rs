//! Latency distributions of single points: percentiles on a scale that stretches the slow end, and histograms.

use maud::{Markup, html};
use tonnage_judge::keys::PointKeys;
use tonnage_record::Record;
use tonnage_record::figures::Row;
use tonnage_units::histogram::{LatencyHistogram, LowerBounds};
use tonnage_units::quantity::human::{at_least, duration, number, number_at_least, percent};

use super::axis::{Axis, AxisTick, bounds};
use super::chart::{Chart, ChartLine, ChartMark, LINES_MAX};
use super::numbers::Numbers;
use crate::findings::name;
use crate::tables;

/// Quantiles to draw, with labels. The last one is the maximum latency.
const QUANTILES: [(f64, &str); 9] = [
    (0.0, "min"),
    (0.25, "p25"),
    (0.5, "p50"),
    (0.75, "p75"),
    (0.9, "p90"),
    (0.99, "p99"),
    (0.999, "p99.9"),
    (0.9999, "p99.99"),
    (1.0, "max"),
];

/// Histogram bins per factor of ten.
const BINS_PER_DECADE: f64 = 8.0;

/// Position of the maximum on the quantile axis, where p99.99 is at 4.
const MAX_AT: f64 = 4.6;

/// Latencies of one point.
struct Point {
    name: String,
    latencies: LatencyHistogram,
    /// Exact minimum and maximum. The histogram keeps only three significant digits.
    extremes_ns: (u64, u64),
    bounds: Option<LowerBounds>,
}

/// Percentiles and histograms of the points of one configuration, or of a selection if there are many.
pub(crate) fn distributions(records: &[Record], numbers: &mut Numbers) -> Vec<Markup> {
    let rows: Vec<Row<'_>> = records.iter().flat_map(Row::all_of_record).collect();
    let with: Vec<&Row<'_>> = rows.iter().filter(|row| has_histogram(row)).collect();
    let chosen = evenly_spaced(with.len());
    let names = names(&chosen.iter().map(|&at| with[at]).collect::<Vec<_>>());
    let points = chosen.iter().zip(names);
    let points: Vec<Point> = points
        .filter_map(|(&at, name)| point(with[at], name))
        .collect();
    if points.is_empty() {
        return Vec::new();
    }
    let of = match points.len() == with.len() {
        true => String::new(),
        false => format!(" of {} of {} points", points.len(), with.len()),
    };
    vec![
        percentiles(&points, &of, numbers),
        histograms(&points, &of, numbers),
    ]
}

/// Selects evenly spaced indices, including the first and the last.
fn evenly_spaced(count: usize) -> Vec<usize> {
    match count <= LINES_MAX {
        true => (0..count).collect(),
        false => (0..LINES_MAX)
            .map(|at| at * (count - 1) / (LINES_MAX - 1))
            .collect(),
    }
}

fn has_histogram(row: &Row<'_>) -> bool {
    let body = row.record.body.any();
    body.histogram(row.part).is_some() && body.latency(row.part).is_some()
}

fn point(row: &Row<'_>, name: String) -> Option<Point> {
    let body = row.record.body.any();
    let latency = body.latency(row.part)?;
    Some(Point {
        name,
        latencies: body.histogram(row.part)?.to_histogram().ok()?,
        extremes_ns: (latency.latency_ns_min, latency.latency_ns_max),
        bounds: latency.lower_bounds,
    })
}

/// Names of points: the keys in which they differ, and the run if all keys are equal.
fn names(rows: &[&Row<'_>]) -> Vec<String> {
    let keys: Vec<PointKeys> = rows.iter().map(|row| PointKeys::from_row(row)).collect();
    let shared = keys.split_first().map(|(first, rest)| {
        let both = |shared: PointKeys, other: &PointKeys| shared.shared_with(other);
        rest.iter().fold(first.clone(), both)
    });
    let shared = shared.unwrap_or_default();
    let plain: Vec<String> = keys
        .iter()
        .zip(rows)
        .map(|(keys, row)| {
            let own = keys.iter().filter(|(key, _)| shared.get(key).is_none());
            // Drops keys that follow from the size, such as the footprint, because they would only repeat the size.
            let size = keys.get("size");
            let own = own.filter(|(key, value)| {
                *key == "size" || (*key != "footprint" && Some(*value) != size)
            });
            let own: Vec<String> = own.map(|(key, value)| format!("{key} {value}")).collect();
            match own.is_empty() {
                true => name(row.record),
                false => own.join(", "),
            }
        })
        .collect();
    let mut runs: Vec<&str> = Vec::new();
    let named = rows.iter().zip(&plain).map(|(row, one)| {
        let id = row.record.run_id.as_str();
        let at = runs.iter().position(|run| *run == id);
        let at = at.unwrap_or_else(|| {
            runs.push(id);
            runs.len() - 1
        });
        match plain.iter().filter(|other| *other == one).count() {
            0 | 1 => one.clone(),
            _ => format!("{one}, run {}", at + 1),
        }
    });
    named.collect()
}

impl Point {
    fn quantile_ns(&self, quantile: f64) -> f64 {
        let (least, most) = self.extremes_ns;
        let found = match quantile {
            it if it <= 0.0 => least,
            it if it >= 1.0 => most,
            it => self
                .latencies
                .quantile_ns(it)
                .unwrap_or(most)
                .clamp(least, most),
        };
        found as f64
    }

    /// Whether the latency at this quantile is only a lower bound.
    fn is_bound(&self, quantile: f64, ns: f64) -> bool {
        self.bounds.is_some_and(|bounds| match quantile {
            it if it <= 0.0 => false,
            it if it >= 1.0 => bounds.has_extremes(),
            _ => bounds.has_percentile(ns as u64),
        })
    }
}

/// Position of a quantile. Equal distances separate p90, p99, p99.9 and p99.99.
fn quantile_position(quantile: f64) -> f64 {
    match quantile >= 1.0 {
        true => MAX_AT,
        false => -(1.0 - quantile).log10(),
    }
}

fn percentiles(points: &[Point], of: &str, numbers: &mut Numbers) -> Markup {
    let line = |(look, point): (usize, &Point)| {
        let marks = QUANTILES.map(|(quantile, label)| {
            let y = point.quantile_ns(quantile);
            let shown = at_least(duration(y), point.is_bound(quantile, y));
            ChartMark::at(quantile_position(quantile), y, format!("{label}: {shown}"))
        });
        ChartLine::measured(point.name.clone(), look, marks)
    };
    let lines: Vec<ChartLine> = points.iter().enumerate().map(line).collect();
    let values: Vec<f64> = lines
        .iter()
        .flat_map(|line| &line.marks)
        .map(|mark| mark.y)
        .collect();
    let ticks = QUANTILES.map(|(quantile, label)| AxisTick {
        value: quantile_position(quantile),
        label: label.to_owned(),
    });
    let ticks = ticks
        .into_iter()
        .filter(|tick| !["p25", "p75"].contains(&tick.label.as_str()));
    let header = std::iter::once("Point (us)").chain(QUANTILES.map(|(_, label)| label));
    let header = header.map(str::to_owned).collect();
    let rows = lines.iter().zip(points).map(|(line, point)| {
        let marks = line.marks.iter().zip(QUANTILES);
        let cells = marks.map(|(mark, (quantile, _))| {
            number_at_least(mark.y / 1e3, point.is_bound(quantile, mark.y))
        });
        line.name.iter().cloned().chain(cells).collect()
    });
    let table: Vec<Vec<String>> = std::iter::once(header).chain(rows).collect();
    let title = format!("Latency percentiles{of}");
    let chart = Chart {
        number: numbers.next(),
        description: format!(
            "{title}: the latency that a part of the samples does not exceed, from the smallest to the \
             largest. The numbers are in the table below."
        ),
        title,
        x: Axis::with_ticks("Part of the samples", 0.0, MAX_AT, ticks.collect()),
        y: Axis::of_amounts("us", &values, 1e-3),
        lines,
        spans: Vec::new(),
        note: String::new(),
    };
    chart.draw(tables::rows(&table, |at| at > 0))
}

fn histograms(points: &[Point], of: &str, numbers: &mut Numbers) -> Markup {
    let ends = |point: &Point| [0.0, 1.0].map(|quantile| point.quantile_ns(quantile).max(1.0));
    let ends: Vec<f64> = points.iter().flat_map(ends).collect();
    let (low, high) = bounds(&ends).unwrap_or((1.0, 10.0));
    let bin = |ns: f64| (ns.max(1.0).log10() * BINS_PER_DECADE).floor() as i32;
    let bins: Vec<i32> = (bin(low)..=bin(high)).collect();
    let fractions: Vec<Vec<f64>> = points
        .iter()
        .map(|point| fractions(point, &bins, &bin))
        .collect();
    let lines = points.iter().zip(&fractions).enumerate();
    let lines = lines.map(|(look, (point, parts))| histogram_line(look, point, &bins, parts));
    let most = fractions.iter().flatten().copied().fold(0.0, f64::max);
    let table = histogram_table(points, &bins, &fractions);
    let title = format!("Latency histogram{of}");
    let chart = Chart {
        number: numbers.next(),
        description: format!(
            "{title}: part of the samples in each range of latencies; eight ranges for each factor of \
             ten. The numbers are in the table below."
        ),
        title,
        x: Axis::log("us", begin_ns(bin(low)), begin_ns(bin(high) + 1), 1e-3),
        y: Axis::linear("% of samples", 0.0, most * 1.05, 100.0),
        lines: lines.collect(),
        spans: Vec::new(),
        note: String::new(),
    };
    chart.draw(html! {
        details open class="numbers" { summary { "Numbers of this histogram" } (tables::rows(&table, |_| true)) }
    })
}

/// Lower end of a bin.
fn begin_ns(bin: i32) -> f64 {
    10f64.powf(f64::from(bin) / BINS_PER_DECADE)
}

/// Histogram line of one point.
fn histogram_line(look: usize, point: &Point, bins: &[i32], fractions: &[f64]) -> ChartLine {
    // Drops the empty bins at both ends. One empty bin per side stays, so that the line visibly falls to zero.
    let filled = |part: &f64| *part > 0.0;
    let first = fractions.iter().position(filled).unwrap_or(0);
    let last = fractions.iter().rposition(filled).unwrap_or(0);
    let shown = first.saturating_sub(1)..=(last + 1).min(fractions.len() - 1);
    let steps = bins[shown.clone()].iter().zip(&fractions[shown]);
    let marks = steps.map(|(&at, &part)| {
        let (begin, end) = (begin_ns(at), begin_ns(at + 1));
        let text = format!(
            "{} to {}: {}",
            duration(begin),
            duration(end),
            percent(part)
        );
        ChartMark::at((begin * end).sqrt(), part, text)
    });
    ChartLine::measured(point.name.clone(), look, marks)
}

/// Bins with samples from any point, with the fraction for each point.
fn histogram_table(points: &[Point], bins: &[i32], fractions: &[Vec<f64>]) -> Vec<Vec<String>> {
    let header = ["From", "To"].map(str::to_owned).into_iter();
    let header = header.chain(points.iter().map(|point| format!("{} (%)", point.name)));
    let filled = bins
        .iter()
        .enumerate()
        .filter(|(at, _)| fractions.iter().any(|it| it[*at] > 0.0));
    let rows = filled.map(|(at, &bin)| {
        let ends = [begin_ns(bin), begin_ns(bin + 1)].map(duration).into_iter();
        let parts = fractions.iter().map(|parts| match parts[at] > 0.0 {
            true => number(parts[at] * 100.0),
            false => String::new(),
        });
        ends.chain(parts).collect()
    });
    std::iter::once(header.collect()).chain(rows).collect()
}

/// Fraction of samples per bin.
fn fractions(point: &Point, bins: &[i32], bin: &dyn Fn(f64) -> i32) -> Vec<f64> {
    let first = bins.first().copied().unwrap_or(0);
    let mut counts = vec![0u64; bins.len()];
    for (value_ns, count) in point.latencies.recorded_bins() {
        let exact = value_ns.clamp(point.extremes_ns.0, point.extremes_ns.1);
        let at = usize::try_from(bin(exact as f64) - first).unwrap_or(0);
        if let Some(known) = counts.get_mut(at) {
            *known += count;
        }
    }
    let all = counts.iter().sum::<u64>().max(1) as f64;
    counts.iter().map(|count| *count as f64 / all).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_points_the_first_and_the_last_are_drawn() {
        assert_eq!(evenly_spaced(3), [0, 1, 2]);
        let some = evenly_spaced(100);
        assert_eq!(
            (some.len(), some[0], some[LINES_MAX - 1]),
            (LINES_MAX, 0, 99)
        );
        assert!(evenly_spaced(0).is_empty());
    }

    #[test]
    fn quantiles_are_positioned_by_the_fraction_above() {
        let near = |quantile: f64, place: f64| (quantile_position(quantile) - place).abs() < 1e-9;
        assert!(near(0.0, 0.0) && near(0.9, 1.0) && near(0.999, 3.0));
        assert_eq!(quantile_position(1.0), MAX_AT);
    }
}
