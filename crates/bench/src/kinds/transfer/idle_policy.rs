//! When and how a worker rests instead of polling.

use super::assignment::WorkerAssignment;
use super::trial::Schedule;
use tonnage_loops::port::Port;
use tonnage_loops::serve::{WorkerSleep, serve};
use tonnage_plan::transfer::CqMode;
use tonnage_units::Result;

/// Number of iterations of a polling loop between two reads of the clock.
const CLOCK_READ_ROUNDS: u32 = 1 << 16;

/// The idle policy of a worker. The worker rests in three cases: it takes no part, its device serves its peers, or its
/// background load is paused.
pub(super) struct IdlePolicy {
    /// True if this worker has nothing to poll for during this point.
    is_idle: bool,
    moves_background: bool,
    /// True in the half of a trial without background load. Polling would then take CPU time from the measuring
    /// workers.
    is_paused: bool,
    polls_busily: bool,
    /// Where this worker sleeps; `None` if it never rests.
    place: Option<WorkerSleep>,
}

impl IdlePolicy {
    pub(super) fn new(assignment: &WorkerAssignment) -> Result<Self> {
        let is_idle = !assignment.takes_part() || assignment.is_served();
        let moves_background = assignment.setup.role.is_background;
        let place = (is_idle || moves_background)
            .then(|| WorkerSleep::register(&assignment.setup.sleepers))
            .transpose()?;
        Ok(Self {
            is_idle,
            moves_background,
            is_paused: false,
            polls_busily: assignment.point.cq == CqMode::Busy,
            place,
        })
    }

    /// Ends the pause of the background, before data are filled in for the next trial.
    pub(super) fn resume(&mut self) {
        self.is_paused = false;
    }

    /// Begins a round. In rounds without load, the background pauses.
    pub(super) fn begin_round(&mut self, schedule: &Schedule) {
        self.is_paused = self.moves_background && !schedule.is_loaded;
    }

    /// Returns whether this worker's own flows are paused.
    pub(super) fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Returns whether this worker currently rests instead of polling.
    pub(super) fn is_at_rest(&self) -> bool {
        self.is_idle || self.is_paused
    }

    /// Returns the number of iterations of a serving loop between two reads of the clock. It is 1 if each iteration
    /// rests or sleeps.
    pub(super) fn rounds_per_clock_read(&self) -> u32 {
        if self.polls_busily && !self.is_at_rest() {
            CLOCK_READ_ROUNDS
        } else {
            1
        }
    }

    /// Polls or rests until `over` returns true. Pings are not answered.
    pub(super) fn poll_until(
        &self,
        port: &mut Port<'_>,
        mut over: impl FnMut() -> bool,
    ) -> Result<()> {
        match self.place.as_ref().filter(|_| self.is_at_rest()) {
            Some(place) => place.sleep_until(port, over),
            None => serve(port, &mut over),
        }
    }
}
