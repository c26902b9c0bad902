//! One path: an engine of the device's own, and the parts that wait for room in it.

use tonnage_units::Result;

use crate::{Engine, Op};

/// One path of a worker.
pub(super) struct Path {
    pub(super) engine: Box<dyn Engine + Send>,
    /// Parts that its engine has not taken yet, in their order.
    pub(super) staged: Vec<Op>,
    /// Its rail.
    pub(super) rail: usize,
    /// Some peer is reached by it; others need not be polled.
    pub(super) leads: bool,
    /// Parts and flushes of operations that its engine has taken and that have not ended.
    pub(super) in_flight: u64,
    /// Bytes of the parts that were handed over since this was asked last.
    pub(super) bytes: u64,
}

impl Path {
    /// Hands over what its engine has room for, and says the tag of each part that it took; the answer is whether it is
    /// of an operation, whose bytes count.
    #[inline]
    pub(super) fn hand_over(&mut self, mut took: impl FnMut(u32) -> bool) -> Result<()> {
        if self.staged.is_empty() {
            return Ok(());
        }
        let taken = self.engine.post(&self.staged)?;
        for part in self.staged.drain(..taken) {
            if took(part.tag) {
                self.in_flight += 1;
                self.bytes += u64::from(part.len);
            }
        }
        match self.staged.is_empty() {
            true => Ok(()),
            false => self.pass_by(took),
        }
    }

    /// Hands over parts behind one that there is no room for, where they are of other lanes: a slow peer must not hold
    /// up the others.
    fn pass_by(&mut self, mut took: impl FnMut(u32) -> bool) -> Result<()> {
        let mut at = 1;
        while at < self.staged.len() {
            let part = self.staged[at];
            let waits = self.staged[..at]
                .iter()
                .any(|before| before.lane == part.lane);
            if !waits && self.engine.post(&[part])? == 1 {
                if took(part.tag) {
                    self.in_flight += 1;
                    self.bytes += u64::from(part.len);
                }
                self.staged.remove(at);
            } else {
                at += 1;
            }
        }
        Ok(())
    }
}
