//! The upper bound of a storage's bandwidth: one sequential stream per device, all at the same time. It is measured
//! after the phases, when their files are gone, so that it does not affect the phases. Streams use direct I/O if the
//! file system supports it, so that the page cache plays no role. Otherwise, streams are buffered and synced, and the
//! bound's description mentions it. Files in memory have no bound.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use std::os::fd::AsFd;
use tonnage_sys::files::advice::drop_cached;
use tonnage_sys::files::open::{OpenFlags, open};
use tonnage_sys::files::transfer::{read_at, write_at};
use tonnage_sys::mapping::{Arena, Pages, Sharing};

use super::checks::READ;
use super::scratch;
use super::storage::{self, LocalStorage};
use tonnage_loops::files::data::ContentPool;
use tonnage_loops::files::stamp::FileKey;
use tonnage_plan::files::{FilePoint, Phase};
use tonnage_record::Bound;
use tonnage_units::Reduce;
use tonnage_units::{Error, Result};

/// Time for which a stream writes, and afterwards reads.
const STREAM_TIME: Duration = Duration::from_millis(400);

/// Usual time for both streams, with the file that they use.
pub const STREAMS_TIME: Duration = Duration::from_millis(1500);

/// Maximum number of bytes that a stream writes. If an eighth of the free space is less than this, that is the limit.
const STREAM_BYTES_MAX: u64 = 1 << 30;
const TRANSFER_BYTES: u64 = 4 << 20;

/// Rates of the streams on all devices together, per direction.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceStreams {
    /// Why the bound is missing; `None` if all streams could be measured.
    pub failed: Option<String>,
    write_bytes_per_s: f64,
    read_bytes_per_s: f64,
    count: u32,
    buffered: u32,
}

impl Reduce for DeviceStreams {
    fn merge(&mut self, other: Self) {
        self.failed = self.failed.take().or(other.failed);
        self.write_bytes_per_s += other.write_bytes_per_s;
        self.read_bytes_per_s += other.read_bytes_per_s;
        self.count += other.count;
        self.buffered += other.buffered;
    }
}

impl DeviceStreams {
    /// Returns the result for a stream that could not be measured.
    pub fn unknown(why: String) -> Self {
        Self {
            failed: Some(why),
            ..Self::default()
        }
    }

    /// Measures one direct stream from an existing file, for experiments that write nothing. Without direct I/O,
    /// nothing is measured, because reading would leave the file in the page cache.
    pub fn measure_reading(place: &LocalStorage, path: &Path) -> Result<Self> {
        if place.direct.is_none() {
            return Ok(Self::default());
        }
        let cannot = |error| Error::io(format!("reading a stream of {}", path.display()), error);
        let flags = OpenFlags {
            direct: true,
            ..READ
        };
        let (file, arena) = (open(path, &flags).map_err(cannot)?, stream_memory()?);
        let since = Instant::now();
        let read = read_for(STREAM_TIME, &file, &arena).map_err(cannot)?;
        Ok(Self {
            read_bytes_per_s: rate(read, since.elapsed()),
            count: 1,
            ..Self::default()
        })
    }

    /// Returns the bound of a phase.
    pub fn bound(&self, point: &FilePoint, phase: Phase) -> Option<Bound> {
        let bytes_per_s = match phase {
            Phase::Write => self.write_bytes_per_s,
            Phase::Read => self.read_bytes_per_s,
            Phase::Mixed => {
                let reads = f64::from(point.read_percent.unwrap_or(0)) / 100.0;
                1.0 / (reads / self.read_bytes_per_s + (1.0 - reads) / self.write_bytes_per_s)
            }
        };
        let kind = match (self.buffered, self.count) {
            (0, _) => "direct",
            (buffered, count) if buffered == count => "buffered and synced",
            _ => "direct or buffered",
        };
        let verb = match phase {
            Phase::Write => "write",
            Phase::Read => "read",
            Phase::Mixed => "read and write",
        };
        let what = match self.count {
            1 => format!("one sequential {kind} {verb} stream of 4 MiB transfers"),
            count => format!(
                "{count} sequential {kind} {verb} streams of 4 MiB transfers, one for each host and device"
            ),
        };
        let known = self.failed.is_none() && bytes_per_s.is_finite() && bytes_per_s > 0.0;
        known.then(|| Bound::new(what, bytes_per_s))
    }
}

