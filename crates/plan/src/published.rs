//! Tables of published figures, as they are written in plans: subject, columns and rows.
//!
//! A table belongs to an experiment, as `published = { what, columns, rows }` or a list of such tables. The crate
//! `record` defines the figures, so it checks the columns and finds the point of each row.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::options::one_or_many::Listed;
use crate::refuse::usage_error;
use tonnage_units::Result;
use tonnage_units::names::quote;

/// Published figures for several cells.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedTable {
    /// The machine on which they were measured, and anything else that a reader has to know.
    pub what: String,
    /// Headers, as tables print them. Columns of options select the point; columns of figures are compared with ours.
    pub columns: Vec<String>,
    /// Values, one per column in each row.
    pub rows: Vec<Vec<PublishedCell>>,
}

/// One value of a published table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged, expecting = "a number or a text")]
pub enum PublishedCell {
    /// A whole number.
    Count(u64),
    /// Any other number.
    Number(f64),
    /// Words, or a size such as 256k.
    Text(String),
}

impl PublishedCell {
    /// Returns the value of a number; `None` for text.
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Count(count) => Some(*count as f64),
            Self::Number(number) => Some(*number),
            Self::Text(_) => None,
        }
    }
}

/// Checks the tables and returns them in a form that all points of the experiment share.
pub(crate) fn check_and_share(tables: &[PublishedTable]) -> Result<Arc<[PublishedTable]>> {
    tables.iter().try_for_each(check)?;
    Ok(tables.into())
}

/// Refuses an invalid table.
fn check(table: &PublishedTable) -> Result<()> {
    let PublishedTable {
        what,
        columns,
        rows,
    } = table;
    let named = quote(what);
    if what.trim().is_empty() || what.chars().any(char::is_control) {
        return usage_error(format!(
            "what of published, {named}, is empty or has control characters: name the machine in one line of text"
        ));
    }
    if columns.is_empty() || rows.is_empty() {
        return usage_error(format!(
            "published of {named} has no figures: write columns = [\"MsgSize (B)\", \"Avg BW (GB/s)\"] and rows = [[8, 0.02]]"
        ));
    }
    for (row, number) in rows.iter().zip(1..) {
        if row.len() != columns.len() {
            return usage_error(format!(
                "row {number} of published of {named} has {} values for {} columns: use one for each",
                row.len(),
                columns.len()
            ));
        }
        let mut numbers = row.iter().filter_map(PublishedCell::number);
        if numbers.any(|value| !value.is_finite() || value < 0.0) {
            return usage_error(format!(
                "row {number} of published of {named} has a value that no measurement can give: use numbers from 0"
            ));
        }
    }
    Ok(())
}

impl Listed for PublishedTable {
    const EXPECTED: &'static str = "published as { what, columns, rows } or a list of such tables";
    const IS_TEXT: bool = false;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(columns: &[&str], rows: Vec<Vec<PublishedCell>>) -> PublishedTable {
        PublishedTable {
            what: "a machine".to_owned(),
            columns: columns.iter().map(|&name| name.to_owned()).collect(),
            rows,
        }
    }

    #[test]
    fn a_table_has_a_value_in_each_column() {
        let columns = ["MsgSize (B)", "Avg BW (GB/s)"];
        let row = |second: f64| {
            vec![
                PublishedCell::Text("8k".to_owned()),
                PublishedCell::Number(second),
            ]
        };
        assert!(check_and_share(&[table(&columns, vec![row(0.5), row(0.0)])]).is_ok());
        let nameless = PublishedTable {
            what: "\n".to_owned(),
            ..table(&columns, vec![row(1.0)])
        };
        for (wrong, said) in [
            (nameless, "is empty"),
            (table(&columns, vec![]), "has no figures"),
            (table(&[], vec![row(1.0)]), "has no figures"),
            (
                table(&columns, vec![row(1.0), vec![PublishedCell::Count(8)]]),
                "row 2 of published of \"a machine\" has 1 values for 2 columns",
            ),
            (table(&columns, vec![row(f64::NAN)]), "numbers from 0"),
            (table(&columns, vec![row(-1.0)]), "numbers from 0"),
        ] {
            let why = check_and_share(&[wrong]).unwrap_err();
            assert_eq!(why.exit_code(), 2);
            assert!(why.to_string().contains(said), "{why}");
        }
    }
}
