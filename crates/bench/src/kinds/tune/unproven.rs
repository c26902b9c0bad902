//! Steps of a trial in a race: those of a transfer, but for the proof of its path. That waits for counters, which takes
//! longer than the trial; the winner's last run has it.

use crate::failure::StepFailure;
use crate::kinds::kind::{Steps, When};

/// The steps of a transfer, without the reading of counters that prepares it.
pub struct Unproven<'a>(pub &'a mut dyn Steps);

impl Steps for Unproven<'_> {
    fn limit(&mut self, when: When) -> Result<(), StepFailure> {
        self.0.limit(when)
    }

    fn warm_up(&mut self) -> Result<(), StepFailure> {
        self.0.warm_up()
    }

    fn trial(&mut self) -> Result<(), StepFailure> {
        self.0.trial()
    }

    fn enough(&mut self) -> Result<bool, StepFailure> {
        self.0.enough()
    }

    fn close(&mut self) -> Result<(), StepFailure> {
        self.0.close()
    }

    fn gather(&mut self) -> Result<(), StepFailure> {
        self.0.gather()
    }
}
