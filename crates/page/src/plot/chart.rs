//! A line plot as SVG. Lines differ by mark shape and dashes as well as colour. Formatting uses attributes, not styles.

use maud::{Markup, html};

use super::axis::Axis;
use crate::bidi::without_direction_marks;

/// Width of a plot. Its height depends on the legend.
pub(crate) const WIDTH: f64 = 920.0;
const HEIGHT: f64 = 346.0;
pub(crate) const LEFT: f64 = 66.0;
pub(crate) const RIGHT: f64 = 904.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 292.0;

/// Distinguishable colours with a contrast of at least 3:1 to both white and black.
const COLOURS: [&str; 8] = [
    "#2f7ad1", "#c25e00", "#258a4b", "#9257c9", "#cf4039", "#0f838f", "#7c7800", "#bf4590",
];

/// Colour of elements that belong to no line.
pub(crate) const GREY: &str = "#7a7f87";

/// Maximum length of a name in the legend, in characters.
const NAME_CHARS_MAX: usize = 110;

/// Maximum number of lines per plot.
pub(crate) const LINES_MAX: usize = 8;

/// Stroke style between the marks of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StrokeStyle {
    Solid,
    Dashed,
    Dotted,
    /// No stroke: only marks.
    Nothing,
}

/// Style of the marks of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MarkStyle {
    /// Filled marks with tooltips.
    Filled,
    /// Outlined marks with tooltips.
    Hollow,
    /// No marks, unless the line has a single mark and would otherwise be invisible.
    Nothing,
}

#[derive(Debug, Clone)]
pub(crate) struct ChartLine {
    /// Name in the legend; `None` if the legend entry of another line stands for this line too.
    pub(crate) name: Option<String>,
    /// Index of the line's colour and mark shape; `None` for a grey line without marks.
    pub(crate) look: Option<usize>,
    pub(crate) stroke: StrokeStyle,
    pub(crate) mark_style: MarkStyle,
    pub(crate) marks: Vec<ChartMark>,
}

#[derive(Debug, Clone)]
pub(crate) struct ChartMark {
    /// Value on the horizontal axis.
    pub(crate) x: f64,
    /// Value on the vertical axis.
    pub(crate) y: f64,
    /// Confidence interval on the vertical axis.
    pub(crate) interval: Option<(f64, f64)>,
    /// Tooltip.
    pub(crate) text: String,
}

#[derive(Debug)]
pub(crate) struct Chart {
    /// Number of the plot on its page.
    pub(crate) number: usize,
    pub(crate) title: String,
    /// Description for screen readers.
    pub(crate) description: String,
    /// Horizontal axis.
    pub(crate) x: Axis,
    /// Vertical axis.
    pub(crate) y: Axis,
    pub(crate) lines: Vec<ChartLine>,
    /// Spans of the horizontal axis without progress, with tooltips.
    pub(crate) spans: Vec<(f64, f64, String)>,
    /// Note below the legend, e.g. on stroke styles.
    pub(crate) note: String,
}

/// Height of a legend entry.
const ENTRY: f64 = 19.0;

/// Longest name, in characters, for which the legend shows two entries per row.
const NAME_CHARS_BESIDE_MAX: usize = 52;

impl Chart {
    /// Draws the plot. `below` is placed under it in the same figure.
    pub(crate) fn draw(mut self, below: Markup) -> Markup {
        self.x = self.x.between(LEFT, RIGHT);
        self.y = self.y.between(BOTTOM, TOP);
        let legend: Vec<&ChartLine> = self
            .lines
            .iter()
            .filter(|line| line.name.is_some())
            .collect();
        let is_short = |line: &&ChartLine| {
            let name = line.name.as_deref().unwrap_or_default();
            name.chars().count() <= NAME_CHARS_BESIDE_MAX
        };
        let columns = if legend.iter().all(is_short) { 2 } else { 1 };
        let noted = HEIGHT + 4.0 + ENTRY * legend.len().div_ceil(columns) as f64;
        let height = noted + if self.note.is_empty() { 0.0 } else { ENTRY };
        let place = |at: usize| {
            let column = (at % columns) as f64;
            (
                LEFT + column * (RIGHT - LEFT) / 2.0,
                HEIGHT + 4.0 + ENTRY * (at / columns) as f64,
            )
        };
        let inside = html! {
            (self.frame())
            @for (begin, end, words) in &self.spans { (self.span(*begin, *end, words)) }
            @for line in &self.lines { (self.line(line)) }
            @for (at, line) in legend.iter().enumerate() { (legend_entry(line, place(at))) }
            @if !self.note.is_empty() { text x=(px(LEFT)) y=(px(noted)) dy="4" { (self.note) } }
        };
        figure(
            self.number,
            &self.title,
            &self.description,
            (WIDTH, height),
            &inside,
            &below,
        )
    }

