//! Draws the pairs of ranks as a heat map. Marks also point out slow ranks and pairs: a triangle next to the row or
//! above the column of a rank, a cross on a pair.

use std::collections::BTreeMap;

use maud::{Markup, html};
use tonnage_engine::Verb;
use tonnage_record::transfer::{MatrixVerdict, PairRate, SlowRank};
use tonnage_record::{Record, TransferBody};
use tonnage_units::quantity::human::{bandwidth, number, percent};

use super::chart::{GREY, WIDTH, figure, px};
use super::numbers::Numbers;
use crate::findings::name;
use crate::tables;

/// Maximum number of matrices to draw per configuration.
const MATRICES_DRAWN_MAX: usize = 16;

/// Maximum number of ranks in a drawn matrix. Beyond that, cells would be only a few pixels wide.
const RANKS_DRAWN_MAX: usize = 160;

const LEFT: f64 = 70.0;
const TOP: f64 = 46.0;

/// Maximum width of a cell.
const CELL_MAX: f64 = 34.0;

/// Colours from slow to fast, distinguishable from their neighbours.
const COLOURS: [&str; 6] = [
    "#5b1a18", "#a8402c", "#d98a4b", "#d9c98f", "#8fb8c9", "#3f7fa8",
];

/// Outline and inner colour of the cross on a slow pair.
const CROSS: [&str; 2] = ["#111", "#fff"];

/// Lower limit of each colour except the first, as a fraction of the median.
const FROM: [f64; 5] = [0.5, 0.75, 0.9, 0.97, 1.05];

/// All matrices of these records.
pub(crate) fn matrices(records: &[Record], numbers: &mut Numbers) -> Vec<Markup> {
    let mut drawn = Vec::new();
    let mut left_out = 0;
    for record in records {
        let Some(matrix) = record.transfer().and_then(Matrix::from_body) else {
            continue;
        };
        match drawn.len() < MATRICES_DRAWN_MAX && matrix.ranks.len() <= RANKS_DRAWN_MAX {
            true => drawn.push(matrix.draw(&name(record), numbers)),
            false => left_out += 1,
        }
    }
    if left_out > 0 {
        drawn.push(html! {
            p { (left_out) " more matrices are in the records and are not drawn." }
        });
    }
    drawn
}

/// Rates of all pairs, and the verdict on them.
struct Matrix<'a> {
    verdict: &'a MatrixVerdict,
    /// Rates by sender and receiver.
    rates: BTreeMap<(u32, u32), &'a PairRate>,
    /// Ranks that send or receive, with their positions.
    ranks: BTreeMap<u32, usize>,
}

impl<'a> Matrix<'a> {
    fn from_body(body: &'a TransferBody) -> Option<Self> {
        let summary = body.summary.as_ref()?;
        let reads = body.point.op == Verb::Read;
        let rates = summary
            .pairs
            .iter()
            .map(|pair| (pair.direction(reads), pair));
        let rates: BTreeMap<(u32, u32), &PairRate> = rates.collect();
        let ends = rates
            .keys()
            .flat_map(|(sender, receiver)| [*sender, *receiver]);
        let ends: std::collections::BTreeSet<u32> = ends.collect();
        let verdict = summary.matrix.as_ref()?;
        (!rates.is_empty()).then(|| Self {
            verdict,
            rates,
            ranks: ends.into_iter().zip(0..).collect(),
        })
    }

    fn draw(&self, point: &str, numbers: &mut Numbers) -> Markup {
        let count = self.ranks.len() as f64;
        let cell = ((WIDTH - LEFT - 20.0) / count).min(CELL_MAX);
        let title = format!("Bandwidth from each rank to each: {point}");
        let sentences = self.sentences();
        let found = match (sentences.is_empty(), self.verdict.unclear) {
            (true, Some(_)) => {
                "The slow part is unclear; the lines below the tables give the reason.".to_owned()
            }
            (true, None) => "No rank and no pair is slow.".to_owned(),
            (false, _) => sentences.join(" "),
        };
        let description = format!(
            "{title}. Rows are senders, columns are receivers. {found} The numbers are in the table below."
        );
        let inside = html! {
            text x=(px(LEFT)) y="12" { "receiver" }
            text x=(px(LEFT - 16.0)) y=(px(TOP - 16.0)) text-anchor="end" { "sender" }
            (self.cells(cell))
            (self.labels(cell))
            (self.marks(cell))
            (legend(TOP + count * cell + 24.0))
        };
        let height = TOP + count * cell + 42.0;
        let below = html! {
            @if !sentences.is_empty() { ul { @for sentence in &sentences { li { (sentence) } } } }
            details open class="numbers" {
                summary { "Numbers of this matrix" }
                (tables::rows(&self.table(), |at| at < 4))
            }
        };
        figure(
            numbers.next(),
            &title,
            &description,
            (WIDTH, height),
            &inside,
            &below,
        )
    }

