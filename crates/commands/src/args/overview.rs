//! The overview of all commands, which `tonnage` alone and `tonnage -h` print.

use std::fmt::Write;

use clap::Command;

use super::EXIT_CODES;

/// Commands by purpose, in the order in which the overview lists them.
const GROUPS: [(&str, &[&str]); 4] = [
    (
        "Measure",
        &[
            "tour",
            "transfer",
            "collective",
            "file",
            "ior",
            "connect",
            "layers",
            "tune",
            "run",
        ],
    ),
    (
        "Check",
        &[
            "verify", "stress", "baseline", "check", "ab", "compare", "history",
        ],
    ),
    ("Read", &["show", "explain", "report", "export"]),
    (
        "Set up",
        &[
            "devices",
            "engines",
            "plans",
            "hosts",
            "from",
            "completions",
            "man",
        ],
    ),
];

/// Lines to try first.
const LINES_TO_TRY: [(&str, &str); 3] = [
    ("tonnage devices", "hardware here, and what is missing"),
    ("tonnage tour", "this host, on one page"),
    (
        "tonnage transfer --ranks 2 --engine shm --op write --sizes 8..1M",
        "one path",
    ),
];

/// Returns the overview. It describes each command with the first line of the command's own help.
pub fn text(program: &Command) -> String {
    let mut text = String::from(
        "tonnage measures how fast bytes really move in a cluster, and where they slow down.\n\n\
         Usage: tonnage COMMAND [OPTION…]\n",
    );
    for (purpose, commands) in GROUPS {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "\n{purpose}");
        for name in commands {
            let command = program.find_subcommand(name);
            let about = command.and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(text, "  {name:<12} {about}");
        }
    }
    text += "\nTry\n";
    for (line, meaning) in LINES_TO_TRY {
        let _ = writeln!(text, "  {line:<17} # {meaning}");
    }
    let _ = writeln!(
        text,
        "\nMore: `tonnage COMMAND -h` has the usual options of a command, `--help` all of them, `tonnage help\n\
         launch` those of ranks and hosts; `tonnage -V` prints the version.\n{}",
        EXIT_CODES.replace(", 128", ",\n128")
    );
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use clap::{CommandFactory, Parser};

    use super::super::Cli;
    use super::*;

    #[test]
    fn every_command_is_in_one_group() {
        let program = Cli::command();
        let mut listed: BTreeMap<&str, u32> = BTreeMap::new();
        for name in GROUPS.iter().flat_map(|(_, commands)| *commands) {
            *listed.entry(name).or_default() += 1;
        }
        let visible = program
            .get_subcommands()
            .filter(|command| !command.is_hide_set());
        let expected = visible.map(|command| (command.get_name(), 1)).collect();
        assert_eq!(listed, expected);
    }

    #[test]
    fn the_overview_fits_a_screen() {
        let text = text(&Cli::command());
        assert!(text.lines().count() <= 60, "{text}");
        for line in text.lines() {
            assert!(line.chars().count() <= 100, "{line}");
        }
    }

    #[test]
    fn lines_to_try_are_accepted() {
        for (line, _) in LINES_TO_TRY {
            Cli::try_parse_from(line.split(' ')).unwrap();
        }
    }
}
