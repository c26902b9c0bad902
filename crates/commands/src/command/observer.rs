//! Handles records on rank 0 as they arrive: writes them to the file, prints them, and keeps them for the table.
//!
//! On a terminal, the rows so far are shown above the progress line. Both are cleared before the whole table is
//! printed.

use std::fmt::Write;
use std::io::IsTerminal;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use rustix::termios::tcgetwinsize;
use tonnage_bench::observer::{
    CheckpointKeeper, IntervalListener, Observer, PhaseProgress, Progress, TrialCalls,
};
use tonnage_plan::{Planned, Point};
use tonnage_record::read::final_attempts;
use tonnage_record::writer::RecordWriter;
use tonnage_record::{Outcome, Record, RecordPlace, TuneBody};
use tonnage_report::Format;
use tonnage_report::view::View;
use tonnage_units::Result;
use tonnage_units::lock::lock;
use tonnage_units::quantity::human;

use super::spare::SpareWriter;
use super::time_left::TimeLeft;
use super::{each_call, intervals, print, screen};

/// Exit code of a wrong request. `Error::Usage` has the same code.
const WRONG_REQUEST: u8 = 2;

/// Time between two checks of the file during a measurement. It is long, because the measurement may use the same file
/// system.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// Time between two updates of the progress line.
const TICK: Duration = Duration::from_secs(1);

/// Warns once if the records file no longer has its name, because the next record may be days away. This is only a
/// warning: the file may come back before the next record or the end of the run.
fn watch_file(place: RecordPlace, every: Duration) -> Option<Sender<()>> {
    let (ended_by_drop, end) = channel();
    let look = move || {
        while let Err(RecvTimeoutError::Timeout) = end.recv_timeout(every) {
            if let Some(objection) = place.why_not_same() {
                log::warn!("{objection}: put it back, or the next record is kept in memory only");
                return;
            }
        }
    };
    let thread = std::thread::Builder::new().name("results".into());
    match thread.spawn(look) {
        // The thread is never joined, because it may hang in a file system.
        Ok(_) => Some(ended_by_drop),
        Err(error) => {
            log::debug!("the results file is looked at only with each record: {error}");
            None
        }
    }
}

/// Stores records, writes them to the file, and shows the progress of the run.
pub struct Keeper {
    /// All records of the run. The first are those of a resumed file.
    pub records: Vec<Record>,
    output: Arc<Mutex<Output>>,
    /// Dropping this sender ends the checks of the file.
    looks: Option<Sender<()>>,
    spare: Option<SpareWriter>,
    /// True if JSON lines are printed as they arrive, so that a reader of the pipe gets them at once.
    stream: bool,
    progress: ProgressBar,
    /// True if rows are shown as they arrive.
    shows_rows: bool,
    /// How the rows are shown.
    view: View,
    /// Estimate of the time left in the current run.
    time_left: Option<TimeLeft>,
    /// Expected end of all runs according to that estimate, for the progress line.
    end: Arc<Mutex<Option<Instant>>>,
    /// Description of the current point.
    point: String,
    /// Heading for lines about the point's calls. It is printed with the first of these lines.
    calls_heading: Option<String>,
}

/// The records file.
struct Output {
    writer: Option<RecordWriter>,
    /// Destination of checkpoints, if it is not the records file.
    checkpoints: Option<RecordWriter>,
    /// True after a failed write. The run continues so that the table can be printed, and ends with an error.
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
    /// Creates a keeper, beginning with the records of a resumed file.
    pub fn new(
        records: Vec<Record>,
        writer: Option<RecordWriter>,
        spare: Option<SpareWriter>,
        format: Format,
        view: View,
    ) -> Self {
        let is_shown = std::io::stderr().is_terminal();
        let end = Arc::new(Mutex::new(None));
        let progress = if is_shown {
            progress_line(&end)
        } else {
            ProgressBar::hidden()
        };
        screen::set_bar(is_shown.then(|| progress.clone()));
        let place = writer.as_ref().and_then(RecordWriter::place);
        Self {
            looks: place.and_then(|place| watch_file(place, WATCH_INTERVAL)),
            records,
            output: Arc::new(Mutex::new(Output {
                writer,
                checkpoints: None,
                is_lost: false,
            })),
            spare,
            stream: format == Format::Jsonl,
            shows_rows: format == Format::Table && !progress.is_hidden(),
            view,
            progress,
            time_left: None,
            end,
            point: String::new(),
            calls_heading: None,
        }
    }

