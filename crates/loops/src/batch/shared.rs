//! Batches that the workers of a rank share: the first worker begins each of them, every worker carries out its share,
//! and the first one sees the end when the last share is done.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::BatchTurns;
use crate::OwnLine;
use crate::until::Until;
use tonnage_ranks::Sleepers;
use tonnage_units::lock::lock;
use tonnage_units::{Error, Result};

/// State of a rank's batches, which its workers share.
#[derive(Debug)]
pub struct SharedBatches {
    workers: u32,
    /// Batches that were begun: the followers look at it all the time.
    begun: OwnLine<AtomicU64>,
    /// No more of them will begin.
    over: AtomicBool,
    /// The places of the last batches that were begun, by their number modulo the places: one that is overwritten has
    /// been read by all, because a later batch, which everybody reads after it, has ended.
    announced: Box<[AtomicU32]>,
    /// Shares of each batch in flight that are not done.
    shares: Box<[OwnLine<AtomicU32>]>,
    /// Batches of which all shares are done: the first worker looks at it all the time.
    ended: OwnLine<AtomicU64>,
    failed: AtomicBool,
    failure: Mutex<Option<String>>,
    /// Workers that sleep between two batches, and must be woken.
    sleepers: Option<Arc<Sleepers>>,
}

impl SharedBatches {
    /// State of `workers` workers with so many batches in flight together; `sleepers` where they sleep.
    pub fn new(workers: u32, in_flight: u32, sleepers: Option<Arc<Sleepers>>) -> Self {
        Self {
            workers,
            begun: OwnLine::default(),
            over: AtomicBool::new(false),
            announced: (0..in_flight).map(|_| AtomicU32::new(0)).collect(),
            shares: (0..in_flight).map(|_| OwnLine::default()).collect(),
            ended: OwnLine::default(),
            failed: AtomicBool::new(false),
            failure: Mutex::new(None),
            sleepers,
        }
    }

    /// Forgets the batches of the trial before. While no worker drives.
    pub fn reset(&self) {
        self.begun.0.store(0, Ordering::Relaxed);
        self.ended.0.store(0, Ordering::Relaxed);
        self.over.store(false, Ordering::Relaxed);
    }

    /// Ends the loops of the other workers: this one has failed.
    pub fn abandon(&self, worker: u32, why: &Error) {
        lock(&self.failure).get_or_insert_with(|| format!("worker {worker}: {why}"));
        self.failed.store(true, Ordering::Release);
        self.wake();
    }

    #[inline]
    fn check(&self) -> Result<()> {
        match self.failed.load(Ordering::Acquire) {
            false => Ok(()),
            true => Err(self.error()),
        }
    }

    #[cold]
    fn error(&self) -> Error {
        Error::Failed(lock(&self.failure).clone().unwrap_or_default())
    }

    #[inline]
    fn done(&self, place: u32) {
        let left = &self.shares[place as usize].0;
        if left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.ended.0.fetch_add(1, Ordering::AcqRel);
            self.wake();
        }
    }

    #[inline]
    fn wake(&self) {
        if let Some(sleepers) = &self.sleepers {
            sleepers.wake();
        }
    }
}

/// Turns of the first worker, which begins the rank's batches and sees their ends.
pub(super) struct LeadTurns<'a> {
    shared: &'a SharedBatches,
    until: &'a mut Until,
    free: &'a mut VecDeque<u32>,
    /// True for places whose batch is under way.
    busy: &'a mut [bool],
    ended: u64,
    over: bool,
}

impl<'a> LeadTurns<'a> {
    /// Begins with all places free.
    pub(super) fn new(
        shared: &'a SharedBatches,
        (free, busy): (&'a mut VecDeque<u32>, &'a mut [bool]),
        until: &'a mut Until,
    ) -> Self {
        busy.fill(false);
        Self {
            shared,
            until,
            free,
            busy,
            ended: 0,
            over: false,
        }
    }
}

