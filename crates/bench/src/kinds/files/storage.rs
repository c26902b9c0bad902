//! Storage of the files of an experiment: the file system of each rank's directory, and what it can do.

use std::path::{Path, PathBuf};

use rustix::fs::statvfs;
use serde::{Deserialize, Serialize};
use tonnage_sys::files::open::open;

use super::before::READ;
use super::scratch;
use tonnage_machine::direct;
use tonnage_machine::direct::Direct;
use tonnage_machine::mounts;
use tonnage_ranks::Hosts;
use tonnage_record::files::{DirectAlignment, Storage};
use tonnage_units::number_list;
use tonnage_units::{Error, Result};

/// A rank's view of its storage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalStorage {
    /// The directory of its files.
    pub directory: PathBuf,
    /// Its kind.
    pub file_system: String,
    /// Source of the mount.
    pub source: String,
    /// The device's numbers, to tell two of them apart on one host.
    pub device: (u32, u32),
    /// True when other machines keep the bytes.
    pub network: bool,
    /// True when the bytes are in memory anyhow.
    pub memory: bool,
    /// Free bytes for this user.
    pub free_bytes: u64,
    /// Free bytes with those that only root may use; the most where the system does not say.
    pub unused_bytes: u64,
    /// Bytes that this rank's files have there already.
    pub taken_bytes: u64,
    /// Alignment of direct transfers, if there are any.
    pub direct: Option<(u32, u32)>,
}

impl LocalStorage {
    /// Looks at the directory that a file is, or is to be, in. `writes` says whether a file may be made there to find
    /// out about direct transfers; else `path` itself is asked. `direct` says that they are needed.
    pub fn look(path: &Path, writes: bool, direct: bool) -> Result<Self> {
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

/// Free bytes of a file system for this user.
pub fn free_bytes(directory: &Path) -> std::io::Result<u64> {
    let space = statvfs(directory)?;
    Ok(space.f_bavail.saturating_mul(space.f_frsize))
}

/// The directory that a file is in.
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

/// Ranks with the same answer together.
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

/// Returns whether `rank` is the first of those that share its host and its device: what is done once for each device
/// is done there.
pub fn is_first_on_device(hosts: &Hosts, places: &[LocalStorage], rank: u32) -> bool {
    let of = |rank: u32| Some((hosts.host(rank)?, places.get(rank as usize)?.device));
    (0..rank).all(|other| of(other) != of(rank))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_alone_is_in_this_directory() {
        assert_eq!(directory_of(Path::new("t.dat")), Path::new("."));
        assert_eq!(directory_of(Path::new("/a/t.dat")), Path::new("/a"));
    }
}
