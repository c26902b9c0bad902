//! `tonnage history`: a metric of each point over all runs in some files.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use tonnage_judge::history::history as over_time;
use tonnage_record::Record;
use tonnage_record::read::final_attempts;
use tonnage_report::history::render;
use tonnage_units::{Error, Result};

use super::print;
use super::record_files::records_of;
use crate::args::history::HistoryArgs;

/// Extension of record files.
const RECORDS: &str = "jsonl";

/// Prints the history.
pub fn history(args: &HistoryArgs) -> Result<ExitCode> {
    let mut records: Vec<Record> = Vec::new();
    let mut files: BTreeSet<PathBuf> = BTreeSet::new();
    for path in &args.files {
        for file in files_of(path)? {
            // A file counts once, even if it is named both directly and by its directory.
            let known = file.canonicalize().unwrap_or_else(|_| file.clone());
            if files.insert(known) {
                records.extend(final_attempts(&records_of(&file)?));
            }
        }
    }
    let found = over_time(&records, &args.request())?;
    print(&render(args.format, &found, &records, &args.only)?)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns a file itself. For a directory, returns its record files, sorted by name.
fn files_of(path: &Path) -> Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let failed = |error| Error::io(format!("cannot read {}", path.display()), error);
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).map_err(failed)? {
        let file = entry.map_err(failed)?.path();
        if file.extension().is_some_and(|end| end == RECORDS) && file.is_file() {
            files.push(file);
        }
    }
    files.sort();
    if files.is_empty() {
        Err(Error::Usage(format!(
            "{} has no results files (*.{RECORDS})",
            path.display()
        )))
    } else {
        Ok(files)
    }
}
