//! The line of a record, with a checksum that tells when the line was changed afterwards.
//!
//! The checksum is the CRC-32 of zlib, in eight hexadecimal digits, of the line up to the comma before the key
//! `checksum`, which is the last one. It tells slips and damage, not malice.

use super::Record;
use tonnage_units::{Error, Result};

const KEY: &str = r#","checksum":""#;
const DIGITS: usize = 8;

/// Text that follows the digits.
const END: &str = r#""}"#;

/// The record as one line of JSON, without its end.
///
/// # Errors
/// When it cannot be written as JSON.
pub fn line(record: &Record) -> Result<String> {
    let text = serde_json::to_string(record);
    let text = text
        .map_err(|error| Error::Failed(format!("a record cannot be written as JSON: {error}")))?;
    let text = text.strip_suffix('}').unwrap_or(&text);
    let sum = crc32fast::hash(text.as_bytes());
    Ok(format!("{text}{KEY}{sum:0DIGITS$x}{END}"))
}

/// Returns whether a line is as it was written; one without a checksum is taken for it.
pub(crate) fn is_unchanged(line: &[u8]) -> bool {
    let line = line.trim_ascii_end();
    let Some(at) = line.len().checked_sub(KEY.len() + DIGITS + END.len()) else {
        return true;
    };
    let (text, tail) = line.split_at(at);
    let Some(sum) = tail.strip_prefix(KEY.as_bytes()) else {
        // Wherever else the key stands, the line has been changed.
        return !line
            .windows(KEY.len())
            .any(|window| window == KEY.as_bytes());
    };
    sum == format!("{:0DIGITS$x}{END}", crc32fast::hash(text)).as_bytes()
}
