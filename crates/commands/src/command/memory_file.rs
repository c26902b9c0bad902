//! Anonymous files in memory, which a supervisor shares with the ranks that it starts. The files outlive the ranks.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;

use rustix::fs::{MemfdFlags, memfd_create};
use tonnage_units::{Error, Result};

use super::env;

/// The supervisor's side. Processes that the supervisor starts inherit the file.
pub struct MemoryFile {
    variable: &'static str,
    pub file: File,
}

impl MemoryFile {
    /// Creates an empty file, which ranks find through an environment variable. Returns `None` if the system refuses,
    /// because a run can do without the file.
    pub fn new(variable: &'static str, name: &str) -> Option<Self> {
        let made = memfd_create(name, MemfdFlags::NOEXEC_SEAL);
        // Kernels before 6.3 do not know this flag.
        let made = made.or_else(|_| memfd_create(name, MemfdFlags::empty()));
        // The user is warned, because a service that depends on the file will be missing.
        made.inspect_err(|error| log::warn!("no memory for {name}: {error}"))
            .map(|file| Self {
                variable,
                file: file.into(),
            })
            .ok()
    }

    /// Returns the environment variable for ranks, with its value.
    pub fn variable(&self) -> (&'static str, String) {
        (self.variable, self.file.as_raw_fd().to_string())
    }

    /// Returns a path at which this process can open the file.
    pub fn path(&self) -> String {
        path(&self.file.as_raw_fd().to_string())
    }
}

/// Opens the file that this rank's supervisor or agent created. Returns `None` if there is none. `has_agent` is true if
/// an agent has started this rank.
pub fn inherited(variable: &str, options: &OpenOptions, has_agent: bool) -> Option<Result<File>> {
    // Only a supervisor of this program sets `TONNAGE_RANK`. An agent always sets `variable`.
    let is_child = || has_agent || env("TONNAGE_RANK").is_some();
    let descriptor = env(variable).filter(|descriptor| !descriptor.is_empty() && is_child())?;
    let path = path(&descriptor);
    let opened = options.open(&path);
    Some(opened.map_err(|error| Error::io(format!("cannot open {variable} {path}"), error)))
}

fn path(descriptor: &str) -> String {
    format!("/proc/self/fd/{descriptor}")
}
