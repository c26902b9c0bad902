//! IOR's result block, which is written if a command line of IOR requests it.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use tonnage_ior::block;
use tonnage_ior::block::RunFacts;
use tonnage_ior::options::{IorOptions, SummaryFormat};
use tonnage_record::Record;
use tonnage_report::Format;
use tonnage_units::{Error, Result};

use super::atomic_file::replace;
use super::print;
use crate::args::ior::OwnArgs;

/// Largest file that is accepted as an earlier result block.
const BLOCK_BYTES_MAX: u64 = 64 << 20;

/// Checks that a result block may be written to a file. The file must be empty or contain only an earlier block,
/// although IOR itself overwrites any file.
pub fn check_summary(path: &Path) -> Result<()> {
    let Ok(found) = std::fs::metadata(path) else {
        return Ok(());
    };
    // A pipe or a terminal has no content to lose.
    if !found.is_file() || found.len() == 0 {
        return Ok(());
    }
    let small = found.len() <= BLOCK_BYTES_MAX;
    let text = small.then(|| std::fs::read_to_string(path).ok()).flatten();
    if text.is_some_and(|text| block::is_block(&text)) {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "-O summaryFile={shown}: {shown} exists and is not a result block of tonnage, so it is not overwritten: name \
         another file, or remove it yourself",
        shown = path.display()
    )))
}

/// IOR's result block, before it is written.
pub struct Block {
    options: IorOptions,
    run: RunFacts,
    /// True if standard output is a stream of tonnage's records. The block would corrupt this stream.
    only_to_file: bool,
}

impl Block {
    /// Creates the block for a command line of IOR that starts now.
    pub fn new(options: &IorOptions, own: &OwnArgs) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let began_unix_ns = since.map_or(0, |since| since.as_nanos() as u64);
        Self {
            options: options.clone(),
            run: RunFacts {
                command: std::env::args().collect(),
                began_unix_ns,
                version: env!("CARGO_PKG_VERSION").to_owned(),
            },
            only_to_file: own.results.format != Format::Table,
        }
    }

    /// Writes the block for the run's last file record, if there is one.
    pub fn write(&self, records: &[Record]) -> Result<()> {
        let Some(record) = records.iter().rev().find_map(Record::as_file) else {
            return Ok(());
        };
        if record
            .body
            .phases
            .iter()
            .all(|phase| phase.trials.is_empty())
        {
            return Ok(());
        }
        let text = block::render(&self.options, &self.run, record);
        match &self.options.summary_file {
            Some(path) => {
                // Another process may have created the file since the run began. The block is then printed, so that it
                // is not lost.
                if let Err(error) = check_summary(Path::new(path)) {
                    if !self.only_to_file {
                        print(&format!("{text}\n"))?;
                    }
                    return Err(error);
                }
                replace(Path::new(path), &text, true)
            }
            None if self.only_to_file => Ok(()),
            None if self.options.summary_format == SummaryFormat::Text => {
                print(&format!("{text}\n"))
            }
            None => print(&text),
        }
    }
}