    /// Axes, ticks and their titles.
    fn frame(&self) -> Markup {
        let middle = f64::midpoint(TOP, BOTTOM);
        html! {
            g class="x" {
                @for tick in &self.x.ticks {
                    @let x = px(self.x.place(tick.value));
                    path d={ "M" (x) " " (px(TOP)) "V" (px(BOTTOM)) } stroke=(GREY) stroke-opacity=".3" {}
                    text x=(x) y=(px(BOTTOM + 17.0)) text-anchor="middle" data-at=(tick.value) { (tick.label) }
                }
                text x=(px(f64::midpoint(LEFT, RIGHT))) y=(px(BOTTOM + 36.0)) text-anchor="middle" { (self.x.title) }
            }
            g class="y" {
                @for tick in &self.y.ticks {
                    @let y = px(self.y.place(tick.value));
                    path d={ "M" (px(LEFT)) " " (y) "H" (px(RIGHT)) } stroke=(GREY) stroke-opacity=".3" {}
                    text x=(px(LEFT - 7.0)) y=(y) dy="4" text-anchor="end" data-at=(tick.value) { (tick.label) }
                }
                text transform={ "translate(14 " (px(middle)) ") rotate(-90)" } text-anchor="middle" { (self.y.title) }
            }
            path d={ "M" (px(LEFT)) " " (px(TOP)) "V" (px(BOTTOM)) "H" (px(RIGHT)) } fill="none" stroke=(GREY) {}
        }
    }

    fn span(&self, begin: f64, end: f64, words: &str) -> Markup {
        let (from, to) = (self.x.place(begin), self.x.place(end));
        let middle = f64::midpoint(from, to);
        html! {
            g class="stall" data-v=(words) {
                rect x=(px(from)) y=(px(TOP)) width=(px((to - from).max(1.0))) height=(px(BOTTOM - TOP))
                    fill="#cf4039" fill-opacity=".22" {}
                path d={ "M" (px(middle - 4.0)) " " (px(TOP + 2.0)) "l8 8m0-8l-8 8" }
                    stroke="#cf4039" stroke-width="2" {}
            }
        }
    }

    fn line(&self, line: &ChartLine) -> Markup {
        let places: Vec<(f64, f64)> = line
            .marks
            .iter()
            .map(|mark| (self.x.place(mark.x), self.y.place(mark.y)))
            .collect();
        let intervals = line.marks.iter().zip(&places);
        let intervals = intervals.filter_map(|(mark, (x, _))| {
            let (low, high) = mark.interval?;
            let (low, high) = (self.y.place(low), self.y.place(high));
            // An error bar: a vertical line with a cap at each end.
            let x = px(*x);
            Some(format!(
                "M{x} {}V{}m-3 0h6M{x} {}m-3 0h6",
                px(low),
                px(high),
                px(low)
            ))
        });
        let intervals: String = intervals.collect();
        html! {
            g class="line" stroke=(line.colour()) fill=(line.colour()) {
                @if line.stroke != StrokeStyle::Nothing && places.len() > 1 {
                    path d=(path(&places)) fill="none" stroke-width="1.6" stroke-dasharray=[line.stroke.dashes()] {}
                }
                @if !intervals.is_empty() { path d=(intervals) fill="none" {} }
                @if let Some(look) = line.look {
                    @for (mark, place) in line.marks.iter().zip(&places) {
                        @match line.mark_style {
                            MarkStyle::Filled => (shape(look, *place, false, Some(&mark.text))),
                            MarkStyle::Hollow => (shape(look, *place, true, Some(&mark.text))),
                            MarkStyle::Nothing if places.len() == 1 => (shape(look, *place, true, None)),
                            MarkStyle::Nothing => {},
                        }
                    }
                }
            }
        }
    }
}

impl ChartMark {
    /// A mark without an interval.
    pub(crate) fn at(x: f64, y: f64, text: String) -> Self {
        Self {
            x,
            y,
            interval: None,
            text,
        }
    }
}

