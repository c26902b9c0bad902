//! Finds and replaces parts of a command line of tonnage that belong to other benchmarks.

use std::collections::VecDeque;
use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};
use tonnage_plan::options::command_line::quoted;
use tonnage_plan::sweep::Sweep;

use super::draft::filled;
use super::tables::{AMBIGUOUS, HABITS, Row, SECONDS, SWEEPS};
use super::values::{dtype, hosts, range, sweep, translated};
use super::{check, first_line, foreign, texts};
use crate::args::Cli;

/// Commands to examine. Other commands have few options, so users hardly mistake them for those of other benchmarks.
const COMMANDS: &[&str] = &[
    "transfer",
    "collective",
    "file",
    "tune",
    "connect",
    "stress",
    "verify",
    "layers",
    "run",
    "check",
];

/// Required options of a command, with values for a first try.
const COMPLETIONS: &[(&str, &[(&str, &str)])] = &[
    (
        "transfer tune",
        &[
            ("--engine", "shm"),
            ("--op", "write"),
            ("--sizes", "8..1M"),
            ("--ranks", "2"),
        ],
    ),
    (
        "collective",
        &[
            ("--backend", "native:shm"),
            ("--op", "all-reduce"),
            ("--sizes", "8..1M"),
            ("--ranks", "2"),
        ],
    ),
    ("file", &[("--path", "tonnage.dat")]),
    (
        "connect stress verify",
        &[("--engine", "shm"), ("--ranks", "2")],
    ),
    ("layers", &[("--ranks", "2")]),
];

/// Returns an error for this process's command line if the line has a foreign part.
pub fn refuse(words: &[OsString]) -> Option<String> {
    let words = texts(words)?;
    refuse_at(&words, &tonnage_sys::host::name())
}

pub(super) fn refuse_at(words: &[String], here: &str) -> Option<String> {
    let rest = words.get(1..)?;
    let begin = match rest {
        [level, _, ..] if level == "--log-level" => 2,
        [level, ..] if level.starts_with("--log-level=") => 1,
        _ => 0,
    };
    let (global, rest) = rest.split_at_checked(begin)?;
    let name = rest.first()?;
    let program = Cli::command();
    let Some(command) = program.find_subcommand(name) else {
        return foreign::is_foreign(rest).then(|| of_program(rest, here));
    };
    if !COMMANDS.contains(&command.get_name()) {
        return None;
    }
    let mut rewriting = Rewriting {
        command,
        program: &program,
        here,
        line: vec![command.get_name().to_owned()],
        kept: Vec::new(),
        hosts: Vec::new(),
        faults: Vec::new(),
        is_ambiguous: false,
    };
    rewriting.read(rest.get(1..)?.to_vec())?;
    let message = rewriting.message(global, words)?;
    // A part that looks foreign may be correct. A line that every check accepts is therefore never refused.
    super::check(words).is_err().then_some(message)
}

/// Returns the error for a line that has another program's name in place of a command of tonnage.
fn of_program(words: &[String], here: &str) -> String {
    let name = words.first().map(String::as_str).unwrap_or_default();
    match foreign::translate(words, here) {
        Ok((line, remarks)) => {
            let mut text = format!(
                "error: {name} is another program; here it is\n  {}",
                quoted(&line)
            );
            for remark in remarks {
                text += &format!("\n  # {remark}");
            }
            text
        }
        Err(error) => format!("error: {name} is another program: {error}"),
    }
}

/// A command line while its foreign parts are replaced.
struct Rewriting<'a> {
    command: &'a clap::Command,
    program: &'a clap::Command,
    here: &'a str,
    line: Vec<String>,
    kept: Vec<(String, String)>,
    hosts: Vec<String>,
    /// Foreign parts and their meanings.
    faults: Vec<String>,
    /// True if no line can be suggested, because a part has several meanings.
    is_ambiguous: bool,
}

/// Classification of a word that begins with a dash.
enum Known {
    No,
    Flag,
    /// An option of tonnage that takes the next word as its value. Contains the option's long name.
    TakesValue(String),
    /// An option of tonnage that takes the next word as its value, unless that word is an option.
    MayTakeValue,
    /// Help and version, to which the parser responds.
    Answered,
}

