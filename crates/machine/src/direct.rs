//! Direct I/O on a file (bypassing the page cache): the required alignment, and the sources that are trusted for it.
//! The kernel's answer is read by `tonnage_sys::files::direct`.

use std::fs::File;
use std::path::Path;

use serde_json::{Value, json};
use tonnage_sys::files::direct::{Alignment, DirectIo, direct_io};
use tonnage_sys::files::file_system::{self, FileSystem};

use tonnage_units::{Error, Result};

/// Rules for direct I/O on an open file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Direct {
    /// Memory addresses, offsets and lengths must be multiples of these.
    pub alignment: Alignment,
    /// Source that guarantees direct I/O.
    pub said_by: &'static str,
}

impl Direct {
    /// Returns the alignment and its source as JSON.
    pub fn effective(self) -> Value {
        json!({
            "memory_bytes": self.alignment.memory_bytes,
            "offset_bytes": self.alignment.offset_bytes,
            "said_by": self.said_by,
        })
    }
}

/// Finds a trusted source for direct I/O on an open file, and the alignment that it requires.
pub fn find_rules(file: &File, path: &Path) -> Result<Direct> {
    let failed = |error| Error::io(format!("cannot look at {}", path.display()), error);
    let answer = direct_io(file).map_err(failed)?;
    let on = file_system::of_file(file).map_err(failed)?;
    trusted(answer, &on, path)
}

/// The kernel's answer decides. Two network file systems give no answer, but document that they honour `O_DIRECT`:
/// Lustre for whole pages, NFS for everything. No other file system is trusted without an answer.
fn trusted(answer: DirectIo, on: &FileSystem, path: &Path) -> Result<Direct> {
    let name = &on.name;
    match answer {
        DirectIo::Supported(alignment) => Ok(Direct {
            alignment,
            said_by: "statx",
        }),
        DirectIo::NotSupported => {
            let why = format!("the kernel reports that {name} has none for it");
            Err(refused(path, &why))
        }
        DirectIo::Unknown if matches!(name.as_str(), "lustre" | "nfs") => {
            let page_bytes = u32::try_from(rustix::param::page_size()).unwrap_or(4096);
            Ok(Direct {
                alignment: Alignment {
                    memory_bytes: page_bytes,
                    offset_bytes: page_bytes,
                },
                said_by: "the file system's documentation",
            })
        }
        DirectIo::Unknown if on.memory => {
            let why = format!("it is on {name}, which keeps it in memory and would ignore the flag");
            Err(refused(path, &why))
        }
        DirectIo::Unknown => Err(Error::Unavailable {
            what: format!("direct I/O on {}", path.display()),
            why: format!(
                "the kernel does not say whether {name} honours it (statx has no STATX_DIOALIGN), and it could go \
                 through the page cache unseen"
            ),
            how: "Use Linux 6.1 or later with ext4, xfs, btrfs or f2fs, or leave --direct out and drop caches instead"
                .into(),
        }),
    }
}

/// Error for a file without direct I/O.
pub fn refused(path: &Path, why: &str) -> Error {
    Error::Unavailable {
        what: format!("direct I/O on {}", path.display()),
        why: why.into(),
        how: "Choose a path on a disk's file system, such as ext4 or xfs, or leave --direct out"
            .into(),
    }
}

#[cfg(test)]
mod tests;
