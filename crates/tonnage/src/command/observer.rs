//! Destinations of records on rank 0 as they come: to the file, to the screen's progress line, and kept for the table.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};
use tonnage_bench::observer::{Observer, Progress};
use tonnage_plan::Point;
use tonnage_record::read::final_attempts;
use tonnage_record::writer::RecordWriter;
use tonnage_record::{Outcome, Record};
use tonnage_report::Format;
use tonnage_units::Result;
use tonnage_units::quantity::human;

use super::print;
use super::spare::SpareWriter;

/// Keeps records, writes them on, and shows how far the run is.
pub struct Keeper {
    /// All records of the run, those that a resumed file held already first.
    pub records: Vec<Record>,
    writer: Option<RecordWriter>,
    spare: Option<SpareWriter>,
    /// JSON lines go out as they come, so that a reader of the pipe need not wait for the end.
    stream: bool,
    progress: ProgressBar,
    /// Words for the point that is measured.
    point: String,
    /// The file could not be written; the run goes on for the table's sake and ends with an error.
    pub lost_writer: bool,
}

impl Keeper {
    /// Starts with the records of a resumed file.
    pub fn new(
        records: Vec<Record>,
        writer: Option<RecordWriter>,
        spare: Option<SpareWriter>,
        format: Format,
    ) -> Self {
        let progress = if std::io::stderr().is_terminal() {
            progress_line()
        } else {
            ProgressBar::hidden()
        };
        Self {
            records,
            writer,
            spare,
            stream: format == Format::Jsonl,
            progress,
            point: String::new(),
            lost_writer: false,
        }
    }

    /// Takes the progress line away and puts the file on stable storage.
    ///
    /// # Errors
    /// When the file cannot be stored.
    pub fn finish(&mut self) -> Result<()> {
        self.progress.finish_and_clear();
        self.writer.take().map_or(Ok(()), RecordWriter::finish)
    }

    /// Takes note that all records have been shown.
    pub fn shown(&self) {
        if let Some(Err(error)) = self.spare.as_ref().map(SpareWriter::shown) {
            log::warn!("{error}: the supervisor may show the records once more");
        }
    }

    /// Returns whether everything that was asked for was measured, be it at a second attempt.
    pub fn all_measured(&self) -> bool {
        final_attempts(&self.records)
            .iter()
            .all(|record| record.outcome == Outcome::Measured)
    }
}

impl Observer for Keeper {
    fn begin(&mut self, index: usize, of: usize, point: &Point) {
        self.progress.set_length(of as u64);
        self.progress.set_position(index as u64);
        self.point = point.any().progress();
        self.progress.set_message(self.point.clone());
    }

    fn progress(&mut self, progress: &Progress) {
        let far = how_far(progress);
        self.progress.set_message(format!("{}: {far}", self.point));
    }

    fn record(&mut self, record: Record) -> Result<()> {
        if self.stream {
            print(&tonnage_report::render(
                Format::Jsonl,
                std::slice::from_ref(&record),
            )?)?;
        }
        if let Some(spare) = &mut self.spare
            && let Err(error) = spare.write(&record)
        {
            log::warn!("{error}: should rank 0 be lost, its records are not shown");
            self.spare = None;
        }
        if let Some(writer) = &mut self.writer
            && let Err(error) = writer.write(&record)
        {
            self.progress.suspend(|| {
                log::error!("{error}; going on without the file, with the records in memory")
            });
            self.writer = None;
            self.lost_writer = true;
        }
        self.records.push(record);
        Ok(())
    }
}

fn progress_line() -> ProgressBar {
    let bar = ProgressBar::new(0);
    // The template is fixed, so that a failure to read it could only lose the line's looks.
    if let Ok(style) = ProgressStyle::with_template("{pos}/{len} {elapsed} {wide_msg}") {
        bar.set_style(style);
    }
    bar
}

/// Describes progress, such as `write, 45 % at 1.93 GB/s, 12 s left`. The rate is rank 0's own times the ranks, which
/// have as much to do.
fn how_far(progress: &Progress) -> String {
    let phase = progress.phase.name();
    let trial = match progress.trial {
        0 => String::new(),
        trial => format!(" of trial {}", trial + 1),
    };
    let part = progress.done_bytes as f64 / progress.all_bytes.max(1) as f64;
    let percent = format!("{:.0} %", part * 100.0);
    let elapsed = progress.elapsed.as_secs_f64();
    if progress.done_bytes == 0 || elapsed <= 0.0 {
        return format!("{phase}{trial}, {percent}");
    }
    let rate = progress.done_bytes as f64 / elapsed;
    let to_do = progress.all_bytes.saturating_sub(progress.done_bytes) as f64 / rate;
    let left = progress
        .left
        .map_or(to_do, |left| left.as_secs_f64().min(to_do));
    format!(
        "{phase}{trial}, {percent} at {}, {left:.0} s left",
        human::bandwidth(rate * f64::from(progress.ranks))
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tonnage_plan::files::Phase;

    use super::*;

    #[test]
    fn the_progress_line_has_a_rate_and_what_is_left() {
        let half = Progress {
            phase: Phase::Write,
            trial: 0,
            done_bytes: 1 << 30,
            all_bytes: 2 << 30,
            ranks: 2,
            elapsed: Duration::from_secs(10),
            left: None,
        };
        assert_eq!(how_far(&half), "write, 50 % at 215 MB/s, 10 s left");
        let walled = Progress {
            trial: 1,
            left: Some(Duration::from_secs(3)),
            ..half
        };
        assert_eq!(
            how_far(&walled),
            "write of trial 2, 50 % at 215 MB/s, 3 s left"
        );
        let begun = Progress {
            done_bytes: 0,
            elapsed: Duration::ZERO,
            ..half
        };
        assert_eq!(how_far(&begun), "write, 0 %");
    }
}
