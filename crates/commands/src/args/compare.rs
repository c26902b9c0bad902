//! `tonnage compare`: the records to compare, the metrics, and the verdicts that make the command fail.

use std::path::PathBuf;

use clap::Args;
use tonnage_judge::compare::CompareRequest;
use tonnage_judge::criteria::{Criteria, FailOn};
use tonnage_judge::metric::Metric;
use tonnage_plan::options::one_of;
use tonnage_report::compare::CompareFormat;
use tonnage_units::{Fraction, Result};

/// `tonnage compare`.
#[derive(Debug, Clone, PartialEq, Args)]
#[command(
    after_help = "Worse and better: the whole interval of the ratio B / A lies beyond the margin. Same: \
                        inside it. Unclear: neither, or fewer than 3 runs on a side. The unit is the run. With \
                        fewer than 3, --by-trials lets trials stand in; the verdict then holds for these runs only.\n\n\
                        Exit codes: 0 nothing that --fail-on names, 1 something that it names, 2 the request is wrong."
)]
pub struct CompareArgs {
    /// Records of side A and of side B, or one file in which `tonnage ab` wrote both.
    #[arg(value_name = "FILE", required = true, num_args = 1..=2)]
    pub files: Vec<PathBuf>,

    /// Metrics, joined by commas. Of transfers: bandwidth, message-rate, latency-p50, latency-p99, latency-p999,
    /// cpu-per-op. Of collectives: time, time-p50, busbw, algbw. Of files: iops, open, transfer, sync, close, total. Of
    /// connections: connections. Also any CSV column for which more or less is better. [default: bandwidth; latency-p99
    /// with --rate; latency-p50 with --ping-pong, and if there is no bandwidth; time of collectives; connections of
    /// connections]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub metric: Vec<Metric>,

    /// Keys of points that may differ between the sides, joined by commas, such as engine, engine-options, ranks, size
    /// or depth.
    #[arg(long, value_name = "KEYS", value_delimiter = ',')]
    pub ignore: Vec<String>,

    /// Smallest difference that matters, relative to A.
    #[arg(long, value_name = "PERCENT", default_value = "5%")]
    pub margin: Fraction,

    /// Confidence of the intervals.
    #[arg(long, value_name = "PERCENT", default_value = "95%")]
    pub confidence: Fraction,

    /// With fewer than 3 runs on a side, compare their trials. The verdict then holds for these runs only, because runs
    /// may differ more than the trials of one run.
    #[arg(long)]
    pub by_trials: bool,

    /// Differences of the machine and its variables that do not matter, joined by commas: the keys in the last table,
    /// such as kernel, cpu, libraries.libfabric or variables; and canary.
    #[arg(long, value_name = "KEYS", value_delimiter = ',')]
    pub accept: Vec<String>,

    /// Verdicts that make the command exit with code 1, joined by commas; unclear includes points that cannot be
    /// compared.
    #[arg(long, value_name = "VERDICTS", value_delimiter = ',', value_parser = one_of::<FailOn>(), default_value = "worse")]
    pub fail_on: Vec<FailOn>,

    /// Format of the comparison.
    #[arg(long, value_name = "FORMAT", value_parser = one_of::<CompareFormat>(), default_value_t = CompareFormat::Table,
        default_value_if("json", "true", "json"), conflicts_with = "json")]
    pub format: CompareFormat,

    /// Write JSON: the same as --format json.
    #[arg(short = 'j', long)]
    pub json: bool,

    /// Write the comparison to this file instead of standard output.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Replace the file of --output if it is there.
    #[arg(long, requires = "output")]
    pub force: bool,
}

impl CompareArgs {
    /// Returns the request that the command line makes.
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
