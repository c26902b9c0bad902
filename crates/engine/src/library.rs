//! Libraries that engines load at run time: how the command line chooses one, and hooks for library state that lives as
//! long as the process.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::OpenRequest;
use tonnage_units::Result;
use tonnage_units::identity::Identity;

/// Library files by name, from `--library NAME=PATH`.
pub type Libraries = BTreeMap<String, PathBuf>;

/// A library that an engine loads at run time.
#[derive(Debug, Clone, Copy)]
pub struct Library {
    /// The name before the "=" of `--library`.
    pub name: &'static str,
    /// The environment variable that names its file if the command line does not.
    pub variable: &'static str,
    /// The library that is used by default.
    pub about: &'static str,
}

/// Facts known to a process that is about to join the others.
#[derive(Debug, Clone, Copy)]
pub struct BeforeJoin<'a> {
    /// The process's place in the run.
    pub identity: &'a Identity,
    /// Files to load.
    pub libraries: &'a Libraries,
}

impl BeforeJoin<'_> {
    /// The file that the user chose for a library.
    pub fn library(&self, name: &str) -> Option<&Path> {
        self.libraries.get(name).map(AsRef::as_ref)
    }
}

/// Hooks for a library with process-wide state.
#[derive(Debug, Clone, Copy)]
pub struct Lifecycle {
    /// Called on every rank of a run that uses the engine, before the ranks meet. A failure here is ignored. It must
    /// occur again when the engine is opened, which reports it.
    pub before_join: fn(&BeforeJoin<'_>),
    /// Called by one rank of each container before any of its ranks opens the engine. Refuses to open the paths of this
    /// many workers if they would exhaust a resource of the container, such as shared memory. A failure that concerns a
    /// single path must be reported when the engine is opened.
    pub before_open: fn(&OpenRequest<'_>, paths: u64) -> Result<()>,
    /// Called on all ranks together when a run has ended normally; does nothing if nothing was started.
    pub finish: fn() -> Result<()>,
    /// Removes resources that a killed process has left on this machine. Its run has ended.
    pub clean_up: fn(pid: u32),
}

impl Lifecycle {
    /// For engines that leave nothing behind and start nothing.
    pub const NONE: Self = Self {
        before_join: |_| (),
        before_open: |_, _| Ok(()),
        finish: || Ok(()),
        clean_up: |_| (),
    };
}
