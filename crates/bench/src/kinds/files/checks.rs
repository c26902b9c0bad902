//! Preparations and checks before a phase's clock starts. If a check fails, all ranks get the error of the first rank
//! on which it failed.

use std::fs;
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{Access, access};
use serde::{Deserialize, Serialize};
use tonnage_sys::files::lustre::{self, StripeCount};
use tonnage_sys::files::open::{OpenFlags, kind_name, open};

use super::ledger::Inode;
use super::storage::{LocalStorage, directory_of};
use crate::kinds::files::names::{bytes_of_file, number_of};
use crate::loop_parameters::file_pattern;
use tonnage_loops::files::sequence::Sequence;
use tonnage_loops::files::stamp::{FileKey, SECTOR_BYTES, STAMP_BYTES, words};
use tonnage_plan::files::{FileLayout, FileOrder, FilePoint, Phase, Striping};
use tonnage_units::Bytes;
use tonnage_units::{Error, Result};

/// Number of sectors that are sampled to find the seed of the data.
const SECTORS_SAMPLED: u64 = 15;

/// Checks that files can be created or written at the paths of the plan.
pub fn check_target(path: &Path, writes: bool) -> Result<()> {
    let (shown, directory) = (path.display(), directory_of(path));
    if let Ok(found) = fs::symlink_metadata(path)
        && !found.is_file()
    {
        if found.is_dir() {
            return Err(Error::Failed(format!(
                "{shown} is a directory: name a file in it, such as {}",
                path.join("t.dat").display()
            )));
        }
        return Err(not_regular(path, &found));
    }
    if !directory.is_dir() {
        let named = directory.display();
        let why = if directory.exists() {
            format!("{named} is not a directory")
        } else {
            format!("there is no directory {named}. Create it with: mkdir -p {named}")
        };
        return Err(Error::Failed(format!("{shown} cannot be used: {why}")));
    }
    if !writes {
        return Ok(());
    }
    let cannot = |what: &Path, error: rustix::io::Errno| {
        Error::io(format!("{} cannot be written", what.display()), error)
    };
    if path.exists() {
        access(path, Access::WRITE_OK).map_err(|error| cannot(path, error))?;
    }
    access(&directory, Access::WRITE_OK | Access::EXEC_OK)
        .map_err(|error| cannot(&directory, error))
}

/// Returns the error for a path that is not a regular file. Links are refused too, because another user may have put
/// them there.
fn not_regular(path: &Path, found: &fs::Metadata) -> Error {
    let (shown, kind) = (path.display(), kind_name(found));
    let next = if found.is_symlink() {
        "name another path, or the file that it points to"
    } else {
        "name another path"
    };
    Error::Failed(format!("{shown} is {kind}, not a regular file: {next}"))
}

/// Checks that the transfer size is a multiple of the alignment that direct I/O needs on this storage.
pub fn check_direct(point: &FilePoint, place: &LocalStorage) -> Result<()> {
    if !point.direct {
        return Ok(());
    }
    // Whether direct I/O is supported at all was checked earlier.
    let Some((_, offset_bytes)) = place.direct else {
        return Ok(());
    };
    if !point.transfer_bytes.is_multiple_of(u64::from(offset_bytes)) {
        return Err(Error::Failed(format!(
            "--transfer {} with --direct: {} needs multiples of {offset_bytes} bytes",
            Bytes(point.transfer_bytes),
            place.source
        )));
    }
    Ok(())
}

/// Checks that a file has all bytes that a phase will read.
pub fn check_source(path: &Path, needed_bytes: u64) -> Result<()> {
    let shown = path.display();
    let found = fs::symlink_metadata(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => Error::Failed(format!(
            "{shown} is to be read and is not there: write it first (--phases write --keep, with the same layout and \
             number of ranks), or add --prefill"
        )),
        _ => Error::io(format!("cannot look at {shown}"), error),
    })?;
    if !found.is_file() {
        return Err(not_regular(path, &found));
    }
    if found.len() < needed_bytes {
        return Err(Error::Failed(format!(
            "{shown} is too short: it has {} bytes, and {needed_bytes} are to be read. Write it first with the same \
             block, transfer, segments and number of ranks, or read less",
            found.len()
        )));
    }
    access(path, Access::READ_OK)
        .map_err(|error| Error::io(format!("{shown} cannot be read"), error))
}

