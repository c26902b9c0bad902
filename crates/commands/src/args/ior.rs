//! `tonnage ior`: IOR's own command line, mixed with tonnage's options.

use clap::{Args, CommandFactory, FromArgMatches, Parser};
use tonnage_units::{Error, Result};

use super::common::{LogLevel, RankArgs, ResultArgs};
use crate::parser_errors;
use tonnage_ior::help;
use tonnage_ior::options::IorOptions;
use tonnage_ior::options::check::check;
use tonnage_ior::options::words;
use tonnage_ior::options::words::OwnOption;

/// `tonnage ior`. [`IorArgs::read`] parses the words, because IOR's options have a different syntax from tonnage's.
#[derive(Debug, Clone, PartialEq, Default, Args)]
pub struct IorArgs {
    /// Options of IOR, and of tonnage: `tonnage ior --help` lists both.
    #[arg(
        value_name = "OPTIONS",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub words: Vec<String>,
}

/// tonnage's options that may be mixed with IOR's. Only their long names are accepted, because IOR uses the single
/// letters.
#[derive(Debug, Clone, PartialEq, Default, Parser)]
#[command(
    name = "tonnage ior",
    no_binary_name = true,
    disable_help_flag = true,
    max_term_width = 100
)]
#[command(override_usage = "tonnage ior [OPTIONS OF TONNAGE] [OPTIONS OF IOR]")]
pub struct OwnArgs {
    /// Placement of ranks.
    #[command(flatten)]
    pub ranks: RankArgs,
    /// Destination and format of results.
    #[command(flatten)]
    pub results: ResultArgs,
    /// Level of messages on standard error about tonnage's progress; -vv of IOR is info, and -vvv debug.
    #[arg(long, value_name = "LEVEL", value_enum)]
    pub log_level: Option<LogLevel>,
}

/// A parsed command line of `tonnage ior`.
#[derive(Debug, Clone, PartialEq)]
pub enum IorRequest {
    /// Print this help text.
    Help(String),
    /// Run a measurement.
    Run(Box<(IorOptions, OwnArgs)>),
}

impl IorArgs {
    /// Splits the words into IOR's and tonnage's options, and parses and checks both.
    pub fn read(&self) -> Result<IorRequest> {
        let mut command = own_command();
        let divided = words::read(&self.words, &own(&command))?;
        if divided.help {
            let ours = command.render_help();
            return Ok(IorRequest::Help(format!("{ours}\n{}", help::options())));
        }
        check(&divided.ior)?;
        let matches = command.try_get_matches_from_mut(&divided.own);
        let ours = matches.and_then(|matches| OwnArgs::from_arg_matches(&matches));
        let ours = ours.map_err(|error| {
            let line = ["tonnage".into(), "ior".into()];
            Error::Usage(parser_errors::text(&error, &line))
        })?;
        Ok(IorRequest::Run(Box::new((divided.ior, ours))))
    }

    /// Returns the words that are options of tonnage.
    pub fn own_words(&self) -> Result<Vec<String>> {
        Ok(words::read(&self.words, &own(&own_command()))?.own)
    }

    /// Returns the log level if the words set one. Errors in the words are ignored here, because the parser reports
    /// them later.
    pub fn log_level(&self) -> Option<LogLevel> {
        let Ok(IorRequest::Run(asked)) = self.read() else {
            return None;
        };
        let (options, ours) = *asked;
        ours.log_level.or(match options.verbose {
            0 | 1 => None,
            2 => Some(LogLevel::Info),
            _ => Some(LogLevel::Debug),
        })
    }
}

/// Returns the command with tonnage's own options.
pub fn own_command() -> clap::Command {
    OwnArgs::command()
        .about("IOR's command lines, measured by tonnage")
        .mut_args(|argument| argument.short(None))
}

/// Returns the names of tonnage's options, including hidden ones, and whether each takes a value.
fn own(command: &clap::Command) -> Vec<OwnOption> {
    let options = command.get_arguments().flat_map(|argument| {
        let hidden = argument.get_all_aliases().unwrap_or_default();
        let names = argument.get_long().into_iter().chain(hidden);
        names.map(|name| OwnOption {
            name: name.to_owned(),
            value: argument.get_action().takes_values(),
        })
    });
    options.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonnage_report::Format;

    #[test]
    fn earlier_names_of_options_are_read() {
        let Ok(IorRequest::Run(asked)) = read("-w -b 4m -t 4m --interface lo --times 2") else {
            panic!("not read");
        };
        let (_, ours) = *asked;
        assert_eq!(ours.ranks.control_interface.as_deref(), Some("lo"));
        assert_eq!(ours.results.runs, Some(2));
    }

    fn read(line: &str) -> Result<IorRequest> {
        let words = line.split_whitespace().map(str::to_owned).collect();
        IorArgs { words }.read()
    }

    #[test]
    fn options_of_both_are_read_wherever_they_stand() {
        let line = "-w --ranks 3 -b 4m --output r.jsonl -o t.dat --format=csv -t 4m --cpus 0-2 -k";
        let Ok(IorRequest::Run(asked)) = read(line) else {
            panic!("{line}");
        };
        let (options, ours) = *asked;
        assert_eq!(
            (options.block_bytes, options.path.as_str()),
            (4 << 20, "t.dat")
        );
        assert_eq!(ours.ranks.ranks, Some(3));
        assert_eq!(ours.results.output.unwrap().to_str(), Some("r.jsonl"));
        assert_eq!(ours.results.format, Format::Csv);
    }

    #[test]
    fn errors_are_reported_once() {
        for (line, part) in [
            ("--ranks two", "\"two\""),
            ("--format xml", "xml"),
            ("--rank 1", "--world-size"),
            ("-b 3m -t 2m", "-b 3145728"),
            ("--outpt x", "did you mean --output?"),
        ] {
            let message = read(line).unwrap_err().to_string();
            assert!(message.contains(part), "{line}: {message}");
            assert!(!message.starts_with("error"), "{line}: {message}");
        }
    }

    #[test]
    fn help_lists_the_options_of_both() {
        let Ok(IorRequest::Help(text)) = read("-w --help") else {
            panic!("no help");
        };
        for part in [
            "tonnage ior [OPTIONS",
            "--ranks <N>",
            "      --output <FILE>",
            "-b SIZE",
            "-M SIZE",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn verbosity_is_a_log_level() {
        let level = |line: &str| {
            let words = line.split_whitespace().map(str::to_owned).collect();
            IorArgs { words }.log_level()
        };
        assert_eq!(level("-v"), None);
        assert_eq!(level("-vv"), Some(LogLevel::Info));
        assert_eq!(level("-v -v -v"), Some(LogLevel::Debug));
        assert_eq!(level("-vvv --log-level error"), Some(LogLevel::Error));
        assert_eq!(level("-vv -M 2g"), None);
    }
}
