//! Reads record files for commands that use many files and tolerate a few unreadable lines.

use std::path::{Path, PathBuf};

use tonnage_record::Record;
use tonnage_record::read::{ReadableRecords, read_readable};
use tonnage_units::{Error, Result};

/// Maximum number of skipped lines that are described. The rest are only counted.
const LEFT_OUT_SHOWN_MAX: usize = 5;

/// Returns the readable records of a file, and warns about all other lines.
pub fn records_of(path: &Path) -> Result<Vec<Record>> {
    let (records, left_out) = records_and_gaps(path, &path.display().to_string())?;
    if let Some(left_out) = left_out {
        log::warn!("{left_out}");
    }
    Ok(records)
}

/// Returns the readable records of a file, and a description of skipped lines. The description calls the file `name`.
pub fn records_and_gaps(path: &Path, name: &str) -> Result<(Vec<Record>, Option<String>)> {
    let ReadableRecords { records, left_out } = read_readable(path)?;
    let shown = path.display();
    if records.is_empty() {
        return Err(Error::Usage(match left_out.first() {
            None => format!("{shown} holds no records: results are written with -o FILE"),
            Some((line, why)) => {
                format!("{shown} holds no records that can be read: line {line}: {why}")
            }
        }));
    }
    if left_out.is_empty() {
        return Ok((records, None));
    }
    let lines = left_out.iter().take(LEFT_OUT_SHOWN_MAX);
    let lines: Vec<String> = lines
        .map(|(line, why)| format!("line {line}: {why}"))
        .collect();
    let more = match left_out.len().saturating_sub(LEFT_OUT_SHOWN_MAX) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    let words = format!(
        "{} of {} lines of {name} left out: {}{more}",
        left_out.len(),
        left_out.len() + records.len(),
        lines.join("; ")
    );
    Ok((records, Some(words)))
}

/// Refuses a list in which two paths name the same file.
pub fn refuse_twice(files: &[PathBuf]) -> Result<()> {
    for (at, file) in files.iter().enumerate() {
        if let Some(other) = files[..at].iter().find(|it| is_same_file(it, file)) {
            return Err(Error::Usage(format!(
                "{} and {} are the same file: name it once",
                other.display(),
                file.display()
            )));
        }
    }
    Ok(())
}

/// Returns whether two paths name the same file.
pub fn is_same_file(one: &Path, other: &Path) -> bool {
    let known = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    known(one) == known(other)
}
