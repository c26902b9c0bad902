//! Libraries that engines load at run time: how the command line chooses one, and hooks for their process-wide state.

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
    /// The environment variable that names the library's file if the command line does not.
    pub variable: &'static str,
    /// The file that is loaded by default.
    pub about: &'static str,
}

/// Facts known to a process before it joins the other ranks.
#[derive(Debug, Clone, Copy)]
pub struct BeforeJoin<'a> {
    /// The process's rank and host in the run.
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
    /// Called on every rank of a run that uses the engine, before the ranks meet. A failure here is ignored. The same
    /// failure must occur again when the engine is opened, and is then reported.
    pub before_join: fn(&BeforeJoin<'_>),
    /// Called by one rank of each container before any of its ranks opens the engine. Fails if `paths` worker-to-peer
    /// paths would exhaust a resource of the container, such as shared memory. A failure that concerns a single path
    /// must be reported when the engine is opened.
    pub before_open: fn(&OpenRequest<'_>, paths: u64) -> Result<()>,
    /// Called on all ranks together when a run has ended normally. Does nothing if the library was never started.
    pub finish: fn() -> Result<()>,
    /// Removes resources that a killed process has left on this machine; called after the process's run has ended.
    pub clean_up: fn(pid: u32),
}

impl Lifecycle {
    /// For engines with libraries that have no process-wide state and leave nothing behind.
    pub const NONE: Self = Self {
        before_join: |_| (),
        before_open: |_, _| Ok(()),
        finish: || Ok(()),
        clean_up: |_| (),
    };
}