/// Returns the file size that is needed to read the first `transfers` transfers of a rank's data. Returns 0 for a part
/// of a shuffled order, because only a walk over all its transfers could determine the size.
pub fn needed_bytes(point: &FilePoint, part: u32, transfers: u64) -> u64 {
    let all = transfers >= point.transfers_of_rank();
    let Some(last) = transfers.checked_sub(1) else {
        return 0;
    };
    match point.order {
        FileOrder::Sequential => {
            Sequence::new(&file_pattern(point, Phase::Read), part)
                .at(last)
                .offset
                + point.transfer_bytes
        }
        FileOrder::Shuffled if all => bytes_of_file(point),
        FileOrder::Shuffled => 0,
    }
}

/// Finds the seed of the data in a file. This is the seed that most sampled sectors have, so that a few damaged or
/// swapped sectors don't matter. A sector counts if its stamp is valid for any offset in any file of the experiment.
pub fn find_seed(
    point: &FilePoint,
    path: &Path,
    part: u32,
    transfers: u64,
) -> Result<(u64, Inode)> {
    let places = Sequence::new(&file_pattern(point, Phase::Read), part);
    let file_bytes = bytes_of_file(point);
    let files = match point.layout {
        FileLayout::Shared => 1,
        FileLayout::PerProcess => point.ranks,
    };
    let cannot = |error| Error::io(format!("cannot read {}", path.display()), error);
    let file = open(path, &READ).map_err(cannot)?;
    let inode = Inode::from_metadata(&file.metadata().map_err(cannot)?);
    let mut seeds: Vec<u64> = Vec::new();
    for index in 0..transfers.min(SECTORS_SAMPLED) {
        let first = places
            .at(index * transfers / transfers.min(SECTORS_SAMPLED))
            .offset;
        let whole = first.next_multiple_of(SECTOR_BYTES);
        let fits = whole + STAMP_BYTES as u64 <= first + point.transfer_bytes;
        let mut stamp = [0; STAMP_BYTES];
        if file
            .read_exact_at(&mut stamp, if fits { whole } else { 0 })
            .is_ok()
        {
            let (seed, word) = words(&stamp);
            let own = number_of(point, part);
            let mut numbers = std::iter::once(own).chain(0..files);
            if numbers.any(|file| FileKey::new(seed, file).place(word, file_bytes).is_some()) {
                seeds.push(seed);
            }
        }
    }
    let votes = |seed: &u64| seeds.iter().filter(|other| *other == seed).count();
    let most = seeds.iter().copied().max_by_key(votes);
    let seed = most.ok_or_else(|| {
        Error::Failed(format!(
            "{} holds no data of tonnage, so that it can neither be checked nor written into: write it with tonnage first, \
             or have it written into as it is (--existing)",
            path.display()
        ))
    })?;
    Ok((seed, inode))
}

/// Creates a new file, and returns its identity.
pub fn create_file(path: &Path) -> Result<Inode> {
    let cannot = |error| Error::io(format!("cannot create {}", path.display()), error);
    let file = open(path, &CREATE).map_err(cannot)?;
    Ok(Inode::from_metadata(&file.metadata().map_err(cannot)?))
}

