//! `tonnage baseline`: creates a baseline from records, or compares two baselines.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;

use tonnage_judge::baseline::Baseline;
use tonnage_judge::baseline::build::baseline as built;
use tonnage_judge::baseline::by_hand::HandValue;
use tonnage_judge::baseline::drift::drift;
use tonnage_judge::baseline::read::BASELINE_BYTES_MAX;
use tonnage_record::Record;
use tonnage_record::read::final_attempts;
use tonnage_report::baseline::{built as page, drifted, point_namer};
use tonnage_units::message::print_message;
use tonnage_units::{Error, Result};

use super::atomic_file::{refuse_existing, replace};
use super::print;
use super::record_files::{is_same_file, records_of};
use crate::args::baseline::BaselineArgs;

/// Creates a baseline, or prints the difference between two baselines.
pub fn baseline(args: &BaselineArgs) -> Result<ExitCode> {
    let Some(output) = args.output.as_deref() else {
        return difference(args);
    };
    refuse_existing(output, args.force)?;
    let by_hand = match args.by_hand.as_deref() {
        Some(path) => HandValue::read_all(&text_of(path)?, &path.display().to_string())?,
        None => Vec::new(),
    };
    let mut files: Vec<(String, Vec<Record>)> = Vec::with_capacity(args.files.len());
    let mut runs: BTreeSet<String> = BTreeSet::new();
    for (at, path) in args.files.iter().enumerate() {
        let shown = path.display().to_string();
        if args.files[..at]
            .iter()
            .any(|known| is_same_file(known, path))
        {
            return Err(Error::Usage(format!(
                "{shown} is named twice: its runs would count twice"
            )));
        }
        let records = final_attempts(&records_of(path)?);
        let own: BTreeSet<String> = records.iter().map(|record| record.run_id.clone()).collect();
        if let Some(run) = own.intersection(&runs).next() {
            return Err(Error::Usage(format!(
                "{shown} holds run {run}, which a file before it has too: name each run once"
            )));
        }
        runs.extend(own);
        files.push((shown, records));
    }
    let all: Vec<&Record> = files.iter().flat_map(|(_, records)| records).collect();
    let name_of = point_namer(&all);
    let made = built(&files, &args.request(by_hand), &name_of)?;
    let text = made.baseline.to_toml()?;
    // A baseline that `tonnage check` would refuse must not be written.
    Baseline::from_toml(&text, &output.display().to_string())?;
    replace(output, &text, args.force)?;
    print(&page(&made, &output.display().to_string()))?;
    Ok(ExitCode::SUCCESS)
}

fn difference(args: &BaselineArgs) -> Result<ExitCode> {
    let [old, new] = args.files.as_slice() else {
        return Err(Error::Usage(format!(
            "--diff takes the old baseline and the new one, and {} files are named",
            args.files.len()
        )));
    };
    let found = drift(&read(old)?, &read(new)?)?;
    let names = [old, new].map(|path| path.display().to_string());
    print(&drifted(&found, [&names[0], &names[1]]))?;
    let failing = found.iter().filter(|entry| entry.drift.is_worse()).count();
    if failing > 0 {
        print_message(&format!(
            "error: {failing} of {} entries are slower in {}, or fail there",
            found.len(),
            names[1]
        ));
    }
    Ok(ExitCode::from(u8::from(failing > 0)))
}

/// Reads a baseline.
pub fn read(path: &Path) -> Result<Baseline> {
    Baseline::from_toml(&text_of(path)?, &path.display().to_string())
}

/// Reads the text of a baseline, or of a file with values set by hand.
pub fn text_of(path: &Path) -> Result<String> {
    let shown = path.display();
    let unreadable = |why: &dyn std::fmt::Display| {
        Error::Usage(format!(
            "{shown} cannot be read: {why}; `tonnage baseline` makes a baseline of records"
        ))
    };
    let metadata = std::fs::metadata(path).map_err(|error| unreadable(&error))?;
    if metadata.is_dir() || metadata.len() > BASELINE_BYTES_MAX {
        return Err(unreadable(&"it is not a file of at most 16 MiB"));
    }
    std::fs::read_to_string(path).map_err(|error| unreadable(&error))
}
