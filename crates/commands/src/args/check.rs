//! `tonnage check`: a baseline, a time budget, and the form of the result.

use std::path::PathBuf;

use clap::Args;
use tonnage_judge::check::ExitStyle;
use tonnage_plan::options::one_of;
use tonnage_units::{Nanos, Result};

use super::common::RankArgs;

/// Maximum of `--retest`.
const RETESTS_MAX: i64 = 10;

/// `tonnage check`.
#[derive(Debug, Clone, PartialEq, Args)]
#[command(
    after_help = "The last line of standard output is the reason, of at most 80 bytes: \"fail: shm write 1M 9.10 GB/s, \
                        fleet 13.40, least 12.10\". pass, warn; fail: the baseline is missed, a device is gone, its link \
                        is down or slower than it was, or the bytes went another way; skip: there is nothing to compare \
                        with; error: it could not be measured, which says nothing about the host.\n\n\
                        Exit codes (pass, warn, fail, skip, error, wrong request): plain 0 0 1 1 1 2, nagios 0 1 2 3 3 3, \
                        prolog 0 0 1 0 0 0."
)]
pub struct CheckArgs {
    /// The baseline, as `tonnage baseline` wrote it.
    #[arg(long, value_name = "FILE")]
    pub baseline: PathBuf,

    /// Time limit of the whole check. It measures the most significant points that fit, and ends a second early.
    #[arg(
        long = "time-limit",
        alias = "budget",
        value_name = "TIME",
        default_value = "20s"
    )]
    pub budget: Nanos,

    /// Style of the exit codes.
    #[arg(long, value_name = "STYLE", value_parser = one_of::<ExitStyle>(), default_value_t = ExitStyle::Plain)]
    pub exit: ExitStyle,

    /// Measure only those points of the baseline that this plan has too.
    #[arg(long, value_name = "FILE")]
    pub plan: Option<PathBuf>,

    /// Measure only points with one of these texts in their names, joined by commas, such as fabric:tcp or size=1MiB.
    #[arg(long, value_name = "TEXTS", value_delimiter = ',')]
    pub only: Vec<String>,

    /// Number of retests of a failure. A failure counts only if every retest fails too. If there is no time for
    /// retests, the failure becomes a warning.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=RETESTS_MAX))]
    pub retest: u32,

    /// Repeat verdicts of the same check that are younger than this, and mark them as repeated. Needs --state.
    #[arg(long, value_name = "TIME", requires = "state")]
    pub cache: Option<Nanos>,

    /// Directory for cached verdicts. Only this user may have write access.
    #[arg(long, value_name = "DIR", requires = "cache")]
    pub state: Option<PathBuf>,

    /// Write the verdicts as JSON to this file.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Replace the files of --output and --nodelist if they are there.
    #[arg(long)]
    pub force: bool,

    /// Write the hosts that failed to this file, as n[1-3,7].
    #[arg(long, value_name = "FILE")]
    pub nodelist: Option<PathBuf>,

    /// Check each host separately, all at the same time, with ranks on that host only. The hosts are those of --hosts,
    /// or those on which a launcher has started this command; the first process on each host makes the check. The
    /// reason names the hosts with the overall verdict.
    #[arg(long)]
    pub each_host: bool,

    /// Placement of ranks. --ranks and --hosts select points that were measured with the same numbers.
    #[command(flatten)]
    pub ranks: RankArgs,
}

impl CheckArgs {
    /// Returns the requested numbers of ranks and hosts. `None` stands for any number of ranks that fits on one host.
    pub fn shape(&self) -> Result<(Option<u32>, u32)> {
        let placement = self.ranks.placement()?;
        let hosts = placement
            .as_ref()
            .map_or(1, |placement| placement.hosts.len());
        Ok((
            self.ranks.asked()?,
            u32::try_from(hosts).unwrap_or(u32::MAX),
        ))
    }
}
