//! Destinations of records on rank 0 as they come: to the file, to the screen, and kept for the table.
//!
//! On a terminal the rows so far stand above the progress line. Both go when the whole table is printed.

use std::io::IsTerminal;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use rustix::termios::tcgetwinsize;
use tonnage_bench::observer::{
    CheckpointKeeper, IntervalListener, Observer, PhaseProgress, Progress, TrialCalls,
};
use tonnage_plan::Point;
use tonnage_record::read::final_attempts;
use tonnage_record::writer::RecordWriter;
use tonnage_record::{Record, RecordPlace, TuneBody};
use tonnage_report::Format;
use tonnage_units::Result;
use tonnage_units::lock::lock;
use tonnage_units::quantity::human;

use super::spare::SpareWriter;
use super::{each_call, intervals, print, screen};

/// Exit code of a wrong request, as that of `Error::Usage`.
const WRONG_REQUEST: u8 = 2;

/// Looks after the file while a point is measured are so far apart: what is measured may be on the same file system.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Says where the file of records can no longer be found by its name, once, for the next record may be days away. It
/// may be there again by then, so that nothing but a record, or the end, decides.
fn look_after(place: RecordPlace, every: Duration) -> Option<Sender<()>> {
    let (ended_by_drop, end) = channel();
    let look = move || {
        while let Err(RecvTimeoutError::Timeout) = end.recv_timeout(every) {
            if let Some(objection) = place.objection() {
                log::warn!("{objection}: put it back, or the next record is kept in memory only");
                return;
            }
        }
    };
    let thread = std::thread::Builder::new().name("results".into());
    match thread.spawn(look) {
        // Nobody waits for it: a file system may hang.
        Ok(_) => Some(ended_by_drop),
        Err(error) => {
            log::debug!("the results file is looked at only with each record: {error}");
            None
        }
    }
}

/// Keeps records, writes them on, and shows how far the run is.
pub struct Keeper {
    /// All records of the run, those that a resumed file held already first.
    pub records: Vec<Record>,
    output: Arc<Mutex<Output>>,
    /// Ends the looks after the file when it is dropped.
    looks: Option<Sender<()>>,
    spare: Option<SpareWriter>,
    /// JSON lines go out as they come, so that a reader of the pipe need not wait for the end.
    stream: bool,
    progress: ProgressBar,
    /// True where rows are shown as they come.
    shows_rows: bool,
    /// Words for the point that is measured.
    point: String,
    /// Heading of the lines about its calls, until the first of them are printed.
    calls_heading: Option<String>,
}

/// The file of records.
struct Output {
    writer: Option<RecordWriter>,
    /// Another place for checkpoints.
    checkpoints: Option<RecordWriter>,
    /// It could not be written; the run goes on for the table's sake and ends with an error.
    is_lost: bool,
}

impl Output {
    fn write_checkpoint(&mut self, record: &Record) {
        match &mut self.checkpoints {
            Some(writer) => {
                if let Err(error) = writer.write(record) {
                    log::debug!("{error}");
                }
            }
            None => self.write(record),
        }
    }

    fn write(&mut self, record: &Record) {
        if let Some(writer) = &mut self.writer
            && let Err(error) = writer.write(record)
        {
            log::error!("{error}; going on without the file, with the records in memory");
            self.writer = None;
            self.is_lost = true;
        }
    }
}

impl Keeper {
    /// Starts with the records of a resumed file.
    pub fn new(
        records: Vec<Record>,
        writer: Option<RecordWriter>,
        spare: Option<SpareWriter>,
        format: Format,
    ) -> Self {
        let is_shown = std::io::stderr().is_terminal();
        let progress = if is_shown {
            progress_line()
        } else {
            ProgressBar::hidden()
        };
        screen::stands(is_shown.then(|| progress.clone()));
        let place = writer.as_ref().and_then(RecordWriter::place);
        Self {
            looks: place.and_then(|place| look_after(place, LOOK_EVERY)),
            records,
            output: Arc::new(Mutex::new(Output {
                writer,
                checkpoints: None,
                is_lost: false,
            })),
            spare,
            stream: format == Format::Jsonl,
            shows_rows: format == Format::Table && !progress.is_hidden(),
            progress,
            point: String::new(),
            calls_heading: None,
        }
    }

