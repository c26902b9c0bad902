//! Drops a file's pages from the kernel's page cache.

use std::io;
use std::os::fd::AsFd;

use rustix::fs::{Advice, fadvise, fdatasync};

/// Writes dirty pages to storage, and asks the kernel to drop the file's cached pages.
///
/// The kernel may keep pages that another program has mapped. It keeps all pages if the file system is in memory.
/// [`super::residency`] reports the remaining pages.
///
/// # Errors
/// If the bytes cannot be stored, or the file does not support advice (pipes).
pub fn drop_cached(file: impl AsFd) -> io::Result<()> {
    // Write dirty pages first, because the kernel would keep them.
    fdatasync(&file)?;
    fadvise(&file, 0, None, Advice::DontNeed)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::residency::resident_bytes;
    use super::super::scratch::Scratch;
    use super::*;

    #[test]
    fn just_written_pages_are_dropped() {
        let scratch = Scratch::on_disk();
        let file = scratch.holding(&vec![1; 3 << 20]);
        assert_eq!(resident_bytes(&file, 0, 3 << 20).unwrap().bytes, 3 << 20);
        if super::super::file_system::of_file(&file).unwrap().memory {
            return println!("skip: the build folder lives in memory");
        }
        drop_cached(&file).unwrap();
        assert_eq!(resident_bytes(&file, 0, 3 << 20).unwrap().bytes, 0);
    }

    #[test]
    fn memory_keeps_its_files() {
        let Some(scratch) = Scratch::in_memory() else {
            return;
        };
        let file = scratch.holding(&vec![1; 1 << 20]);
        drop_cached(&file).unwrap();
        assert_eq!(resident_bytes(&file, 0, 1 << 20).unwrap().bytes, 1 << 20);
        assert_eq!(std::fs::read(scratch.path()).unwrap(), vec![1; 1 << 20]);
    }

    #[test]
    fn a_pipe_cannot_be_advised_on() {
        let (pipe, _writer) = std::io::pipe().unwrap();
        assert!(drop_cached(&pipe).is_err());
    }
}
