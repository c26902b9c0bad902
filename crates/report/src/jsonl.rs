//! Records as JSON lines, just as a results file holds them.

use tonnage_record::Line;
use tonnage_units::{Error, Result};

/// One line for each record.
///
/// # Errors
/// When a record cannot be written as JSON.
pub fn jsonl(lines: &[Line]) -> Result<String> {
    let mut text = String::new();
    for line in lines {
        let line = serde_json::to_string(line).map_err(|error| {
            Error::Failed(format!("a record cannot be written as JSON: {error}"))
        })?;
        text.push_str(&line);
        text.push('\n');
    }
    Ok(text)
}