    /// Announces the points of the next run. It is followed by `later_runs` runs with as many points.
    pub fn begin_run(&mut self, points: &[Planned], later_runs: u32) {
        self.time_left = Some(TimeLeft::new(points, later_runs));
    }

    /// Makes this writer the destination of checkpoints, instead of the records file.
    pub fn write_checkpoints_to(&self, writer: Option<RecordWriter>) {
        lock(&self.output).checkpoints = writer;
    }

    /// Writes a checkpoint that another process has sent.
    pub fn checkpoint(&self, record: &Record) {
        lock(&self.output).write_checkpoint(record);
    }

    /// Clears the progress line, and syncs the file to stable storage.
    pub fn finish(&mut self) -> Result<()> {
        self.looks = None;
        screen::set_bar(None);
        self.progress.finish_and_clear();
        let writer = lock(&self.output).writer.take();
        writer.map_or(Ok(()), RecordWriter::finish)
    }

    /// Returns whether a write to the file has failed.
    pub fn lost_output(&self) -> bool {
        lock(&self.output).is_lost
    }

    /// Returns whether the time limit ended the run before its last point.
    pub fn is_cut(&self) -> bool {
        final_attempts(&self.records)
            .iter()
            .any(|record| record.out_of_time)
    }

    /// Empties the backup, because all records have been printed.
    pub fn shown(&self) {
        if let Some(Err(error)) = self.spare.as_ref().map(SpareWriter::shown) {
            log::warn!("{error}: the supervisor may show the records once more");
        }
    }

    /// Returns the exit code of the run. It is 0 if everything was measured and stored, whether at the first or at a
    /// later attempt. Optional points that the machine cannot run do not count. `is_proven` is false if a point lacks
    /// required proof of its path.
    pub fn exit_code(&self, is_proven: bool) -> u8 {
        if self.lost_output() || !is_proven {
            return 1;
        }
        let all = final_attempts(&self.records);
        if is_nothing_measured_in_time(&all) {
            return 1;
        }
        if why_unavailable(&all).is_some() {
            return WRONG_REQUEST;
        }
        let missing: Vec<_> = all.iter().filter(|record| !record.is_fine()).collect();
        let is_refused = |record: &&Record| record.tune().is_some_and(TuneBody::is_refused);
        match missing.iter().all(is_refused) {
            _ if missing.is_empty() => 0,
            // A search is a wrong request if all its candidates were refused. The code is the same as for a search that
            // is refused before the ranks start.
            true => WRONG_REQUEST,
            false => 1,
        }
    }
}

/// Returns the reason if all points were skipped for the same reason, such as a device or library that is missing here.
/// The run then ends with the exit code of a wrong request.
pub fn why_unavailable(records: &[Record]) -> Option<&str> {
    let mut whys = records.iter().map(|record| match &record.outcome {
        Outcome::Skipped { why } if !record.is_fine() => Some(why.as_str()),
        _ => None,
    });
    let first = whys.next()??;
    whys.all(|why| why == Some(first)).then_some(first)
}

/// Returns whether the time limit ended the run before any point was measured.
pub fn is_nothing_measured_in_time(records: &[Record]) -> bool {
    let is_measured = |record: &Record| record.outcome == Outcome::Measured;
    records.iter().any(|record| record.out_of_time) && !records.iter().any(is_measured)
}

impl Observer for Keeper {
    fn begin(&mut self, index: usize, of: usize, point: &Point) {
        self.progress.set_length(of as u64);
        self.progress.set_position(index as u64);
        let left = self.time_left.as_ref().and_then(|left| left.at(index));
        *lock(&self.end) = left.map(|left| Instant::now() + left);
        self.point = point.any().progress();
        self.calls_heading = Some(each_call::heading(index, of, &self.point));
        self.progress.set_message(self.point.clone());
    }

    fn progress(&mut self, progress: &Progress) {
        if let Progress::Phase(_) | Progress::Draws { .. } = progress {
            // The text of this progress already has the time left.
            *lock(&self.end) = None;
        }
        let far = how_far(progress);
        self.progress.set_message(format!("{}: {far}", self.point));
    }

    fn intervals(&self) -> Option<IntervalListener> {
        Some(intervals::printer())
    }

