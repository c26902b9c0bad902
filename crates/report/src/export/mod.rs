//! Exports records to other programs: node_exporter, CI test reports, github-action-benchmark, Markdown pages.
//!
//! | file | output |
//! | --- | --- |
//! | `prometheus` | Prometheus text format, one series per figure of a point |
//! | `junit` | one test case per point |
//! | `benchmark` | the JSON array of github-action-benchmark |
//! | `naming` | short names of points |
//!
//! Markdown uses the same reports as the screen.

mod benchmark;
mod junit;
pub(crate) mod naming;
mod prometheus;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use tonnage_judge::metric::Metric;
use tonnage_record::Record;
use tonnage_record::figures::Row;
use tonnage_record::read::final_attempts;
use tonnage_units::{Error, Result, names};

use crate::layout::tables;
use crate::table::Markup;

names! {
    /// Export formats.
    pub enum ExportFormat: "format" {
        /// Tables of `tonnage show` for GitHub pages and similar.
        Markdown = "markdown",
        /// Text for the textfile collector of node_exporter.
        Prometheus = "prometheus",
        /// Test cases for Jenkins, GitLab and others.
        Junit = "junit",
        /// Array for the action github-action-benchmark.
        GithubBenchmark = "github-benchmark",
    }
}

/// Exports the records of several files. Leaves out failed attempts that were repeated successfully in the same file.
/// For Prometheus, the newest record of each point in any file counts. Without `metrics`, uses the format's defaults.
///
/// # Errors
/// `Usage` if the format does not take metrics, if no point has a value, if there are too many series for Prometheus,
/// or if the format cannot represent the records.
pub fn export(format: ExportFormat, files: &[Vec<Record>], metrics: &[Metric]) -> Result<Exported> {
    let takes_metrics = matches!(
        format,
        ExportFormat::Prometheus | ExportFormat::GithubBenchmark
    );
    if !takes_metrics && !metrics.is_empty() {
        return Err(Error::Usage(format!(
            "--metric is for --to prometheus and --to github-benchmark: {format} has all points as they are"
        )));
    }
    // The same point in another file may come from another host, so a success there does not replace a failure here.
    let records: Vec<Record> = match format {
        ExportFormat::Prometheus => files.concat(),
        _ => files.iter().flat_map(|file| final_attempts(file)).collect(),
    };
    match format {
        ExportFormat::Markdown => Ok(tables(&records, Markup::Markdown).into()),
        ExportFormat::Prometheus => prometheus::prometheus(&records, metrics).map(Exported::from),
        ExportFormat::Junit => Ok(junit::junit(&records).into()),
        ExportFormat::GithubBenchmark => benchmark::benchmark(&records, metrics),
    }
}

/// An export and a remark for the user.
#[derive(Debug)]
pub struct Exported {
    /// The text.
    pub text: String,
    /// Why parts of the records are missing.
    pub left_out: Option<String>,
}

impl From<String> for Exported {
    fn from(text: String) -> Self {
        Self {
            text,
            left_out: None,
        }
    }
}

/// Lists default metrics of these rows, for an error about a metric that the rows lack.
fn available<'a>(rows: impl Iterator<Item = Row<'a>>) -> String {
    let usual = rows.filter_map(|row| Metric::default_for(&[&row]));
    let names: BTreeSet<&str> = usual.map(|metric| metric.name).collect();
    if names.is_empty() {
        return "nothing of them was measured".to_owned();
    }
    format!("they have {}", Vec::from_iter(names).join(", "))
}
