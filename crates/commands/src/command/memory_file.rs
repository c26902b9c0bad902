//! Files in memory without a name, which a supervisor shares with the ranks that it starts and which outlive these.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;

use rustix::fs::{MemfdFlags, memfd_create};
use tonnage_units::{Error, Result};

use super::env;

/// The supervisor's end. Processes that it starts inherit the file.
pub struct MemoryFile {
    variable: &'static str,
    pub file: File,
}

impl MemoryFile {
    /// An empty one, of which ranks hear by a variable; `None` where the system refuses, since no run depends on one.
    pub fn new(variable: &'static str, name: &str) -> Option<Self> {
        let made = memfd_create(name, MemfdFlags::NOEXEC_SEAL);
        // Kernels before 6.3 do not know the flag.
        let made = made.or_else(|_| memfd_create(name, MemfdFlags::empty()));
        // It is said all the same: something that was promised will not happen.
        made.inspect_err(|error| log::warn!("no memory for {name}: {error}"))
            .map(|file| Self {
                variable,
                file: file.into(),
            })
            .ok()
    }

    /// The variable for ranks, and its value.
    pub fn variable(&self) -> (&'static str, String) {
        (self.variable, self.file.as_raw_fd().to_string())
    }

    /// Path by which this process can open the file.
    pub fn path(&self) -> String {
        path(&self.file.as_raw_fd().to_string())
    }
}

/// The file that this rank's supervisor or agent made, opened so; `None` where there is none. `has_agent` says that an
/// agent has started it, by a letter.
pub fn inherited(variable: &str, options: &OpenOptions, has_agent: bool) -> Option<Result<File>> {
    // Only the supervisor of this program sets the other variable, and an agent always this one.
    let is_child = || has_agent || env("TONNAGE_RANK").is_some();
    let descriptor = env(variable).filter(|descriptor| !descriptor.is_empty() && is_child())?;
    let path = path(&descriptor);
    let opened = options.open(&path);
    Some(opened.map_err(|error| Error::io(format!("cannot open {variable} {path}"), error)))
}

fn path(descriptor: &str) -> String {
    format!("/proc/self/fd/{descriptor}")
}
