//! Waits on a rank's connections, and decides which of the rank's two threads a ready connection wakes: the main thread
//! while it waits in a collective, and otherwise the control thread. So a collective needs no hand-over between
//! threads, which would cost more than the rest of a rank's work in the collective.
//!
//! While ranks join, rank 0 uses a [`LinkWatch`] of its own for the ranks that have connected.
//!
//! All connections are in one epoll set. The control thread waits on the set through a second epoll descriptor, the
//! gate. While the main thread waits on the set itself, it shuts the gate. [`super::node`] handles ready connections.

use std::fmt::Display;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::io::Errno;
use tonnage_units::{Error, Result};

/// Maximum number of connections reported per call. Further ones stay ready for the next call.
const READY_MAX: usize = 32;
/// Number of the wake-up descriptor in the set. Connections have smaller numbers.
const WAKE_NUMBER: u64 = u64::MAX;
/// Limit on a time-out, because `epoll_wait` accepts only a few weeks.
const TIMEOUT_MAX: Duration = Duration::from_secs(3600);

/// The epoll set of a rank's connections, the gate, and a descriptor by which the main thread is woken.
#[derive(Debug)]
pub(crate) struct LinkWatch {
    set: OwnedFd,
    /// Readable if a connection is ready and the gate is open.
    pub(crate) gate: OwnedFd,
    wake_fd: OwnedFd,
}

impl LinkWatch {
    /// Creates an empty set with an open gate, so that connections wake the control thread.
    pub(crate) fn new() -> Result<Self> {
        let failed = |error| Error::io("cannot prepare to wait for connections", error);
        let watch = Self {
            set: epoll::create(CreateFlags::CLOEXEC).map_err(failed)?,
            gate: epoll::create(CreateFlags::CLOEXEC).map_err(failed)?,
            wake_fd: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(failed)?,
        };
        let number = EventData::new_u64(WAKE_NUMBER);
        epoll::add(&watch.set, &watch.wake_fd, number, EventFlags::IN).map_err(failed)?;
        epoll::add(&watch.gate, &watch.set, number, EventFlags::IN).map_err(failed)?;
        Ok(watch)
    }

    /// Adds a connection under a number. `peer` is named in errors.
    pub(crate) fn add(
        &self,
        number: usize,
        connection: impl AsFd,
        peer: impl Display,
    ) -> Result<()> {
        let number = EventData::new_u64(number as u64);
        epoll::add(&self.set, connection, number, EventFlags::IN)
            .map_err(|error| Error::io(format!("cannot wait for the connection of {peer}"), error))
    }

    /// Sets whether `ready` also reports the connection when it can be written to.
    pub(crate) fn change(
        &self,
        number: usize,
        connection: impl AsFd,
        wants_write: bool,
    ) -> Result<()> {
        let mut flags = EventFlags::IN;
        flags.set(EventFlags::OUT, wants_write);
        let number = EventData::new_u64(number as u64);
        epoll::modify(&self.set, connection, number, flags).map_err(unwatched)
    }

    /// Removes a connection that has ended, because it would stay ready forever.
    pub(crate) fn remove(&self, connection: impl AsFd) {
        // `delete` fails only if the connection was not in the set.
        let _ = epoll::delete(&self.set, connection);
    }

    /// Shuts or opens the gate. It is shut as long as the main thread waits on the set.
    pub(crate) fn shut_gate(&self, is_shut: bool) -> Result<()> {
        let mut flags = EventFlags::IN;
        flags.set(EventFlags::IN, !is_shut);
        epoll::modify(
            &self.gate,
            &self.set,
            EventData::new_u64(WAKE_NUMBER),
            flags,
        )
        .map_err(unwatched)
    }

    /// Wakes the main thread.
    pub(crate) fn wake_main(&self) {
        // The write fails only if the counter is full, and the wake-up is then already pending.
        let _ = rustix::io::write(&self.wake_fd, &1u64.to_ne_bytes());
    }

