//! `tonnage history`: files of records over time.

use std::path::PathBuf;

use clap::Args;
use tonnage_judge::history::HistoryRequest;
use tonnage_judge::metric::Metric;
use tonnage_plan::options::one_of;
use tonnage_report::history::HistoryFormat;
use tonnage_units::Fraction;

/// `tonnage history`.
#[derive(Debug, Clone, PartialEq, Args)]
#[command(
    after_help = "A change is marked where the runs before it and those after differ by more than the margin and by more \
                        than chance (Welch's t on logarithms, 1 %, over all places that were looked at), from 3 runs on \
                        either side on; below it stands what changed in the surroundings then.\n\n\
                        Exit codes: 0 shown, 1 it could not be written, 2 the request is wrong."
)]
pub struct HistoryArgs {
    /// Files of results, or directories with *.jsonl files.
    #[arg(value_name = "FILE|DIR", required = true)]
    pub files: Vec<PathBuf>,

    /// Metrics, joined by commas, as `tonnage compare` takes them. [default: each point's usual one]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub metric: Vec<Metric>,

    /// Smallest relative change that matters.
    #[arg(long, value_name = "PERCENT", default_value = "5%")]
    pub margin: Fraction,

    /// Show only points with one of these texts in their names, joined by commas.
    #[arg(long, value_name = "TEXTS", value_delimiter = ',')]
    pub only: Vec<String>,

    /// Format of the history.
    #[arg(long, value_name = "FORMAT", value_parser = one_of::<HistoryFormat>(), default_value_t = HistoryFormat::Table,
        default_value_if("json", "true", "json"), conflicts_with = "json")]
    pub format: HistoryFormat,

    /// Write JSON: the same as --format json.
    #[arg(short = 'j', long)]
    pub json: bool,
}

impl HistoryArgs {
    /// Returns the request that the command line makes.
    pub fn request(&self) -> HistoryRequest {
        HistoryRequest {
            metrics: self.metric.clone(),
            margin: self.margin.0,
        }
    }
}
