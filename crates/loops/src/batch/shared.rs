//! Batches that the workers of a rank share. The first worker begins each batch, and every worker posts its share. A
//! batch ends when the last share is done; only the first worker records the end.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::BatchSchedule;
use crate::CachePadded;
use crate::until::Until;
use tonnage_ranks::Sleepers;
use tonnage_units::lock::lock;
use tonnage_units::{Error, Result};

/// State of a rank's batches, shared by its workers.
#[derive(Debug)]
pub struct SharedBatches {
    workers: u32,
    /// Number of batches begun. Followers poll it.
    begun: CachePadded<AtomicU64>,
    /// Set once no more batches will begin.
    over: AtomicBool,
    /// Slots of the latest batches, indexed by batch number modulo `in_flight`. An entry is reused only when every
    /// worker has read it: batch n + `in_flight` begins only after batch n or a later batch has ended, and workers
    /// join batches in order.
    announced: Box<[AtomicU32]>,
    /// Number of unfinished shares of each batch in flight, indexed by slot.
    shares: Box<[CachePadded<AtomicU32>]>,
    /// Number of batches with all shares done. The first worker polls it.
    ended: CachePadded<AtomicU64>,
    failed: AtomicBool,
    failure: Mutex<Option<String>>,
    /// Workers that sleep between batches and must be woken.
    sleepers: Option<Arc<Sleepers>>,
}

impl SharedBatches {
    /// Creates the state for `workers` workers and up to `in_flight` batches. Workers that sleep between batches need
    /// `sleepers`.
    pub fn new(workers: u32, in_flight: u32, sleepers: Option<Arc<Sleepers>>) -> Self {
        Self {
            workers,
            begun: CachePadded::default(),
            over: AtomicBool::new(false),
            announced: (0..in_flight).map(|_| AtomicU32::new(0)).collect(),
            shares: (0..in_flight).map(|_| CachePadded::default()).collect(),
            ended: CachePadded::default(),
            failed: AtomicBool::new(false),
            failure: Mutex::new(None),
            sleepers,
        }
    }

    /// Resets the counters after the previous trial; a recorded failure stays. Must not be called while a worker runs
    /// its loop.
    pub fn reset(&self) {
        self.begun.0.store(0, Ordering::Relaxed);
        self.ended.0.store(0, Ordering::Relaxed);
        self.over.store(false, Ordering::Relaxed);
    }

    /// Makes the other workers' loops fail because `worker` failed.
    pub fn abandon(&self, worker: u32, why: &Error) {
        lock(&self.failure).get_or_insert_with(|| format!("thread {worker}: {why}"));
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
    fn note_done(&self, place: u32) {
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

/// Schedule of the first worker, which begins the rank's batches and records their ends.
pub(super) struct LeadSchedule<'a> {
    shared: &'a SharedBatches,
    until: &'a mut Until,
    free: &'a mut VecDeque<u32>,
    /// Whether each slot holds an unfinished batch.
    busy: &'a mut [bool],
    ended: u64,
    over: bool,
}

impl<'a> LeadSchedule<'a> {
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

impl BatchSchedule for LeadSchedule<'_> {
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

    /// Announces the batch to the other workers.
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
        self.shared.note_done(place);
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

/// Schedule of the other workers, which join the batches that the first worker begins.
pub(super) struct FollowSchedule<'a> {
    shared: &'a SharedBatches,
    joined: u64,
    done: u64,
}

impl<'a> FollowSchedule<'a> {
    pub(super) fn new(shared: &'a SharedBatches) -> Self {
        Self {
            shared,
            joined: 0,
            done: 0,
        }
    }
}

impl BatchSchedule for FollowSchedule<'_> {
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
        self.shared.note_done(place);
    }

    /// Returns nothing, because only the first worker records the ends of batches.
    #[inline]
    fn take_ended(&mut self) -> Option<u32> {
        None
    }

    #[inline]
    fn is_over(&self) -> bool {
        // Read `over` before `begun`. The first worker sets `over` after the last batch has begun, so `begun` is then
        // final.
        self.shared.over.load(Ordering::Acquire)
            && self.shared.begun.0.load(Ordering::Acquire) == self.joined
            && self.done == self.joined
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `reset` sets the batch counts back to zero and clears `over`, which the previous trial set.
    #[test]
    fn each_trial_starts_from_zero() {
        let shared = SharedBatches::new(2, 1, None);
        for _ in 0..2 {
            shared.reset();
            let mut until = Until::operations(1);
            let (mut free, mut busy) = (VecDeque::from([0]), [false]);
            let mut lead = LeadSchedule::new(&shared, (&mut free, &mut busy), &mut until);
            let mut follow = FollowSchedule::new(&shared);
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
