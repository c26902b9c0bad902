//! The target of one-sided operations. The target polls, because several transports move data only while their target
//! polls, even for one-sided operations. A worker without traffic in the trial sleeps. So does a target if its device
//! is known to work without polling.

use std::time::Duration;

use super::BURST;
use super::port::Port;
use tonnage_engine::Completion;
use tonnage_ranks::{Sleeper, Sleepers};
use tonnage_units::Result;

/// Polls until `over` returns true.
pub fn serve(port: &mut Port, over: &mut dyn FnMut() -> bool) -> Result<()> {
    let mut done = [Completion::EMPTY; BURST];
    while !over() {
        port.poll(&mut done)?;
        port.check_stop()?;
    }
    Ok(())
}

/// Longest sleep between two checks: `LOOK` shortly before a start, otherwise `REST`. Each check takes CPU time from a
/// worker that moves data on the same CPU.
const LOOK: Duration = Duration::from_millis(1);
const REST: Duration = Duration::from_millis(50);

/// Lets a worker sleep if it would only take CPU time from others. The thread that changes the awaited condition wakes
/// the rank's sleepers. A wake-up while the worker is not asleep costs one additional check.
#[derive(Debug)]
pub struct WorkerSleep {
    pub(crate) sleeper: Sleeper,
    pub(crate) longest: Duration,
}

impl WorkerSleep {
    /// Registers with the rank's sleepers.
    pub fn register(sleepers: &Sleepers) -> Result<Self> {
        Ok(Self {
            sleeper: sleepers.add_sleeper()?,
            longest: REST,
        })
    }

    /// Sleeps until `over` returns true.
    pub fn sleep_until(&self, port: &mut Port, mut over: impl FnMut() -> bool) -> Result<()> {
        while !over() {
            let most = match port.is_kept_awake() {
                true => LOOK,
                false => self.longest,
            };
            self.sleeper.sleep_until_woken(most)?;
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
    fn a_near_start_is_checked_each_millisecond() {
        let (sleepers, stop) = (Sleepers::default(), AtomicBool::new(false));
        let rest = WorkerSleep {
            longest: LONG,
            ..WorkerSleep::register(&sleepers).unwrap()
        };
        let mut mock = mock(1);
        let mut port = silent_port(&mut mock, &stop);
        port.keep_awake(true);
        let began = Instant::now();
        let start = Duration::from_millis(10);
        rest.sleep_until(&mut port, || began.elapsed() >= start)
            .unwrap();
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
        // Bounded, in case the loop does not check whether the run was stopped.
        let mut looks = 0;
        let mut over = || {
            looks += 1;
            looks > 1000
        };
        assert!(serve(&mut silent_port(&mut mock, &stop), &mut over).is_err());
    }
}