impl Rewriting<'_> {
    /// Reads all words. Returns `None` if the parser should respond instead.
    fn read(&mut self, words: Vec<String>) -> Option<()> {
        let mut words: VecDeque<String> = words.into();
        let has = |option: &str| words.iter().any(|word| word == option);
        let is_by_hand = (has("--rank") || has("--master")) && !has("--world-size");
        while let Some(word) = words.pop_front() {
            if word == "--" {
                return None;
            }
            if !word.starts_with('-') || word == "-" {
                self.positional(&word)?;
                continue;
            }
            if is_by_hand
                && self.has("--world-size")
                && (word == "--size" || word.starts_with("--size="))
            {
                let value = match word.split_once('=') {
                    Some((_, value)) => value.to_owned(),
                    None => words.pop_front()?,
                };
                self.faults.push(format!(
                    "--size is about bytes, and the number of ranks is --world-size {value}"
                ));
                self.set(vec!["--world-size".to_owned(), value]);
                continue;
            }
            match self.known(&word) {
                Known::Answered => return None,
                Known::Flag => {
                    let next = words.front().filter(|next| !next.starts_with('-'));
                    // `--verify crc`: a value of this option follows its `=`, so that the word cannot be a host.
                    if let (true, Some(next)) = (self.takes_attached_value(&word), next.cloned()) {
                        words.pop_front();
                        self.faults.push(format!("{word} takes no {next:?}"));
                    }
                    self.own_flag(word);
                }
                Known::MayTakeValue => {
                    let is_value = words.front().is_some_and(|next| !next.starts_with('-'));
                    let value = is_value.then(|| words.pop_front()).flatten();
                    self.line.push(word);
                    self.line.extend(value);
                }
                Known::TakesValue(long) => {
                    let (option, value) = match word.split_once('=') {
                        Some((option, value)) => (option.to_owned(), value.to_owned()),
                        None => (word, words.pop_front()?),
                    };
                    if long == "--devices"
                        && self.has("--dtype")
                        && let Some(dtype) = dtype(&value)
                    {
                        self.faults
                            .push(format!("{option} {value} is --dtype {dtype} here"));
                        self.set(vec!["--dtype".to_owned(), dtype]);
                    } else {
                        self.own_value(option, &long, &value);
                    }
                }
                Known::No => self.foreign(&word, &mut words)?,
            }
        }
        Some(())
    }

    fn known(&self, word: &str) -> Known {
        let long = word.strip_prefix("--");
        let long = long.map(|name| name.split('=').next().unwrap_or_default());
        let short = word.chars().nth(1);
        let letters = word.split('=').next().unwrap_or_default();
        let letters = letters.trim_end_matches(|c: char| c.is_ascii_digit());
        if letters.len() > 2 && long.is_none() && HABITS.iter().any(|row| self.fits(row, letters)) {
            // `-np` must not be read as `-n p`.
            return Known::No;
        }
        if matches!(long, Some("help" | "version"))
            || (long.is_none() && matches!(short, Some('h' | 'V')))
        {
            return Known::Answered;
        }
        let mut arguments = self
            .command
            .get_arguments()
            .chain(self.program.get_arguments());
        let found = arguments.find(|argument| match long {
            Some(name) => {
                argument.get_long() == Some(name)
                    || argument
                        .get_all_aliases()
                        .is_some_and(|all| all.contains(&name))
            }
            None => {
                argument.get_short() == short
                    || argument
                        .get_all_short_aliases()
                        .is_some_and(|all| short.is_some_and(|short| all.contains(&short)))
            }
        });
        let Some(argument) = found else {
            return Known::No;
        };
        // A letter followed by more letters is the foreign option with that name: `-np`.
        let is_letter = word.chars().count() == 2;
        let takes_value = argument.get_action().takes_values();
        let is_optional = argument
            .get_num_args()
            .is_some_and(|args| args.min_values() == 0);
        match (long, takes_value) {
            (None, true) if !is_letter => Known::Flag,
            (None, false) if !is_letter => Known::No,
            (_, true) if !is_optional => {
                Known::TakesValue(format!("--{}", argument.get_long().unwrap_or_default()))
            }
            (Some(_), true) if !argument.is_require_equals_set() && !word.contains('=') => {
                Known::MayTakeValue
            }
            _ => Known::Flag,
        }
    }

    /// Adds an option of tonnage that takes no value. Removes a value such as `=yes`.
    fn own_flag(&mut self, word: String) {
        if let Some((option, value)) = word.split_once('=')
            && ["yes", "true", "1", "on"].contains(&value)
            && self.is_refused(&[&word])
        {
            self.faults.push(format!("{option} takes no {value:?}"));
            self.line.push(option.to_owned());
            return;
        }
        self.line.push(word);
    }

    /// Adds an option of tonnage with its value. Values of other benchmarks are replaced by tonnage's.
    fn own_value(&mut self, option: String, long: &str, value: &str) {
        let each: Vec<_> = value
            .split(',')
            .map(|part| translated(long, part).unwrap_or_else(|| part.to_owned()))
            .collect();
        let mut better = Some(each.join(",")).filter(|text| text != value);
        // The parser accepts any engine name, so engines are always replaced. Other values are replaced only if the
        // parser refuses them.
        if better.is_some()
            && !["--engine", "--backend"].contains(&long)
            && !self.is_refused(&[&option, value])
        {
            better = None;
        }
        if SWEEPS.contains(&long) && value.parse::<Sweep>().is_err() {
            better = sweep(value);
        }
        if SECONDS.contains(&long)
            && value.parse::<f64>().is_ok()
            && self.is_refused(&[&option, value])
        {
            better = Some(format!("{value}s"));
        }
        self.line.push(long.to_owned());
        match better {
            Some(better) => {
                self.faults
                    .push(format!("{option} {value} is {long} {better} here"));
                self.line.push(better);
            }
            None => self.line.push(value.to_owned()),
        }
    }

    /// Returns whether the parser refuses these words because of a value.
    fn is_refused(&self, words: &[&str]) -> bool {
        let line = ["tonnage", self.command.get_name()]
            .into_iter()
            .chain(words.iter().copied());
        Cli::try_parse_from(line).is_err_and(|error| {
            matches!(
                error.kind(),
                ErrorKind::ValueValidation
                    | ErrorKind::InvalidValue
                    | ErrorKind::TooManyValues
                    | ErrorKind::UnknownArgument
            )
        })
    }

    /// Replaces a foreign option. Returns `None` if no row has it.
    fn foreign(&mut self, word: &str, words: &mut VecDeque<String>) -> Option<()> {
        let (option, attached) = match word.split_once('=') {
            Some((option, value)) => (option.to_owned(), Some(value.to_owned())),
            None => (word.to_owned(), None),
        };
        let next = words.front().filter(|next| !next.starts_with('-')).cloned();
        if AMBIGUOUS.iter().any(|(typed, ..)| *typed == option) {
            let value = attached.or_else(|| words.pop_front());
            return self.ambiguous(&option, &value.unwrap_or_default());
        }
        for row in HABITS {
            if !self.fits(row, &option) {
                continue;
            }
            let value = match (row.takes_value, &attached) {
                (true, Some(value)) => Some(value.clone()),
                (true, None) => match &next {
                    Some(next) => Some(next.clone()),
                    None => continue,
                },
                (false, _) => None,
            };
            let Some(new) = self.replacement(row, value.as_deref()) else {
                continue;
            };
            if row.takes_value && attached.is_none() {
                words.pop_front();
            }
            self.put(row, &option, new);
            return Some(());
        }
        // The value may be attached to the letters: `-np2`, `-t10`.
        let digits = option
            .find(|c: char| c.is_ascii_digit())
            .filter(|_| !option.starts_with("--"))?;
        let (letters, value) = option.split_at_checked(digits)?;
        if AMBIGUOUS.iter().any(|(typed, ..)| *typed == letters) {
            return self.ambiguous(letters, value);
        }
        let mut rows = HABITS
            .iter()
            .filter(|row| row.takes_value && self.fits(row, letters));
        let (row, new) = rows.find_map(|row| Some((row, self.replacement(row, Some(value))?)))?;
        self.put(row, letters, new);
        Some(())
    }

    /// Lists all meanings of an ambiguous option that this command has. Returns `None` if it has none of them.
    fn ambiguous(&mut self, option: &str, value: &str) -> Option<()> {
        let rows = AMBIGUOUS
            .iter()
            .filter(|(typed, _, here)| *typed == option && self.has(here));
        let meanings: Vec<_> = rows
            .map(|(_, meaning, here)| format!("for {meaning} use {here} {value}"))
            .collect();
        if meanings.is_empty() {
            return None;
        }
        let meanings = meanings.join(", ");
        self.faults.push(format!(
            "{option} has several meanings elsewhere: {meanings}"
        ));
        self.is_ambiguous = true;
        Some(())
    }

    /// Whether a value of this option can only follow its `=`.
    fn takes_attached_value(&self, word: &str) -> bool {
        let long = word.strip_prefix("--");
        let mut arguments = self.command.get_arguments();
        arguments.any(|argument| argument.get_long() == long && argument.is_require_equals_set())
    }

    /// Returns whether the command has an option with this long name.
    fn has(&self, option: &str) -> bool {
        let long = option.strip_prefix("--");
        let arguments = self.command.get_arguments();
        let mut arguments = arguments.chain(self.program.get_arguments());
        arguments.any(|argument| argument.get_long() == long)
    }

    fn replacement(&self, row: &Row, value: Option<&str>) -> Option<Vec<String>> {
        if row.to == "{rw}" {
            let words = match value? {
                "read" | "write" => "--phases write,read",
                "randread" | "randwrite" => "--phases write,read --order shuffled",
                _ => return None,
            };
            return Some(words.split(' ').map(str::to_owned).collect());
        }
        // If a row has no options, its value only has to look like a number.
        if row.to.is_empty() && row.takes_value && !value?.starts_with(|c: char| c.is_ascii_digit())
        {
            return None;
        }
        filled(row, value.unwrap_or_default(), self.here)
    }

    /// Returns whether the row applies to this option in this command.
    fn fits(&self, row: &Row, option: &str) -> bool {
        let name = self.command.get_name();
        row.typed.split(' ').any(|typed| typed == option)
            && (row.commands.is_empty() || row.commands.split(' ').any(|command| command == name))
            && row
                .to
                .split(' ')
                .filter(|word| word.starts_with("--"))
                .all(|word| self.has(word))
    }

    /// Adds the words for a foreign option to the line.
    fn put(&mut self, row: &Row, option: &str, new: Vec<String>) {
        if new.is_empty() {
            self.faults.push(format!("{option}: {}", row.remark));
            return;
        }
        if let [kept, value] = &new[..]
            && let Some(name) = kept.strip_prefix('@')
        {
            self.kept.push((name.to_owned(), value.clone()));
            self.faults
                .push(format!("{option} is part of --sizes here"));
            return;
        }
        let mut fault = format!("{option} is {} here", quoted(&new));
        if !row.remark.is_empty() {
            fault += &format!(" ({})", row.remark);
        }
        self.faults.push(fault);
        self.set(new);
    }

    /// Adds options to the line. An option with a value replaces an earlier value.
    fn set(&mut self, new: Vec<String>) {
        let mut new = new.into_iter().peekable();
        while let Some(option) = new.next() {
            let value = new.next_if(|next| !next.starts_with("--"));
            if let Some(at) = self.line.iter().position(|word| *word == option)
                && value.is_some()
                && at + 1 < self.line.len()
            {
                self.line.drain(at..at + 2);
            }
            self.line.push(option);
            self.line.extend(value);
        }
    }

    /// Reads a word that is not an option: an engine, an operation, sizes or a host. Returns `None` for other words.
    fn positional(&mut self, word: &str) -> Option<()> {
        if self.command.get_positionals().next().is_some() {
            self.line.push(word.to_owned());
            return Some(());
        }
        let is_collective = self.command.get_name() == "collective";
        let engine = if is_collective {
            "--backend"
        } else {
            "--engine"
        };
        for option in [engine, "--op"] {
            let has = self.has(option);
            let value = translated(option, word)
                .or_else(|| is_value(option, word, is_collective).then(|| word.to_owned()));
            if let (true, Some(value)) = (has, value) {
                self.faults.push(format!("{word} is {option} {value} here"));
                self.set(vec![option.to_owned(), value]);
                return Some(());
            }
        }
        if self.command.get_name() == "file" && word.contains('/') {
            self.faults.push(format!("{word} is --path {word} here"));
            self.set(vec!["--path".to_owned(), word.to_owned()]);
            return Some(());
        }
        let has_sizes = self.has("--sizes");
        let is_number = word.starts_with(|c: char| c.is_ascii_digit()) && !word.contains("..1.");
        if let (true, true, Some(sizes)) = (has_sizes, is_number, sweep(word)) {
            self.faults.push(format!("{word} is --sizes {sizes} here"));
            self.set(vec!["--sizes".to_owned(), sizes]);
            return Some(());
        }
        hosts(&format!("{word},x"), self.here)?;
        self.hosts.push(word.to_owned());
        Some(())
    }

    /// Returns the error if there is a foreign part or a required option is missing. `words` is the whole command line.
    fn message(mut self, global: &[String], words: &[String]) -> Option<String> {
        let kept = |name: &str| {
            let found = self.kept.iter().rev().find(|(kept, _)| kept == name);
            found.map(|(_, value)| value.clone())
        };
        if let Some(begin) = kept("begin").or_else(|| kept("end")) {
            let factor = kept("factor").map(|factor| format!("*{factor}"));
            let end = kept("end").unwrap_or_else(|| begin.clone());
            let sizes = range(&begin, &end, &factor.unwrap_or_default());
            self.set(vec!["--sizes".to_owned(), sizes]);
        } else if !self.kept.is_empty() {
            return None;
        }
        if !self.hosts.is_empty() {
            let all = hosts(&self.hosts.join(","), self.here)?;
            self.faults.push(format!("hosts are --hosts {all} here"));
            self.set(vec!["--hosts".to_owned(), all]);
        }
        let command = self.command.get_name();
        let is_only_incomplete = self.faults.is_empty();
        if is_only_incomplete {
            completions(command)?;
            self.faults.push(missing_options(words)?);
        }
        let faults = format!("error: tonnage {command}: {}", self.faults.join("; "));
        if self.is_ambiguous {
            return Some(faults);
        }
        let mut line = vec!["tonnage".to_owned()];
        line.extend(global.iter().cloned());
        line.append(&mut self.line);
        let mut text = faults;
        let mut added = Vec::new();
        if check(&line).is_err() {
            added = missing(command, &line);
            line.extend(added.clone());
        }
        match check(&line) {
            Ok(()) => {
                if !added.is_empty() && !is_only_incomplete {
                    text += &format!("\n  added, because it is required: {}", quoted(&added));
                }
                text += &format!("\n  {}", quoted(&line));
            }
            Err(error) => {
                text += &format!(
                    "\n  Then the line has another fault: {}",
                    first_line(&error.to_string())
                )
            }
        }
        Some(text)
    }
}