    /// Writes checkpoints there rather than among the records.
    pub fn write_checkpoints_to(&self, writer: Option<RecordWriter>) {
        lock(&self.output).checkpoints = writer;
    }

    /// Writes a checkpoint of another process to the file.
    pub fn checkpoint(&self, record: &Record) {
        lock(&self.output).write_checkpoint(record);
    }

    /// Takes the progress line away and puts the file on stable storage.
    pub fn finish(&mut self) -> Result<()> {
        self.looks = None;
        screen::stands(None);
        self.progress.finish_and_clear();
        let writer = lock(&self.output).writer.take();
        writer.map_or(Ok(()), RecordWriter::finish)
    }

    /// Returns whether the file could not be written.
    pub fn lost_output(&self) -> bool {
        lock(&self.output).is_lost
    }

    /// Takes note that all records have been shown.
    pub fn shown(&self) {
        if let Some(Err(error)) = self.spare.as_ref().map(SpareWriter::shown) {
            log::warn!("{error}: the supervisor may show the records once more");
        }
    }

    /// Exit code of the run: 0 where everything that was asked for was measured and kept, be it at a second attempt,
    /// but for what a machine may lack; `is_proven` says whether nothing else is wrong with it.
    pub fn exit_code(&self, is_proven: bool) -> u8 {
        if self.lost_output() || !is_proven {
            return 1;
        }
        let all = final_attempts(&self.records);
        let missing: Vec<_> = all.iter().filter(|record| !record.is_fine()).collect();
        let is_refused = |record: &&Record| record.tune().is_some_and(TuneBody::is_refused);
        match missing.iter().all(is_refused) {
            _ if missing.is_empty() => 0,
            // A search of which every candidate was refused is as wrong as what is refused before the ranks start.
            true => WRONG_REQUEST,
            false => 1,
        }
    }
}

impl Observer for Keeper {
    fn begin(&mut self, index: usize, of: usize, point: &Point) {
        self.progress.set_length(of as u64);
        self.progress.set_position(index as u64);
        self.point = point.any().progress();
        self.calls_heading = Some(each_call::heading(index, of, &self.point));
        self.progress.set_message(self.point.clone());
    }

    fn progress(&mut self, progress: &Progress) {
        let far = how_far(progress);
        self.progress.set_message(format!("{}: {far}", self.point));
    }

    fn intervals(&self) -> Option<IntervalListener> {
        Some(intervals::printer())
    }

    fn calls(&mut self, calls: &TrialCalls<'_>) {
        each_call::print_all(self.calls_heading.take().as_deref(), calls);
    }

    /// Checkpoints go to the file alone: in the end the point has a record of its own.
    fn checkpoints(&self) -> Option<CheckpointKeeper> {
        let output = Arc::clone(&self.output);
        Some(Box::new(move |record| {
            lock(&output).write_checkpoint(record)
        }))
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
            // Such as a limit on the size of files, which counts for those in memory too. A part would look like all.
            log::debug!("{error}: should rank 0 be lost, its records are not shown");
            self.shown();
            self.spare = None;
        }
        lock(&self.output).write(&record);
        self.records.push(record);
        if self.shows_rows {
            let rows = rows_so_far(&self.records, screen())?;
            self.progress.set_prefix(rows);
        }
        Ok(())
    }
}

fn progress_line() -> ProgressBar {
    let bar = ProgressBar::new(0);
    // The template is fixed, so that a failure to read it could only lose the line's looks.
    if let Ok(style) = ProgressStyle::with_template("{prefix}{pos}/{len} {elapsed} {wide_msg}") {
        bar.set_style(style);
    }
    bar
}

/// Lines and columns of the terminal.
fn screen() -> (usize, usize) {
    match tcgetwinsize(std::io::stderr()) {
        Ok(size) if size.ws_row > 0 && size.ws_col > 0 => (size.ws_row.into(), size.ws_col.into()),
        _ => (24, 80),
    }
}

