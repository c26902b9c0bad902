//! The target of one-sided operations. It polls: several transports move nothing while the target does not, even for
//! operations that need no help of its in principle. A worker that takes no part rests, and so does the target of a
//! device that is known to need none.

use std::time::Duration;

use super::BURST;
use super::port::Port;
use tonnage_engine::Completion;
use tonnage_ranks::Sleepers;
use tonnage_units::Result;

/// Polls until `over` says that everybody is done.
///
/// # Errors
/// When the engine fails or the run is stopped.
pub fn serve(port: &mut Port, mut over: impl FnMut() -> bool) -> Result<()> {
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

/// Rests until `over` says that everybody is done: a worker without peers would only take CPU time from the others.
/// Whoever brings about what `over` looks at wakes the rank's sleepers.
///
/// # Errors
/// When the run is stopped.
pub fn rest(port: &mut Port, sleepers: &Sleepers, mut over: impl FnMut() -> bool) -> Result<()> {
    // First, so that it is not woken between a look and its sleep.
    let sleeper = sleepers.join()?;
    while !over() {
        sleeper.rest(if port.is_kept_awake() { LOOK } else { REST })?;
        port.check_stop()?;
    }
    Ok(())
}
