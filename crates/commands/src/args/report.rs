//! `tonnage report`: files of records, and optional parts of the page.

use std::path::PathBuf;

use clap::Args;
use tonnage_judge::compare::CompareRequest;
use tonnage_judge::criteria::Criteria;
use tonnage_judge::metric::Metric;
use tonnage_units::{Fraction, Result};

/// `tonnage report`.
#[derive(Debug, Clone, PartialEq, Args)]
#[command(
    after_help = "The page is one file that asks the network for nothing and holds the records: `tonnage show PAGE` reads \
                        them again. It is complete where scripts and styles are forbidden, as where Jenkins shows \
                        artifacts; with --plain it has neither, so that nothing is refused there.\n\n\
                        Exit codes: 0 written, 1 it could not be written, 2 the request is wrong."
)]
pub struct ReportArgs {
    /// Files of results, as written with --output.
    #[arg(value_name = "FILE", required_unless_present = "compare")]
    pub files: Vec<PathBuf>,

    /// Compare side A and side B at the top of the page: a file of records for each, or one file of `tonnage ab`. The
    /// page also shows these records.
    #[arg(long, value_name = "FILE", num_args = 1..=2)]
    pub compare: Vec<PathBuf>,

    /// Metrics of the comparison, joined by commas, as `tonnage compare` takes them.
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        requires = "compare"
    )]
    pub metric: Vec<Metric>,

    /// Keys of points that may differ between the sides of the comparison, joined by commas.
    #[arg(long, value_name = "KEYS", value_delimiter = ',', requires = "compare")]
    pub ignore: Vec<String>,

    /// Differences of the machine and its variables that do not matter, joined by commas.
    #[arg(long, value_name = "KEYS", value_delimiter = ',', requires = "compare")]
    pub accept: Vec<String>,

    /// Smallest difference that matters, relative to A.
    #[arg(
        long,
        value_name = "PERCENT",
        default_value = "5%",
        requires = "compare"
    )]
    pub margin: Fraction,

    /// Confidence of the intervals of the comparison.
    #[arg(
        long,
        value_name = "PERCENT",
        default_value = "95%",
        requires = "compare"
    )]
    pub confidence: Fraction,

    /// With fewer than 3 runs on a side of the comparison, compare their trials. The verdict then holds for these runs
    /// only.
    #[arg(long, requires = "compare")]
    pub by_trials: bool,

    /// Baseline, as written by `tonnage baseline`. The top of the page then has a verdict on each figure of hosts of
    /// its kinds.
    #[arg(long, value_name = "FILE")]
    pub baseline: Option<PathBuf>,

    /// Title of the page.
    #[arg(long, value_name = "TEXT", default_value = "Report of tonnage")]
    pub title: String,

    /// Leave out the style and the script, for viewers that forbid both.
    #[arg(long)]
    pub plain: bool,

    /// File to which the page is written.
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,

    /// Replace the file of --output if it is there.
    #[arg(long)]
    pub force: bool,
}

impl ReportArgs {
    /// Returns the request for the comparison.
    pub fn request(&self) -> Result<CompareRequest> {
        Ok(CompareRequest {
            metrics: self.metric.clone(),
            ignore: self.ignore.clone(),
            accept: self.accept.clone(),
            criteria: Criteria {
                by_trials: self.by_trials,
                ..Criteria::new(self.margin.0, self.confidence.0)?
            },
        })
    }
}
