//! Options that ranks on other hosts need in addition to the plan: the placement of ranks and the log level.
//!
//! The options are taken from the command line as the user wrote it, so new options are passed on automatically.

use std::collections::BTreeSet;
use std::ffi::OsString;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, CommandFactory, Parser};
use tonnage_units::{Error, Result};

use super::common::{LogLevel, RankArgs};
use super::hosts::HostArgs;
use super::ior::{IorArgs, own_command};
use super::{Cli, values};

/// Options of a rank on another host.
#[derive(Debug, Clone, PartialEq, Parser)]
#[command(no_binary_name = true)]
pub struct RankWords {
    /// Placement of ranks, except options about hosts.
    #[command(flatten)]
    pub ranks: RankArgs,
    /// Log level.
    #[arg(long, value_enum, default_value_t = LogLevel::Warn)]
    pub log_level: LogLevel,
}

impl RankWords {
    /// Parses the output of [`words`].
    pub fn read(words: &[String]) -> Result<Self> {
        Self::try_parse_from(words).map_err(|error| Error::Usage(error.to_string()))
    }
}

/// Returns the rank options in a command line, including options about hosts. A run that this process starts gets them.
pub fn words_with_hosts(line: impl IntoIterator<Item = OsString>) -> Result<Vec<String>> {
    let wrong = |error: clap::Error| Error::Usage(error.to_string());
    let matches = Cli::command().try_get_matches_from(line).map_err(wrong)?;
    matches
        .subcommand()
        .map_or(Ok(Vec::new()), |(_, own)| rank_words(own, true))
}

/// Returns the rank options in a command line that was parsed before, without options about hosts.
pub fn words(line: impl IntoIterator<Item = OsString>) -> Result<Vec<String>> {
    let wrong = |error: clap::Error| Error::Usage(error.to_string());
    let matches = Cli::command().try_get_matches_from(line).map_err(wrong)?;
    let Some((name, own)) = matches.subcommand() else {
        return Ok(Vec::new());
    };
    if name != "ior" {
        return rank_words(own, false);
    }
    let words = own
        .get_many::<String>("words")
        .into_iter()
        .flatten()
        .cloned();
    let ours = IorArgs {
        words: words.collect(),
    }
    .own_words()?;
    let matches = own_command().try_get_matches_from(ours).map_err(wrong)?;
    rank_words(&matches, false)
}

fn rank_words(matches: &ArgMatches, with_hosts: bool) -> Result<Vec<String>> {
    let ids = |command: Command| -> BTreeSet<String> {
        let arguments = command.get_arguments();
        arguments
            .map(|argument| argument.get_id().to_string())
            .collect()
    };
    let hosts = ids(HostArgs::augment_args(Command::new("")));
    let all = RankWords::command();
    let mut words = Vec::new();
    for argument in all.get_arguments() {
        let id = argument.get_id().as_str();
        let is_said = matches.try_contains_id(id).unwrap_or(false)
            && matches.value_source(id) == Some(ValueSource::CommandLine);
        let (Some(long), true) = (
            argument.get_long(),
            is_said && (with_hosts || !hosts.contains(id)),
        ) else {
            continue;
        };
        for value in matches.get_raw(id).into_iter().flatten() {
            let value = values::unicode(value)?;
            words.push(format!("--{long}={value}"));
        }
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> RankWords {
        let words = words(line.split_whitespace().map(OsString::from)).unwrap();
        RankWords::read(&words).unwrap()
    }

    #[test]
    fn every_option_about_ranks_goes_along() {
        let options = "--cpus 0-3,8 --numa 1 --devices eth0,eth1 --devices-of 1=eth2,eth3 --devices-of 2=eth4 --gpus 0,2-3 --link-speed \
                       100Gb/s --library mpi=/m.so --libfabric /l.so --control-interface eth0 --log-level info";
        let found = read(&format!(
            "tonnage transfer --engine null --op write --hosts a,b --push {options}"
        ));
        let words: Vec<String> = options.split_whitespace().map(str::to_owned).collect();
        assert_eq!(found, RankWords::read(&words).unwrap());
        assert!(found.ranks.hosts == HostArgs::default() && found.log_level == LogLevel::Info);
        let ior = read("tonnage ior -w --hosts a,b -b 4m --cpus 0-2 -t 4m --ranks 2");
        assert_eq!(ior.ranks.cpus, "0-2".parse().ok());
        assert_eq!(
            read("tonnage --log-level debug run p.toml --hosts a").log_level,
            LogLevel::Debug
        );
    }
}