/// Names the required options that a command line lacks. Returns `None` if the line has another error.
fn missing_options(words: &[String]) -> Option<String> {
    let error = Cli::try_parse_from(words).err()?;
    if error.kind() != ErrorKind::MissingRequiredArgument {
        return None;
    }
    let Some(ContextValue::Strings(options)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let is_or_are = if options.len() == 1 { "is" } else { "are" };
    let names = options.iter().filter_map(|option| option.split(' ').next());
    let names = names.collect::<Vec<_>>().join(" and ");
    Some(format!("{names} {is_or_are} required, e.g."))
}

/// Returns whether a word is a value of this option. Only values that cannot be host names count.
fn is_value(option: &str, word: &str, is_collective: bool) -> bool {
    let known: &[&str] = match (option, is_collective) {
        ("--engine", _) => &[
            "null", "shm", "cuda", "hip", "cuda-ipc", "hip-ipc", "posix", "uring", "mpiio",
        ],
        ("--backend", _) => &["mpi"],
        (_, true) => &[
            "all-reduce",
            "all-gather",
            "all-to-all",
            "broadcast",
            "reduce",
            "reduce-scatter",
            "barrier",
        ],
        _ => &[
            "write",
            "read",
            "send",
            "write-imm",
            "fetch-add",
            "compare-swap",
        ],
    };
    let prefixes: &[&str] = match option {
        "--engine" => &["fabric:", "verbs:"],
        "--backend" => &["torch:", "native:"],
        _ => &[],
    };
    known.contains(&word) || prefixes.iter().any(|prefix| word.starts_with(prefix))
}

/// Returns the required options of a command, with values for a first try.
fn completions(command: &str) -> Option<&'static [(&'static str, &'static str)]> {
    let mut all = COMPLETIONS.iter();
    let found = all.find(|(commands, _)| commands.split(' ').any(|name| name == command));
    found.map(|(_, options)| *options)
}

/// Returns the required options that a line of this command lacks.
fn missing(command: &str, line: &[String]) -> Vec<String> {
    let options = completions(command).unwrap_or_default();
    let has = |option: &str| {
        let begin = format!("{option}=");
        line.iter()
            .any(|word| word == option || word.starts_with(&begin))
    };
    let placed = ["--hosts", "--hostfile", "--rank"];
    let mut words = Vec::new();
    let is_remote = has("--hosts") || has("--hostfile") || has("--rank");
    let is_rdma = line.iter().any(|word| foreign::is_rdma_device(word));
    for (option, value) in options {
        let value = match (*value, is_rdma, is_remote) {
            ("shm", true, _) => "verbs:rc",
            ("shm", false, true) => "fabric:tcp",
            ("native:shm", _, true) => "native:fabric:tcp",
            (value, _, _) => value,
        };
        let is_given = has(option)
            || (*option == "--ranks" && placed.iter().any(|option| has(option)))
            || (*option == "--sizes" && (has("--traffic-file") || has("--size")));
        if !is_given {
            words.extend([(*option).to_owned(), value.to_owned()]);
        }
    }
    words
}
