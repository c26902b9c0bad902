//! System calls on files.
//!
//! | module | what lives there |
//! | --- | --- |
//! | [`open`] | opening, and closing with the system's answer |
//! | [`transfer`] | bytes between a file and an [`crate::mapping::Arena`], one system call each |
//! | [`direct`] | reads and writes of a file past the page cache, and their alignment |
//! | [`residency`] | the part of a file that is in memory |
//! | [`advice`] | asking the kernel to forget what it holds of a file |
//! | [`file_system`] | the file system that a file is on |
//! | [`lustre`] | striping of a new file of Lustre |
//!
//! What does not live here: the choice and order of calls, and the use of their answers. That is in `tonnage_engines`.
//! Everything takes file descriptors of the standard library, and is safe to call with any of them.

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
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::open::{OpenFlags, open};

    static NUMBER: AtomicU32 = AtomicU32::new(0);

    /// A name for one file, which is removed with it.
    pub struct Scratch(PathBuf);

    impl Scratch {
        /// In the build folder.
        pub fn on_disk() -> Self {
            let program = std::env::current_exe().unwrap();
            Self::new(program.parent().unwrap())
        }

        /// In memory, or why not.
        pub fn in_memory() -> Result<Self, &'static str> {
            let folder = Path::new("/dev/shm");
            let found = super::file_system::of_path(folder).map_err(|_| "/dev/shm is missing")?;
            if found.memory {
                Ok(Self::new(folder))
            } else {
                Err("/dev/shm is no memory")
            }
        }

        fn new(folder: &Path) -> Self {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            Self(folder.join(format!("tonnage-test-{}-{number}", std::process::id())))
        }

        pub fn path(&self) -> &Path {
            &self.0
        }

        /// Opened for reading and writing, with this content.
        pub fn holding(&self, bytes: &[u8]) -> File {
            std::fs::write(&self.0, bytes).unwrap();
            let flags = OpenFlags {
                read: true,
                write: true,
                ..OpenFlags::default()
            };
            open(&self.0, &flags).unwrap()
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }
}
