//! Figures over size: bandwidth with interval, bound and published values, and latency percentiles.

use std::collections::BTreeSet;

use maud::{Markup, html};
use tonnage_record::figures::{Row, figure_by_field};
use tonnage_record::published::PublishedColumn;
use tonnage_report::layout::Section;
use tonnage_units::quantity::human::{bandwidth, duration, exact_size};

use super::axis::Axis;
use super::chart::{Chart, ChartLine, ChartMark, LINES_MAX, MarkStyle, StrokeStyle};
use super::groups::{PointGroup, value};
use super::numbers::Numbers;

/// Bandwidth figures, in order of preference.
const BANDWIDTHS: [&str; 3] = [
    "busbw_bytes_per_s_mean",
    "bandwidth_bytes_per_s_mean",
    "bandwidth_mib_per_s_mean",
];

/// Percentiles to draw, with their stroke styles.
const PERCENTILES: [(&str, &str, StrokeStyle); 3] = [
    ("latency_ns_p50", "p50", StrokeStyle::Solid),
    ("latency_ns_p99", "p99", StrokeStyle::Dashed),
    ("latency_ns_p999", "p99.9", StrokeStyle::Dotted),
];

/// Maximum number of groups in a percentile plot. Each group has three lines.
const PERCENTILE_LINES_MAX: usize = 4;