/// A stream that was written and can now be read. All streams are written simultaneously, and then read simultaneously.
/// Each stream's rate covers only its own time: a buffered stream may end early, and a sync takes as long as its device
/// needs. The sum of the rates is an upper bound. If streams share a storage and one outlasts the others, the sum is
/// more than they reach together.
#[derive(Debug)]
pub struct WrittenStream<'a> {
    directory: &'a Path,
    file: File,
    arena: Arena,
    direct: bool,
    /// Number of bytes written, including bytes that were overwritten.
    bytes: u64,
    /// Number of transfers that fit into the written part of the file.
    slots: u64,
    bytes_per_s: f64,
}

impl<'a> WrittenStream<'a> {
    /// Writes a stream in the directory of this rank's files. At the end of its space, a direct stream starts again at
    /// the beginning. A buffered stream ends there, because the page cache would absorb overwrites.
    pub fn write(place: &'a LocalStorage) -> Result<Self> {
        let directory = existing_parent(&place.directory);
        let direct = place.direct.is_some();
        let file = scratch::create(directory, "bound", direct)?;
        let cannot = |what, error| io_error(what, directory, error);
        let arena = stream_memory()?;
        ContentPool::new(1, 0).copy_into(&arena, 0, 0, TRANSFER_BYTES)?;
        // Reads the free space now, because files that are kept have reduced it.
        let free_bytes =
            storage::free_bytes(directory).map_err(|error| cannot("finding space for", error))?;
        let room = bytes_max(free_bytes);
        let bytes_max = if direct { u64::MAX } else { room };
        let slots = room / TRANSFER_BYTES;
        let since = Instant::now();
        let mut bytes = 0;
        while has_room_and_time(bytes, bytes_max, since.elapsed()) {
            let at = transfer_offset(bytes, slots);
            FileKey::new(1, 0).stamp_all(&arena, 0, at, TRANSFER_BYTES)?;
            let taken = write_at(file.as_fd(), &arena, 0, at, TRANSFER_BYTES);
            match taken.map_err(|error| cannot("writing", error))? {
                taken if taken as u64 == TRANSFER_BYTES => bytes += TRANSFER_BYTES,
                _ => break,
            }
        }
        file.sync_data().map_err(|error| cannot("syncing", error))?;
        let bytes_per_s = rate(bytes, since.elapsed());
        if !direct {
            drop_cached(&file).map_err(|error| cannot("dropping", error))?;
        }
        Ok(Self {
            directory,
            file,
            arena,
            direct,
            bytes,
            slots: slots.min(bytes / TRANSFER_BYTES),
            bytes_per_s,
        })
    }

    pub fn read(self) -> Result<DeviceStreams> {
        let bytes_max = if self.direct { u64::MAX } else { self.bytes };
        let (since, mut read) = (Instant::now(), 0);
        while self.slots > 0 && has_room_and_time(read, bytes_max, since.elapsed()) {
            let at = transfer_offset(read, self.slots);
            let got = read_at(self.file.as_fd(), &self.arena, 0, at, TRANSFER_BYTES);
            match got.map_err(|error| io_error("reading", self.directory, error))? {
                got if got as u64 == TRANSFER_BYTES => read += TRANSFER_BYTES,
                _ => break,
            }
        }
        Ok(DeviceStreams {
            failed: None,
            write_bytes_per_s: self.bytes_per_s,
            read_bytes_per_s: rate(read, since.elapsed()),
            count: 1,
            buffered: u32::from(!self.direct),
        })
    }
}

/// Returns the file offset of the transfer after `bytes` bytes. After `slots` transfers, offsets start again at 0.
fn transfer_offset(bytes: u64, slots: u64) -> u64 {
    (bytes / TRANSFER_BYTES) % slots.max(1) * TRANSFER_BYTES
}

fn io_error(what: &str, directory: &Path, error: io::Error) -> Error {
    Error::io(format!("{what} a stream in {}", directory.display()), error)
}

/// Returns the maximum number of bytes that a stream writes, if `free_bytes` are free.
fn bytes_max(free_bytes: u64) -> u64 {
    (free_bytes / 8).clamp(TRANSFER_BYTES, STREAM_BYTES_MAX)
}

/// Returns whether another transfer fits into `bytes_max` and there is time for it.
fn has_room_and_time(bytes: u64, bytes_max: u64, elapsed: Duration) -> bool {
    bytes + TRANSFER_BYTES <= bytes_max && elapsed < STREAM_TIME
}

