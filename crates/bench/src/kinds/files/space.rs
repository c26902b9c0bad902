//! Compares the complete size of an experiment's files with the free space. Every rank knows the storage of all ranks,
//! so all ranks get the same result.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;

use super::storage::LocalStorage;
use crate::kinds::files::names::{bytes_of_file, path_of};
use tonnage_plan::files::{DataKind, FileLayout, FilePoint};
use tonnage_units::quantity::human::size;
use tonnage_units::{Error, Result};

/// Unit in which the system counts a file's blocks, on every file system.
const BLOCK_BYTES: u64 = 512;

/// Key of a storage. A network file system is the same on all hosts, but a disk belongs to one machine.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum StorageKey<'a> {
    Network(&'a str),
    Disk(u32, (u32, u32)),
}

/// A storage, and the number of ranks that use it.
#[derive(Debug)]
struct UsedStorage<'a> {
    place: &'a LocalStorage,
    ranks: u64,
    /// Number of bytes that existing files of these ranks occupy.
    taken_bytes: u64,
}

impl UsedStorage<'_> {
    /// Returns the total size of all files after all data are written.
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

/// Returns the number of files per rank that exist at the same time.
pub(super) fn files_of_rank(point: &FilePoint) -> u32 {
    if point.file_per_trial {
        point.trials
    } else {
        1
    }
}

/// Returns the number of bytes that a rank's existing files occupy. These files will be removed or overwritten first.
pub(super) fn occupied_bytes(point: &FilePoint, rank: u32) -> u64 {
    let found = (0..files_of_rank(point))
        .filter_map(|trial| fs::metadata(path_of(point, rank, trial)).ok());
    found.map(|found| found.blocks() * BLOCK_BYTES).sum()
}

