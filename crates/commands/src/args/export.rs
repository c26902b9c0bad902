//! `tonnage export`: files of records, and the program that will read them.

use std::path::PathBuf;

use clap::Args;
use tonnage_judge::metric::Metric;
use tonnage_plan::options::one_of;
use tonnage_report::export::ExportFormat;

/// `tonnage export`.
#[derive(Debug, Clone, PartialEq, Args)]
#[command(
    after_help = "prometheus: write to a name that ends with .prom, with --force, into the folder of node_exporter's \
                        textfile collector. The file is replaced in one step, so that nobody reads half of it.\n\n\
                        github-benchmark: an array has one direction. Of bandwidth, the default, more is better, so the \
                        action's tool is customBiggerIsBetter; of latencies and times it is customSmallerIsBetter. \
                        Each entry says it in \"extra\".\n\n\
                        Exit codes: 0 written, 1 it could not be written, 2 the request is wrong."
)]
pub struct ExportArgs {
    /// Files of results, as written with --output.
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,

    /// Format, named after the program that reads it.
    #[arg(long, value_name = "FORMAT", value_parser = one_of::<ExportFormat>())]
    pub to: ExportFormat,

    /// Metrics of prometheus and github-benchmark, joined by commas, as `tonnage compare` takes them. [default: of
    /// prometheus all that have a short name, of github-benchmark bandwidth]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub metric: Vec<Metric>,

    /// Write the export to this file instead of standard output.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Replace the file of --output if it is there.
    #[arg(long, requires = "output")]
    pub force: bool,
}