    /// Waits until a connection is ready, the main thread is woken, or the time is up. Returns the numbers of ready
    /// connections, at most [`READY_MAX`] of them.
    pub(crate) fn ready(&self, timeout: Duration) -> Result<impl Iterator<Item = usize>> {
        let none = Event {
            flags: EventFlags::empty(),
            data: EventData::new_u64(WAKE_NUMBER),
        };
        let mut events = [none; READY_MAX];
        let timeout = Timespec::try_from(timeout.min(TIMEOUT_MAX)).unwrap_or_default();
        let count = match epoll::wait(&self.set, &mut events, Some(&timeout)) {
            Ok(count) => count,
            Err(Errno::INTR) => 0,
            Err(error) => return Err(unwatched(error)),
        };
        let numbers = events.into_iter().take(count);
        let numbers = numbers.map(|event| event.data.u64());
        if numbers.clone().any(|number| number == WAKE_NUMBER) {
            // The read fails only if there was no wake-up.
            let _ = rustix::io::read(&self.wake_fd, &mut [0u8; 8]);
        }
        let connections = numbers.filter(|number| *number != WAKE_NUMBER);
        Ok(connections.filter_map(|number| usize::try_from(number).ok()))
    }
}

fn unwatched(error: Errno) -> Error {
    Error::io("cannot wait for connections", error)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::channel::{Interest, wait_for};
    use crate::testing::says;

    const NONE: Duration = Duration::ZERO;

    fn gate_is_ready(watch: &LinkWatch) -> bool {
        wait_for(&[Interest::read(&watch.gate)], NONE).unwrap() == [true]
    }

    #[test]
    fn one_thread_wakes_at_a_time() {
        let (mut far, near) = UnixStream::pair().unwrap();
        let watch = LinkWatch::new().unwrap();
        watch.add(7, &near, "far").unwrap();
        assert!(!gate_is_ready(&watch) && watch.ready(NONE).unwrap().next().is_none());
        watch.shut_gate(true).unwrap();
        far.write_all(b"x").unwrap();
        assert!(!gate_is_ready(&watch));
        assert!(watch.ready(NONE).unwrap().eq([7]));
        // The control thread gets the data that the main thread has not read.
        watch.shut_gate(false).unwrap();
        assert!(gate_is_ready(&watch));
        watch.remove(&near);
        assert!(!gate_is_ready(&watch));
    }

    /// A regular file stands in for a connection that is gone, because epoll cannot watch either.
    #[test]
    fn a_connection_that_cannot_be_watched_is_named() {
        let gone = tempfile::tempfile().unwrap();
        let error = LinkWatch::new().unwrap().add(0, gone, "10.0.0.7:5");
        says(&error.unwrap_err(), &["connection of 10.0.0.7:5"]);
    }

    #[test]
    fn a_wake_up_ends_one_wait() {
        let watch = LinkWatch::new().unwrap();
        watch.wake_main();
        assert!(watch.ready(TIMEOUT_MAX).unwrap().next().is_none());
        assert!(!gate_is_ready(&watch));
    }

    #[test]
    fn only_connections_with_data_are_reported() {
        let watch = LinkWatch::new().unwrap();
        let mut pairs: Vec<_> = (0..2 * READY_MAX + 5)
            .map(|_| UnixStream::pair().unwrap())
            .collect();
        for (number, (near, _)) in pairs.iter().enumerate() {
            watch.add(number, near, "far").unwrap();
        }
        assert!(!gate_is_ready(&watch));
        pairs[66].1.write_all(&[1]).unwrap();
        // A connection with unread data stays ready. Closing it removes it from the set.
        for _ in 0..2 {
            assert!(gate_is_ready(&watch) && watch.ready(NONE).unwrap().eq([66]));
        }
        drop(pairs.remove(66));
        assert!(!gate_is_ready(&watch));
        for (_, far) in &mut pairs {
            far.write_all(&[1]).unwrap();
        }
        let mut seen = std::collections::BTreeSet::new();
        while seen.len() < pairs.len() && gate_is_ready(&watch) {
            seen.extend(watch.ready(NONE).unwrap());
        }
        assert_eq!(seen.len(), pairs.len());
    }

    #[test]
    fn a_connection_can_be_watched_for_writability() {
        let (near, _far) = UnixStream::pair().unwrap();
        let watch = LinkWatch::new().unwrap();
        watch.add(0, &near, "far").unwrap();
        watch.change(0, &near, true).unwrap();
        assert!(watch.ready(NONE).unwrap().eq([0]));
        watch.change(0, &near, false).unwrap();
        assert!(watch.ready(NONE).unwrap().next().is_none());
    }
}
