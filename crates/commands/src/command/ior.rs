//! `ior`: converts a command line of IOR to a plan, and prints IOR's result block before tonnage's own tables.

use std::path::Path;
use std::process::ExitCode;

use tonnage_plan::Plan;
use tonnage_ranks::Identity;
use tonnage_record::writer::check_writable;
use tonnage_report::Format;
use tonnage_units::{Error, Result};

use super::block::{Block, check_summary};
use super::job::Job;
use super::measure::resolve::{identity_of, reports_for_all};
use super::measure::{start, start_or_print};
use super::print;
use super::rank_count::how_many;
use crate::args::common::RankArgs;
use crate::args::ior::{IorArgs, IorRequest, OwnArgs};
use tonnage_ior::options::{Api, IorOptions, SummaryFormat};
use tonnage_ior::{hints, translate};

/// `tonnage ior`.
pub fn ior(args: &IorArgs) -> Result<ExitCode> {
    match args.read()? {
        IorRequest::Help(text) => print(&text).map(|()| ExitCode::SUCCESS),
        IorRequest::Run(asked) => {
            let (options, own) = *asked;
            let job = job(&options, &own)?;
            if options.dry_run {
                return start(&job, true);
            }
            start_or_print(&job, &own.results)
        }
    }
}

/// Returns the job for a command line of IOR.
pub(crate) fn job(options: &IorOptions, own: &OwnArgs) -> Result<Job> {
    if own.results.runs.is_some() {
        return Err(Error::Usage(
            "--runs is for tonnage's own commands: IOR repeats a test by -i N, or write its plan by --print-plan and \
             measure that by `tonnage run PLAN --runs N`"
                .to_owned(),
        ));
    }
    let identity = identity_of(&own.ranks)?;
    let ranks = with_tasks(options, &own.ranks, identity.as_ref())?;
    let count = how_many(&ranks, &Plan::default(), identity.as_ref())?;
    let hints = match options.api {
        Api::Mpiio => hints::collect(variables(), options.hints_file.as_deref())?,
        Api::Posix | Api::Uring => Default::default(),
    };
    if let Some(warning) = hints
        .suspicious_line
        .filter(|_| reports_for_all(identity.as_ref()))
    {
        log::warn!("{warning}");
    }
    let placement = translate::RankPlacement {
        ranks: count,
        one_host: identity.is_none() && ranks.placement()?.is_none(),
    };
    let plan = translate::plan(options, hints.hints, &placement)?;
    let format = format(options, own.results.format)?;
    if let Some(path) = &options.summary_file
        && identity.is_none_or(|identity| identity.rank == 0)
    {
        check_writable(Path::new(path))?;
        check_summary(Path::new(path))?;
    }
    Ok(Job {
        output: own.results.output()?,
        format,
        view: own.results.view.view(own.results.format)?,
        require_path: own.results.require_path,
        block: Some(Block::new(options, own)),
        ..Job::new(own.results.scaled(plan, count)?, ranks)
    })
}

/// Returns the format of standard output after the block. `None` if the block itself is JSON or CSV, because then
/// nothing else may be printed.
fn format(options: &IorOptions, asked: Format) -> Result<Option<Format>> {
    let whole = options.summary_file.is_none() && options.summary_format != SummaryFormat::Text;
    match (whole, asked) {
        (false, asked) => Ok(Some(asked)),
        (true, Format::Table) => Ok(None),
        (true, _) => Err(Error::Usage(
            "standard output cannot have both IOR's summaryFormat and --format: add -O summaryFile=FILE, or leave one \
             of them out"
                .to_owned(),
        )),
    }
}

/// Applies `-N`: the number of ranks to start, or the number that a launcher must have started.
fn with_tasks(
    options: &IorOptions,
    asked: &RankArgs,
    identity: Option<&Identity>,
) -> Result<RankArgs> {
    let mut ranks = asked.clone();
    let Some(tasks) = options.tasks else {
        return Ok(ranks);
    };
    let tasks = u32::try_from(tasks).map_err(|_| {
        Error::Usage(format!(
            "-N {tasks} are far too many: write a number like 2"
        ))
    })?;
    match (identity, asked.asked()?) {
        (Some(identity), _) if identity.size != tasks => Err(Error::Usage(format!(
            "-N {tasks} does not fit the {} ranks that {} gives: all ranks take part, so start {tasks}, or leave -N out",
            identity.size, identity.source
        ))),
        (None, Some(count)) if count != tasks => {
            let asked = match asked.ranks {
                Some(asked) => format!("--ranks {asked}"),
                None => format!("the {count} ranks of the hosts"),
            };
            Err(Error::Usage(format!(
                "-N {tasks} and {asked} are mutually exclusive: leave one of them out"
            )))
        }
        _ => {
            ranks.ranks = Some(tasks);
            Ok(ranks)
        }
    }
}

/// Returns the environment variables, except those that are not Unicode.
fn variables() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonnage_ior::options::words;

    fn options(line: &str) -> IorOptions {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        words::read(&words, &[]).unwrap().ior
    }

    #[test]
    fn tasks_are_ranks() {
        let asked = |ranks| RankArgs {
            ranks,
            ..RankArgs::default()
        };
        let with = |line: &str, ranks| with_tasks(&options(line), &asked(ranks), None);
        assert_eq!(with("-N 3", None).unwrap().ranks, Some(3));
        assert_eq!(with("-N 3", Some(3)).unwrap().ranks, Some(3));
        assert_eq!(with("-w", Some(2)).unwrap().ranks, Some(2));
        let message = with("-N 3", Some(2)).unwrap_err().to_string();
        assert!(message.contains("leave one of them out"), "{message}");
    }

    #[test]
    fn standard_output_has_one_format() {
        let format = |line: &str, asked| super::format(&options(line), asked);
        assert_eq!(format("-w", Format::Table).unwrap(), Some(Format::Table));
        assert_eq!(format("-w", Format::Jsonl).unwrap(), Some(Format::Jsonl));
        let json = "-O summaryFormat=JSON";
        assert_eq!(format(json, Format::Table).unwrap(), None);
        assert!(format(json, Format::Csv).is_err());
        let to_file = "-O summaryFormat=JSON,summaryFile=s";
        assert_eq!(format(to_file, Format::Csv).unwrap(), Some(Format::Csv));
    }
}
