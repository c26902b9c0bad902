//! Threads that sleep until a descriptor of theirs is readable, and whoever has news for them: the control channel, the
//! end of the run, other threads of the rank. Where nobody sleeps, waking costs a look into an empty list.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use tonnage_units::lock::lock;
use tonnage_units::{Error, Result};

/// All sleepers of a rank.
#[derive(Debug, Default)]
pub struct Sleepers {
    all: Mutex<Vec<Weak<OwnedFd>>>,
}

/// One thread that may sleep. It wakes no more when this is dropped.
#[derive(Debug)]
pub struct Sleeper {
    bell: Arc<OwnedFd>,
}

impl Sleepers {
    /// Adds a sleeper.
    pub fn join(&self) -> Result<Sleeper> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| Error::io("cannot make an eventfd to be woken by", error))?;
        let bell = Arc::new(bell);
        let mut all = lock(&self.all);
        all.retain(|known| known.strong_count() > 0);
        all.push(Arc::downgrade(&bell));
        Ok(Sleeper { bell })
    }

    /// Wakes all of them. Who is awake does not sleep the next time.
    pub fn wake(&self) {
        for bell in lock(&self.all).iter().filter_map(Weak::upgrade) {
            // It fails only when the counter is full, and then the sleeper has been woken already.
            let _ = rustix::io::write(&*bell, &1u64.to_ne_bytes());
        }
    }
}

impl Sleeper {
    /// Sleeps until the descriptor is readable, somebody wakes all sleepers, or so much time has passed.
    pub fn sleep(&self, descriptor: BorrowedFd<'_>, most: Duration) -> Result<()> {
        let bell = PollFd::new(&*self.bell, PollFlags::IN);
        self.wait(
            &mut [bell, PollFd::new(&descriptor, PollFlags::IN)],
            most,
            "cannot sleep on the engine's descriptor",
        )
    }

    /// Sleeps until somebody wakes all sleepers, or so much time has passed.
    pub fn rest(&self, most: Duration) -> Result<()> {
        let bell = PollFd::new(&*self.bell, PollFlags::IN);
        self.wait(&mut [bell], most, "cannot sleep on an eventfd")
    }

    /// Waits for descriptors, of which the bell is the first, and takes note of its ringing.
    fn wait(&self, descriptors: &mut [PollFd<'_>], most: Duration, failed: &str) -> Result<()> {
        let timeout = Timespec::try_from(most).unwrap_or_default();
        match poll(descriptors, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(Error::io(failed, error)),
        }
        if descriptors[0].revents().contains(PollFlags::IN) {
            let mut count = [0u8; 8];
            // Nothing to read would mean that nobody rang.
            let _ = rustix::io::read(&*self.bell, &mut count);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::time::Instant;

    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    fn silent() -> OwnedFd {
        eventfd(0, EventfdFlags::CLOEXEC).unwrap()
    }

    #[test]
    fn a_sleeper_is_woken_by_its_descriptor_by_the_bell_and_by_the_time() {
        let (sleepers, silent) = (Sleepers::default(), silent());
        let sleeper = sleepers.join().unwrap();
        let began = Instant::now();
        sleeper
            .sleep(silent.as_fd(), Duration::from_millis(30))
            .unwrap();
        assert!(began.elapsed() >= Duration::from_millis(30));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(20));
                sleepers.wake();
            });
            sleeper.sleep(silent.as_fd(), LONG).unwrap();
        });
        rustix::io::write(&silent, &1u64.to_ne_bytes()).unwrap();
        sleeper.sleep(silent.as_fd(), LONG).unwrap();
        assert!(began.elapsed() < LONG);
    }

    #[test]
    fn who_was_awake_when_it_was_woken_does_not_sleep_over_it() {
        let (sleepers, silent) = (Sleepers::default(), silent());
        let pair = [sleepers.join().unwrap(), sleepers.join().unwrap()];
        sleepers.wake();
        let began = Instant::now();
        pair[0].sleep(silent.as_fd(), LONG).unwrap();
        pair[1].rest(LONG).unwrap();
        assert!(began.elapsed() < LONG);
        // Once each.
        let began = Instant::now();
        pair[0]
            .sleep(silent.as_fd(), Duration::from_millis(30))
            .unwrap();
        pair[1].rest(Duration::from_millis(30)).unwrap();
        assert!(began.elapsed() >= Duration::from_millis(60));
        drop(pair);
        sleepers.join().unwrap();
        assert_eq!(lock(&sleepers.all).len(), 1);
    }
}
