//! One descriptor for those of several paths: readable when one of them is.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll;
use tonnage_units::{Error, Result};

/// The descriptors of paths in one epoll instance.
#[derive(Debug, Default)]
pub(super) struct Nest {
    /// Made when the first path has a descriptor.
    epoll: Option<OwnedFd>,
    /// Paths whose descriptor is in it: it stays the same for a path's life.
    known: Vec<usize>,
}

impl Nest {
    /// Adds the descriptor of a path, if it is not there.
    ///
    /// # Errors
    /// When the system has no descriptor left, or cannot wait for this one.
    pub(super) fn add(&mut self, path: usize, descriptor: BorrowedFd<'_>) -> Result<()> {
        if self.known.contains(&path) {
            return Ok(());
        }
        let failed = |error| Error::io("cannot wait for the descriptors of several paths", error);
        let epoll = match self.epoll.take() {
            Some(epoll) => epoll,
            None => epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?,
        };
        let data = epoll::EventData::new_u64(path as u64);
        let added = epoll::add(&epoll, descriptor, data, epoll::EventFlags::IN);
        self.epoll = Some(epoll);
        added.map_err(failed)?;
        self.known.push(path);
        Ok(())
    }

    /// The descriptor for all of them; `None` where none was added.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.epoll.as_ref().map(AsFd::as_fd)
    }
}
