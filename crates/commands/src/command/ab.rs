//! `tonnage ab`: starts the runs of two sides alternately, and stores their records, each with the name of its side.
//!
//! Each run is a separate process with its own ranks, so that nothing is reused. The run writes its records as JSON
//! lines to a pipe, and this process writes them to the file at once. Measured results are therefore kept even if a
//! later run fails.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, IsTerminal};
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use tonnage_ranks::spawn::local::TURN_PARENT;
use tonnage_record::read::read_records_of;
use tonnage_record::writer::{RecordWriter, check_writable};
use tonnage_record::{Record, Side, SideName};
use tonnage_units::message::{print_message, truncate_message};
use tonnage_units::names::quote;
use tonnage_units::{Error, Result};

use super::atomic_file::refuse_existing;
use super::env;
use crate::args::Command as Asked;
use crate::args::ab::{AbArgs, AbSide};
use crate::parser_errors;

/// Exit codes from this value on mean that a signal ended the process.
const SIGNALLED: i32 = 128;

/// Measures two sides alternately.
pub fn ab(args: &AbArgs) -> Result<ExitCode> {
    let sides = sides(args)?;
    if let Some(identity) = tonnage_ranks::detect(&env, None)? {
        return Err(Error::Usage(format!(
            "`tonnage ab` starts its runs itself, and {} has started it as a rank: measure each side with the launcher and \
             a file of its own, by turns, and compare the two files",
            identity.source
        )));
    }
    refuse_existing(&args.output, args.force)?;
    check_writable(&args.output)?;
    for (name, side) in SideName::ALL.into_iter().zip(&sides) {
        check_plan(name, side)?;
    }
    let mut writer = FirstRecord::new(&args.output, args.force);
    let mut worst = 0;
    let mut pace = Pace::new(args);
    for turn in 0..2 * args.runs {
        if pace.is_next_too_long(turn) {
            log::warn!(
                "the time limit leaves no time for more than {turn} of {} runs",
                2 * args.runs
            );
            break;
        }
        let name = side_of(turn);
        let side = &sides[usize::from(name == SideName::B)];
        pace.announce(turn, name);
        let said = Side {
            name,
            turn,
            varied: side.varied.clone(),
        };
        let status = one_run(side, &said, &mut writer, pace.left())?;
        let code = status.code().unwrap_or(SIGNALLED);
        if code >= SIGNALLED || code == 2 {
            writer.finish()?;
            // The run has already printed the reason.
            log::warn!(
                "run {} (side {}) ended with {status}: no more runs",
                turn + 1,
                name.letter()
            );
            return Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)));
        }
        worst = worst.max(code);
    }
    writer.finish()?;
    Ok(ExitCode::from(u8::try_from(worst).unwrap_or(1)))
}

/// Measures the time that runs take, and the time that is left.
struct Pace {
    began: Instant,
    /// Start of the current pair of runs. The next field is the time of the longest pair so far.
    pair_began: Instant,
    longest_pair: Duration,
    limit: Option<Duration>,
    runs: u32,
}

impl Pace {
    fn new(args: &AbArgs) -> Self {
        let now = Instant::now();
        Self {
            began: now,
            pair_began: now,
            longest_pair: Duration::ZERO,
            limit: args.time_limit.map(|limit| Duration::from_nanos(limit.0)),
            runs: 2 * args.runs,
        }
    }

    /// Returns the time left until the limit; `None` without a limit.
    fn left(&self) -> Option<Duration> {
        let limit = self.limit?;
        Some(limit.saturating_sub(self.began.elapsed()))
    }

    /// Returns whether a pair that begins with this run would exceed the limit. The second run of a pair is never left
    /// out, because both sides need the same number of runs.
    fn is_next_too_long(&mut self, turn: u32) -> bool {
        if !turn.is_multiple_of(2) {
            return false;
        }
        if turn == 0 {
            // Without a run there is no result. The run itself refuses a limit that is too short for it.
            return false;
        }
        self.longest_pair = self.longest_pair.max(self.pair_began.elapsed());
        self.pair_began = Instant::now();
        // Each run keeps part of its own time limit free for its end, so a pair needs more than its measured time.
        let needed = self.longest_pair.mul_f64(1.2) + Duration::from_secs(1);
        self.left().is_some_and(|left| left < needed)
    }

    /// Prints which run begins, and about how long the remaining runs take. Without a terminal, logs this instead.
    fn announce(&self, turn: u32, name: SideName) {
        let elapsed = self.began.elapsed();
        let left = (turn > 0).then(|| elapsed / turn * (self.runs - turn));
        let left = left.map(|left| left.min(self.left().unwrap_or(Duration::MAX)));
        let left = left.map_or_else(String::new, |left| {
            format!(", about {} s left", left.as_secs_f64().ceil())
        });
        let side = name.letter();
        let text = format!("run {} of {}: side {side}{left}", turn + 1, self.runs);
        if std::io::stderr().is_terminal() {
            print_message(&text);
        } else {
            log::info!("{text}");
        }
    }
}

