//! The file system of a file, as far as system calls on the file report it. `tonnage_machine` reads mount point and
//! source from /proc/self/mountinfo.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, StatFs, StatxFlags, fstatfs, makedev, statfs, statx};

use super::open::not_regular;

/// One file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSystem {
    /// "ext4", "tmpfs", "lustre", …; the number in hexadecimal ("0x1234") if the file system is unknown. ext2, ext3 and
    /// ext4 share one number, called "ext4". All FUSE file systems share one too, called "fuse".
    pub name: String,
    /// Major and minor number of the device, as files report them. A file system without a device has 0 and a
    /// sequential number.
    pub device: (u32, u32),
    /// Mount number in /proc/self/mountinfo; `None` on kernels before 5.8.
    pub mount_id: Option<u64>,
    /// Whether other machines store the bytes. For "fuse" this is unknown, and false.
    pub network: bool,
    /// Whether the bytes are stored in this machine's memory.
    pub memory: bool,
}

enum Storage {
    Here,
    Memory,
    Network,
}

/// Names of file systems by the magic number of statfs(2): from linux/magic.h, or from the headers of file systems
/// outside the kernel (Lustre's lustre_user.h, BeeGFS's FhgfsOpsSuper.h, OrangeFS's pvfs2-kernel.h; GPFS's number
/// spells "GPFS").
const KNOWN: &[(u64, &str, Storage)] = &[
    (0xef53, "ext4", Storage::Here),
    (0x5846_5342, "xfs", Storage::Here),
    (0x9123_683e, "btrfs", Storage::Here),
    (0x2fc1_2fc1, "zfs", Storage::Here),
    (0xca45_1a4e, "bcachefs", Storage::Here),
    (0xf2f5_2010, "f2fs", Storage::Here),
    (0x3153_464a, "jfs", Storage::Here),
    (0x4d44, "vfat", Storage::Here),
    (0x2011_bab0, "exfat", Storage::Here),
    (0x794c_7630, "overlay", Storage::Here),
    (0x7371_7368, "squashfs", Storage::Here),
    (0x0116_1970, "gfs2", Storage::Here),
    (0x7461_636f, "ocfs2", Storage::Here),
    (0x6573_5546, "fuse", Storage::Here),
    (0x0102_1994, "tmpfs", Storage::Memory),
    (0x8584_58f6, "ramfs", Storage::Memory),
    (0x9584_58f6, "hugetlbfs", Storage::Memory),
    (0x6969, "nfs", Storage::Network),
    (0xff53_4d42, "cifs", Storage::Network),
    (0xfe53_4d42, "smb2", Storage::Network),
    (0x00c3_6400, "ceph", Storage::Network),
    (0x0102_1997, "9p", Storage::Network),
    (0x5346_414f, "afs", Storage::Network),
    (0x0bd0_0bd0, "lustre", Storage::Network),
    (0x1983_0326, "beegfs", Storage::Network),
    (0x4750_4653, "gpfs", Storage::Network),
    (0x2003_0528, "orangefs", Storage::Network),
    (0xaad7_aaea, "panfs", Storage::Network),
];

/// Returns the file system of a path, which may be a folder.
///
/// # Errors
/// If the path does not exist, or the file system does not answer.
pub fn of_path(path: &Path) -> io::Result<FileSystem> {
    let status = statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID)?;
    Ok(described(&statfs(path)?, &status))
}

/// Returns device and inode of an open file, as this host knows them without asking a server.
///
/// # Errors
/// If the file system does not answer.
pub fn identity(file: impl AsFd) -> io::Result<(u64, u64)> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let status = statx(&file, c"", flags, StatxFlags::INO)?;
    Ok((
        makedev(status.stx_dev_major, status.stx_dev_minor),
        status.stx_ino,
    ))
}

/// Returns device and inode of the regular file at a path, as this host knows them without asking a server. Does not
/// follow a link.
///
/// # Errors
/// If the file system does not answer; `InvalidInput` with the kind for anything but a regular file.
pub fn identity_at(path: &Path) -> io::Result<(u64, u64)> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_DONT_SYNC;
    let status = statx(CWD, path, flags, StatxFlags::INO | StatxFlags::TYPE)?;
    match FileType::from_raw_mode(status.stx_mode.into()) {
        FileType::RegularFile => Ok((
            makedev(status.stx_dev_major, status.stx_dev_minor),
            status.stx_ino,
        )),
        kind => Err(not_regular(kind)),
    }
}

/// Returns the file system of an open file.
///
/// # Errors
/// If the file system does not answer.
pub fn of_file(file: impl AsFd) -> io::Result<FileSystem> {
    let status = statx(&file, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?;
    Ok(described(&fstatfs(&file)?, &status))
}

fn described(answer: &StatFs, status: &rustix::fs::Statx) -> FileSystem {
    // The kernel's number has 32 bits. Mask off its extension to 64 bits, which differs between architectures.
    let magic = answer.f_type as u64 & 0xffff_ffff;
    let known = KNOWN.iter().find(|(number, ..)| *number == magic);
    let said = StatxFlags::from_bits_retain(status.stx_mask);
    FileSystem {
        name: known.map_or_else(|| format!("{magic:#x}"), |(_, name, _)| (*name).to_owned()),
        device: (status.stx_dev_major, status.stx_dev_minor),
        mount_id: said
            .contains(StatxFlags::MNT_ID)
            .then_some(status.stx_mnt_id),
        network: matches!(known, Some((_, _, Storage::Network))),
        memory: matches!(known, Some((_, _, Storage::Memory))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::scratch::Scratch;
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_file_and_its_path_are_on_the_same_one() {
        let scratch = Scratch::on_disk();
        let file = scratch.holding(b"x");
        let found = of_file(&file).unwrap();
        assert_eq!(found, of_path(scratch.path()).unwrap());
        let device = file.metadata().unwrap().dev();
        assert_eq!(
            found.device,
            (rustix::fs::major(device), rustix::fs::minor(device))
        );
        assert!(!found.name.is_empty());
    }

    #[test]
    fn memory_is_distinguished_from_disks() {
        let Some(scratch) = Scratch::in_memory() else {
            return;
        };
        drop(scratch.holding(b"x"));
        let found = of_path(scratch.path()).unwrap();
        assert_eq!(
            (found.name.as_str(), found.memory, found.network),
            ("tmpfs", true, false)
        );
    }

    #[test]
    fn an_unknown_file_system_is_named_by_its_number() {
        let proc = of_path(Path::new("/proc")).unwrap();
        assert_eq!(proc.name, "0x9fa0");
        assert!(!proc.memory && !proc.network);
        assert!(of_path(Path::new("/nowhere/at/all")).is_err());
    }
}
