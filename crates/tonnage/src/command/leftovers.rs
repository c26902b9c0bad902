//! Things that ranks of this host leave when they are killed, and their removal once the run has ended: files of
//! engines by the rank's process, and files of experiments by the ledger that each rank keeps.

use std::fs::OpenOptions;

use tonnage_bench::kinds::files::clean::Made;
use tonnage_bench::kinds::files::ledger::Ledger;
use tonnage_engines::LISTS;
use tonnage_units::identity::Identity;

use super::memory_file::{MemoryFile, inherited};

/// Variable by which a rank hears of the file of all ledgers: its descriptor.
const VARIABLE: &str = "TONNAGE_LEDGERS";

/// The supervisor's end of all ledgers.
pub struct Leftovers(Option<MemoryFile>);

impl Leftovers {
    /// Those of a run that begins.
    pub fn new() -> Self {
        Self(MemoryFile::new(VARIABLE, "tonnage ledgers"))
    }

    /// The variable for ranks.
    pub fn variable(&self) -> Option<(&'static str, String)> {
        self.0.as_ref().map(MemoryFile::variable)
    }

    /// Removes what so many ranks have left, all of which have ended.
    pub fn remove(&self, ranks: u32, pids: impl IntoIterator<Item = u32>) {
        pids.into_iter().for_each(clean_up);
        if let Some(ledgers) = &self.0 {
            (0..ranks).for_each(|rank| Made::of_dead_rank(&ledgers.file, rank).remove_all());
        }
    }
}

/// The ledger of this rank, where its supervisor made one.
pub fn ledger(identity: &Identity) -> Option<Ledger> {
    let opened = inherited(VARIABLE, OpenOptions::new().read(true).write(true))?;
    let opened = opened.inspect_err(|error| log::debug!("no ledger of files: {error}"));
    opened.ok().map(|file| Ledger::new(file, identity.rank))
}

/// Removes from this machine what engines of a rank have left there that was killed. Its run must have ended.
pub fn clean_up(pid: u32) {
    LISTS.lifecycles().for_each(|of| (of.clean_up)(pid));
}
