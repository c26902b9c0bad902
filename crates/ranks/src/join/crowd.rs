//! Connections to all ranks that have joined, as one thing to wait for. They are silent unless a rank ends, so that
//! nothing here may cost something for each of them whenever another rank comes.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::event::epoll;

use crate::channel::{Channel, Interest};
use tonnage_units::{Error, Result};

/// Connections that are told of by one look; more of them are found by the next.
const AT_ONCE: usize = 64;

/// Connections that somebody else owns, by numbers that count up from 0.
pub(super) struct Crowd {
    epoll: OwnedFd,
    count: u64,
}

impl Crowd {
    pub(super) fn new() -> Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|error| Error::io("cannot prepare to wait for ranks", error))?;
        Ok(Self { epoll, count: 0 })
    }

    /// Adds a connection, which leaves when it is closed.
    pub(super) fn add(&mut self, channel: &Channel) -> Result<()> {
        let number = epoll::EventData::new_u64(self.count);
        epoll::add(&self.epoll, channel, number, epoll::EventFlags::IN)
            .map_err(|error| Error::io(format!("cannot wait for {}", channel.peer()), error))?;
        self.count += 1;
        Ok(())
    }

    /// Event to wait for: one of the connections can be read.
    pub(super) fn interest(&self) -> Interest<'_> {
        Interest::read(&self.epoll)
    }

    /// Numbers of connections that can be read.
    pub(super) fn stirred(&self) -> Result<Vec<usize>> {
        let mut events = [MaybeUninit::uninit(); AT_ONCE];
        let at_once = rustix::time::Timespec::default();
        match epoll::wait(&self.epoll, &mut events, Some(&at_once)) {
            Ok((events, _)) => Ok(events
                .iter()
                .filter_map(|event| usize::try_from(event.data.u64()).ok())
                .collect()),
            Err(rustix::io::Errno::INTR) => Ok(Vec::new()),
            Err(error) => Err(Error::io("waiting for ranks", error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpStream;
    use std::time::Duration;

    use super::*;
    use crate::Secret;
    use crate::channel::wait_for;
    use crate::testing::{SECRET, SOON, door};

    #[test]
    fn only_connections_that_say_something_stir() {
        let (listener, address) = door();
        let secret = Secret::from_text(SECRET).unwrap();
        let mut crowd = Crowd::new().unwrap();
        let mut ends = Vec::new();
        for _ in 0..AT_ONCE + 5 {
            let far = TcpStream::connect(address).unwrap();
            let near = Channel::accept(listener.accept().unwrap().0, &secret).unwrap();
            crowd.add(&near).unwrap();
            ends.push((near, far));
        }
        let is_stirred = |time| wait_for(&[crowd.interest()], time).unwrap() == [true];
        assert!(!is_stirred(Duration::ZERO));
        assert_eq!(crowd.stirred().unwrap(), [0usize; 0]);
        ends[66].1.write_all(&[1]).unwrap();
        assert!(is_stirred(SOON));
        assert_eq!(crowd.stirred().unwrap(), [66]);
        // What is not taken stays, and a connection that is closed leaves.
        assert_eq!(crowd.stirred().unwrap(), [66]);
        drop(ends.remove(66));
        assert!(!is_stirred(Duration::ZERO));
        for (_, far) in &mut ends {
            far.write_all(&[1]).unwrap();
        }
        let mut seen = std::collections::BTreeSet::new();
        while seen.len() < ends.len() && is_stirred(SOON) {
            seen.extend(crowd.stirred().unwrap());
        }
        assert_eq!(seen.len(), ends.len());
    }
}
