//! The target of one-sided operations. It always polls: several transports move nothing while the target does not,
//! even for operations that need no help of its in principle.

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