    /// Rate relative to the median of comparable pairs: within a host or across hosts.
    fn of_median(&self, pair: &PairRate) -> f64 {
        let spread = self.verdict.rate_spread(pair.within_host);
        spread.map_or(1.0, |spread| {
            pair.bandwidth_bytes_per_s_max / spread.median_bytes_per_s
        })
    }

    fn cells(&self, cell: f64) -> Markup {
        let side = px(cell - (cell * 0.06).min(1.0));
        html! {
            g class="cells" {
                @for ((sender, receiver), pair) in &self.rates {
                    @let (x, y) = self.corner(*sender, *receiver, cell);
                    rect x=(px(x)) y=(px(y)) width=(side) height=(side) fill=(colour(self.of_median(pair)))
                        data-v={ (sender) "→" (receiver) " " (bandwidth(pair.bandwidth_bytes_per_s_max)) } {}
                }
            }
        }
    }

    fn corner(&self, sender: u32, receiver: u32, cell: f64) -> (f64, f64) {
        let at = |rank: u32| self.ranks.get(&rank).copied().unwrap_or(0) as f64;
        (LEFT + at(receiver) * cell, TOP + at(sender) * cell)
    }

    /// Labels with rank numbers. If the cells are small, only every n-th rank gets one.
    fn labels(&self, cell: f64) -> Markup {
        let every = (22.0 / cell).ceil().max(1.0) as usize;
        html! {
            @for (rank, at) in self.ranks.iter().filter(|(_, at)| *at % every == 0) {
                @let middle = (*at as f64 + 0.5) * cell;
                text x=(px(LEFT - 16.0)) y=(px(TOP + middle)) dy="4" text-anchor="end" { (rank) }
                text x=(px(LEFT + middle)) y=(px(TOP - 16.0)) text-anchor="middle" { (rank) }
            }
        }
    }

    /// Marks slow rows, columns and pairs.
    fn marks(&self, cell: f64) -> Markup {
        let length = px(self.ranks.len() as f64 * cell);
        let cell_text = px(cell);
        let words = |slow: &SlowRank, what: &str| {
            format!(
                "rank {} {what} slowly: {} of the median",
                slow.rank,
                percent(slow.of_median)
            )
        };
        html! {
            g class="slow" stroke="#cf4039" fill="none" stroke-width="2" {
                @for slow in &self.verdict.slow_senders {
                    @let (_, y) = self.corner(slow.rank, 0, cell);
                    path class="slow-row" data-rank=(slow.rank) data-v=(words(slow, "sends")) fill="#cf4039"
                        d={ "M" (px(LEFT - 3.0)) " " (px(y + cell / 2.0)) "l-9-5v10z" } {}
                    rect x=(px(LEFT - 1.0)) y=(px(y - 1.0)) width=(length) height=(cell_text) {}
                }
                @for slow in &self.verdict.slow_receivers {
                    @let (x, _) = self.corner(0, slow.rank, cell);
                    path class="slow-column" data-rank=(slow.rank) data-v=(words(slow, "receives")) fill="#cf4039"
                        d={ "M" (px(x + cell / 2.0)) " " (px(TOP - 3.0)) "l-5-9h10z" } {}
                    rect x=(px(x - 1.0)) y=(px(TOP - 1.0)) width=(cell_text) height=(length) {}
                }
            }
            g class="slow-pairs" {
                @for slow in &self.verdict.slow_pairs {
                    @let (x, y) = self.corner(slow.sender, slow.receiver, cell);
                    @let (inset, arm) = (cell * 0.22, cell * 0.5);
                    @let cross = format!(
                        "M{} {}l{arm} {arm}m0 {back}l{back} {arm}", px(x + inset), px(y + inset), arm = px(arm), back = px(-arm)
                    );
                    // White on black is visible on every cell colour.
                    path d=(cross) stroke=(CROSS[0]) stroke-width="4" {}
                    path d=(cross) stroke=(CROSS[1]) stroke-width="2"
                        data-v={ "slow by itself: " (percent(slow.of_median)) " of the median" } {}
                }
            }
        }
    }

