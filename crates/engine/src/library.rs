//! Libraries that engines load at run time: how the command line chooses one, and what those need that live as long as
//! their process.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::OpenRequest;
use tonnage_units::Result;
use tonnage_units::identity::Identity;

/// Files of libraries by name, as `--library NAME=PATH` gives them.
pub type Libraries = BTreeMap<String, PathBuf>;

/// A library that an engine loads at run time.
#[derive(Debug, Clone, Copy)]
pub struct Library {
    /// The name before the "=" of `--library`.
    pub name: &'static str,
    /// The environment variable that names its file where the command line does not.
    pub variable: &'static str,
    /// The library that is taken where nobody names one.
    pub about: &'static str,
}

/// Facts that a process knows when it is about to join the others.
#[derive(Debug, Clone, Copy)]
pub struct BeforeJoin<'a> {
    /// Its place in the run.
    pub identity: &'a Identity,
    /// Files to load.
    pub libraries: &'a Libraries,
}

impl BeforeJoin<'_> {
    /// The file that was asked for of a library.
    pub fn library(&self, name: &str) -> Option<&Path> {
        self.libraries.get(name).map(AsRef::as_ref)
    }
}

/// Start and end of a library that lives as long as its process.
#[derive(Debug, Clone, Copy)]
pub struct Lifecycle {
    /// Before the ranks meet, on every rank of a run that uses the engine. What fails here has to fail again, and is
    /// reported, when the engine is opened.
    pub before_join: fn(&BeforeJoin<'_>),
    /// Called by one rank of each container before any of its ranks opens the engine: refuses to open this many workers'
    /// paths where they would use up something that the container has once, such as shared memory. What keeps a single
    /// one from opening has to be reported when the engine is opened.
    pub before_open: fn(&OpenRequest<'_>, paths: u64) -> Result<()>,
    /// Called when a run has ended in order, on all ranks together; does nothing where nothing was started.
    pub finish: fn() -> Result<()>,
    /// Removes from this machine what a process has left there that was killed. Its run has ended.
    pub clean_up: fn(pid: u32),
}

impl Lifecycle {
    /// Of engines that leave nothing and start nothing.
    pub const NONE: Self = Self {
        before_join: |_| (),
        before_open: |_, _| Ok(()),
        finish: || Ok(()),
        clean_up: |_| (),
    };
}