impl BatchTurns for LeadTurns<'_> {
    #[inline]
    fn next(&mut self) -> Result<Option<u32>> {
        self.shared.check()?;
        if self.over || self.free.is_empty() {
            return Ok(None);
        }
        self.over = self.until.grant(1) == 0;
        if self.over {
            self.shared.over.store(true, Ordering::Release);
            self.shared.wake();
            return Ok(None);
        }
        Ok(self.free.pop_front())
    }

    /// Tells the other workers.
    #[inline]
    fn begin(&mut self, place: u32) {
        let shared = self.shared;
        let number = shared.begun.0.load(Ordering::Relaxed);
        self.busy[place as usize] = true;
        shared.shares[place as usize]
            .0
            .store(shared.workers, Ordering::Relaxed);
        let slot = (number % shared.announced.len() as u64) as usize;
        shared.announced[slot].store(place, Ordering::Relaxed);
        shared.begun.0.store(number + 1, Ordering::Release);
        shared.wake();
    }

    #[inline]
    fn done(&mut self, place: u32) {
        self.shared.done(place);
    }

    #[inline]
    fn take_ended(&mut self) -> Option<u32> {
        if self.shared.ended.0.load(Ordering::Acquire) == self.ended {
            return None;
        }
        let is_done = |place: &usize| {
            self.busy[*place] && self.shared.shares[*place].0.load(Ordering::Acquire) == 0
        };
        let place = (0..self.busy.len()).find(is_done)?;
        self.busy[place] = false;
        self.ended += 1;
        self.free.push_back(place as u32);
        Some(place as u32)
    }

    #[inline]
    fn is_over(&self) -> bool {
        self.over && self.free.len() == self.busy.len()
    }
}

/// Turns of the other workers, which join the batches that the first one begins.
pub(super) struct FollowTurns<'a> {
    shared: &'a SharedBatches,
    joined: u64,
    done: u64,
}

impl<'a> FollowTurns<'a> {
    /// Begins with no batch joined.
    pub(super) fn new(shared: &'a SharedBatches) -> Self {
        Self {
            shared,
            joined: 0,
            done: 0,
        }
    }
}

impl BatchTurns for FollowTurns<'_> {
    #[inline]
    fn next(&mut self) -> Result<Option<u32>> {
        self.shared.check()?;
        if self.shared.begun.0.load(Ordering::Acquire) == self.joined {
            return Ok(None);
        }
        let slot = (self.joined % self.shared.announced.len() as u64) as usize;
        self.joined += 1;
        Ok(Some(self.shared.announced[slot].load(Ordering::Relaxed)))
    }

    #[inline]
    fn begin(&mut self, _place: u32) {}

    #[inline]
    fn done(&mut self, place: u32) {
        self.done += 1;
        self.shared.done(place);
    }

    /// The first worker sees the ends.
    #[inline]
    fn take_ended(&mut self) -> Option<u32> {
        None
    }

    #[inline]
    fn is_over(&self) -> bool {
        // First whether it is over: what was begun before that is seen then.
        self.shared.over.load(Ordering::Acquire)
            && self.shared.begun.0.load(Ordering::Acquire) == self.joined
            && self.done == self.joined
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Its batches are counted from the first again, and it is not over because the one before was.
    #[test]
    fn a_later_trial_begins_anew() {
        let shared = SharedBatches::new(2, 1, None);
        for _ in 0..2 {
            shared.reset();
            let mut until = Until::operations(1);
            let (mut free, mut busy) = (VecDeque::from([0]), [false]);
            let mut lead = LeadTurns::new(&shared, (&mut free, &mut busy), &mut until);
            let mut follow = FollowTurns::new(&shared);
            assert!(follow.next().unwrap().is_none() && !follow.is_over());
            let place = lead.next().unwrap().unwrap();
            lead.begin(place);
            assert_eq!(follow.next().unwrap(), Some(place));
            follow.done(place);
            assert_eq!(lead.take_ended(), None, "its own share is not done");
            lead.done(place);
            assert_eq!(lead.take_ended(), Some(place));
            assert_eq!(lead.next().unwrap(), None);
            assert!(lead.is_over() && follow.is_over());
        }
    }
}
