//! Readers for the small text files through which the kernel describes a machine.
//!
//! Everything in [`crate`] reads through a [`Tree`], so that tests can lay out an invented machine in a directory. Most
//! functions here never fail: for a missing or unreadable file they return `None` or an empty list.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Limit on the bytes to read from one file. The largest file of interest is /proc/cpuinfo, and its beginning is
/// enough.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A machine's file tree, rooted at "/" or at a directory that stands for it.
#[derive(Debug, Clone)]
pub struct Tree {
    root: PathBuf,
}

impl Tree {
    /// This machine.
    pub fn host() -> Self {
        Self {
            root: PathBuf::from("/"),
        }
    }

    /// The machine laid out under `root`.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Returns the path in the file system for a path of the tree, which has no leading slash.
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        self.root.join(path)
    }

    /// Reads a file's text and trims it.
    pub fn try_text(&self, path: impl AsRef<Path>) -> io::Result<String> {
        let mut bytes = Vec::new();
        fs::File::open(self.path(path))?
            .take(FILE_BYTES_MAX)
            .read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// Reads a file's text and trims it; `None` if the file cannot be read or is empty.
    pub fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        self.try_text(path).ok().filter(|text| !text.is_empty())
    }

    /// Reads a file that holds one number.
    pub fn number<T: FromStr>(&self, path: impl AsRef<Path>) -> Option<T> {
        self.text(path)?.parse().ok()
    }

    /// Returns the sorted names in a directory; empty if it does not exist.
    pub fn names(&self, path: impl AsRef<Path>) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path(path)) else {
            return Vec::new();
        };
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        names.sort_by_cached_key(|name| natural(name));
        names
    }

    pub fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.path(path).exists()
    }

    /// Returns the last component of a symbolic link's target, such as the name of a driver.
    pub fn link_name(&self, path: impl AsRef<Path>) -> Option<String> {
        let target = fs::read_link(self.path(path)).ok()?;
        Some(target.file_name()?.to_str()?.to_owned())
    }

    /// Follows all symbolic links of `path`, and returns the target as a path of this tree. `None` if the target is
    /// outside the tree.
    pub fn resolve(&self, path: impl AsRef<Path>) -> Option<PathBuf> {
        let root = self.root.canonicalize().ok()?;
        let real = self.path(path).canonicalize().ok()?;
        Some(real.strip_prefix(root).ok()?.to_owned())
    }
}

/// Returns a sort key that puts node10 after node2, and 2p10 after 2p9. Each run of digits counts as a number.
pub fn natural(name: &str) -> (Vec<(String, u64)>, String) {
    let mut pieces = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let is_digit = |c: char| c.is_ascii_digit();
        let (head, tail) = rest.split_at(rest.find(is_digit).unwrap_or(rest.len()));
        let digits_to = tail.find(|c| !is_digit(c)).unwrap_or(tail.len());
        let (digits, after) = tail.split_at(digits_to);
        pieces.push((head.to_owned(), digits.parse::<u64>().unwrap_or(0)));
        rest = after;
    }
    // The whole name breaks ties, because node01 and node1 are different names.
    (pieces, name.to_owned())
}

/// Returns the choice in brackets of a file such as "always [madvise] never", or the whole text if there are no
/// brackets.
pub(crate) fn marked(text: &str) -> &str {
    text.split_whitespace()
        .find_map(|word| word.strip_prefix('[')?.strip_suffix(']'))
        .unwrap_or(text)
}

/// Returns the value of `key` in a text of "key : value" lines.
pub(crate) fn value_of<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then_some(value.trim())
    })
}

