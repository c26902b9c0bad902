//! Draws the ratios of a comparison. Each point is a row with its interval and verdict; the background shows the
//! margin.

use maud::{Markup, html};
use tonnage_judge::compare::Comparison;
use tonnage_judge::criteria::PointVerdict;
use tonnage_judge::judging::{PointJudgement, SideRatio};
use tonnage_record::figures::figure_by_field;
use tonnage_units::quantity::human::number;

use super::axis::{Axis, bounds};
use super::chart::{GREY, WIDTH, cut, figure, px};
use super::numbers::Numbers;

/// Maximum number of rows per plot. Further rows go into another plot.
const ROWS_MAX: usize = 40;

const ROW: f64 = 24.0;
const LEFT: f64 = 300.0;
const RIGHT: f64 = 770.0;
const TOP: f64 = 40.0;

/// Maximum length of a point name, in characters.
const NAME_CHARS_MAX: usize = 40;

/// Shape and colour of a verdict.
fn shape_and_colour(verdict: PointVerdict) -> (&'static str, &'static str) {
    match verdict {
        PointVerdict::Worse => ("m0 5l5-9h-10z", "#cf4039"),
        PointVerdict::Better => ("m0-5l5 9h-10z", "#258a4b"),
        PointVerdict::Same => ("m-4-4h8v8h-8z", "#2f7ad1"),
        _ => ("m0-5l5 5l-5 5l-5-5z", GREY),
    }
}

/// Plots of all points with a ratio. `labels` are the names of all points.
pub(crate) fn ratios(
    comparison: &Comparison,
    labels: &[String],
    numbers: &mut Numbers,
) -> Vec<Markup> {
    let points = comparison.points.iter().zip(labels);
    let points = points.filter_map(|(judged, label)| Some((judged, label.as_str(), judged.ratio?)));
    let points: Vec<(&PointJudgement, &str, SideRatio)> = points.collect();
    let (least, most) = comparison.criteria.log_margins();
    let margins = [least.exp(), most.exp()];
    let plots = points.chunks(ROWS_MAX);
    plots.map(|points| plot(points, margins, numbers)).collect()
}

fn plot(
    points: &[(&PointJudgement, &str, SideRatio)],
    margins: [f64; 2],
    numbers: &mut Numbers,
) -> Markup {
    let ends = points
        .iter()
        .flat_map(|(_, _, ratio)| [ratio.low, ratio.value, ratio.high]);
    // Intervals from few runs can be very wide, so their ends are clamped.
    let ends: Vec<f64> = ends
        .chain(margins)
        .map(|end| end.clamp(0.05, 20.0))
        .collect();
    let (low, high) = bounds(&ends).unwrap_or((0.5, 2.0));
    let axis = Axis::log("ratio B / A", low, high, 1.0).between(LEFT, RIGHT);
    let bottom = TOP + ROW * points.len() as f64;
    let inside = html! {
        rect class="margin" x=(px(axis.place(margins[0]))) y=(px(TOP))
            width=(px(axis.place(margins[1]) - axis.place(margins[0]))) height=(px(bottom - TOP))
            fill=(GREY) fill-opacity=".2" {}
        g class="x" {
            @for tick in &axis.ticks {
                @let x = px(axis.place(tick.value));
                path d={ "M" (x) " " (px(TOP)) "V" (px(bottom)) } stroke=(GREY) stroke-opacity=".3" {}
                text x=(x) y=(px(TOP - 6.0)) text-anchor="middle" data-at=(tick.value) { (tick.label) }
            }
        }
        text x=(px(f64::midpoint(LEFT, RIGHT))) y="14" text-anchor="middle" { (axis.title) "; the margin is grey" }
        path d={ "M" (px(axis.place(1.0))) " " (px(TOP)) "V" (px(bottom)) } stroke=(GREY) {}
        @for (at, (judged, label, ratio)) in points.iter().enumerate() {
            (row(judged, label, ratio, &axis, TOP + ROW * (at as f64 + 0.5)))
        }
    };
    let mut verdicts = points.iter().map(|(judged, label, ratio)| {
        format!("{label}: {} at {}", word(judged), number(ratio.value))
    });
    let some: Vec<String> = verdicts.by_ref().take(10).collect();
    let more = match verdicts.count() {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    let title = "Ratios B / A with their intervals";
    let description = format!(
        "{title}. {}{more}. The numbers are in the table below.",
        some.join("; ")
    );
    figure(
        numbers.next(),
        title,
        &description,
        (WIDTH, bottom + 10.0),
        &inside,
        &html! {},
    )
}

fn word(judged: &PointJudgement) -> String {
    judged.verdict.name().replace('-', " ")
}

fn row(judged: &PointJudgement, label: &str, ratio: &SideRatio, axis: &Axis, y: f64) -> Markup {
    let (shape, colour) = shape_and_colour(judged.verdict);
    let metric = judged
        .field
        .and_then(figure_by_field)
        .map_or("", |figure| figure.name);
    let name: String = match label.is_empty() {
        true => metric.to_owned(),
        false => label.chars().take(NAME_CHARS_MAX).collect(),
    };
    let words = format!(
        "{label} {metric}: {} ({}…{}), {}",
        number(ratio.value),
        number(ratio.low),
        number(ratio.high),
        word(judged)
    );
    let text = px(y);
    html! {
        text x=(px(LEFT - 10.0)) y=(text) dy="4" text-anchor="end" { (cut(&name)) }
        g stroke=(colour) fill=(colour) {
            path d={ "M" (px(axis.place(ratio.low))) " " (text) "H" (px(axis.place(ratio.high))) } stroke-width="2" {}
            path class="ratio" d={ "M" (px(axis.place(ratio.value))) " " (text) (shape) } data-v=(words) {}
        }
        text x=(px(RIGHT + 10.0)) y=(text) dy="4" { (word(judged)) }
    }
}
