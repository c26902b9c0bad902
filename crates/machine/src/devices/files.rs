//! Mounted file systems that hold files, and their free space.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::statvfs;
use serde::{Deserialize, Serialize};

use super::super::kernel_files::Tree;
use super::super::mounts::unescape;
use super::Absent;
use crate::devices::timeout::with_timeout;

/// File system types that hold no user files.
const PSEUDO: &str = "autofs binfmt_misc bpf cgroup cgroup2 configfs debugfs devpts devtmpfs efivarfs \
    fuse.gvfsd-fuse fuse.lxcfs fuse.portal fusectl hugetlbfs mqueue nsfs proc pstore ramfs rpc_pipefs securityfs \
    selinuxfs squashfs sysfs tracefs";

/// Mounts of any type at or below these places belong to the system.
const SYSTEM_PLACES: [&str; 5] = ["/boot", "/dev", "/proc", "/run", "/sys"];

/// Shared memory. It is listed although its mount is below /dev, because it is used like a file system.
const SHARED_MEMORY: &str = "/dev/shm";

/// Size of the smallest tmpfs that is listed. A smaller tmpfs holds settings, not data.
const TMPFS_BYTES_MIN: u64 = 16 << 20;

/// Longest time to wait for a file system's size. If its server is down, the call does not return.
const TIMEOUT: Duration = Duration::from_secs(1);

/// After this number of unresponsive file systems, the remaining ones are not queried.
const SILENT_MAX: usize = 3;

/// One mounted file system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountedFileSystem {
    /// Mount point.
    pub mount: PathBuf,
    /// Device or server, as the kernel names it.
    pub source: String,
    /// Type: "ext4", "lustre", "nfs4", "tmpfs", …
    pub kind: String,
    /// True if the file system is mounted read-only.
    pub read_only: bool,
    /// Total size; absent if the file system did not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_bytes: Option<u64>,
    /// Free space for an unprivileged user; absent if the file system did not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available_bytes: Option<u64>,
}

pub(super) fn find(tree: &Tree, absent: &mut Vec<Absent>) -> Vec<MountedFileSystem> {
    let mounts = tree.text("proc/self/mounts").unwrap_or_default();
    // A later mount hides an earlier one at the same mount point.
    let mounted = mounts.lines().filter_map(mount);
    let by_place = mounted.map(|file_system| (file_system.mount.clone(), file_system));
    let by_place: BTreeMap<PathBuf, MountedFileSystem> = by_place.collect();
    let mut silent = Vec::new();
    let mut found = Vec::new();
    for (place, mut file_system) in by_place {
        if silent.len() < SILENT_MAX {
            let path = place.clone();
            match with_timeout(TIMEOUT, move || size_of_directory(&path)) {
                Some(Some((total, available))) => {
                    file_system.total_bytes = Some(total);
                    file_system.available_bytes = Some(available);
                }
                Some(None) => continue,
                None => silent.push(place.display().to_string()),
            }
        } else {
            silent.push(place.display().to_string());
        }
        let is_tiny = |bytes: u64| bytes < TMPFS_BYTES_MIN;
        let is_settings =
            file_system.kind == "tmpfs" && file_system.total_bytes.is_some_and(is_tiny);
        if !is_settings {
            found.push(file_system);
        }
    }
    report(&found, &silent, absent);
    found
}

fn report(found: &[MountedFileSystem], silent: &[String], absent: &mut Vec<Absent>) {
    if !silent.is_empty() {
        let who = if silent.len() == 1 {
            "it"
        } else {
            "the first of them"
        };
        let seconds = TIMEOUT.as_secs();
        absent.push(Absent::new(
            format!("the sizes of {}", silent.join(", ")),
            format!("asked with statvfs, {who} did not answer within {seconds} s"),
            "Look whether the file server can be reached, for example with `stat -f` on the mount point.",
        ));
    }
    if found.is_empty() {
        absent.push(Absent::new(
            "file systems",
            "/proc/self/mounts lists none that holds files of users",
            "Mount one, or mount /proc if it is not.",
        ));
    }
}

/// Parses one line of /proc/self/mounts; `None` if the file system is to be left out.
fn mount(line: &str) -> Option<MountedFileSystem> {
    let mut fields = line.split(' ');
    let (source, place, kind) = (fields.next()?, fields.next()?, fields.next()?);
    let read_only = fields.next()?.split(',').any(|option| option == "ro");
    let place = PathBuf::from(unescape(place));
    let system = SYSTEM_PLACES.iter().any(|system| place.starts_with(system))
        && place != Path::new(SHARED_MEMORY);
    if system || PSEUDO.split(' ').any(|one| one == kind) {
        return None;
    }
    Some(MountedFileSystem {
        mount: place,
        source: unescape(source),
        kind: kind.to_owned(),
        read_only,
        total_bytes: None,
        available_bytes: None,
    })
}

/// Returns total and available bytes. `None` if the place is not a directory, because containers mount single files
/// too. Also `None` if statvfs fails, for example because the mount belongs to another user.
fn size_of_directory(place: &Path) -> Option<(u64, u64)> {
    if !place.is_dir() {
        return None;
    }
    let answer = statvfs(place).ok()?;
    let bytes = |blocks: u64| blocks.saturating_mul(answer.f_frsize);
    Some((bytes(answer.f_blocks), bytes(answer.f_bavail)))
}

#[cfg(test)]
mod tests {
    use super::super::super::kernel_files::invented::Machine;
    use super::*;

    #[test]
    fn pseudo_and_system_mounts_are_left_out() {
        let left_out = [
            "proc /proc proc rw 0 0",
            "tmpfs /run/user/0 tmpfs rw 0 0",
            "overlay /sys/fs/x overlay rw 0 0",
            "cgroup2 /mnt/cgroup cgroup2 rw 0 0",
            "too short",
            "",
        ];
        for line in left_out {
            assert_eq!(mount(line), None, "{line}");
        }
        let kept = mount("server:/a\\040b /mnt/a\\040b\\134c nfs4 ro,vers=4 0 0").unwrap();
        assert_eq!(
            (kept.source.as_str(), kept.read_only),
            ("server:/a b", true)
        );
        assert_eq!(kept.mount, Path::new("/mnt/a b\\c"));
        assert_eq!(mount("tmpfs /dev/shm tmpfs rw 0 0").unwrap().kind, "tmpfs");
    }

    #[test]
    fn the_last_mount_at_a_place_counts_and_files_are_left_out() {
        let machine = Machine::new();
        let place = machine.path().display().to_string();
        machine.file("single", "");
        machine.file(
            "proc/self/mounts",
            &format!("a {place} ext4 rw 0 0\nb {place} xfs rw 0 0\nc {place}/single ext4 rw 0 0\nd {place}/none ext4 rw 0 0"),
        );
        let mut absent = Vec::new();
        let found = find(&machine.tree(), &mut absent);
        assert!(absent.is_empty(), "{absent:?}");
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].kind, "xfs");
        assert!(found[0].total_bytes.unwrap() >= found[0].available_bytes.unwrap());
    }

    #[test]
    fn silent_ones_are_named() {
        let mut absent = Vec::new();
        let one = mount("a /mnt/a nfs rw 0 0").unwrap();
        report(&[one], &["/mnt/a".to_owned()], &mut absent);
        assert!(absent[0].what.contains("/mnt/a") && absent[0].how.contains("stat -f"));
    }
}
