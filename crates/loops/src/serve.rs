//! The target of one-sided operations. It polls: several transports move nothing while the target does not, even for
//! operations that need no help of its in principle. A worker that takes no part rests, and so does the target of a
//! device that is known to need none.

use std::time::Duration;

use super::BURST;
use super::port::Port;
use tonnage_engine::Completion;
use tonnage_ranks::{Sleeper, Sleepers};
use tonnage_units::Result;

/// Polls until `over` says that everybody is done.
pub fn serve(port: &mut Port, over: &mut dyn FnMut() -> bool) -> Result<()> {
    let mut done = [Completion::EMPTY; BURST];
    while !over() {
        port.poll(&mut done)?;
        port.check_stop()?;
    }
    Ok(())
}

/// Time between two looks of a worker that takes no part: at the clock, before a start that is near, and at what it is
/// woken for anyway. Each look takes the CPU from a worker that moves bytes, where both share one.
const LOOK: Duration = Duration::from_millis(1);
const REST: Duration = Duration::from_millis(50);

/// Place of a worker that rests, because it would only take CPU time from the others. Whoever brings about what it
/// rests for wakes the rank's sleepers; what woke it while it did not rest costs one more look.
#[derive(Debug)]
pub struct RestingPlace {
    pub(crate) sleeper: Sleeper,
    pub(crate) longest: Duration,
}

impl RestingPlace {
    /// A place of its own among those of the rank that sleep.
    pub fn among(sleepers: &Sleepers) -> Result<Self> {
        Ok(Self {
            sleeper: sleepers.join()?,
            longest: REST,
        })
    }

    /// Rests until `over` says that everybody is done.
    pub fn until(&self, port: &mut Port, mut over: impl FnMut() -> bool) -> Result<()> {
        while !over() {
            let most = match port.is_kept_awake() {
                true => LOOK,
                false => self.longest,
            };
            self.sleeper.rest(most)?;
            port.check_stop()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Instant;

    use super::*;
    use crate::testing::{LONG, mock, silent_port};
    use tonnage_engine::testing::arrival;

    #[test]
    fn a_start_that_is_near_is_looked_at_each_millisecond() {
        let (sleepers, stop) = (Sleepers::default(), AtomicBool::new(false));
        let rest = RestingPlace {
            longest: LONG,
            ..RestingPlace::among(&sleepers).unwrap()
        };
        let mut mock = mock(1);
        let mut port = silent_port(&mut mock, &stop);
        port.keep_awake(true);
        let began = Instant::now();
        let start = Duration::from_millis(10);
        rest.until(&mut port, || began.elapsed() >= start).unwrap();
        assert!((start..LONG / 2).contains(&began.elapsed()));
    }

    #[test]
    fn a_target_polls_until_it_is_over_or_the_run_is() {
        let stop = AtomicBool::new(false);
        let mut mock = mock(1);
        mock.lock().done.push_back(arrival(0, 0, 0));
        let mut looks = 0;
        let mut over = || {
            looks += 1;
            looks > 3
        };
        serve(&mut silent_port(&mut mock, &stop), &mut over).unwrap();
        assert_eq!((looks, mock.lock().polls), (4, 3));
        stop.store(true, Ordering::Relaxed);
        // Not for ever, if it did not look whether the run is over.
        let mut looks = 0;
        let mut over = || {
            looks += 1;
            looks > 1000
        };
        assert!(serve(&mut silent_port(&mut mock, &stop), &mut over).is_err());
    }
}
