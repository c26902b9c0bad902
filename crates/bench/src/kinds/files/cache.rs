//! The part of a phase's files that lies in the page cache, and dropping it from there.

use std::path::Path;

use serde::{Deserialize, Serialize};
use tonnage_sys::files::advice::drop_cached;
use tonnage_sys::files::open::{OpenFlags, open};
use tonnage_sys::files::residency::{SystemCall, resident_bytes};

use tonnage_record::files::CacheState;
use tonnage_units::Reduce;
use tonnage_units::{Error, Result};

/// Answers of ranks about the files that they look after.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cached {
    bytes: u64,
    resident_bytes: u64,
    how: String,
    unknown: bool,
}

impl Reduce for Cached {
    fn merge(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.resident_bytes += other.resident_bytes;
        // Why something is not known says more than how the rest is.
        if self.how.is_empty() || (other.unknown && !self.unknown) {
            self.how = other.how;
        }
        self.unknown |= other.unknown;
    }
}

impl Cached {
    /// Part of a file that lies in this host's page cache, where `bytes` of it are to be read.
    pub fn look(path: &Path, bytes: u64) -> Self {
        let flags = OpenFlags {
            read: true,
            ..OpenFlags::default()
        };
        let resident = open(path, &flags).and_then(|file| {
            let all = file.metadata()?.len();
            resident_bytes(&file, 0, all)
        });
        match resident {
            Ok(resident) => Self {
                bytes,
                resident_bytes: resident.bytes.min(bytes),
                how: match resident.how {
                    SystemCall::Cachestat => "cachestat",
                    SystemCall::Mincore => "mincore",
                }
                .into(),
                unknown: false,
            },
            Err(error) => Self {
                bytes,
                resident_bytes: 0,
                how: format!("not known: {error}"),
                unknown: true,
            },
        }
    }

    /// The record's words.
    pub fn record(self, dropped: bool, direct: bool) -> CacheState {
        CacheState {
            bytes: self.bytes,
            resident_bytes: self.resident_bytes,
            how: self.how,
            known: !self.unknown,
            dropped,
            direct,
        }
    }
}

/// Drops a file's bytes from this host's page cache, once they are stored.
///
/// # Errors
/// When it cannot be opened or stored.
pub fn drop_file(path: &Path) -> Result<()> {
    let cannot = |error| {
        Error::io(
            format!("cannot drop {} from the page cache", path.display()),
            error,
        )
    };
    // Storing needs no right to write on Linux.
    let flags = OpenFlags {
        read: true,
        ..OpenFlags::default()
    };
    let file = open(path, &flags).map_err(cannot)?;
    drop_cached(&file).map_err(cannot)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_on_one_rank_is_not_known() {
        let known = |resident_bytes| Cached {
            bytes: 100,
            resident_bytes,
            how: "cachestat".into(),
            unknown: false,
        };
        let mut all = Cached::default();
        all.merge(known(10));
        all.merge(known(20));
        assert_eq!(
            (all.bytes, all.resident_bytes, all.how.as_str()),
            (200, 30, "cachestat")
        );
        let missing = Cached::look(Path::new("/no/such/file"), 100);
        all.merge(missing);
        let record = all.record(true, false);
        assert!(
            !record.known && record.how.contains("not known"),
            "{record:?}"
        );
    }
}
