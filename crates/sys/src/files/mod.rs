//! System calls on files.
//!
//! | module | what lives there |
//! | --- | --- |
//! | [`open`] | opening, and closing with the system's error |
//! | [`transfer`] | bytes between a file and an [`crate::mapping::Arena`], one system call each |
//! | [`direct`] | reads and writes of a file that bypass the page cache, and their alignment |
//! | [`residency`] | which part of a file is in memory |
//! | [`advice`] | dropping a file from the kernel's page cache |
//! | [`file_system`] | the file system that a file is on |
//! | [`lustre`] | striping of a new file of Lustre |
//!
//! The choice and order of calls, and the handling of their results, are in `tonnage_engines`. All functions take file
//! descriptors of the standard library, and are safe to call with any of them.

pub mod advice;
pub mod direct;
pub mod file_system;
pub mod lustre;
pub mod open;
pub mod residency;
pub mod transfer;

/// Files for tests: on the disk that holds the build folder, and in memory.
#[cfg(test)]
pub(crate) mod scratch {
    use std::fs::File;
    use std::path::{Path, PathBuf};

    use tempfile::TempDir;

    use super::open::{OpenFlags, open};

    /// A path for one file, in a temporary folder that is removed with its contents.
    pub struct Scratch {
        path: PathBuf,
        _folder: TempDir,
    }

    impl Scratch {
        /// Makes a path in the build folder.
        pub fn on_disk() -> Self {
            let program = std::env::current_exe().unwrap();
            Self::new(program.parent().unwrap())
        }

        /// Makes a path in memory. Prints a skip and returns `None` if this machine has no file system in memory.
        pub fn in_memory() -> Option<Self> {
            let folder = Path::new("/dev/shm");
            let memory = super::file_system::of_path(folder).is_ok_and(|found| found.memory);
            if !memory {
                println!("skip: /dev/shm is not a file system in memory");
            }
            memory.then(|| Self::new(folder))
        }

        fn new(folder: &Path) -> Self {
            let folder = tempfile::tempdir_in(folder).unwrap();
            let path = folder.path().join("file");
            Self {
                path,
                _folder: folder,
            }
        }

        pub fn path(&self) -> &Path {
            &self.path
        }

        /// Writes this content, and opens the file for reading and writing.
        pub fn holding(&self, bytes: &[u8]) -> File {
            std::fs::write(&self.path, bytes).unwrap();
            let flags = OpenFlags {
                read: true,
                write: true,
                ..OpenFlags::default()
            };
            open(&self.path, &flags).unwrap()
        }
    }
}
