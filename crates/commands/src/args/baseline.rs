//! `tonnage baseline`: creates a baseline from files of records, with thresholds relative to the median.

use std::path::PathBuf;

use clap::Args;
use tonnage_judge::baseline::build::{BaselineRequest, SLOW};
use tonnage_judge::baseline::by_hand::HandValue;
use tonnage_judge::metric::Metric;
use tonnage_units::Fraction;

/// `tonnage baseline`.
#[derive(Debug, Clone, PartialEq, Args)]
#[command(
    after_help = "A baseline has the figures of each kind of host (CPU, GPUs, devices, speed of links) and each point: \
                        median and MAD of the runs, and the figures beyond which `tonnage check` warns and fails. A point \
                        with too few runs, or whose runs spread as widely as the margin, is left out and said.\n\n\
                        Figures of a data sheet: --by-hand FILE with tables [[value]], each with point = { engine = \
                        \"shm\", size = \"1 MiB\" } (keys as `tonnage compare --format json` shows them), metric, value \
                        (in the unit of CSV, such as bytes per second) and source.\n\n\
                        Exit codes: 0 written, 1 it could not be written, or with --diff something is slower; 2 the \
                        request is wrong."
)]
pub struct BaselineArgs {
    /// Files of results, as written with --output; or two baselines with --diff.
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,

    /// The baseline to write.
    #[arg(short, long, value_name = "FILE", required_unless_present = "diff")]
    pub output: Option<PathBuf>,

    /// Replace the file of --output if it is there.
    #[arg(long, requires = "output")]
    pub force: bool,

    /// Show how far the second of two baselines is from the first, and write none.
    #[arg(long, conflicts_with_all = ["output", "metric", "matched", "leave_out", "by_hand"])]
    pub diff: bool,

    /// Metrics, joined by commas, as `tonnage compare` takes them. [default: each point's usual one]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub metric: Vec<Metric>,

    /// Facts that distinguish kinds of hosts, joined by commas, such as kernel or libraries.libfabric. CPU and GPUs
    /// always do.
    #[arg(long = "match", value_name = "KEYS", value_delimiter = ',')]
    pub matched: Vec<String>,

    /// Distance from the median at which a check warns.
    #[arg(long, value_name = "PERCENT", default_value = "5%")]
    pub warn: Fraction,

    /// Distance from the median at which a check fails.
    #[arg(long, value_name = "PERCENT", default_value = "10%")]
    pub fail: Fraction,

    /// Minimum number of runs for a figure.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub min_runs: u32,

    /// Minimum number of hosts for a figure.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub min_hosts: u32,

    /// Leave out the figures of these hosts, joined by commas. Without names, or with the word slow, leaves out all
    /// hosts that would fail.
    #[arg(long, value_name = "HOSTS", value_delimiter = ',', num_args = 0..=1, default_missing_value = SLOW, require_equals = true)]
    pub leave_out: Vec<String>,

    /// Take the figures of a data sheet from this file, instead of measured ones.
    #[arg(long, value_name = "FILE")]
    pub by_hand: Option<PathBuf>,
}

impl BaselineArgs {
    /// Returns the request. `by_hand` are the figures of a data sheet.
    pub fn request(&self, by_hand: Vec<HandValue>) -> BaselineRequest {
        BaselineRequest {
            metrics: self.metric.clone(),
            matched: self.matched.clone(),
            warn: self.warn.0,
            fail: self.fail.0,
            runs_min: self.min_runs as usize,
            hosts_min: self.min_hosts as usize,
            leave_out: self.leave_out.clone(),
            by_hand,
        }
    }
}
