//! `-h` of each command: the options that most runs need, one line about each, an example, and where to find the rest.
//! `--help` has everything.

use clap::{Arg, Args, Command};

use super::common::RankArgs;

/// Options that `-h` shows, for commands with many options. `-h` of other commands shows all of their options.
const BASIC: [(&str, &[&str]); 10] = [
    (
        "transfer",
        &[
            "engine",
            "op",
            "sizes",
            "traffic",
            "bidirectional",
            "threads",
            "depth",
            "batch",
            "ping-pong",
            "queue-pairs",
            "duration",
            "until-ci",
            "memory",
            "verify",
            "ranks",
            "hosts",
            "devices",
            "gpus",
            "output",
            "format",
        ],
    ),
    (
        "file",
        &[
            "path",
            "layout",
            "block",
            "transfer",
            "phases",
            "order",
            "read-percent",
            "engine",
            "direct",
            "fsync",
            "drop-caches",
            "depth",
            "threads",
            "stonewall",
            "verify",
            "trials",
            "ranks",
            "hosts",
            "output",
            "format",
        ],
    ),
    (
        "collective",
        &[
            "backend", "op", "sizes", "dtype", "reduce", "memory", "python", "duration",
            "until-ci", "verify", "ranks", "hosts", "gpus", "output", "format",
        ],
    ),
    (
        "connect",
        &[
            "engine", "traffic", "threads", "register", "memory", "duration", "trials", "ranks",
            "hosts", "output", "format",
        ],
    ),
    (
        "stress",
        &[
            "engine", "op", "max-size", "threads", "memory", "seed", "duration", "ranks", "hosts",
            "output", "format",
        ],
    ),
    (
        "tune",
        &[
            "goal",
            "engine",
            "op",
            "sizes",
            "traffic",
            "memory",
            "trial-time",
            "ranks",
            "hosts",
            "devices",
            "output",
            "format",
        ],
    ),
    (
        "layers",
        &[
            "sizes",
            "engine",
            "backend",
            "python",
            "rounds",
            "trial-time",
            "ranks",
            "hosts",
            "output",
        ],
    ),
    (
        "verify",
        &[
            "engine",
            "op",
            "sizes",
            "traffic",
            "collectives",
            "backend",
            "python",
            "ranks",
            "hosts",
        ],
    ),
    (
        "check",
        &[
            "baseline",
            "time-limit",
            "exit",
            "only",
            "nodelist",
            "each-host",
            "hosts",
            "hostfile",
            "output",
        ],
    ),
    (
        "run",
        &[
            "engine",
            "path",
            "ranks",
            "hosts",
            "devices",
            "output",
            "resume",
            "runs",
            "scale",
            "print-plan",
        ],
    ),
];

/// An example for each command that takes options.
pub const EXAMPLES: [(&str, &str); 20] = [
    ("from", "tonnage from 'ib_write_bw -d mlx5_0 -s 4096 n1'"),
    (
        "transfer",
        "tonnage transfer --engine shm --op write --ranks 2 --sizes 8..1M",
    ),
    (
        "file",
        "tonnage file --path /tmp/t.dat --block 256M --transfer 1M --fsync end --ranks 2",
    ),
    (
        "collective",
        "tonnage collective --backend native:shm --op all-reduce --sizes 8..1M*8 --ranks 2",
    ),
    (
        "connect",
        "tonnage connect --engine fabric:tcp --ranks 2 --duration 1s",
    ),
    (
        "stress",
        "tonnage stress --engine shm,fabric:tcp --ranks 2 --duration 30s",
    ),
    (
        "tune",
        "tonnage tune --goal bandwidth --engine shm --op write --sizes 64k --ranks 2",
    ),
    ("layers", "tonnage layers --sizes 64,64k --ranks 2"),
    ("verify", "tonnage verify --engine shm,fabric:tcp"),
    ("run", "tonnage run gpu-node --scale 0.1"),
    ("tour", "tonnage tour --scale 0.1 -o tour.jsonl"),
    ("show", "tonnage show r.jsonl --format csv"),
    ("explain", "tonnage explain p99"),
    (
        "report",
        "tonnage report before.jsonl after.jsonl -o page.html",
    ),
    ("export", "tonnage export --to prometheus r.jsonl"),
    (
        "compare",
        "tonnage compare before.jsonl after.jsonl --margin 5%",
    ),
    ("baseline", "tonnage baseline fleet.jsonl -o baseline.json"),
    (
        "check",
        "tonnage check --baseline baseline.json --time-limit 20s",
    ),
    ("history", "tonnage history r1.jsonl r2.jsonl"),
    ("hosts", "tonnage hosts n1,n2 --push"),
];

/// Name of the page of options for ranks and hosts: `tonnage help launch`.
const LAUNCH: &str = "launch";

/// Shortens `-h` of every command. The long help stays as it is.
pub fn shorten(program: Command) -> Command {
    let program = program.mut_arg("log_level", |arg| arg.hide_short_help(true));
    program.mut_subcommands(|command| {
        // IOR's options have their own help.
        if command.get_name() == "ior" {
            return command;
        }
        let name = command.get_name().to_owned();
        let basic = BASIC.iter().find(|(command, _)| *command == name);
        let basic = basic.map(|(_, options)| *options);
        let long_end = command.get_after_long_help().or(command.get_after_help());
        let long_end = long_end.cloned();
        let command = command.mut_args(|arg| with_short_help(arg, basic));
        let command = match long_end {
            Some(text) => command.after_long_help(text),
            None => command,
        };
        command.after_help(end(&name, basic.is_some()))
    })
}