/// Creates a striped file if the file system supports stripes. Returns a description of the striping, or why there is
/// none. Also returns the created file.
pub fn create_striped_file(
    path: &Path,
    place: &LocalStorage,
    striping: Striping,
) -> Result<(String, Option<Inode>)> {
    if place.file_system != "lustre" {
        let why = format!(
            "skip: {} is on {}, which has no stripes to set",
            place.directory.display(),
            place.file_system
        );
        return Ok((why, None));
    }
    let cannot = |error| Error::io(format!("cannot stripe {}", path.display()), error);
    let asked = lustre::Striping {
        count: match striping.count {
            None => StripeCount::All,
            Some(0) => StripeCount::Default,
            Some(count) => StripeCount::Number(u16::try_from(count).unwrap_or(u16::MAX - 1)),
        },
        size_bytes: u32::try_from(striping.size_bytes.unwrap_or(0)).unwrap_or(u32::MAX),
    };
    let file = lustre::create(path, &CREATE, asked).map_err(cannot)?;
    let had = lustre::striping(&file).map_err(cannot)?;
    let inode = Inode::from_metadata(&file.metadata().map_err(cannot)?);
    let description = format!("{:?} targets, {} bytes each", had.count, had.size_bytes);
    Ok((description, Some(inode)))
}

/// Flags for a file that is only read.
pub(super) const READ: OpenFlags = OpenFlags {
    read: true,
    write: false,
    create: false,
    truncate: false,
    direct: false,
    keep_access_time: false,
    custom: 0,
};

/// Flags for a file that is created.
const CREATE: OpenFlags = OpenFlags {
    write: true,
    create: true,
    ..READ
};

/// Maximum size of a status file. It suffices for 65536 ranks with 20 digits each.
const STATUS_BYTES_MAX: u64 = 4 << 20;

/// Number of transfers per rank that a stonewalled phase has written. A later run reads only these.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WrittenTransfers {
    /// Number of transfers of each rank, in rank order.
    pub transfers: Vec<u64>,
}

