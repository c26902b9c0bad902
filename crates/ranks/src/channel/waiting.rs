//! Waits for several descriptors at once with `poll`. A rank's long-lived connections use an epoll set instead; see
//! `crate::tree::watch`.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use tonnage_units::{Error, Result};

/// A descriptor to wait for until it is readable or, with `write`, writable.
#[derive(Clone)]
pub(crate) struct Interest<'a> {
    pub(super) fd: BorrowedFd<'a>,
    pub(super) write: bool,
}

impl<'a> Interest<'a> {
    pub(crate) fn read(fd: &'a impl AsFd) -> Self {
        Self {
            fd: fd.as_fd(),
            write: false,
        }
    }
}

/// Sleeps until a descriptor is ready or the time is up. Returns whether each descriptor is ready.
pub(crate) fn wait_for(interests: &[Interest<'_>], timeout: Duration) -> Result<Vec<bool>> {
    let mut fds: Vec<PollFd<'_>> = interests
        .iter()
        .map(|interest| {
            let flags = if interest.write {
                PollFlags::IN | PollFlags::OUT
            } else {
                PollFlags::IN
            };
            PollFd::from_borrowed_fd(interest.fd, flags)
        })
        .collect();
    let timeout = rustix::time::Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(timeout.subsec_nanos()),
    };
    match rustix::event::poll(&mut fds, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {
            Ok(fds.iter().map(|fd| !fd.revents().is_empty()).collect())
        }
        Err(error) => Err(Error::io("waiting for the control channel", error)),
    }
}
