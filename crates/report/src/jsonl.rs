//! Records as JSON lines, just as a results file holds them.

use tonnage_record::Record;
use tonnage_units::{Error, Result};

/// One line for each record.
///
/// # Errors
/// When a record cannot be written as JSON.
pub fn jsonl(records: &[Record]) -> Result<String> {
    let mut text = String::new();
    for record in records {
        let line = serde_json::to_string(record).map_err(|error| {
            Error::Failed(format!("a record cannot be written as JSON: {error}"))
        })?;
        text.push_str(&line);
        text.push('\n');
    }
    Ok(text)
}
