//! Reports: pure functions to text. Those of measurements need records only, so that any can be redrawn from a file a
//! year later; the pages of `tonnage devices` and of the tour are also drawn from what was found on this host.
//!
//! | module | what it makes |
//! | --- | --- |
//! | [`drawer`] | the list of reports, and the one way to draw records of any kind: title, tables, lines below |
//! | [`transfer`], [`files`], [`connect`], [`stress`], [`tune`], [`collective`] | the reports of the kinds |
//! | [`verify`] | tables of a run that checks bytes instead of timing them |
//! | [`baseline`] | figures of kinds of hosts, and a host beside them |
//! | [`history`] | a metric over runs |
//! | [`compare`] | two sides beside each other, with a verdict on each point |
//! | [`export`] | records for Prometheus, pages of CI systems and github-action-benchmark |
//! | [`layers`] | the table of what each layer keeps of the one that it stands on |
//! | [`table`], [`markdown`] | tables of figures, for a screen and for Markdown |
//! | `blocks` | columns of tables that are wider than a screen |
//! | [`csv`] | every figure for programs |
//! | [`explain`], [`derived`] | meanings of columns, for `tonnage explain`, and the columns that are no figures |
//! | [`engine`], [`wire_proof`] | an engine's library and devices; the devices that the payload crossed |
//! | [`cpu_loss`] | CPU time that ranks did not get, and what took it |
//! | `driver_start` | the time in which drivers of GPUs started |
//! | `filling` | devices whose memory is filled and verified by copies |
//! | [`published`] | figures of others beside ours |
//! | [`place`] | sockets of workers that exchange bytes, in titles |
//! | [`tour`] | the page that a tour ends with |
//! | [`devices`] | the page of `tonnage devices`: this host, and the lists of engines and memories |
//! | [`text`] | lines that end before the screen does |
//!
//! Nothing here measures or reads a file, and tables know no engine by name. Records come from `tonnage_record`, the
//! host from `tonnage_machine`, the lists from whoever calls. Next: [`tonnage_record::figures`] for what a figure
//! means, [`drawer`] for how it is laid out.

#![forbid(unsafe_code)]

pub mod baseline;
mod blocks;
pub mod collective;
pub mod compare;
pub mod connect;
pub mod cpu_loss;
pub mod csv;
pub mod derived;
pub mod devices;
pub mod drawer;
mod driver_start;
pub mod engine;
pub mod explain;
pub mod export;
pub mod files;
mod filling;
pub mod history;
pub mod hosts;
pub mod layers;
pub mod markdown;
pub mod place;
pub mod published;
pub mod stress;
pub mod table;
pub mod text;
pub mod tour;
pub mod transfer;
pub mod tune;
pub mod verify;
pub mod wire_proof;

#[cfg(test)]
mod samples;
#[cfg(test)]
mod tests;

use tonnage_record::read::final_attempts;
use tonnage_record::{Record, checksum};
use tonnage_units::{Result, names};

pub use drawer::sections;
use drawer::tables;
use table::Markup;

names! {
    /// Formats that `--format` chooses from.
    pub enum Format: "format" {
        /// Tables for people.
        Table = "table",
        /// One JSON record per line.
        Jsonl = "jsonl",
        /// Comma-separated values with a head line.
        Csv = "csv",
    }
}

#[expect(
    clippy::derivable_impls,
    reason = "names! gives no attributes to values"
)]
impl Default for Format {
    fn default() -> Self {
        Self::Table
    }
}

/// Draws records in a format. Tables leave out attempts that failed and were made again. No records give an empty text,
/// or a header alone.
///
/// # Errors
/// When a record cannot be written as JSON.
pub fn render(format: Format, records: &[Record]) -> Result<String> {
    match format {
        Format::Jsonl => {
            let lines = records
                .iter()
                .map(|record| Ok(checksum::line(record)? + "\n"));
            lines.collect()
        }
        Format::Csv => Ok(csv::csv(records)),
        Format::Table => Ok(tables(&final_attempts(records), Markup::Plain)),
    }
}
