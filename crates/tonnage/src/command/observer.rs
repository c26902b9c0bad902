//! What rank 0 does with records as they come: to the file, to the screen's progress line, and kept for the table.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};
use tonnage_core::Result;
use tonnage_core::plan::point::Point;
use tonnage_core::record::file::RecordWriter;
use tonnage_core::record::read::final_attempts;
use tonnage_core::record::{Line, Outcome, Record};
use tonnage_core::run::Observer;
use tonnage_core::units::Bytes;

use super::print;
use crate::args::common::Format;
use crate::report::{self, text};

/// Keeps records, writes them on, and shows how far the run is.
pub struct Keeper {
    /// All records of the run, those that a resumed file held already first.
    pub records: Vec<Line>,
    writer: Option<RecordWriter>,
    /// JSON lines go out as they come, so that a reader of the pipe need not wait for the end.
    stream: bool,
    progress: ProgressBar,
    /// The file could not be written; the run goes on for the table's sake and ends with an error.
    pub lost_writer: bool,
}

impl Keeper {
    /// Starts with the records of a resumed file.
    pub fn new(records: Vec<Line>, writer: Option<RecordWriter>, format: Format) -> Self {
        let progress = if std::io::stderr().is_terminal() {
            progress_line()
        } else {
            ProgressBar::hidden()
        };
        Self {
            records,
            writer,
            stream: format == Format::Jsonl,
            progress,
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

    /// Whether everything that was asked for was measured, be it at a second attempt.
    pub fn all_measured(&self) -> bool {
        final_attempts(&self.records)
            .iter()
            .all(|line| *line.outcome() == Outcome::Measured)
    }
}

impl Observer for Keeper {
    fn begin(&mut self, index: usize, of: usize, point: &Point) {
        self.progress.set_length(of as u64);
        self.progress.set_position(index as u64);
        self.progress.set_message(describe(point));
    }

    fn record(&mut self, record: Record) -> Result<()> {
        self.keep(record.into())
    }
}

impl Keeper {
    /// Writes a record on and keeps it.
    fn keep(&mut self, line: Line) -> Result<()> {
        if self.stream {
            print(&report::render(
                report::Format::Jsonl,
                std::slice::from_ref(&line),
            )?)?;
        }
        if let Some(writer) = &mut self.writer
            && let Err(error) = writer.write(&line)
        {
            self.progress
                .suspend(|| log::error!("{error}; going on without the file"));
            self.writer = None;
            self.lost_writer = true;
        }
        self.records.push(line);
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

fn describe(point: &Point) -> String {
    let pacing = text::pacing(&point.pacing);
    let size = Bytes(u64::from(point.size_bytes));
    format!("{} {} {size}, {pacing}", point.engine, point.op.name())
}