    /// Sentences about slow ranks and pairs.
    fn sentences(&self) -> Vec<String> {
        let rank = |what: &str, slow: &SlowRank| {
            let (rank, part) = (slow.rank, percent(slow.of_median));
            format!("Rank {rank} {what} all others at {part} of the median.")
        };
        let senders = self
            .verdict
            .slow_senders
            .iter()
            .map(|slow| rank("sends slowly to", slow));
        let receivers = self.verdict.slow_receivers.iter();
        let receivers = receivers.map(|slow| rank("receives slowly from", slow));
        let pairs = self.verdict.slow_pairs.iter().map(|slow| {
            let part = percent(slow.of_median);
            format!(
                "From rank {} to rank {} it is {part} of the median.",
                slow.sender, slow.receiver
            )
        });
        senders.chain(receivers).chain(pairs).collect()
    }

    fn table(&self) -> Vec<Vec<String>> {
        let header = [
            "Sender",
            "Receiver",
            "BW of best turn (GB/s)",
            "Of median",
            "Host",
        ];
        let lines = self.rates.iter().map(|((sender, receiver), pair)| {
            let place = if pair.within_host { "the same" } else { "two" };
            vec![
                sender.to_string(),
                receiver.to_string(),
                number(pair.bandwidth_bytes_per_s_max / 1e9),
                number(self.of_median(pair)),
                place.to_owned(),
            ]
        });
        let header = header.map(str::to_owned).to_vec();
        std::iter::once(header).chain(lines).collect()
    }
}

fn colour(of_median: f64) -> &'static str {
    let above = FROM.iter().filter(|from| of_median >= **from).count();
    COLOURS[above]
}

/// The legend of colours and marks.
fn legend(y: f64) -> Markup {
    let from = FROM.iter().map(|from| format!("≥ {from}"));
    let words = std::iter::once(format!("< {}", FROM[0])).chain(from);
    html! {
        @for (at, (colour, words)) in COLOURS.iter().zip(words).enumerate() {
            @let x = LEFT + at as f64 * 76.0;
            rect x=(px(x)) y=(px(y - 6.0)) width="12" height="12" fill=(colour) stroke=(GREY) {}
            text x=(px(x + 16.0)) y=(px(y)) dy="4" { (words) }
        }
        text x=(px(LEFT + 470.0)) y=(px(y)) dy="4" { "of the median;  ▶ ▼ slow rank  × slow pair" }
    }
}

#[cfg(test)]
mod tests {
    use super::{COLOURS, CROSS};

    /// Relative luminance of a colour with three or six hex digits.
    fn luminance(colour: &str) -> f64 {
        let digits = &colour[1..];
        let width = digits.len() / 3;
        let parts = [0, 1, 2].map(|at| {
            let part = &digits[at * width..(at + 1) * width];
            let value = u8::from_str_radix(&part.repeat(2 / width), 16).unwrap();
            let part = f64::from(value) / 255.0;
            match part <= 0.04045 {
                true => part / 12.92,
                false => ((part + 0.055) / 1.055).powf(2.4),
            }
        });
        0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]
    }

    fn contrast(one: &str, other: &str) -> f64 {
        let (one, other) = (luminance(one), luminance(other));
        (one.max(other) + 0.05) / (one.min(other) + 0.05)
    }

    #[test]
    fn a_cross_is_seen_on_every_cell() {
        let [outline, inside] = CROSS;
        assert!(contrast(outline, inside) > 15.0);
        for colour in COLOURS {
            let best = contrast(colour, outline).max(contrast(colour, inside));
            assert!(best >= 3.0, "{colour}: {best}");
        }
        assert!((contrast("#000", "#ffffff") - 21.0).abs() < 1e-9);
    }
}
