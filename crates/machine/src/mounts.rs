//! Finds the mount that holds a file, with its source, such as a device or a server's export. The list of all file
//! systems of the machine is in [`super::devices`]; statfs and statx are called in `tonnage_sys::files`.

use std::io;
use std::path::{Path, PathBuf};

use tonnage_sys::files::file_system::{self, FileSystem};

use super::kernel_files::Tree;

/// The mount that holds a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Type, as the kernel names it: "ext4", "nfs4", "fuse.sshfs", …
    pub kind: String,
    /// Mount point; `None` if /proc does not list it.
    pub place: Option<PathBuf>,
    /// Source of the mount: a device, a server's export, …; `None` if /proc does not list it.
    pub source: Option<String>,
    /// The file system, as the kernel reports it for the path itself.
    pub file_system: FileSystem,
}

/// Returns the mount that holds a path. The path must exist, and may be a folder.
pub fn find_mount(path: &Path) -> io::Result<Mount> {
    let file_system = file_system::of_path(path)?;
    let mounts = Tree::host().text("proc/self/mountinfo").unwrap_or_default();
    Ok(found(&mounts, file_system, &path.canonicalize()?))
}

fn found(mounts: &str, file_system: FileSystem, path: &Path) -> Mount {
    let lines = || mounts.lines().filter_map(line);
    let line = if file_system.mount_id.is_some() {
        lines().find(|line| Some(line.id) == file_system.mount_id)
    } else {
        // Kernels before 5.8 do not report the mount's number. In that case, the mount is the device's innermost one
        // above the path. If several are mounted at the same place, it is the last of them.
        lines()
            .filter(|line| line.device == file_system.device && path.starts_with(&line.place))
            .max_by_key(|line| line.place.components().count())
    };
    match line {
        Some(line) => Mount {
            kind: line.kind,
            place: Some(line.place),
            source: Some(line.source),
            file_system,
        },
        None => Mount {
            kind: file_system.name.clone(),
            place: None,
            source: None,
            file_system,
        },
    }
}

struct Line {
    id: u64,
    device: (u32, u32),
    place: PathBuf,
    kind: String,
    source: String,
}

/// Parses one line of /proc/self/mountinfo. Its fields are number, parent's number, device, root, place, options, any
/// number of further fields, a dash, kind, source, more options.
fn line(text: &str) -> Option<Line> {
    let (before, after) = text.split_once(" - ")?;
    let mut fields = before.split(' ');
    let id = fields.next()?.parse().ok()?;
    let (major, minor) = fields.nth(1)?.split_once(':')?;
    let place = fields.nth(1)?;
    let (kind, rest) = after.split_once(' ')?;
    let source = rest.split(' ').next()?;
    Some(Line {
        id,
        device: (major.parse().ok()?, minor.parse().ok()?),
        place: PathBuf::from(unescape(place)),
        kind: kind.to_owned(),
        source: unescape(source),
    })
}

/// Undoes the kernel's escapes. The kernel writes blanks, tabs, line ends and backslashes as a backslash and three
/// octal digits.
pub(super) fn unescape(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        plain.push_str(before);
        let digits = after.get(..3);
        let code = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code.filter(u8::is_ascii) {
            Some(code) => {
                plain.push(char::from(code));
                rest = after.get(3..).unwrap_or_default();
            }
            None => {
                plain.push('\\');
                rest = after;
            }
        }
    }
    plain.push_str(rest);
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_escape_is_kept() {
        assert_eq!(unescape("a\\9z\\"), "a\\9z\\");
        assert_eq!(unescape("\\377"), "\\377");
        assert_eq!(unescape("\\é\\011"), "\\é\t");
    }

    const MOUNTS: &str = "\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
30 27 0:27 / /mnt/a\\040b rw shared:1 master:2 - lustre 10.0.0.1@tcp:/fs rw
31 27 254:0 /sub /mnt/sub rw - ext4 /dev/vda rw
32 31 254:0 /other /mnt/sub rw - ext4 /dev/vda rw
a line that is none
33 27 x:y / /bad rw - ext4 /dev/vda rw";

    fn on(device: (u32, u32), mount_id: Option<u64>, path: &str) -> Mount {
        let file_system = FileSystem {
            name: "0xbd00bd0".into(),
            device,
            mount_id,
            network: true,
            memory: false,
        };
        found(MOUNTS, file_system, Path::new(path))
    }

    #[test]
    fn the_number_of_a_mount_decides() {
        let mount = on((9, 9), Some(30), "/anywhere");
        assert_eq!(mount.kind, "lustre");
        assert_eq!(mount.place.as_deref(), Some(Path::new("/mnt/a b")));
        assert_eq!(mount.source.as_deref(), Some("10.0.0.1@tcp:/fs"));
        let hidden = on((254, 0), Some(31), "/mnt/sub/x");
        assert_eq!(hidden.place.as_deref(), Some(Path::new("/mnt/sub")));
    }

    #[test]
    fn without_a_number_it_is_the_innermost_of_the_device() {
        let place = |device, path| on(device, None, path).place;
        assert_eq!(place((254, 0), "/home/x"), Some("/".into()));
        assert_eq!(place((254, 0), "/mnt/sub/x"), Some("/mnt/sub".into()));
        assert_eq!(place((254, 0), "/mnt/subway"), Some("/".into()));
        assert_eq!(place((0, 27), "/mnt/a b/x"), Some("/mnt/a b".into()));
    }

    #[test]
    fn an_unlisted_mount_keeps_the_name_from_statfs() {
        for mount in [on((1, 1), None, "/"), on((254, 0), Some(99), "/")] {
            assert_eq!(mount.kind, "0xbd00bd0");
            assert_eq!((mount.place, mount.source), (None, None));
        }
    }

    #[test]
    fn this_machine_s_root_is_found() {
        let mount = find_mount(Path::new("/")).unwrap();
        if mount.place.is_none() {
            return println!("skip: /proc/self/mountinfo does not list the root");
        }
        assert_eq!(mount.place.as_deref(), Some(Path::new("/")));
        assert!(find_mount(Path::new("/nowhere/at/all")).is_err());
    }
}
