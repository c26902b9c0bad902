//! Asking the kernel to forget what it holds of a file.

use std::io;
use std::os::fd::AsFd;

use rustix::fs::{Advice, fadvise, fdatasync};

/// Stores what is not stored yet, and asks the kernel to give up the memory that holds the file's bytes.
///
/// It may keep some: those that another program has mapped, and all of a file system that lives in memory.
/// [`super::residency`] tells what is left.
///
/// # Errors
/// When the bytes cannot be stored, or the file cannot be advised on (pipes).
pub fn drop_cached(file: impl AsFd) -> io::Result<()> {
    // Bytes that are not stored yet would be kept.
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
    fn what_was_just_written_is_given_up() {
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
