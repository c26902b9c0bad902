//! Results of exporting, and words for metrics that records lack.

use std::collections::BTreeSet;

use tonnage_judge::metric::Metric;
use tonnage_record::figures::Row;

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
pub fn available<'a>(rows: impl Iterator<Item = Row<'a>>) -> String {
    let usual = rows.filter_map(|row| Metric::usual(&[&row]));
    let names: BTreeSet<&str> = usual.map(|metric| metric.name).collect();
    match names.is_empty() {
        true => "nothing of them was measured".to_owned(),
        false => {
            let names: Vec<&str> = names.into_iter().collect();
            format!("they have {}", names.join(", "))
        }
    }
}