/// A file that is created or replaced only when its first record is written. If the first run is refused, an existing
/// file stays as it is.
struct FirstRecord<'a> {
    path: &'a Path,
    force: bool,
    writer: Option<RecordWriter>,
}

impl<'a> FirstRecord<'a> {
    fn new(path: &'a Path, force: bool) -> Self {
        Self {
            path,
            force,
            writer: None,
        }
    }

    fn write(&mut self, record: &Record) -> Result<()> {
        match &mut self.writer {
            Some(writer) => writer.write(record),
            None => {
                // Another process may have created the file since the first check.
                refuse_existing(self.path, self.force)?;
                let writer = self.writer.insert(RecordWriter::create(self.path)?);
                writer.write(record)
            }
        }
    }

    fn finish(self) -> Result<()> {
        self.writer.map_or(Ok(()), RecordWriter::finish)
    }
}

/// Returns the two sides. Their command lines are checked as far as possible without starting anything.
fn sides(args: &AbArgs) -> Result<[AbSide; 2]> {
    let sides = args.sides()?;
    for (name, side) in SideName::ALL.into_iter().zip(&sides) {
        // The options of another program are unknown.
        if side.program.is_none() {
            check(name.letter(), &side.arguments)?;
        }
    }
    Ok(sides)
}

/// Checks that a command line measures something and does not write the records itself.
fn check(side: &str, arguments: &[String]) -> Result<()> {
    let words = std::iter::once("tonnage".into()).chain(arguments.iter().map(OsString::from));
    let wrong = |what: &str| Err(Error::Usage(format!("side {side}: {what}")));
    let cli = match parser_errors::parse(&words.collect::<Vec<_>>()) {
        Ok(cli) => cli,
        Err(error) => return wrong(&error.to_string()),
    };
    let results = match &cli.command {
        Some(Asked::Experiment(args)) => &args.results,
        Some(Asked::Run(args)) => &args.results,
        Some(Asked::Layers(args)) => &args.results,
        _ => {
            let first = arguments.first().map_or("", String::as_str);
            return wrong(&format!(
                "{} is not a command that measures: write transfer, file, connect, stress, tune, collective, run or layers",
                quote(first)
            ));
        }
    };
    if results.output.is_some() || results.resume.is_some() {
        return wrong("records go to the file of `tonnage ab`: leave --output and --resume out");
    }
    if results.runs.is_some() {
        return wrong(
            "repetitions inside of one start would count as starts of their own: leave --runs out, and give it to \
             `tonnage ab`",
        );
    }
    if results.time_limit.is_some() {
        return wrong(
            "the limit is one of all runs: leave --time-limit out, and give it to `tonnage ab`",
        );
    }
    let is_long = |word: &String, name: &str| word == name || word.starts_with(&format!("{name}="));
    for option in ["--format", "--print-plan", "--dry-run"] {
        if arguments.iter().any(|word| is_long(word, option)) {
            return wrong(&format!(
                "`tonnage ab` reads the records itself: leave {option} out"
            ));
        }
    }
    if arguments.iter().any(|word| is_long(word, "--checkpoint")) {
        return wrong(
            "checkpoints need an output file, which a side does not have: leave --checkpoint out",
        );
    }
    Ok(())
}

/// Returns the side of a run, in the order A B, B A, A B, …: a steady drift then affects both sides equally.
fn side_of(turn: u32) -> SideName {
    match turn % 4 {
        0 | 3 => SideName::A,
        _ => SideName::B,
    }
}

fn command(side: &AbSide) -> Result<Command> {
    let program = match &side.program {
        Some(program) => program.clone(),
        None => std::env::current_exe()
            .map_err(|error| Error::io("cannot find this program's own file", error))?,
    };
    let mut command = Command::new(program);
    command
        .args(&side.arguments)
        .envs(side.variables.iter().map(|(name, value)| (name, value)))
        .env(TURN_PARENT, std::process::id().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    Ok(command)
}

fn start(mut command: Command, name: SideName) -> Result<Child> {
    let program = command.get_program().to_string_lossy().into_owned();
    command.spawn().map_err(|error| {
        let letter = name.letter();
        Error::Usage(format!("side {letter}: cannot start {program}: {error}"))
    })
}

/// Lets a side's program check its own plan.
fn check_plan(name: SideName, side: &AbSide) -> Result<()> {
    let mut command = command(side)?;
    command
        .arg("--print-plan")
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let ended = start(command, name)?.wait_with_output();
    let ended = ended.map_err(|error| Error::io("cannot wait for a run", error))?;
    if ended.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&ended.stderr);
    let said = said.trim().trim_start_matches("error: ");
    let why = if said.is_empty() {
        format!("its command line is refused ({})", ended.status)
    } else {
        truncate_message(said).to_string()
    };
    Err(Error::Usage(format!("side {}: {why}", name.letter())))
}