/// Reads from the beginning of a file to its end, or until the time is over. Returns the number of bytes read.
fn read_for(time: Duration, file: &impl AsFd, arena: &Arena) -> io::Result<u64> {
    let (since, mut read) = (Instant::now(), 0);
    while since.elapsed() < time {
        let got = read_at(file.as_fd(), arena, 0, read, TRANSFER_BYTES)? as u64;
        read += got;
        // The end of the file was reached, possibly in the middle of a transfer.
        if got < TRANSFER_BYTES {
            break;
        }
    }
    Ok(read)
}

fn rate(bytes: u64, elapsed: Duration) -> f64 {
    bytes as f64 / elapsed.as_secs_f64()
}

/// Returns why files in memory have no bound; `None` for other files. All ranks pass the same places.
pub fn why_no_bound(places: &[LocalStorage]) -> Option<String> {
    let place = places.iter().find(|place| place.memory)?;
    Some(format!(
        "no bound: files on {} are in memory, where one stream does not bound what several threads copy; --bound states one",
        place.file_system
    ))
}

/// Writes dirty pages of the phases to the storage, so that they don't compete with the stream. If this fails, the
/// stream is slower.
pub fn flush_page_cache(place: &LocalStorage) {
    let directory = std::fs::File::open(existing_parent(&place.directory));
    drop(directory.map(rustix::fs::syncfs));
}

/// Returns the directory. If the run has removed it, returns its closest parent that exists.
fn existing_parent(directory: &Path) -> &Path {
    let mut above = directory.ancestors().map(|path| match path.as_os_str() {
        nothing if nothing.is_empty() => Path::new("."),
        _ => path,
    });
    above.find(|path| path.is_dir()).unwrap_or(directory)
}

