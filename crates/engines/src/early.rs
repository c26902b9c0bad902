//! Arrivals during first contact: a peer that has met all of its own writes at once, while this side still waits for
//! somebody else. They are told before anything that comes later.

use std::collections::VecDeque;

use tonnage_engine::Completion;

/// Completions that nobody was told of yet.
#[derive(Default)]
pub(crate) struct EarlyArrivals(VecDeque<Completion>);

impl EarlyArrivals {
    /// Keeps one.
    pub(crate) fn keep(&mut self, completion: Completion) {
        self.0.push_back(completion);
    }

    /// Returns whether there are none.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Tells the oldest, as many as there is room for, and returns how many.
    pub(crate) fn tell(&mut self, done: &mut [Completion]) -> usize {
        let count = self.0.len().min(done.len());
        for (place, completion) in done.iter_mut().zip(self.0.drain(..count)) {
            *place = completion;
        }
        count
    }
}
