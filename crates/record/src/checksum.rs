//! The line of a record, with a checksum that reveals later changes of the line.
//!
//! The checksum is zlib's CRC-32 in eight hexadecimal digits. It covers the line up to the comma before the last key,
//! `checksum`. It reveals accidental changes and damage, not forgery.

use super::Record;
use tonnage_units::{Error, Result};

const KEY: &str = r#","checksum":""#;
const DIGITS: usize = 8;

/// Text after the digits of the checksum.
const END: &str = r#""}"#;

/// Returns the record as one line of JSON, without the newline.
///
/// # Errors
/// If the record cannot be written as JSON.
pub fn line_with_checksum(record: &Record) -> Result<String> {
    let text = serde_json::to_string(record);
    let text = text
        .map_err(|error| Error::Failed(format!("a record cannot be written as JSON: {error}")))?;
    let text = text.strip_suffix('}').unwrap_or(&text);
    let sum = crc32fast::hash(text.as_bytes());
    Ok(format!("{text}{KEY}{sum:0DIGITS$x}{END}"))
}

/// Returns whether a line is still as the writer wrote it. A line without a checksum counts as unchanged.
pub(crate) fn is_unchanged(line: &[u8]) -> bool {
    let line = line.trim_ascii_end();
    let Some(at) = line.len().checked_sub(KEY.len() + DIGITS + END.len()) else {
        return true;
    };
    let (text, tail) = line.split_at(at);
    let Some(sum) = tail.strip_prefix(KEY.as_bytes()) else {
        // The writer puts the key only at the end. If it appears elsewhere, the line was changed.
        return !line
            .windows(KEY.len())
            .any(|window| window == KEY.as_bytes());
    };
    sum == format!("{:0DIGITS$x}{END}", crc32fast::hash(text)).as_bytes()
}
