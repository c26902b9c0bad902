//! Draws the grid of a matrix, with senders as rows and receivers as columns, and describes its verdict.

use tonnage_engine::Verb;
use tonnage_record::transfer::{MatrixVerdict, PairRate, PairSpread, SlowPair, SlowRank, Unclear};
use tonnage_record::{Effective, TransferRecord};
use tonnage_units::number_list;
use tonnage_units::quantity::human::{number, whole_percent};

use super::footers::row_name;
use crate::table::TitledTable;
use crate::text::WIDTH;

/// Maximum number of ranks for a printed grid.
const GRID_RANKS_MAX: u32 = 32;

/// Maximum number of slow pairs to name, slowest first.
const PAIRS_NAMED_MAX: usize = 8;

/// One grid for each row of the table that has a matrix.
pub fn grids(records: &[TransferRecord<'_>], distinguishing: &[&str]) -> Vec<TitledTable> {
    let grid = |record: &TransferRecord<'_>| {
        let summary = record.body.summary.as_ref()?;
        let verdict = summary.matrix.as_ref()?;
        let point = &record.body.point;
        if point.roles.ranks > GRID_RANKS_MAX || summary.pairs.is_empty() {
            return None;
        }
        let grid = Grid {
            ranks: point.roles.ranks,
            reads: point.op == Verb::Read,
            pairs: &summary.pairs,
            verdict,
            devices: devices(&record.record.effective),
        };
        let name = row_name(record, records, distinguishing);
        Some(grid.table(&name))
    };
    records.iter().filter_map(grid).collect()
}

struct Grid<'a> {
    ranks: u32,
    reads: bool,
    pairs: &'a [PairRate],
    verdict: &'a MatrixVerdict,
    /// Lines that list the ranks of each device; empty if all ranks use the same device.
    devices: Vec<String>,
}

/// Devices of the ranks, if they differ.
fn devices(effective: &[Effective]) -> Vec<String> {
    let mut named: Vec<(&str, Vec<u32>)> = Vec::new();
    for part in effective {
        let ranks = number_list::parse(&part.ranks);
        let (Some(device), Ok(ranks)) = (part.engine.device.as_deref(), ranks) else {
            continue;
        };
        match named.iter_mut().find(|(known, _)| *known == device) {
            Some((_, known)) => known.extend(ranks),
            None => named.push((device, ranks)),
        }
    }
    if named.len() < 2 {
        return Vec::new();
    }
    let lines = named.into_iter().map(|(device, mut ranks)| {
        ranks.sort_unstable();
        let word = if ranks.len() == 1 { "rank" } else { "ranks" };
        (format!("{word} {}", number_list::format(&ranks)), device)
    });
    let lines: Vec<(String, &str)> = lines.collect();
    let width = lines.iter().map(|(ranks, _)| ranks.chars().count()).max();
    let width = width.unwrap_or(0);
    let lines = lines
        .iter()
        .map(|(ranks, device)| format!("  {ranks:<width$}  {device}"));
    lines.collect()
}

impl Grid<'_> {
    fn table(&self, name: &str) -> TitledTable {
        let giga = self.cells(|pair| number(pair.bandwidth_bytes_per_s_max * 1e-9));
        let width = |cells: &[Vec<String>]| {
            let lengths = cells.iter().flatten().map(|cell| cell.chars().count());
            lengths.max().unwrap_or(0)
        };
        let fits = |cells: &[Vec<String>]| (width(cells) + 2) * (self.ranks as usize + 1) <= WIDTH;
        let (unit, gap, cells) = match fits(&giga) {
            true => ("GB/s", 2, giga),
            false => {
                let percent = |pair: &PairRate| {
                    let spread = self.verdict.rate_spread(pair.within_host);
                    let median = spread.map_or(f64::NAN, |spread| spread.median_bytes_per_s);
                    format!("{:.0}", pair.bandwidth_bytes_per_s_max / median * 100.0)
                };
                ("% of the median", 1, self.cells(percent))
            }
        };
        let width = width(&cells);
        let line = |label: String, cells: &[String]| {
            let cells = cells
                .iter()
                .map(|cell| format!("{:gap$}{cell:>width$}", ""));
            (format!("{label:>width$}") + &cells.collect::<String>())
                .trim_end()
                .to_owned()
        };
        let ranks: Vec<String> = (0..self.ranks).map(|rank| rank.to_string()).collect();
        let rows = ranks.iter().zip(&cells);
        let rows = rows.map(|(rank, cells)| (rank.clone(), &cells[..]));
        let rows: Vec<_> = [(String::new(), &ranks[..])]
            .into_iter()
            .chain(rows)
            .collect();
        let lines = rows.iter().map(|(label, cells)| line(label.clone(), cells));
        let lines = lines.chain(self.devices.iter().cloned());
        let lines = lines.collect::<Vec<_>>().join("\n");
        let whole = rows.into_iter();
        let whole = whole.map(|(label, cells)| [&[label], cells].concat());
        TitledTable::new(whole.collect(), |_| true)
            .with_title(format!(
                "pairs at {name}, best turn of each, {unit}; rows send, columns receive, * is slow:"
            ))
            .with_plain_text(lines)
    }

    /// Cells by sender and receiver. A star marks pairs that are slow alone or with their rank; a plus marks pairs that
    /// are not judged.
    fn cells(&self, text: impl Fn(&PairRate) -> String) -> Vec<Vec<String>> {
        let ranks = self.ranks as usize;
        let mut cells = vec![vec!["-".to_owned(); ranks]; ranks];
        for pair in self.pairs {
            let (sender, receiver) = pair.direction(self.reads);
            let star = if pair.shares_cpu && self.verdict.on_one_cpu > 0 {
                "+"
            } else if self.verdict.is_slow(pair, self.reads) {
                "*"
            } else {
                ""
            };
            let row = cells.get_mut(sender as usize);
            if let Some(cell) = row.and_then(|row| row.get_mut(receiver as usize)) {
                *cell = text(pair) + star;
            }
        }
        cells
    }
}