/// Starts one run, and writes its records to the file as they arrive.
fn one_run(
    side: &AbSide,
    said: &Side,
    writer: &mut FirstRecord<'_>,
    left: Option<Duration>,
) -> Result<ExitStatus> {
    let mut command = command(side)?;
    command.args(["--format", "jsonl"]);
    // Another program may not have this option.
    if let (Some(left), None) = (left, &side.program) {
        command.arg(format!("--time-limit={}ms", left.as_millis().max(1)));
    }
    let mut child = start(command, said.name)?;
    let kept = match child.stdout.take() {
        Some(pipe) => keep(BufReader::new(pipe), said, writer),
        None => Err(Error::Failed("the run has no standard output".to_owned())),
    };
    // If the records cannot be stored, the pipe is closed by now, and that ends the run.
    let status = child
        .wait()
        .map_err(|error| Error::io("cannot wait for a run", error))?;
    kept.map(|()| status)
}

fn keep(mut lines: impl BufRead, said: &Side, writer: &mut FirstRecord<'_>) -> Result<()> {
    let from = format!("run {} (side {})", said.turn + 1, said.name.letter());
    let mut line = Vec::new();
    loop {
        line.clear();
        let bytes = lines.read_until(b'\n', &mut line);
        if bytes.map_err(|error| Error::io(format!("cannot read the output of {from}"), error))?
            == 0
        {
            return Ok(());
        }
        for mut record in read_records_of(line.as_slice(), Path::new(&from))?.records {
            record.side = Some(said.clone());
            writer.write(&record)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_take_turns_so_that_drift_falls_on_both() {
        let order: String = (0..8).map(|turn| side_of(turn).letter()).collect();
        assert_eq!(order, "ABBAABBA");
        // After every second pair of runs, the sum of the run numbers is the same for both sides.
        let sum = |side| (0..8).filter(|&turn| side_of(turn) == side).sum::<u32>();
        assert_eq!(sum(SideName::A), sum(SideName::B));
    }

    fn sides_of(words: &str) -> Result<[AbSide; 2]> {
        let words = ["tonnage", "ab", "-o", "x"]
            .into_iter()
            .chain(words.split_whitespace())
            .map(OsString::from);
        match parser_errors::parse(&words.collect::<Vec<_>>())
            .unwrap()
            .command
        {
            Some(Asked::Ab(args)) => sides(&args),
            other => panic!("{other:?}"),
        }
    }

    const LINE: &str = "transfer --engine shm --op write --sizes 8";

    #[test]
    fn sides_are_two_lines_or_one_with_differences() {
        let [a, b] = sides_of(&format!("-- {LINE} -- run plan.toml")).unwrap();
        assert_eq!(a.arguments.join(" "), LINE);
        assert_eq!(b.arguments, ["run", "plan.toml"]);
        assert!(b.varied.is_empty() && b.program.is_none());
        let [_, b] = sides_of(&format!(
            "--b-env FI_X=a=b --b-library libfabric=/x.so --b-program /old -- {LINE}"
        ))
        .unwrap();
        assert_eq!(
            b.arguments.join(" "),
            format!("{LINE} --library libfabric=/x.so")
        );
        assert_eq!(b.variables, [("FI_X".to_owned(), "a=b".to_owned())]);
        assert_eq!(
            b.varied,
            ["program", "variables.FI_X", "libraries.libfabric"]
        );
        assert_eq!(b.program, Some("/old".into()));
        // With --a-program, that program is the reference.
        let [a, b] = sides_of(&format!("--a-program /old -- {LINE}")).unwrap();
        assert_eq!((a.program, b.program), (Some("/old".into()), None));
        assert_eq!(
            (&a.arguments, b.varied),
            (&b.arguments, vec!["program".to_owned()])
        );
    }

    #[test]
    fn invalid_sides_are_refused() {
        // L stands for a command line that can be measured.
        let refused = r#"
            -- L                              => both sides are the same
            -- L -- L -- L                    => two sides
            --b-env X=1 -- L -- L             => command line of its own
            --a-program /old -- L -- L        => command line of its own
            -- L -- devices                   => side B: "devices" is not a command
            -- L -o y -- L                    => side A: records go to
            -- L -- L --format=csv            => side B: `tonnage ab` reads
            -- L --runs 3 -- L               => side A: repetitions
            -- L --time-limit 9s -- L         => give it to `tonnage ab`
            --b-env X=1 -- L --checkpoint 1s  => leave --checkpoint out
            -- L --print-plan -- L            => leave --print-plan out
            -- L -- L --sices 9               => side B: tonnage transfer has no option
            -- L --                           => side B: "" is not a command
        "#;
        for row in refused.lines().filter(|row| !row.trim().is_empty()) {
            let (words, part) = row.split_once("=>").unwrap();
            let (words, part) = (words.replace('L', LINE), part.trim());
            let error = sides_of(&words).unwrap_err();
            assert!(error.to_string().contains(part), "{words}: {error}");
            assert_eq!(error.exit_code(), 2);
        }
    }
}
