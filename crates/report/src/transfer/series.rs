//! Trials over time: a line with one block per interval, and ranks that stood still.

use tonnage_record::TransferRecord;
use tonnage_record::transfer::{Standstill, TrialSeries};
use tonnage_units::Nanos;
use tonnage_units::quantity::human::prefixed;

use super::footers::row_name;
use crate::text::extremes;

/// Maximum number of blocks per line. With more intervals, each block covers several.
const BLOCKS_MAX: usize = 60;

/// Maximum number of trials per row, and of standstills per trial.
const TRIALS_MAX: usize = 4;
const STANDSTILLS_NAMED_MAX: usize = 4;

/// Blocks from one eighth of the height to full height.
const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Marks a block that contains an interval without progress.
const NOTHING: char = '.';

/// Lines on the series of all rows, and on an aborted trial.
pub fn lines(records: &[TransferRecord<'_>], distinguishing: &[&str]) -> Vec<String> {
    // Skip rows without lines first, because computing a row's name visits all rows.
    let has_lines = |record: &&TransferRecord<'_>| {
        let mut trials = record.body.trials.iter();
        trials.any(|trial| trial.series.is_some()) || record.body.broken_off.is_some()
    };
    let of_row = |record: &TransferRecord<'_>| {
        let row = row_name(record, records, distinguishing);
        let trials = &record.body.trials;
        let has_many = trials.len() > 1;
        let known = trials.iter().enumerate().filter_map(|(at, trial)| {
            let series = trial.series.as_ref()?;
            let which = match has_many {
                true => format!("{row}, trial {}", at + 1),
                false => row.clone(),
            };
            Some(line(&which, series, trial.window_ns))
        });
        let mut lines: Vec<String> = known.collect();
        let more = lines.len().saturating_sub(TRIALS_MAX);
        lines.truncate(TRIALS_MAX);
        if more > 0 {
            lines.push(format!("series at {row}: {more} more trials in the record"));
        }
        let broken_off = record.body.broken_off.as_ref();
        lines.extend(broken_off.map(|known| {
            let which = format!("{row}, trial {}, which was broken off", known.trial);
            line(&which, &known.series, 0)
        }));
        lines
    };
    let told = records.iter().filter(has_lines);
    told.flat_map(of_row).collect()
}

fn line(which: &str, series: &TrialSeries, window_ns: u64) -> String {
    let rates: Vec<f64> = series.operations_per_s(window_ns).collect();
    let (least, most) = extremes(rates.iter().copied());
    let mut line = format!(
        "series at {which}, {} each: {} {} to {} op/s",
        Nanos(series.interval_ns),
        blocks(&rates, most),
        prefixed(least),
        prefixed(most)
    );
    for standstill in series.standstills.iter().take(STANDSTILLS_NAMED_MAX) {
        line += &format!("; {}", words(standstill));
    }
    let named = series.standstills.len().min(STANDSTILLS_NAMED_MAX);
    let more = (series.standstills.len() - named) as u64 + series.more_standstills;
    if more > 0 {
        line += &format!("; {more} more standstills in the record");
    }
    line
}

fn words(standstill: &Standstill) -> String {
    let seconds = |ns: u64| ns as f64 / 1e9;
    format!(
        "rank {} moved nothing from {:.2} to {:.2} s",
        standstill.rank,
        seconds(standstill.begin_ns),
        seconds(standstill.end_ns)
    )
}

/// One block per rate, or per mean of several rates, scaled to `most`.
fn blocks(rates: &[f64], most: f64) -> String {
    let together = rates.len().div_ceil(BLOCKS_MAX).max(1);
    let block = |rates: &[f64]| {
        if rates.iter().any(|&rate| rate <= 0.0) {
            return NOTHING;
        }
        let mean = rates.iter().sum::<f64>() / rates.len() as f64;
        let eighths = (mean / most * BLOCKS.len() as f64).ceil() as usize;
        BLOCKS[eighths.clamp(1, BLOCKS.len()) - 1]
    };
    rates.chunks(together).map(block).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_as_high_as_rates_and_nothing_is_a_dot() {
        assert_eq!(blocks(&[8.0, 4.0, 1.0, 0.01, 0.0, 7.1], 8.0), "█▄▁▁.█");
        assert_eq!(blocks(&[], 0.0), "");
        assert_eq!(blocks(&[0.0], 0.0), ".");
        let many: Vec<f64> = (0..600).map(f64::from).collect();
        let drawn = blocks(&many, 599.0);
        assert_eq!(drawn.chars().count(), 60);
        assert!(drawn.starts_with(".▁") && drawn.ends_with('█'), "{drawn}");
    }
}
