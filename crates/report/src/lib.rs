//! Reports: pure functions from records to text. Measurement reports need only records, so they can be redrawn from a
//! file later. The pages of `tonnage devices` and of the tour also use facts about this host.
//!
//! | module | output |
//! | --- | --- |
//! | [`layout`] | the list of reports, and the common layout of a section: title, tables, footer |
//! | [`transfer`], [`files`], [`connect`], [`stress`], [`tune`], [`collective`] | reports per kind |
//! | [`verify`] | tables of a run that verifies data instead of timing it |
//! | [`baseline`] | baselines, and hosts compared with them |
//! | [`history`] | a metric over runs |
//! | [`compare`] | comparison of two sides, with a verdict per point |
//! | [`export`] | exports for Prometheus, CI systems and github-action-benchmark |
//! | [`layers`] | bandwidth of each layer relative to the layer below |
//! | [`result`] | the result at the start of a report |
//! | [`table`], [`markdown`] | tables of figures, for a screen and for Markdown |
//! | `column`, `grid`, `fit` | a column and its unit; aligned text; choice of the columns that fit a screen |
//! | [`remarks`] | remarks on rows |
//! | [`view`] | choices of the user: width, columns, units |
//! | [`csv`] | all figures, for programs |
//! | [`explain`], [`derived`] | explanations of columns, and columns that are not figures |
//! | [`engine`], [`wire_proof`] | an engine's library and devices; devices that the payload crossed |
//! | [`cpu_loss`] | CPU time that ranks lost, and its causes |
//! | `driver_start` | startup time of GPU drivers |
//! | `filling` | devices with memory filled and verified by copies |
//! | [`published`] | comparison with published figures |
//! | [`place`] | socket placement of peers, in titles |
//! | [`tour`] | the final page of a tour |
//! | [`devices`] | the pages of `tonnage devices` and `tonnage engines` |
//! | [`text`] | line wrapping |
//!
//! This crate measures nothing and reads no files, and its tables know no engine by name. Records come from
//! `tonnage_record`, and host facts from `tonnage_machine`. [`tonnage_record::figures`] defines the figures; [`layout`]
//! arranges them.

#![forbid(unsafe_code)]

pub mod baseline;
pub mod collective;
pub mod column;
pub mod compare;
pub mod connect;
pub mod cpu_loss;
pub mod csv;
pub mod derived;
pub mod devices;
mod driver_start;
pub mod engine;
pub mod explain;
pub mod export;
pub mod files;
mod filling;
mod fit;
mod grid;
pub mod history;
pub mod hosts;
pub mod layers;
pub mod layout;
pub mod markdown;
pub mod place;
pub mod published;
pub mod remarks;
pub mod result;
pub mod stress;
pub mod table;
pub mod text;
pub mod tour;
pub mod transfer;
pub mod tune;
pub mod verify;
pub mod view;
pub mod wire_proof;

#[cfg(test)]
mod samples;
#[cfg(test)]
mod tests;

use tonnage_record::read::final_attempts;
use tonnage_record::{Record, checksum};
use tonnage_units::{Result, names};

pub use layout::sections;
use layout::{tables, unfinished};
use table::Markup;
use view::{View, colored};

names! {
    /// Values of `--format`.
    pub enum Format: "format" {
        /// Plain-text tables.
        Table = "table",
        /// One JSON record per line.
        Jsonl = "jsonl",
        /// Comma-separated values with a header line.
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

/// Formats records; tables use [`View::default`].
///
/// # Errors
/// If a record cannot be serialized.
pub fn render(format: Format, records: &[Record]) -> Result<String> {
    render_for(format, records, &View::default())
}

/// Formats records. Tables leave out failed attempts that were repeated successfully. Without records, the text is
/// empty or only a header.
///
/// # Errors
/// If a record cannot be serialized.
pub fn render_for(format: Format, records: &[Record], view: &View) -> Result<String> {
    match format {
        Format::Jsonl => {
            let lines = records
                .iter()
                .map(|record| Ok(checksum::line_with_checksum(record)? + "\n"));
            lines.collect()
        }
        Format::Csv => Ok(csv::csv(records)),
        Format::Table => {
            let text = tables(&final_attempts(records), Markup::Plain(view));
            Ok(if view.colored { colored(&text) } else { text })
        }
    }
}

/// Formats the records of an unfinished run as plain-text tables without a result.
pub fn render_unfinished(records: &[Record], view: &View) -> String {
    unfinished(&final_attempts(records), view)
}