/// The end of the report so far that fits on a screen of these lines and columns, above the progress line.
fn rows_so_far(records: &[Record], (lines, columns): (usize, usize)) -> Result<String> {
    // No more records than lines could show anything.
    let last = records.get(records.len().saturating_sub(lines)..);
    let report = tonnage_report::render(Format::Table, last.unwrap_or(records))?;
    let all: Vec<&str> = report.lines().collect();
    // A line for the progress, and one for the cursor.
    let first = all.len().saturating_sub(lines.saturating_sub(2));
    let cut = |line: &&str| {
        line.chars()
            .take(columns.saturating_sub(1))
            .chain(['\n'])
            .collect::<String>()
    };
    Ok(all.iter().skip(first).map(cut).collect())
}

/// Describes progress, such as `128 transfers, none failed, 12 s left`.
fn how_far(progress: &Progress) -> String {
    match progress {
        Progress::Phase(phase) => how_far_in(phase),
        Progress::Draws {
            draws,
            failures,
            left,
        } => {
            let failed = match failures {
                0 => "none".to_owned(),
                failures => failures.to_string(),
            };
            let left = left.as_secs_f64();
            format!("{draws} transfers, {failed} failed, {left:.0} s left")
        }
        // Such as `pacing, round 4, 3 of 13 values`.
        Progress::Race(race) => {
            let again = if race.pass > 1 { " again" } else { "" };
            format!(
                "{}{again}, round {}, {} of {} values",
                race.option, race.round, race.left, race.of
            )
        }
    }
}

/// Describes the progress of a phase, such as `write, 45 % at 1.93 GB/s, 12 s left`. The rate is rank 0's own times the
/// ranks, which have as much to do.
fn how_far_in(progress: &PhaseProgress) -> String {
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
    use tonnage_plan::files::Phase;

    use tonnage_bench::observer::RaceProgress;

    use super::*;

    /// A fail-over of a file system, or a file that is moved to and fro.
    #[test]
    fn a_file_that_is_away_for_a_while_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let [path, aside] = ["r.jsonl", "aside"].map(|name| dir.path().join(name));
        let writer = RecordWriter::create(&path).unwrap();
        let every = Duration::from_millis(1);
        let looks = look_after(writer.place().unwrap(), every);
        let mut keeper = Keeper::new(Vec::new(), Some(writer), None, Format::Csv);
        keeper.looks = looks;
        std::fs::rename(&path, &aside).unwrap();
        std::thread::sleep(20 * every);
        assert!(!keeper.lost_output());
        std::fs::rename(&aside, &path).unwrap();
        keeper.finish().unwrap();
        assert_eq!(keeper.exit_code(true), 0);
    }

    #[test]
    fn the_progress_line_has_a_rate_and_what_is_left() {
        let half = PhaseProgress {
            phase: Phase::Write,
            trial: 0,
            done_bytes: 1 << 30,
            all_bytes: 2 << 30,
            ranks: 2,
            elapsed: Duration::from_secs(10),
            left: None,
        };
        assert_eq!(how_far_in(&half), "write, 50 % at 215 MB/s, 10 s left");
        let walled = PhaseProgress {
            trial: 1,
            left: Some(Duration::from_secs(3)),
            ..half
        };
        assert_eq!(
            how_far_in(&walled),
            "write of trial 2, 50 % at 215 MB/s, 3 s left"
        );
        let begun = PhaseProgress {
            done_bytes: 0,
            elapsed: Duration::ZERO,
            ..half
        };
        assert_eq!(how_far_in(&begun), "write, 0 %");
    }

    #[test]
    fn the_progress_line_names_the_race() {
        let race = |pass| {
            how_far(&Progress::Race(RaceProgress {
                pass,
                option: "pacing".to_owned(),
                round: 4,
                left: 3,
                of: 13,
            }))
        };
        assert_eq!(race(1), "pacing, round 4, 3 of 13 values");
        assert_eq!(race(2), "pacing again, round 4, 3 of 13 values");
    }

    #[test]
    fn the_progress_line_counts_failures() {
        let far = |failures| {
            how_far(&Progress::Draws {
                draws: 128,
                failures,
                left: Duration::from_secs(12),
            })
        };
        assert_eq!(far(0), "128 transfers, none failed, 12 s left");
        assert_eq!(far(2), "128 transfers, 2 failed, 12 s left");
    }
}
