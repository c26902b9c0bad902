//! The option `optional`, which every kind has: points are skipped if the machine lacks a device, engine or memory.

use clap::Args;
use serde::{Deserialize, Serialize};

use crate::options::{Group, Many, several, with_default};
use tonnage_engine::Lists;
use tonnage_engine::memory::MemoryEntry;
use tonnage_units::Result;

/// Whether missing hardware or libraries fail the run.
#[derive(Debug, Clone, PartialEq, Default, Args, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
#[command(next_help_heading = "Results", mut_args = with_default::<Self>)]
pub struct SkippingOptions {
    /// Keep exit code 0 if this machine lacks a requirement of a point, such as a second device or a kind of memory;
    /// the table still has its row with the reason. Failures remain errors.
    #[arg(long)]
    pub optional: bool,
}

impl Group for SkippingOptions {}

/// Returns the row of a memory that an experiment names. Returns `None` if the experiment is optional and this version
/// of tonnage does not have the memory; its points are then skipped with that reason. A likely typing error is still
/// refused.
pub(crate) fn memory(
    lists: &Lists,
    name: &str,
    skipping: &SkippingOptions,
) -> Result<Option<&'static MemoryEntry>> {
    match lists.memory(name) {
        Err(_) if skipping.optional && lists.lacks_memory(name) => Ok(None),
        found => found.map(Some),
    }
}

/// Checks and returns the memories that an option names; `None` if the option is not given.
pub(crate) fn memories<'a>(
    lists: &Lists,
    option: &str,
    asked: &'a Option<Many<String>>,
    skipping: &SkippingOptions,
) -> Result<Option<&'a [String]>> {
    let names = several(option, asked, "host")?;
    for name in names.unwrap_or_default() {
        memory(lists, name, skipping)?;
    }
    Ok(names)
}
