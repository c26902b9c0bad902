//! The target of one-sided operations. It polls: several transports move nothing while the target does not, even for
//! operations that need no help of its in principle. A worker that takes no part rests, and so does the target of a
//! device that is known to need none.

use std::time::Duration;

use super::BURST;
use super::port::Port;
use tonnage_engine::Completion;
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

/// Time between two looks of a worker that takes no part.
const REST: Duration = Duration::from_millis(1);

/// Rests until `over` says that everybody is done: a worker without peers would only take CPU time from the others.
///
/// # Errors
/// When the run is stopped.
pub fn rest(port: &mut Port, mut over: impl FnMut() -> bool) -> Result<()> {
    while !over() {
        std::thread::sleep(REST);
        port.check_stop()?;
    }
    Ok(())
}
