//! When a worker rests instead of polling, and how.

use super::assignment::Assignment;
use super::trial::Schedule;
use tonnage_loops::port::Port;
use tonnage_loops::serve::{RestingPlace, serve};
use tonnage_plan::transfer::CqMode;
use tonnage_units::Result;

/// Rounds of a polling loop between two looks at the clock.
const LOOK_ROUNDS: u32 = 1 << 16;

/// The idle policy of a worker: it rests if it takes no part, if its device serves its peers, or while the background
/// that it moves pauses.
pub(super) struct IdlePolicy {
    /// True for a worker without anything to poll for at this point.
    is_idle: bool,
    moves_background: bool,
    /// True in the half of a trial without the background, where polling would take CPU time from the measured workers.
    is_paused: bool,
    polls_busily: bool,
    /// Place of a worker that may rest.
    place: Option<RestingPlace>,
}

impl IdlePolicy {
    pub(super) fn new(assignment: &Assignment) -> Result<Self> {
        let is_idle = !assignment.takes_part() || assignment.is_served();
        let moves_background = assignment.station.part.is_background;
        let place = (is_idle || moves_background)
            .then(|| RestingPlace::among(&assignment.station.sleepers))
            .transpose()?;
        Ok(Self {
            is_idle,
            moves_background,
            is_paused: false,
            polls_busily: assignment.point.cq == CqMode::Busy,
            place,
        })
    }

    /// Ends the pause of the background, for the data of the next trial.
    pub(super) fn resume(&mut self) {
        self.is_paused = false;
    }

    /// Begins a round; the background pauses in one without load.
    pub(super) fn begin_round(&mut self, schedule: &Schedule) {
        self.is_paused = self.moves_background && !schedule.is_loaded;
    }

    /// Returns whether this worker's own flows pause.
    pub(super) fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Returns whether this worker rests now instead of polling.
    pub(super) fn is_at_rest(&self) -> bool {
        self.is_idle || self.is_paused
    }

    /// Rounds of a serving loop between two looks at the clock: 1 if each round is a rest or a sleep.
    pub(super) fn look_rounds(&self) -> u32 {
        if self.polls_busily && !self.is_at_rest() {
            LOOK_ROUNDS
        } else {
            1
        }
    }

    /// Polls until `over` without answering, or rests.
    pub(super) fn poll_until(
        &self,
        port: &mut Port<'_>,
        mut over: impl FnMut() -> bool,
    ) -> Result<()> {
        match self.place.as_ref().filter(|_| self.is_at_rest()) {
            Some(place) => place.until(port, over),
            None => serve(port, &mut over),
        }
    }
}
