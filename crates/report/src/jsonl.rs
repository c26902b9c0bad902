//! Records as JSON lines, just as a results file holds them.

use tonnage_record::{Record, checksum};
use tonnage_units::Result;

/// One line for each record.
///
/// # Errors
/// When a record cannot be written as JSON.
pub fn jsonl(records: &[Record]) -> Result<String> {
    let mut text = String::new();
    for record in records {
        text.push_str(&checksum::line(record)?);
        text.push('\n');
    }
    Ok(text)
}