#[cfg(any(test, feature = "testing"))]
pub mod invented {
    //! Invented machines for tests.
    #![allow(
        clippy::unwrap_used,
        reason = "a test that cannot lay out its machine is over"
    )]

    use std::fs;
    use std::path::Path;

    use super::Tree;

    /// A temporary directory that represents a machine.
    pub struct Machine {
        directory: tempfile::TempDir,
    }

    impl Machine {
        /// Creates an empty machine.
        #[expect(clippy::new_without_default, reason = "it makes a directory")]
        pub fn new() -> Self {
            Self {
                directory: tempfile::tempdir().unwrap(),
            }
        }

        /// Returns the tree that reads this machine.
        pub fn tree(&self) -> Tree {
            Tree::at(self.directory.path())
        }

        /// Returns the machine's root directory.
        pub fn path(&self) -> &Path {
            self.directory.path()
        }

        /// Creates a file with one line.
        pub fn file(&self, path: &str, text: &str) -> &Self {
            let path = self.directory.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{text}\n")).unwrap();
            self
        }

        /// Creates files with one line each in a folder.
        pub fn files(&self, folder: &str, files: &[(&str, &str)]) -> &Self {
            for (name, text) in files {
                self.file(Path::new(folder).join(name).to_str().unwrap(), text);
            }
            self
        }

        /// Creates a link at `path` to `target`, both paths of this machine.
        pub fn link(&self, path: &str, target: &str) -> &Self {
            let path = self.directory.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::os::unix::fs::symlink(self.directory.path().join(target), path).unwrap();
            self
        }

        /// Creates `sockets` × `cores` × `threads` CPUs, with one NUMA node per socket. They are numbered as Linux does
        /// on x86: the first thread of every core, then the second thread of every core, and so on.
        pub fn processors(&self, sockets: u32, cores: u32, threads: u32) -> &Self {
            let all_cores = sockets * cores;
            let total = all_cores * threads;
            self.file("sys/devices/system/cpu/online", &format!("0-{}", total - 1));
            for cpu in 0..total {
                let core = cpu % all_cores;
                let siblings = (0..threads).map(|thread| (core + thread * all_cores).to_string());
                let siblings: Vec<String> = siblings.collect();
                self.files(
                    &format!("sys/devices/system/cpu/cpu{cpu}/topology"),
                    &[
                        ("thread_siblings_list", &siblings.join(",")),
                        ("physical_package_id", &(core / cores).to_string()),
                    ],
                );
            }
            for socket in 0..sockets {
                let range = |thread: u32| {
                    let first = thread * all_cores + socket * cores;
                    format!("{first}-{}", first + cores - 1)
                };
                let ranges: Vec<String> = (0..threads).map(range).collect();
                let memory =
                    format!("Node {socket} MemTotal: 1024 kB\nNode {socket} MemFree: 512 kB");
                self.files(
                    &format!("sys/devices/system/node/node{socket}"),
                    &[("cpulist", &ranges.join(",")), ("meminfo", &memory)],
                );
            }
            self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::invented::Machine;
    use super::*;

    #[test]
    fn missing_files_are_none() {
        let machine = Machine::new();
        let tree = machine.tree();
        assert_eq!(tree.text("sys/nothing"), None);
        assert_eq!(tree.number::<u32>("sys/nothing"), None);
        assert!(tree.names("sys/nothing").is_empty());
        assert_eq!(tree.link_name("sys/nothing"), None);
        assert_eq!(tree.resolve("sys/nothing"), None);
        assert!(tree.try_text("sys/nothing").is_err());
    }

    #[test]
    fn names_are_in_natural_order() {
        let machine = Machine::new();
        machine.files("d", &[("node10", ""), ("node2", ""), ("node1", "")]);
        assert_eq!(machine.tree().names("d"), ["node1", "node2", "node10"]);
        let expected = ["01", "1", "enp2s0f9", "enp2s0f10"];
        let expected = [&expected[..], &["enp10s0f1", "p", "p9", "p10"]].concat();
        let mut names = expected.clone();
        names.reverse();
        names.sort_by_cached_key(|name| natural(name));
        assert_eq!(names, expected);
    }

    #[test]
    fn links_are_followed_within_the_tree_only() {
        let machine = Machine::new();
        machine
            .file("sys/devices/pci0/x", "1")
            .link("sys/class/net/e0/device", "sys/devices/pci0");
        let tree = machine.tree();
        let link = "sys/class/net/e0/device";
        assert_eq!(tree.link_name(link).as_deref(), Some("pci0"));
        assert_eq!(tree.resolve(link), Some("sys/devices/pci0".into()));
        std::os::unix::fs::symlink("/", machine.path().join("out")).unwrap();
        assert_eq!(tree.resolve("out"), None);
    }

    #[test]
    fn marks_and_values_are_found() {
        assert_eq!(marked("always [madvise] never"), "madvise");
        assert_eq!(marked("whole"), "whole");
        let text = "a : 1\nmodel name\t: X: Y";
        assert_eq!(value_of(text, "model name"), Some("X: Y"));
        assert_eq!(value_of("a : 1", "b"), None);
    }
}