/// Rejects files that cannot fit. With a stonewall, writing may end before files are complete, so they are not
/// rejected; but prefilling ignores stonewalls. `machines` and `places` are in rank order.
pub(super) fn check_space(
    point: &FilePoint,
    machines: &[u32],
    places: &[LocalStorage],
) -> Result<()> {
    if point.stonewall.is_some() && !point.prefill {
        return Ok(());
    }
    let short = used_storage(point, machines, places)
        .into_iter()
        .find(|used| {
            let needed = used.needed_bytes(point);
            let least = match point.data {
                DataKind::Random => needed,
                // The file system may store all zeros without using space.
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

/// Returns a remark if the complete files don't fit. The run is still possible, because a stonewall may end writing
/// early, or root may use reserved space.
pub(super) fn space_remark(
    point: &FilePoint,
    machines: &[u32],
    places: &[LocalStorage],
) -> Option<String> {
    let mut used = used_storage(point, machines, places).into_iter();
    let short = used.find(|used| {
        used.needed_bytes(point) > used.place.free_bytes.saturating_add(used.taken_bytes)
    })?;
    Some(describe(&short, point))
}

/// Returns each storage once, with the ranks that use it.
fn used_storage<'a>(
    point: &FilePoint,
    machines: &[u32],
    places: &'a [LocalStorage],
) -> Vec<UsedStorage<'a>> {
    let mut storages = BTreeMap::new();
    for (machine, place) in machines.iter().zip(places) {
        let key = if place.network {
            StorageKey::Network(&place.source)
        } else {
            StorageKey::Disk(*machine, place.device)
        };
        let used = storages.entry(key).or_insert(UsedStorage {
            place,
            ranks: 0,
            taken_bytes: 0u64,
        });
        used.ranks += 1;
        used.taken_bytes = match point.layout {
            FileLayout::Shared => used.taken_bytes.max(place.taken_bytes),
            FileLayout::PerProcess => used.taken_bytes.saturating_add(place.taken_bytes),
        };
    }
    storages.into_values().collect()
}

fn describe(used: &UsedStorage<'_>, point: &FilePoint) -> String {
    format!(
        "the files in {} take {} when complete, and {} are free",
        used.place.directory.display(),
        size(used.needed_bytes(point)),
        size(used.place.free_bytes)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::files::testing::{point, with_stonewall};

    /// Returns a point of four ranks that have a file of 128 bytes each.
    fn per_process() -> FilePoint {
        FilePoint {
            layout: FileLayout::PerProcess,
            ..point(4)
        }
    }

    /// Returns a disk with `free_bytes` free for users, and ten bytes more for root.
    fn disk(free_bytes: u64) -> LocalStorage {
        LocalStorage {
            directory: "/data".into(),
            file_system: "ext4".into(),
            source: "/dev/a".into(),
            device: (8, 1),
            network: false,
            memory: false,
            free_bytes,
            unused_bytes: free_bytes + 10,
            taken_bytes: 0,
            direct: None,
        }
    }

    fn four(place: LocalStorage) -> [LocalStorage; 4] {
        [(); 4].map(|()| place.clone())
    }

    fn fits(point: &FilePoint, machines: &[u32], places: &[LocalStorage]) -> bool {
        check_space(point, machines, places).is_ok()
    }

    #[test]
    fn files_fit_to_the_last_byte_and_an_error_shows_the_free_space() {
        let (point, machines) = (per_process(), [0; 4]);
        let places = |free_bytes| four(disk(free_bytes));
        assert!(fits(&point, &machines, &places(502)));
        let short = check_space(&point, &machines, &places(501)).unwrap_err();
        let text = short.to_string();
        assert!(
            text.contains("/data take 512 B when complete, and 501 B are free"),
            "{text}"
        );
        assert_eq!(space_remark(&point, &machines, &places(512)), None);
        let remark = space_remark(&point, &machines, &places(511)).unwrap();
        assert!(
            remark.ends_with("take 512 B when complete, and 511 B are free"),
            "{remark}"
        );
    }

    #[test]
    fn a_disk_belongs_to_its_machine_and_a_network_storage_to_all() {
        let point = per_process();
        // Each of two machines has two ranks and a disk. The two disks have equal device numbers.
        let machines = [0, 0, 1, 1];
        assert!(fits(&point, &machines, &four(disk(246))));
        assert!(!fits(&point, &machines, &four(disk(245))));
        let network = |source: &str, free_bytes| LocalStorage {
            network: true,
            source: source.into(),
            ..disk(free_bytes)
        };
        assert!(!fits(&point, &machines, &four(network("a:/", 501))));
        let two = ["a:/", "a:/", "b:/", "b:/"].map(|source| network(source, 246));
        assert!(fits(&point, &machines, &two));
    }

    #[test]
    fn a_shared_file_counts_once_per_kept_repetition() {
        let mut point = point(4);
        let fits = |point: &FilePoint, free| fits(point, &[0; 4], &four(disk(free)));
        assert!(fits(&point, 502) && !fits(&point, 501));
        (point.file_per_trial, point.trials) = (true, 3);
        assert!(fits(&point, 1526) && !fits(&point, 1525));
        point.file_per_trial = false;
        assert!(fits(&point, 502));
    }

    #[test]
    fn bytes_of_overwritten_files_count_as_free() {
        let places = |free_bytes, taken_bytes| {
            four(LocalStorage {
                taken_bytes,
                ..disk(free_bytes)
            })
        };
        let machines = [0; 4];
        // The four ranks have one file each, or share one file.
        assert!(fits(&per_process(), &machines, &places(2, 125)));
        assert!(!fits(&per_process(), &machines, &places(1, 125)));
        assert!(fits(&point(4), &machines, &places(2, 500)));
        assert!(!fits(&point(4), &machines, &places(2, 499)));
        assert_eq!(space_remark(&point(4), &machines, &places(12, 500)), None);
        assert!(space_remark(&point(4), &machines, &places(11, 500)).is_some());
    }

    #[test]
    fn a_stonewall_limits_the_phases_but_not_prefilling() {
        let short = four(disk(1));
        let fits = |point: &FilePoint| fits(point, &[0; 4], &short);
        assert!(!fits(&per_process()));
        let mut point = with_stonewall(per_process(), 1, false);
        assert!(fits(&point));
        point.prefill = true;
        assert!(!fits(&point));
    }

    #[test]
    fn zeros_of_compressible_data_may_take_no_space() {
        let mut point = per_process();
        point.block_bytes = 16 * 100;
        point.data = DataKind::Compressible { percent: 30 };
        // 70 % of four files must fit, each two blocks long.
        let fits = |free| fits(&point, &[0; 4], &four(disk(free)));
        assert!(fits(8950) && !fits(8949));
    }

    #[test]
    fn taken_bytes_are_those_allocated_on_the_storage() {
        let directory = tempfile::tempdir().unwrap();
        let mut point = per_process();
        point.paths = vec![directory.path().join("t").display().to_string()];
        (point.file_per_trial, point.trials) = (true, 3);
        assert_eq!(occupied_bytes(&point, 1), 0);
        for trial in [0, 2] {
            let bytes = vec![7; 64 << 10];
            fs::write(path_of(&point, 1, trial), bytes).unwrap();
        }
        fs::write(path_of(&point, 2, 0), [7]).unwrap();
        // Until all blocks are allocated, the system may report fewer blocks, so the files are synced first.
        for trial in [0, 2] {
            let file = fs::File::open(path_of(&point, 1, trial)).unwrap();
            file.sync_all().unwrap();
        }
        // 128 KiB, with a tolerance for file systems that compress or preallocate.
        let taken = occupied_bytes(&point, 1);
        assert!((4 << 10..256 << 10).contains(&taken), "{taken}");
    }
}