impl WrittenTransfers {
    /// Saves this in the status file.
    pub fn save(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string(self)
            .map_err(|error| Error::Failed(format!("the status has no JSON form: {error}")))?;
        let shown = path.display();
        let cannot = |error| Error::io(format!("cannot write the status file {shown}"), error);
        // The file is opened once for the check and the write, so that another file at the same path is never written.
        let flags = OpenFlags {
            write: true,
            ..READ
        };
        let mut file = match open(path, &flags) {
            Err(error) if error.kind() == ErrorKind::NotFound => open(path, &CREATE),
            opened => opened,
        }
        .map_err(cannot)?;
        if file.metadata().map_err(cannot)?.len() > 0 {
            let mut before = String::new();
            let read = (&file).take(STATUS_BYTES_MAX).read_to_string(&mut before);
            if read.is_err() || serde_json::from_str::<Self>(&before).is_err() {
                return Err(Error::Failed(format!(
                    "{shown} exists and is not a status file of tonnage: choose another name"
                )));
            }
        }
        file.set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| file.write_all((text + "\n").as_bytes()))
            .map_err(cannot)
    }

    /// Loads the status file of an earlier run, which must have had `ranks` ranks.
    pub fn load(path: &Path, ranks: u32) -> Result<Self> {
        let shown = path.display();
        let cannot = |error| Error::io(format!("cannot read the status file {shown}"), error);
        let file = open(path, &READ).map_err(cannot)?;
        let mut text = String::new();
        let read = file.take(STATUS_BYTES_MAX).read_to_string(&mut text);
        read.map_err(cannot)?;
        let written: Self = serde_json::from_str(&text).map_err(|error| {
            Error::Failed(format!("{shown} is not a status file of tonnage: {error}"))
        })?;
        if written.transfers.len() != ranks as usize {
            return Err(Error::Failed(format!(
                "{shown} is of {} ranks, and there are {ranks}: read with as many as wrote",
                written.transfers.len()
            )));
        }
        Ok(written)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::kinds::files::testing::point;

    fn text<T: std::fmt::Debug>(result: Result<T>) -> String {
        result.unwrap_err().to_string()
    }

    /// Creates a FIFO that no process has open.
    pub fn fifo(path: &Path) {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    }

    #[test]
    fn targets_that_cannot_be_written_are_rejected() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        assert!(text(check_target(directory.path(), true)).contains("is a directory"));
        assert!(text(check_target(&at("no/t"), true)).contains("mkdir -p"));
        fs::write(at("file"), "").unwrap();
        assert!(text(check_target(&at("file/t"), true)).contains("is not a directory"));
        assert!(text(check_target(Path::new("/dev/null"), true)).contains("is a device"));
        // A link could let another user choose the file to be written.
        std::os::unix::fs::symlink(at("file"), at("link")).unwrap();
        for refused in [
            text(check_target(&at("link"), true)),
            text(check_target(&at("link"), false)),
            text(check_source(&at("link"), 0)),
        ] {
            assert!(refused.contains("link is a symbolic link"), "{refused}");
        }
        assert!(check_target(&at("t"), true).is_ok());
    }

    #[test]
    fn missing_and_short_sources_are_rejected() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("t");
        assert!(text(check_source(&path, 1)).contains("--prefill"));
        fs::write(&path, "abc").unwrap();
        assert!(text(check_source(&path, 4)).contains("it has 3 bytes, and 4"));
        assert!(check_source(&path, 3).is_ok());
        fs::write(&path, [7; 512]).unwrap();
        assert!(text(find_seed(&point(1), &path, 0, 8)).contains("no data of tonnage"));
    }

    #[test]
    fn the_majority_of_sectors_determines_the_seed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("t");
        let mut point = point(1);
        (point.block_bytes, point.transfer_bytes, point.segments) = (8192, 512, 1);
        let sector = |seed: u64, index: u64| {
            let mut bytes = FileKey::new(seed, 0).stamp(index * 512).to_vec();
            bytes.resize(512, 7);
            bytes
        };
        // The first sector is from an earlier write, and two sectors are swapped.
        let order = [(9, 0), (5, 2), (5, 1)];
        let rest = (3..16).map(|index| (5, index));
        let bytes: Vec<u8> = order
            .into_iter()
            .chain(rest)
            .flat_map(|(seed, index)| sector(seed, index))
            .collect();
        fs::write(&path, bytes).unwrap();
        let inode = Inode::at(&path).unwrap();
        assert_eq!(find_seed(&point, &path, 0, 16).unwrap(), (5, inode));
    }

    #[test]
    fn needed_bytes_end_with_the_last_transfer() {
        let mut point = point(3);
        assert_eq!(needed_bytes(&point, 1, 8), 320);
        assert_eq!(needed_bytes(&point, 1, 1), 80);
        assert_eq!(needed_bytes(&point, 1, 0), 0);
        point.order = FileOrder::Shuffled;
        assert_eq!(needed_bytes(&point, 1, 8), 384);
        assert_eq!(needed_bytes(&point, 1, 7), 0);
    }

    #[test]
    fn a_status_file_fits_only_its_number_of_ranks() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("status");
        let written = WrittenTransfers {
            transfers: vec![3, 5],
        };
        written.save(&path).unwrap();
        assert_eq!(WrittenTransfers::load(&path, 2).unwrap(), written);
        assert!(text(WrittenTransfers::load(&path, 3)).contains("is of 2 ranks"));
        written.save(&path).unwrap();
        fs::write(&path, "somebody's notes").unwrap();
        assert!(text(written.save(&path)).contains("not a status file"));
        // A link is refused even if it leads to a status file. A FIFO is refused without waiting for a reader.
        let at = |name: &str| directory.path().join(name);
        written.save(&at("precious")).unwrap();
        let before = fs::read_to_string(at("precious")).unwrap();
        std::os::unix::fs::symlink(at("precious"), at("link")).unwrap();
        std::os::unix::fs::symlink(at("new"), at("dangling")).unwrap();
        fifo(&at("fifo"));
        let other = WrittenTransfers { transfers: vec![] };
        for (name, kind) in [
            ("link", "a symbolic link"),
            ("dangling", "a symbolic link"),
            ("fifo", "a FIFO"),
        ] {
            for refused in [
                text(other.save(&at(name))),
                text(WrittenTransfers::load(&at(name), 2)),
            ] {
                let named = format!("{}: it is {kind}", at(name).display());
                assert!(refused.contains(&named), "{refused}");
            }
        }
        assert_eq!(fs::read_to_string(at("precious")).unwrap(), before);
        assert!(!at("new").exists());
    }
}
