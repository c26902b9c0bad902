//! Resolves symbolic links at the end of an output path. If other users can write to the directory, they could put a
//! link there.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, fstat, readlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;

/// Maximum number of links to follow, which is the kernel's limit.
const LINKS_MAX: usize = 40;

/// Resolves the symbolic links at the end of a path. Each link must belong to this user or to root, because otherwise
/// another user would decide which file is written. A link in /proc, such as the target of /dev/stdout or /dev/fd/3, is
/// kept: its text is not a file name.
///
/// # Errors
/// `PermissionDenied` for another user's link, and errors of the system.
pub fn resolve_links(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let folder = path.parent().unwrap_or(Path::new(""));
        if folder
            .canonicalize()
            .is_ok_and(|it| it.starts_with("/proc"))
        {
            return Ok(path);
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // Read the owner and the text through one descriptor. Both then belong to the same link, even if another link
        // takes its name meanwhile.
        let link = match rustix::fs::open(&path, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(path),
            opened => opened?,
        };
        let found = fstat(&link)?;
        if FileType::from_raw_mode(found.st_mode) != FileType::Symlink {
            return Ok(path);
        }
        if ![0, geteuid().as_raw()].contains(&found.st_uid) {
            let text = format!(
                "it is a symbolic link that belongs to another user ({})",
                found.st_uid
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        let target = readlinkat(&link, "", Vec::new())?;
        let target = Path::new(OsStr::from_bytes(target.as_bytes()));
        path = folder.join(target);
    }
    Err(Errno::LOOP.into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{lchown, symlink};

    use super::*;

    #[test]
    fn links_of_this_user_are_followed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("file"), "").unwrap();
        for (link, target) in [("a", "b"), ("b", "file"), ("c", "none"), ("d", "d")] {
            symlink(target, at(link)).unwrap();
        }
        for (name, end) in [
            ("file", "file"),
            ("none", "none"),
            ("a", "file"),
            ("c", "none"),
        ] {
            assert_eq!(resolve_links(&at(name)).unwrap(), at(end), "{name}");
        }
        let error = resolve_links(&at("d")).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::LOOP.raw_os_error()));
        // A pipe has no file name, but can be written through these links.
        let (_reads, writes) = std::io::pipe().unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&writes);
        for link in ["/dev/fd", "/proc/self/fd"] {
            let path = resolve_links(Path::new(&format!("{link}/{number}"))).unwrap();
            std::fs::OpenOptions::new().write(true).open(path).unwrap();
        }
        assert!(resolve_links(Path::new("/dev/stdout")).is_ok());
        if !geteuid().is_root() {
            return println!("skip: only root can make a link of another user");
        }
        lchown(at("b"), Some(12_345), None).unwrap();
        let error = resolve_links(&at("a")).unwrap_err().to_string();
        assert!(error.contains("belongs to another user (12345)"), "{error}");
    }
}