/// Returns the help page that these words request: `tonnage help launch`. `None` for other words.
pub fn page(words: &[String]) -> Option<String> {
    let [first, second] = words else {
        return None;
    };
    (first == "help" && second == LAUNCH).then(launch_page)
}

fn launch_page() -> String {
    let command = RankArgs::augment_args(Command::new(LAUNCH))
        .disable_help_flag(true)
        .max_term_width(100)
        .help_template(
            "Options that place ranks on hosts, CPUs and devices. All commands that start ranks accept them.\n\n\
             {all-args}\n",
        );
    let mut command = command;
    command.render_long_help().to_string()
}

fn with_short_help(arg: Arg, basic: Option<&[&str]>) -> Arg {
    let is_basic =
        basic.is_none_or(|options| arg.get_long().is_none_or(|long| options.contains(&long)));
    let Some(short) = arg.get_help().map(ToString::to_string) else {
        return arg;
    };
    let long = arg
        .get_long_help()
        .map_or_else(|| short.clone(), ToString::to_string);
    let arg = arg.help(first_sentence(&short)).long_help(long);
    if is_basic {
        arg
    } else {
        arg.hide_short_help(true)
    }
}

/// Maximum length of a default that is appended to a first sentence.
const DEFAULT_MAX: usize = 40;

/// Longest sentence that is shown in full.
const SENTENCE_MAX: usize = 66;

/// Returns the first sentence of a help text, or only its first clause if the sentence is long. Adds the default if
/// that is short.
fn first_sentence(text: &str) -> String {
    let end = text.find(". ").unwrap_or(text.len());
    let sentence = text[..end].trim_end_matches('.');
    let clause = [": ", "; "]
        .iter()
        .filter_map(|mark| sentence.find(mark))
        .min();
    let sentence = match clause {
        Some(end) if sentence.chars().count() > SENTENCE_MAX => &sentence[..end],
        _ => sentence,
    };
    let default = text[end..].rfind("[default: ").map(|at| &text[end..][at..]);
    match default {
        Some(default) if default.ends_with(']') && default.len() <= DEFAULT_MAX => {
            format!("{sentence} {default}")
        }
        _ => sentence.to_owned(),
    }
}

fn end(name: &str, has_more: bool) -> String {
    let example = EXAMPLES.iter().find(|(command, _)| *command == name);
    let mut text = example.map_or_else(String::new, |(_, line)| format!("Example:\n  {line}"));
    if has_more {
        text += &format!(
            "\n\nMore: `tonnage {name} --help` has all options, `tonnage help {LAUNCH}` those of ranks and hosts."
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::super::Cli;
    use super::*;

    const LINES_MAX: usize = 60;
    const COLUMNS_MAX: usize = 100;

    /// Returns the name of every command and the text of its `-h`.
    fn pages() -> Vec<(String, String)> {
        let mut program = shorten(Cli::command());
        program.build();
        let commands = program.get_subcommands_mut();
        let shown = commands.filter(|command| {
            !command.is_hide_set() && !["ior", "help"].contains(&command.get_name())
        });
        shown
            .map(|command| {
                let name = command.get_name().to_owned();
                // Without a terminal, help uses the maximum line length.
                (name, command.render_help().to_string())
            })
            .collect()
    }

    #[test]
    fn every_short_help_fits_a_screen() {
        for (name, page) in pages() {
            let lines = page.lines().count();
            assert!(lines <= LINES_MAX, "{name} has {lines} lines:\n{page}");
            for line in page.lines() {
                assert!(line.chars().count() <= COLUMNS_MAX, "{name}: {line}");
            }
        }
    }

    #[test]
    fn every_basic_option_exists_and_others_are_only_in_the_long_help() {
        let program = Cli::command();
        for (name, options) in BASIC {
            let command = program.find_subcommand(name).unwrap();
            for option in options {
                let mut all = command.get_arguments();
                assert!(
                    all.any(|arg| arg.get_long() == Some(option)),
                    "{name} --{option}"
                );
            }
        }
        let pages = pages();
        let (_, transfer) = pages.iter().find(|(name, _)| name == "transfer").unwrap();
        assert!(transfer.contains("--sizes") && !transfer.contains("--ssh-parallel"));
        assert!(transfer.contains("tonnage help launch"), "{transfer}");
    }

    #[test]
    fn examples_are_accepted() {
        for (name, line) in EXAMPLES {
            let parsed = Cli::try_parse_from(line.split(' '));
            assert!(parsed.is_ok(), "{name}: {}", parsed.unwrap_err());
            assert!(line.starts_with(&format!("tonnage {name}")), "{line}");
        }
    }

    #[test]
    fn the_page_of_launch_options_has_all_of_them() {
        let words = ["help", "launch"].map(str::to_owned);
        let page = page(&words).unwrap();
        for option in ["--ranks", "--hosts", "--push", "--devices", "--master"] {
            assert!(page.contains(option), "{page}");
        }
        assert_eq!(
            super::page(&["help".to_owned(), "transfer".to_owned()]),
            None
        );
    }

    #[test]
    fn a_short_help_is_the_first_sentence_with_its_default() {
        for (text, short) in [
            ("One line", "One line"),
            ("Two. Sentences.", "Two"),
            ("A pattern. [default: pair]", "A pattern [default: pair]"),
            (
                "Such as 10Gb/s or 1.25GB/s. More.",
                "Such as 10Gb/s or 1.25GB/s",
            ),
        ] {
            assert_eq!(first_sentence(text), short);
        }
    }
}