impl ChartLine {
    /// A measured line: solid, with filled marks.
    pub(crate) fn measured(
        name: String,
        look: usize,
        marks: impl IntoIterator<Item = ChartMark>,
    ) -> Self {
        Self {
            name: Some(name),
            look: Some(look),
            stroke: StrokeStyle::Solid,
            mark_style: MarkStyle::Filled,
            marks: marks.into_iter().collect(),
        }
    }

    fn colour(&self) -> &'static str {
        self.look.map_or(GREY, |look| COLOURS[look % COLOURS.len()])
    }
}

impl StrokeStyle {
    fn dashes(self) -> Option<&'static str> {
        match self {
            Self::Dashed => Some("6 4"),
            Self::Dotted => Some("1.5 3"),
            Self::Solid | Self::Nothing => None,
        }
    }
}

/// A figure with a drawing, title and description, followed by `below`.
pub(crate) fn figure(
    number: usize,
    title: &str,
    description: &str,
    (width, height): (f64, f64),
    inside: &Markup,
    below: &Markup,
) -> Markup {
    let (title, description) = (
        without_direction_marks(title),
        without_direction_marks(description),
    );
    let (named, described) = (
        format!("plot-{number}-title"),
        format!("plot-{number}-text"),
    );
    html! {
        figure {
            figcaption { b { (title) } }
            div class="plot" {
                svg viewBox={ "0 0 " (px(width)) " " (px(height)) }
                    width=(px(width)) height=(px(height)) role="img" aria-labelledby=(named)
                    aria-describedby=(described) font-family="system-ui, sans-serif" font-size="13"
                    fill="currentColor" {
                    title id=(named) { (title) }
                    desc id=(described) { (description) }
                    (inside)
                }
            }
            (below)
        }
    }
}

/// An entry of the legend.
fn legend_entry(line: &ChartLine, (x, y): (f64, f64)) -> Markup {
    let name = cut(line.name.as_deref().unwrap_or_default());
    html! {
        g stroke=(line.colour()) fill=(line.colour()) {
            @if line.stroke != StrokeStyle::Nothing {
                path d={ "M" (px(x)) " " (px(y)) "h28" } fill="none" stroke-width="1.6"
                    stroke-dasharray=[line.stroke.dashes()] {}
            }
            @if let Some(look) = line.look && line.mark_style != MarkStyle::Nothing {
                (shape(look, (x + 14.0, y), line.mark_style == MarkStyle::Hollow, None))
            }
        }
        text x=(px(x + 36.0)) y=(px(y)) dy="4" { (name) }
    }
}

/// Truncates a name to fit into the plot.
pub(crate) fn cut(name: &str) -> String {
    let name = without_direction_marks(name);
    match name.char_indices().nth(NAME_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name,
    }
}

/// A mark at a position. The attribute `data-v` holds its tooltip.
fn shape(look: usize, (x, y): (f64, f64), hollow: bool, text: Option<&str>) -> Markup {
    let fill = hollow.then_some("none");
    let (x, y) = (px(x), px(y));
    let outline = match look % COLOURS.len() {
        0 => {
            return html! { circle cx=(x) cy=(y) r="3.2" fill=[fill] data-v=[text] {} };
        }
        1 => "m-3-3h6v6h-6z",
        2 => "m0-4l4 7h-8z",
        3 => "m0-4.4l4.4 4.4l-4.4 4.4l-4.4-4.4z",
        4 => "m0 4l4-7h-8z",
        5 => "m-1.2-4h2.4v2.8h2.8v2.4h-2.8v2.8h-2.4v-2.8h-2.8v-2.4h2.8z",
        6 => "m-4-2h8v4h-8z",
        _ => "m-2-4h4v8h-4z",
    };
    html! { path d={ "M" (x) " " (y) (outline) } fill=[fill] data-v=[text] {} }
}

fn path(places: &[(f64, f64)]) -> String {
    let places = places.iter().enumerate();
    let places = places.map(|(at, (x, y))| {
        let letter = if at == 0 { "M" } else { "L" };
        format!("{letter}{} {}", px(*x), px(*y))
    });
    places.collect()
}

/// Formats a coordinate to one decimal, as short as possible.
pub(crate) fn px(place: f64) -> String {
    let text = format!("{place:.1}");
    text.strip_suffix(".0").unwrap_or(&text).to_owned()
}
