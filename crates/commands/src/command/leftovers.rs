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

/// The end of all ledgers of a host that whoever starts its ranks holds.
pub struct Leftovers(Option<MemoryFile>);

impl Leftovers {
    /// Those of a run that begins.
    pub fn new() -> Self {
        Self(MemoryFile::new(VARIABLE, "ledgers of files"))
    }

    /// The variable for ranks; empty where there are no ledgers, so that no other one is taken for them.
    pub fn variable(&self) -> (&'static str, String) {
        let none = || (VARIABLE, String::new());
        self.0.as_ref().map_or_else(none, MemoryFile::variable)
    }

    /// Removes what so many ranks of this host have left, all of which have ended. These processes did not end well.
    pub fn remove(&self, ranks: u32, pids: impl IntoIterator<Item = u32>) {
        pids.into_iter().for_each(clean_up);
        if let Some(ledgers) = &self.0 {
            Made::remove_of_dead_ranks(&ledgers.file, ranks);
        }
    }
}

/// The ledger of this rank, where whoever started it made one. `has_agent` as for [`inherited`].
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

/// Removes from this machine what engines of a rank have left there that was killed. Its run must have ended.
pub fn clean_up(pid: u32) {
    LISTS.lifecycles().for_each(|of| (of.clean_up)(pid));
}
