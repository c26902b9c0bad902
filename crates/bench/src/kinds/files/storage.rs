//! The storage of an experiment's files: the file system of each rank's directory, and its capabilities.

use std::path::{Path, PathBuf};

use rustix::fs::statvfs;
use serde::{Deserialize, Serialize};
use tonnage_sys::files::open::open;

use super::checks::READ;
use super::scratch;
use tonnage_machine::direct;
use tonnage_machine::direct::Direct;
use tonnage_machine::mounts;
use tonnage_ranks::Hosts;
use tonnage_record::files::{DirectAlignment, Storage};
use tonnage_units::number_list;
use tonnage_units::{Error, Result};

/// The storage of one rank's files, as this rank sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalStorage {
    /// Directory of the experiment's files.
    pub directory: PathBuf,
    /// Type of the file system.
    pub file_system: String,
    /// Source of the mount.
    pub source: String,
    /// Device numbers, which distinguish the devices on one host.
    pub device: (u32, u32),
    /// Whether the bytes are stored on other machines.
    pub network: bool,
    /// Whether the file system keeps all files in memory.
    pub memory: bool,
    /// Number of bytes that this user can allocate.
    pub free_bytes: u64,
    /// Number of free bytes, including those reserved for root. The maximum value if the system does not report it.
    pub unused_bytes: u64,
    /// Number of bytes that this rank's existing files occupy.
    pub taken_bytes: u64,
    /// Alignment of memory and of offsets for direct I/O; `None` if direct I/O is not supported.
    pub direct: Option<(u32, u32)>,
}

impl LocalStorage {
    /// Inspects the storage at a file's path. With `writes`, a scratch file may be created to probe direct I/O;
    /// otherwise, the file at `path` is probed. With `direct`, missing support for direct I/O is an error.
    pub fn inspect(path: &Path, writes: bool, direct: bool) -> Result<Self> {
        let directory = directory_of(path);
        let cannot = |error| {
            let what = format!(
                "cannot ask about the file system of {}",
                directory.display()
            );
            Error::io(what, error)
        };
        let found = mounts::find_mount(&directory).map_err(cannot)?;
        let space = rustix::fs::statvfs(&directory).map_err(|error| cannot(error.into()))?;
        let direct = match direct_of(path, &directory, writes) {
            Ok(found) => Some((found.alignment.memory_bytes, found.alignment.offset_bytes)),
            Err(error) if direct => return Err(error),
            Err(_) => None,
        };
        Ok(Self {
            file_system: found.kind,
            source: found.source.unwrap_or_else(|| "unknown".into()),
            device: found.file_system.device,
            network: found.file_system.network,
            memory: found.file_system.memory,
            free_bytes: space.f_bavail.saturating_mul(space.f_frsize),
            unused_bytes: match space.f_blocks {
                0 => u64::MAX,
                _ => space.f_bfree.saturating_mul(space.f_frsize),
            },
            taken_bytes: 0,
            direct,
            directory,
        })
    }
}

/// Returns the number of bytes on a file system that this user can allocate.
pub fn free_bytes(directory: &Path) -> std::io::Result<u64> {
    let space = statvfs(directory)?;
    Ok(space.f_bavail.saturating_mul(space.f_frsize))
}

/// Returns the directory of a file.
pub fn directory_of(path: &Path) -> PathBuf {
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new(".")).to_owned()
}

fn direct_of(path: &Path, directory: &Path, writes: bool) -> Result<Direct> {
    if writes {
        return direct::find_rules(&scratch::create(directory, "probe", false)?, path);
    }
    let cannot = |error| Error::io(format!("cannot open {}", path.display()), error);
    direct::find_rules(&open(path, &READ).map_err(cannot)?, path)
}

/// Groups ranks with the same storage.
pub fn group(places: &[LocalStorage], striping: Option<&str>) -> Vec<Storage> {
    let mut groups: Vec<(Vec<u32>, &LocalStorage)> = Vec::new();
    for (rank, place) in (0u32..).zip(places) {
        let same = |known: &LocalStorage| {
            LocalStorage {
                free_bytes: place.free_bytes,
                unused_bytes: place.unused_bytes,
                taken_bytes: place.taken_bytes,
                ..known.clone()
            } == *place
        };
        match groups.iter_mut().find(|(_, known)| same(known)) {
            Some((ranks, _)) => ranks.push(rank),
            None => groups.push((vec![rank], place)),
        }
    }
    groups
        .into_iter()
        .map(|(ranks, place)| Storage {
            ranks: number_list::format(&ranks),
            directory: place.directory.display().to_string(),
            file_system: place.file_system.clone(),
            source: place.source.clone(),
            free_bytes: place.free_bytes,
            direct_alignment: place
                .direct
                .map(|(memory_bytes, offset_bytes)| DirectAlignment {
                    memory_bytes,
                    offset_bytes,
                }),
            striping: striping.map(str::to_owned),
        })
        .collect()
}

/// Returns whether `rank` is the lowest of the ranks on its host and device. This rank does the work that is needed
/// once per device.
pub fn is_first_on_device(hosts: &Hosts, places: &[LocalStorage], rank: u32) -> bool {
    let of = |rank: u32| Some((hosts.host(rank)?, places.get(rank as usize)?.device));
    (0..rank).all(|other| of(other) != of(rank))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_name_is_in_the_current_directory() {
        assert_eq!(directory_of(Path::new("t.dat")), Path::new("."));
        assert_eq!(directory_of(Path::new("/a/t.dat")), Path::new("/a"));
    }
}
