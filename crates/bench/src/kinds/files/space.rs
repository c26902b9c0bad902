//! Space for the files of an experiment: bytes that they take when complete, beside those that their storages have. The
//! same on all ranks, each of which knows the storages of all.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;

use super::storage::LocalStorage;
use crate::kinds::files::names::{bytes_of_file, path_of};
use tonnage_plan::files::{DataKind, FileLayout, FilePoint};
use tonnage_units::quantity::human::size;
use tonnage_units::{Error, Result};

/// Bytes of one block of a file's metadata, on every file system.
const BLOCK_BYTES: u64 = 512;

/// Key that tells one storage from another: that of a network file system is the same on all hosts, a disk belongs to a
/// machine.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum StorageKey<'a> {
    Network(&'a str),
    Disk(u32, (u32, u32)),
}

fn storage_key(machine: u32, place: &LocalStorage) -> StorageKey<'_> {
    if place.network {
        StorageKey::Network(&place.source)
    } else {
        StorageKey::Disk(machine, place.device)
    }
}

/// A storage with the ranks that use it.
#[derive(Debug)]
struct Used<'a> {
    place: &'a LocalStorage,
    ranks: u64,
    /// Bytes of their files that are there already.
    taken_bytes: u64,
}

impl<'a> Used<'a> {
    fn add(&mut self, layout: FileLayout, place: &LocalStorage) {
        self.ranks += 1;
        self.taken_bytes = match layout {
            FileLayout::Shared => self.taken_bytes.max(place.taken_bytes),
            FileLayout::PerProcess => self.taken_bytes.saturating_add(place.taken_bytes),
        };
    }

    fn new(place: &'a LocalStorage) -> Self {
        Self {
            place,
            ranks: 0,
            taken_bytes: 0,
        }
    }

    /// Bytes of all its files when complete.
    fn needed_bytes(&self, point: &FilePoint) -> u64 {
        let files = match point.layout {
            FileLayout::Shared => 1,
            FileLayout::PerProcess => self.ranks,
        };
        bytes_of_file(point)
            .saturating_mul(files)
            .saturating_mul(files_of_rank(point).into())
    }
}

/// Files that a rank makes one beside the other.
fn files_of_rank(point: &FilePoint) -> u32 {
    match point.file_per_trial {
        true => point.trials,
        false => 1,
    }
}

/// Bytes that a rank's files have on the storage already; they are written anew, or go before.
pub(super) fn taken_bytes(point: &FilePoint, rank: u32) -> u64 {
    let found = (0..files_of_rank(point))
        .filter_map(|trial| fs::metadata(path_of(point, rank, trial)).ok());
    found.map(|found| found.blocks() * BLOCK_BYTES).sum()
}

/// Refuses files that cannot fit, unless a stonewall ends the writing before they are complete. No stonewall bounds
/// what is filled before the first phase. `machines` are those of the ranks, in whose order the storages are too.
///
/// # Errors
/// The same on all ranks: the storage, with what is needed and what is free.
pub(super) fn check_space(
    point: &FilePoint,
    machines: &[u32],
    places: &[LocalStorage],
) -> Result<()> {
    if point.stonewall.is_some() && !point.prefill {
        return Ok(());
    }
    let short = used(point, machines, places).into_iter().find(|used| {
        let needed = used.needed_bytes(point);
        let least = match point.data {
            DataKind::Random => needed,
            // The file system may keep nothing of the zeros.
            DataKind::Compressible { percent } => {
                needed / 100 * u64::from(100u32.saturating_sub(percent))
            }
        };
        least > used.place.unused_bytes.saturating_add(used.taken_bytes)
    });
    short.map_or(Ok(()), |used| {
        Err(Error::Failed(format!(
            "{}: use a smaller --block, fewer --segments, another --path, or bound the time with --stonewall 30s",
            describe(&used, point)
        )))
    })
}

/// Remarks when the whole files do not fit, and a stonewall may end the writing before, or root may use what others may
/// not.
pub(super) fn about_space(
    point: &FilePoint,
    machines: &[u32],
    places: &[LocalStorage],
) -> Option<String> {
    let mut used = used(point, machines, places).into_iter();
    let short = used.find(|used| {
        used.needed_bytes(point) > used.place.free_bytes.saturating_add(used.taken_bytes)
    })?;
    Some(describe(&short, point))
}

/// Each storage once.
fn used<'a>(point: &FilePoint, machines: &[u32], places: &'a [LocalStorage]) -> Vec<Used<'a>> {
    let mut storages = BTreeMap::new();
    for (machine, place) in machines.iter().zip(places) {
        let used = storages.entry(storage_key(*machine, place));
        let used = used.or_insert_with(|| Used::new(place));
        used.add(point.layout, place);
    }
    storages.into_values().collect()
}

fn describe(used: &Used<'_>, point: &FilePoint) -> String {
    format!(
        "the files in {} take {} when complete, and {} are free",
        used.place.directory.display(),
        size(used.needed_bytes(point)),
        size(used.place.free_bytes)
    )
}