/// Whether there is more than one size.
pub(crate) fn has_sizes(groups: &[PointGroup<'_>]) -> bool {
    let points = groups.iter().flat_map(|group| &group.points);
    let sizes: BTreeSet<u64> = points.map(|(size, _)| size.to_bits()).collect();
    sizes.len() > 1
}

/// Bandwidth over size, if the section's tables show a bandwidth.
pub(crate) fn bandwidths(
    section: &Section,
    groups: &[PointGroup<'_>],
    numbers: &mut Numbers,
) -> Vec<Markup> {
    let Some(field) = shown_bandwidth(section) else {
        return Vec::new();
    };
    let plots = groups.chunks(LINES_MAX);
    plots
        .filter_map(|groups| bandwidth_plot(field, groups, numbers))
        .collect()
}

/// The bandwidth figure that the tables show.
fn shown_bandwidth(section: &Section) -> Option<&'static str> {
    let headers = section
        .tables
        .iter()
        .filter_map(|table| table.rows().into_iter().next());
    let headers: BTreeSet<String> = headers.flatten().map(|it| it.replace('\n', " ")).collect();
    let mut shown = BANDWIDTHS.iter().filter(|field| {
        let figure = figure_by_field(field);
        figure.is_some_and(|figure| headers.contains(figure.name))
    });
    // File tables print MiB/s; the plot uses the same value in bytes.
    let found = shown.next()?;
    match *found {
        "bandwidth_mib_per_s_mean" => Some("bandwidth_bytes_per_s_mean"),
        other => Some(other),
    }
}

fn bandwidth_plot(field: &str, groups: &[PointGroup<'_>], numbers: &mut Numbers) -> Option<Markup> {
    let mut lines: Vec<ChartLine> = Vec::new();
    for (look, group) in groups.iter().enumerate() {
        lines.push(measured(field, look, group));
        lines.push(bounds(look, group));
        lines.extend(published(field, look, group));
    }
    lines.retain(|line| !line.marks.is_empty());
    let is_bound = |line: &&ChartLine| line.stroke == StrokeStyle::Dashed;
    let values = lines.iter().filter(is_bound).flat_map(|line| &line.marks);
    let values: BTreeSet<u64> = values.map(|mark| mark.y.to_bits()).collect();
    if values.len() == 1 {
        keep_one_bound(&mut lines);
    }
    let mut note = match values.len() {
        0 => String::new(),
        1 => "Grey and dashed: the bound of all.".to_owned(),
        _ => "Dashed: the bound of the line with this colour.".to_owned(),
    };
    let mut marks = lines.iter().flat_map(|line| &line.marks);
    if marks.any(|mark| mark.interval.is_some()) {
        note = format!("Bars: 95 % confidence interval over the trials. {note}");
    }
    let title = format!("{} over the size", figure_by_field(field)?.name);
    chart(&title, ("GB/s", 1e-9), lines, &note, numbers)
}

fn measured(field: &str, look: usize, group: &PointGroup<'_>) -> ChartLine {
    let marks = group.points.iter().filter_map(|(size, row)| {
        let y = value(row, field)?;
        let half = value(row, "bandwidth_ci95_fraction").map(|part| part * y);
        let interval = half.map(|half| ((y - half).max(0.0), y + half));
        let words = interval.map_or_else(String::new, |(low, high)| {
            format!(" ({}…{})", bandwidth(low), bandwidth(high))
        });
        Some(ChartMark {
            x: *size,
            y,
            interval,
            text: format!("{}: {}{words}", exact_size(*size as u64), bandwidth(y)),
        })
    });
    ChartLine::measured(group.name.clone(), look, marks)
}

fn bounds(look: usize, group: &PointGroup<'_>) -> ChartLine {
    let marks = group.points.iter().filter_map(|(size, row)| {
        let y = value(row, "bound_bytes_per_s")?;
        Some(ChartMark::at(*size, y, String::new()))
    });
    ChartLine {
        name: None,
        look: Some(look),
        stroke: StrokeStyle::Dashed,
        mark_style: MarkStyle::Nothing,
        marks: marks.collect(),
    }
}

/// If all bounds are equal, replaces their lines by a single one that belongs to no group.
fn keep_one_bound(lines: &mut Vec<ChartLine>) {
    let longest = lines
        .iter()
        .filter(|line| line.stroke == StrokeStyle::Dashed);
    let longest = longest.max_by_key(|line| line.marks.len()).cloned();
    lines.retain(|line| line.stroke != StrokeStyle::Dashed);
    lines.extend(longest.map(|line| ChartLine {
        name: Some("bound".to_owned()),
        look: None,
        ..line
    }));
}

/// Published figures of the same points, one line per published table.
fn published(field: &str, look: usize, group: &PointGroup<'_>) -> Vec<ChartLine> {
    let mut lines: Vec<ChartLine> = Vec::new();
    for (size, row) in &group.points {
        for theirs in &row.record.published_rows {
            let cells = theirs.columns.iter().zip(&theirs.row);
            let mut values = cells.filter_map(|(header, cell)| {
                let column = PublishedColumn::from_header(header).ok()?;
                let is_ours = !column.is_key && column.figure.field == field;
                is_ours.then(|| cell.number().map(|number| number / column.factor))?
            });
            let Some(y) = values.next() else {
                continue;
            };
            let (at, value) = (exact_size(*size as u64), bandwidth(y));
            let mark = ChartMark::at(*size, y, format!("published at {at}: {value}"));
            let name = format!("published: {}", theirs.what);
            match lines
                .iter_mut()
                .find(|line| line.name.as_ref() == Some(&name))
            {
                Some(line) => line.marks.push(mark),
                None => lines.push(ChartLine {
                    name: Some(name),
                    look: Some(look),
                    stroke: StrokeStyle::Nothing,
                    mark_style: MarkStyle::Hollow,
                    marks: vec![mark],
                }),
            }
        }
    }
    lines
}

/// Latency percentiles over size.
pub(crate) fn percentiles(groups: &[PointGroup<'_>], numbers: &mut Numbers) -> Vec<Markup> {
    let plots = groups.chunks(PERCENTILE_LINES_MAX);
    let plots = plots.filter_map(|groups| {
        let lines = groups.iter().enumerate().flat_map(|(look, group)| {
            let of_group = PERCENTILES
                .iter()
                .map(move |percentile| percentile_line(percentile, look, group));
            of_group.filter(|line| !line.marks.is_empty())
        });
        let title = "Latency percentiles over the size";
        let note = "Solid: p50; dashed: p99; dotted: p99.9.";
        chart(title, ("us", 1e-3), lines.collect(), note, numbers)
    });
    plots.collect()
}

/// Tooltip with all percentiles of a point.
fn all_percentiles(size: f64, row: &Row<'_>) -> String {
    let known = PERCENTILES.iter().filter_map(|(field, name, _)| {
        let value = value(row, field)?;
        Some(format!("{name} {}", duration(value)))
    });
    let known: Vec<String> = known.collect();
    format!("{}: {}", exact_size(size as u64), known.join(", "))
}

fn percentile_line(
    (field, _, way): &(&str, &str, StrokeStyle),
    look: usize,
    group: &PointGroup<'_>,
) -> ChartLine {
    let marks = group.points.iter().filter_map(|(size, row)| {
        let text = match way {
            StrokeStyle::Solid => all_percentiles(*size, row),
            _ => String::new(),
        };
        Some(ChartMark::at(*size, value(row, field)?, text))
    });
    let line = ChartLine::measured(group.name.clone(), look, marks);
    match way {
        StrokeStyle::Solid => line,
        way => ChartLine {
            name: None,
            stroke: *way,
            mark_style: MarkStyle::Nothing,
            ..line
        },
    }
}

fn chart(
    title: &str,
    (unit, scale): (&str, f64),
    lines: Vec<ChartLine>,
    note: &str,
    numbers: &mut Numbers,
) -> Option<Markup> {
    let marks = || lines.iter().flat_map(|line| &line.marks);
    let sizes: Vec<f64> = marks().map(|mark| mark.x).collect();
    let ends =
        marks().flat_map(|mark| mark.interval.map_or([mark.y; 2], |(low, high)| [low, high]));
    // Cut off the interval's lower part, because an interval that reaches zero would stretch a logarithmic scale.
    let least = marks().map(|mark| mark.y).fold(f64::INFINITY, f64::min);
    let values: Vec<f64> = ends.map(|end| end.max(least / 2.0)).collect();
    if sizes.is_empty() {
        return None;
    }
    let named = lines.iter().filter_map(|line| line.name.as_deref());
    let description = format!(
        "{title}, sizes from {} to {}. Lines: {}. {note} The numbers are in the tables below.",
        exact_size(sizes.iter().copied().fold(f64::INFINITY, f64::min) as u64),
        exact_size(sizes.iter().copied().fold(0.0, f64::max) as u64),
        named.collect::<Vec<_>>().join("; ")
    );
    let chart = Chart {
        number: numbers.next(),
        title: title.to_owned(),
        description,
        x: Axis::of_sizes("Size", &sizes),
        y: Axis::of_amounts(unit, &values, scale),
        lines,
        spans: Vec::new(),
        note: note.to_owned(),
    };
    Some(chart.draw(html! {}))
}
