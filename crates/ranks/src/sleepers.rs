//! Lets threads sleep until their descriptor is readable. Other threads can wake them, for example when a message
//! arrives on the control channel or the run ends. If there are no sleepers, waking only checks an empty list.

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

/// Registration of one thread that may sleep. Dropping it ends the registration.
#[derive(Debug)]
pub struct Sleeper {
    wake_fd: Arc<OwnedFd>,
}

impl Sleepers {
    /// Adds a sleeper.
    pub fn add_sleeper(&self) -> Result<Sleeper> {
        let wake_fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| Error::io("cannot make an eventfd to be woken by", error))?;
        let wake_fd = Arc::new(wake_fd);
        let mut all = lock(&self.all);
        all.retain(|known| known.strong_count() > 0);
        all.push(Arc::downgrade(&wake_fd));
        Ok(Sleeper { wake_fd })
    }

    /// Wakes all sleepers. The next sleep of a thread that is awake returns at once.
    pub fn wake(&self) {
        for wake_fd in lock(&self.all).iter().filter_map(Weak::upgrade) {
            // The write fails only if the counter is full, and the sleeper has then already been woken.
            let _ = rustix::io::write(&*wake_fd, &1u64.to_ne_bytes());
        }
    }
}

impl Sleeper {
    /// Sleeps until the descriptor is readable, [`Sleepers::wake`] is called, or `most` has passed.
    pub fn sleep_on(&self, descriptor: BorrowedFd<'_>, most: Duration) -> Result<()> {
        let wake_fd = PollFd::new(&*self.wake_fd, PollFlags::IN);
        self.wait(
            &mut [wake_fd, PollFd::new(&descriptor, PollFlags::IN)],
            most,
            "cannot sleep on the engine's descriptor",
        )
    }

    /// Sleeps until [`Sleepers::wake`] is called or `most` has passed.
    pub fn sleep_until_woken(&self, most: Duration) -> Result<()> {
        let wake_fd = PollFd::new(&*self.wake_fd, PollFlags::IN);
        self.wait(&mut [wake_fd], most, "cannot sleep on an eventfd")
    }

    /// Waits for the descriptors, and clears the wake-up. `descriptors[0]` must be `wake_fd`.
    fn wait(&self, descriptors: &mut [PollFd<'_>], most: Duration, failed: &str) -> Result<()> {
        let timeout = Timespec::try_from(most).unwrap_or_default();
        match poll(descriptors, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(Error::io(failed, error)),
        }
        if descriptors[0].revents().contains(PollFlags::IN) {
            let mut count = [0u8; 8];
            // The read fails only if the counter was already cleared.
            let _ = rustix::io::read(&*self.wake_fd, &mut count);
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
    fn a_sleeper_wakes_for_its_descriptor_a_wake_up_and_a_time_out() {
        let (sleepers, silent) = (Sleepers::default(), silent());
        let sleeper = sleepers.add_sleeper().unwrap();
        let began = Instant::now();
        sleeper
            .sleep_on(silent.as_fd(), Duration::from_millis(30))
            .unwrap();
        assert!(began.elapsed() >= Duration::from_millis(30));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(20));
                sleepers.wake();
            });
            sleeper.sleep_on(silent.as_fd(), LONG).unwrap();
        });
        rustix::io::write(&silent, &1u64.to_ne_bytes()).unwrap();
        sleeper.sleep_on(silent.as_fd(), LONG).unwrap();
        assert!(began.elapsed() < LONG);
    }

    #[test]
    fn a_wake_up_before_the_sleep_ends_it_at_once() {
        let (sleepers, silent) = (Sleepers::default(), silent());
        let pair = [
            sleepers.add_sleeper().unwrap(),
            sleepers.add_sleeper().unwrap(),
        ];
        sleepers.wake();
        let began = Instant::now();
        pair[0].sleep_on(silent.as_fd(), LONG).unwrap();
        pair[1].sleep_until_woken(LONG).unwrap();
        assert!(began.elapsed() < LONG);
        // A wake-up ends only one sleep of each sleeper, so these two sleeps take their full time.
        let began = Instant::now();
        pair[0]
            .sleep_on(silent.as_fd(), Duration::from_millis(30))
            .unwrap();
        pair[1]
            .sleep_until_woken(Duration::from_millis(30))
            .unwrap();
        assert!(began.elapsed() >= Duration::from_millis(60));
        drop(pair);
        sleepers.add_sleeper().unwrap();
        assert_eq!(lock(&sleepers.all).len(), 1);
    }
}
