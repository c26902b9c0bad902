//! Records for other programs: node_exporter, test reports, github-action-benchmark, pages in Markdown.
//!
//! | file | what it makes |
//! | --- | --- |
//! | `prometheus` | the text format of Prometheus, a series for each figure of a point |
//! | `junit` | a test case for each point |
//! | `benchmark` | the JSON array of github-action-benchmark |
//! | `naming` | short names of points |
//!
//! Markdown is what all reports are drawn in.

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

use crate::drawer::tables;
use crate::table::Markup;

names! {
    /// Formats of other programs.
    pub enum ExportFormat: "format" {
        /// Tables of `tonnage show` for pages on GitHub and the like.
        Markdown = "markdown",
        /// Text for the textfile collector of node_exporter.
        Prometheus = "prometheus",
        /// Test cases as Jenkins, GitLab and others read them.
        Junit = "junit",
        /// Array for the action github-action-benchmark.
        GithubBenchmark = "github-benchmark",
    }
}

/// Draws the records of some files for another program. Attempts that failed and were made again in the same file are
/// left out; Prometheus is told of the newest of all files. Metrics are those that were asked for; without any, the
/// usual ones of the format.
///
/// # Errors
/// `Usage` for metrics that the format does not take, or that nothing has a value for; for more series than Prometheus
/// should be given; and for records that the format can say nothing about.
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
    // The same point of another file may be another host's, so that its failure stays.
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

/// An export, and what a reader has to be told beside it.
#[derive(Debug)]
pub struct Exported {
    /// The text.
    pub text: String,
    /// Reasons why something of the records is not in it.
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

/// Names of the usual metrics of these rows, for a message about one that they do not have.
fn available<'a>(rows: impl Iterator<Item = Row<'a>>) -> String {
    let usual = rows.filter_map(|row| Metric::usual(&[&row]));
    let names: BTreeSet<&str> = usual.map(|metric| metric.name).collect();
    if names.is_empty() {
        return "nothing of them was measured".to_owned();
    }
    format!("they have {}", Vec::from_iter(names).join(", "))
}