fn stream_memory() -> Result<Arena> {
    Arena::allocate(
        TRANSFER_BYTES as usize,
        Pages::Normal,
        Sharing::Private,
        None,
    )
    .map_err(|error| Error::io("cannot allocate memory for a stream", error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::files::testing::point;
    use tonnage_sys::files::residency::resident_bytes;

    fn streams(
        write_bytes_per_s: f64,
        read_bytes_per_s: f64,
        count: u32,
        buffered: u32,
    ) -> DeviceStreams {
        DeviceStreams {
            failed: None,
            write_bytes_per_s,
            read_bytes_per_s,
            count,
            buffered,
        }
    }

    #[test]
    fn streams_add_up_and_a_mixed_bound_is_in_between() {
        let mut streams = streams(100.0, 300.0, 1, 0);
        streams.merge(streams.clone());
        let mut point = point(2);
        point.read_percent = Some(50);
        let bound = streams.bound(&point, Phase::Mixed).unwrap();
        assert_eq!(bound.bytes_per_s, 300.0);
        assert!(bound.what.starts_with("2 sequential direct"), "{bound:?}");
        assert_eq!(
            streams.bound(&point, Phase::Write).unwrap().bytes_per_s,
            200.0
        );
        assert_eq!(DeviceStreams::default().bound(&point, Phase::Write), None);
        // Three transfers at 600 take as long as the fourth at 200.
        point.read_percent = Some(75);
        let mixed = streams.bound(&point, Phase::Mixed).unwrap();
        assert!((mixed.bytes_per_s - 400.0).abs() < 1e-9, "{mixed:?}");
        let read = streams.bound(&point, Phase::Read).unwrap();
        assert_eq!(read.bytes_per_s, 600.0);
    }

    #[test]
    fn streams_are_described_as_direct_or_buffered() {
        let point = point(2);
        let what = |count, buffered| {
            let streams = streams(1.0, 1.0, count, buffered);
            streams.bound(&point, Phase::Write).unwrap().what
        };
        for (count, buffered, expected) in [
            (1, 0, "one sequential direct write stream of"),
            (1, 1, "one sequential buffered and synced write stream of"),
            (3, 0, "3 sequential direct write streams of"),
            (3, 3, "3 sequential buffered and synced write streams of"),
            (3, 1, "3 sequential direct or buffered write streams of"),
        ] {
            let what = what(count, buffered);
            assert!(what.starts_with(expected), "{what}");
        }
    }

    #[test]
    fn a_failed_stream_leaves_no_bound() {
        let known = streams(1.0, 1.0, 1, 1);
        let why = || DeviceStreams::unknown("no space".into());
        for [mut one, other] in [[known.clone(), why()], [why(), known.clone()]] {
            one.merge(other);
            assert_eq!(one.failed.as_deref(), Some("no space"));
            assert_eq!((one.count, one.buffered), (1, 1));
            assert_eq!(one.bound(&point(2), Phase::Write), None);
        }
        // The bound of a mixed phase needs the rates of both directions.
        let mut half = point(2);
        half.read_percent = Some(50);
        let writes = DeviceStreams {
            read_bytes_per_s: 0.0,
            ..known
        };
        assert_eq!(writes.bound(&half, Phase::Mixed), None);
    }

    #[test]
    fn a_stream_ends_with_its_time_or_its_bytes() {
        const MIB: u64 = 1 << 20;
        assert_eq!(bytes_max(0), 4 * MIB);
        assert_eq!(bytes_max(80 * MIB), 10 * MIB);
        assert_eq!(bytes_max(u64::MAX), 1024 * MIB);
        let (none, all) = (Duration::ZERO, STREAM_TIME);
        assert!(has_room_and_time(0, 4 * MIB, none) && has_room_and_time(4 * MIB, 8 * MIB, none));
        assert!(
            !has_room_and_time(4 * MIB, 8 * MIB - 1, none) && !has_room_and_time(0, 8 * MIB, all)
        );
        assert_eq!(rate(300, Duration::from_millis(500)), 600.0);
        // A direct stream starts again at the beginning of its space, so that it can use all its time.
        let places = [0, 4, 8, 12, 24].map(|mib| transfer_offset(mib * MIB, 3));
        assert_eq!(places, [0, 4 * MIB, 8 * MIB, 0, 0]);
        assert_eq!(transfer_offset(4 * MIB, 1), 0);
    }

    #[test]
    fn a_removed_directory_is_replaced_by_its_parent() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(
            existing_parent(&directory.path().join("0")),
            directory.path()
        );
        assert_eq!(existing_parent(directory.path()), directory.path());
        assert_eq!(
            existing_parent(Path::new("no such directory")),
            Path::new(".")
        );
    }

    #[test]
    fn memory_has_no_bound() {
        let directory = tempfile::tempdir().unwrap();
        let inspected = LocalStorage::inspect(&directory.path().join("t"), true, false).unwrap();
        let on = |file_system: &str, memory| LocalStorage {
            file_system: file_system.into(),
            memory,
            ..inspected.clone()
        };
        let disk = on("ext4", false);
        assert_eq!(why_no_bound(&[disk.clone(), disk.clone()]), None);
        let why = why_no_bound(&[disk, on("tmpfs", true)]).unwrap();
        assert!(
            why.starts_with("no bound: files on tmpfs are in memory"),
            "{why}"
        );
    }

    #[test]
    fn a_stream_is_measured_and_leaves_no_file() {
        let directory = tempfile::tempdir().unwrap();
        let place = LocalStorage::inspect(&directory.path().join("t"), true, false).unwrap();
        // The directory of a rank was removed together with its files.
        let of_rank = LocalStorage {
            directory: directory.path().join("0"),
            ..place.clone()
        };
        for place in [&place, &of_rank] {
            let streams = WrittenStream::write(place).unwrap().read().unwrap();
            assert!(streams.write_bytes_per_s > 0.0 && streams.read_bytes_per_s > 0.0);
            let buffered = u32::from(place.direct.is_none());
            assert_eq!((streams.count, streams.buffered), (1, buffered));
            assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        }
        let path = directory.path().join("t");
        std::fs::write(&path, vec![7; 5 << 20]).unwrap();
        let resident = |file: &std::fs::File| resident_bytes(file, 0, 5 << 20).unwrap().bytes;
        let file = std::fs::File::open(&path).unwrap();
        drop_cached(&file).unwrap();
        let dropped = resident(&file) == 0;
        let streams = DeviceStreams::measure_reading(&place, &path).unwrap();
        assert_eq!(streams.read_bytes_per_s > 0.0, place.direct.is_some());
        assert_eq!(streams.count, u32::from(place.direct.is_some()));
        // The stream must not leave data in the page cache, where a later phase would find them.
        if !dropped {
            println!("skip: the temporary directory's file system ignores requests to drop pages");
        } else if place.direct.is_some() {
            assert_eq!(resident(&file), 0);
        }
        // Reading stops at the end of the file, even if there is time left.
        let hour = Duration::from_secs(3600);
        assert_eq!(
            read_for(hour, &file, &stream_memory().unwrap()).unwrap(),
            5 << 20
        );
        assert_eq!(
            read_for(Duration::ZERO, &file, &stream_memory().unwrap()).unwrap(),
            0
        );
    }
}