    fn print_calls(&mut self, calls: &TrialCalls<'_>) {
        each_call::print_all(self.calls_heading.take().as_deref(), calls);
    }

    /// Checkpoints go only to the file. The point gets its own record when it ends.
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
            // The cause may be a limit on file sizes, which applies to files in memory too. The backup is emptied,
            // because a partial one would look complete.
            log::debug!("{error}: if rank 0 is lost, its records are not shown");
            self.shown();
            self.spare = None;
        }
        lock(&self.output).write(&record);
        self.records.push(record);
        if self.shows_rows {
            let rows = rows_so_far(&self.records, screen(), &self.view);
            self.progress.set_prefix(rows);
        }
        Ok(())
    }
}

/// Creates the progress line. It shows the time until `end`, if that is known.
fn progress_line(end: &Arc<Mutex<Option<Instant>>>) -> ProgressBar {
    let bar = ProgressBar::new(0);
    let end = Arc::clone(end);
    let left = move |_: &ProgressState, text: &mut dyn Write| {
        if let Some(end) = *lock(&end) {
            let left = end.saturating_duration_since(Instant::now());
            let seconds = left.as_secs_f64().ceil();
            // The progress bar ignores errors while it is drawn.
            let _ = write!(text, "about {seconds} s left, ");
        }
    };
    // The template is constant. If it could not be parsed, the line would only look different.
    if let Ok(style) =
        ProgressStyle::with_template("{prefix}{pos}/{len} {elapsed} {left}{wide_msg}")
    {
        bar.set_style(style.with_key("left", left));
    }
    bar.enable_steady_tick(TICK);
    bar
}

/// Returns the number of lines and columns of the terminal.
fn screen() -> (usize, usize) {
    match tcgetwinsize(std::io::stderr()) {
        Ok(size) if size.ws_row > 0 && size.ws_col > 0 => (size.ws_row.into(), size.ws_col.into()),
        _ => (24, 80),
    }
}

/// Returns the end of the report so far, as much as fits above the progress line on a terminal of this size.
fn rows_so_far(records: &[Record], (lines, columns): (usize, usize), view: &View) -> String {
    // A record takes at least one line, so earlier records would not be visible.
    let last = records.get(records.len().saturating_sub(lines)..);
    let view = View {
        width: Some(columns.saturating_sub(1)),
        ..view.clone()
    };
    let report = tonnage_report::render_unfinished(last.unwrap_or(records), &view);
    let all: Vec<&str> = report.lines().collect();
    // One line is for the progress, and one for the cursor.
    let first = all.len().saturating_sub(lines.saturating_sub(2));
    let cut = |line: &&str| {
        line.chars()
            .take(columns.saturating_sub(1))
            .chain(['\n'])
            .collect::<String>()
    };
    all.iter().skip(first).map(cut).collect()
}

/// Formats progress, such as `128 transfers, none failed, 12 s left`.
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
        // Formats it as `pacing, round 4, 3 of 13 values`.
        Progress::Race(race) => {
            let again = if race.pass > 1 { " again" } else { "" };
            format!(
                "{}{again}, round {}, {} of {} values",
                race.option, race.round, race.left, race.of
            )
        }
    }
}

/// Formats the progress of a phase, such as `write, 45 % at 1.93 GB/s, 12 s left`. The rate is rank 0's own rate times
/// the number of ranks, because all ranks have the same amount to do.
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

    /// A file disappears for a while if its file system fails over, or if a user moves it away and back.
    #[test]
    fn a_file_that_is_away_for_a_while_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let [path, aside] = ["r.jsonl", "aside"].map(|name| dir.path().join(name));
        let writer = RecordWriter::create(&path).unwrap();
        let every = Duration::from_millis(1);
        let looks = watch_file(writer.place().unwrap(), every);
        let mut keeper = Keeper::new(Vec::new(), Some(writer), None, Format::Csv, View::default());
        keeper.looks = looks;
        std::fs::rename(&path, &aside).unwrap();
        std::thread::sleep(20 * every);
        assert!(!keeper.lost_output());
        std::fs::rename(&aside, &path).unwrap();
        keeper.finish().unwrap();
        assert_eq!(keeper.exit_code(true), 0);
    }

    #[test]
    fn the_progress_line_has_a_rate_and_the_time_left() {
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
