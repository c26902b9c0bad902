//! Removes leftovers of killed ranks from this host when the run has ended. Files of engines are found by the rank's
//! process ID, and files of experiments by a ledger that each rank keeps.

use std::fs::OpenOptions;

use tonnage_bench::kinds::files::clean::CreatedFiles;
use tonnage_bench::kinds::files::ledger::Ledger;
use tonnage_engines::LISTS;
use tonnage_units::identity::Identity;

use super::memory_file::{MemoryFile, inherited};

/// Variable with the file descriptor of the ledgers, for ranks.
const VARIABLE: &str = "TONNAGE_LEDGERS";

/// The ledgers of a host's ranks. The process that starts the ranks keeps them.
pub struct Leftovers(Option<MemoryFile>);

impl Leftovers {
    /// Creates the ledgers of a new run.
    pub fn new() -> Self {
        Self(MemoryFile::new(VARIABLE, "ledgers of files"))
    }

    /// Returns the variable for ranks. Without ledgers its value is empty, so that an inherited variable has no effect.
    pub fn variable(&self) -> (&'static str, String) {
        let none = || (VARIABLE, String::new());
        self.0.as_ref().map_or_else(none, MemoryFile::variable)
    }

    /// Removes the leftovers of this host's `ranks` ranks, which must all have ended. `pids` are the processes that did
    /// not end normally.
    pub fn remove(&self, ranks: u32, pids: impl IntoIterator<Item = u32>) {
        pids.into_iter().for_each(clean_up);
        if let Some(ledgers) = &self.0 {
            CreatedFiles::remove_of_dead_ranks(&ledgers.file, ranks);
        }
    }
}

/// Opens this rank's ledger, if its supervisor or agent created one. For `has_agent`, see [`inherited`].
pub fn ledger(identity: &Identity, has_agent: bool) -> Option<Ledger> {
    let opened = inherited(
        VARIABLE,
        OpenOptions::new().read(true).write(true),
        has_agent,
    )?;
    let rank = identity.rank;
    let opened = opened.inspect_err(|error| log::warn!("rank {rank}: no ledger of files: {error}"));
    let first = if has_agent {
        rank.saturating_sub(identity.local_rank)
    } else {
        0
    };
    opened.ok().map(|file| Ledger::new(file, rank, first))
}

/// Removes leftovers of a killed rank's engines from this machine. The rank's run must have ended.
pub fn clean_up(pid: u32) {
    LISTS.lifecycles().for_each(|of| (of.clean_up)(pid));
}