/// Describes the verdicts, one line per row with a matrix.
pub fn verdicts(records: &[TransferRecord<'_>], distinguishing: &[&str]) -> Vec<String> {
    let lines = records.iter().filter_map(|record| {
        let verdict = record.body.summary.as_ref()?.matrix.as_ref()?;
        let name = row_name(record, records, distinguishing);
        Some(format!("matrix at {name}: {}", words(verdict)))
    });
    lines.collect()
}

fn words(verdict: &MatrixVerdict) -> String {
    let mut parts = medians(verdict);
    let found =
        verdict.slow_senders.len() + verdict.slow_receivers.len() + verdict.slow_pairs.len();
    let both = verdict.across_hosts.is_some() && verdict.within_hosts.is_some();
    let whom = |slow: &SlowRank| match (both, slow.within_host) {
        (false, _) => "all",
        (true, true) => "all on its host",
        (true, false) => "all on other hosts",
    };
    let same = |slow: &&SlowRank, others: &[SlowRank]| {
        let is =
            |other: &SlowRank| (other.rank, other.within_host) == (slow.rank, slow.within_host);
        others.iter().any(is)
    };
    for slow in &verdict.slow_senders {
        let whom = whom(slow);
        let how = match same(&slow, &verdict.slow_receivers) {
            true => format!(
                "sends slowly to {whom} and receives slowly from them: the rank, its host or its device"
            ),
            false => format!("sends slowly to {whom}, and receives as the others do"),
        };
        parts.push(one_rank(slow, &how));
    }
    let receivers = verdict.slow_receivers.iter();
    parts.extend(
        receivers
            .filter(|slow| !same(slow, &verdict.slow_senders))
            .map(|slow| {
                let whom = whom(slow);
                one_rank(
                    slow,
                    &format!("receives slowly from {whom}, and sends as the others do"),
                )
            }),
    );
    parts.extend(pairs(&verdict.slow_pairs));
    parts.extend(on_one_cpu(verdict));
    parts.extend(unclear(verdict.unclear, found > 0).map(str::to_owned));
    parts.join("; ")
}

/// Median over all pairs, or separately for pairs within and across hosts.
fn medians(verdict: &MatrixVerdict) -> Vec<String> {
    let both = verdict.across_hosts.is_some() && verdict.within_hosts.is_some();
    let lines = |spread: Option<PairSpread>, whose: &str| {
        let spread = spread?;
        let whose = if both { whose } else { "" };
        Some(format!(
            "{whose}median {} GB/s, width {}",
            number(spread.median_bytes_per_s * 1e-9),
            whole_percent(spread.width_fraction)
        ))
    };
    let across = lines(verdict.across_hosts, "between hosts ");
    let within = lines(verdict.within_hosts, "within hosts ");
    across.into_iter().chain(within).collect()
}

/// Explains why the verdict is unclear. `found` is true if the verdict names slow ranks or pairs.
fn unclear(why: Option<Unclear>, found: bool) -> Option<&'static str> {
    match why {
        Some(Unclear::FewRanks) => Some(match found {
            true => "fewer than 4 ranks cannot show whether a rank or the path between two is slow",
            false => "fewer than 4 ranks cannot show what is slow",
        }),
        Some(Unclear::WideRates) => Some(
            "the rates vary too much to show what is slow: use longer turns, on a \
             quieter system",
        ),
        Some(Unclear::MostAreSlow) => Some(
            "some pairs are much faster than the median: most are slow, or ranks are near each other and far from \
             others, and the rates do not show which: look at the grid, and measure ranks that are equally far",
        ),
        _ => (!found).then_some("nothing is slow"),
    }
}

/// Remark on pairs that are not judged because both ranks share a CPU.
fn on_one_cpu(verdict: &MatrixVerdict) -> Option<String> {
    let pairs = match verdict.on_one_cpu {
        0 => return None,
        1 => {
            "1 pair has both ends on one CPU, is slower than the others for that, and is".to_owned()
        }
        pairs => format!(
            "{pairs} pairs have both ends on one CPU, are slower than the others for that, and are"
        ),
    };
    Some(format!(
        "{pairs} not judged (+ in the grid): use no more threads than CPUs"
    ))
}

fn one_rank(slow: &SlowRank, how: &str) -> String {
    let part = whole_percent(slow.of_median);
    format!("rank {} {how} ({part} of the median)", slow.rank)
}

/// Names the slowest pairs.
fn pairs(slow: &[SlowPair]) -> Option<String> {
    let mut slow: Vec<&SlowPair> = slow.iter().collect();
    slow.sort_by(|one, other| one.of_median.total_cmp(&other.of_median));
    let more = slow.len().saturating_sub(PAIRS_NAMED_MAX);
    let named = slow.iter().take(PAIRS_NAMED_MAX).map(|pair| {
        let part = whole_percent(pair.of_median);
        format!(
            "{} -> {} at {part} of the median",
            pair.sender, pair.receiver
        )
    });
    let mut named: Vec<String> = named.collect();
    if named.is_empty() {
        return None;
    }
    if more > 0 {
        named.push(format!("{more} more in the record"));
    }
    Some(format!(
        "slow pairs (both ranks are fine otherwise): {}",
        named.join(", ")
    ))
}
