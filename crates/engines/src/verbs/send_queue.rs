//! Pending work requests of a queue pair: a ring, ordered by completion.
//!
//! The completion of a signalled work request means that all earlier work requests of its queue pair have ended, too.

/// A pending work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PendingWork {
    /// The lane; [`SILENT`] if the completion will not be reported.
    pub(super) lane: u32,
    pub(super) tag: u32,
    pub(super) len: u32,
}

/// Lane of the engine's own operations.
pub(super) const SILENT: u32 = u32::MAX;

/// Bit that marks the ID of a receive.
pub(super) const RECEIVE: u64 = 1 << 63;
/// Bit that marks the ID of a receive for write-imms. Such an ID contains a queue pair instead of a lane.
pub(super) const IMMEDIATE: u64 = 1 << 62;

/// Returns the ID of a work request in a send queue.
#[inline]
pub(super) fn send_id(pair: usize, number: u32) -> u64 {
    (pair as u64) << 32 | u64::from(number)
}

/// The work requests that ended with one completion: all up to and including `last`.
#[derive(Debug, Clone, Copy)]
pub(super) struct EndedWork {
    /// Index of the queue pair.
    pub(super) pair: usize,
    /// Number of the last work request.
    pub(super) last: u32,
    /// State and device code of the last work request; `None` if it succeeded.
    pub(super) failure: Option<(u32, u32)>,
}

/// Ring of the pending work requests of one queue pair.
#[derive(Debug)]
pub(super) struct SendQueue {
    ring: Box<[PendingWork]>,
    depth: u32,
    oldest: u32,
    next: u32,
    /// Number of work requests after the last signalled one.
    unsignalled: u32,
    /// Value of `unsignalled` before the newest work request was pushed.
    unsignalled_before: u32,
}

impl SendQueue {
    /// Creates a ring for `depth` work requests, at least two.
    pub(super) fn new(depth: u32) -> Self {
        let nothing = PendingWork {
            lane: SILENT,
            tag: 0,
            len: 0,
        };
        let depth = depth.clamp(2, 1 << 20);
        let places = depth.next_power_of_two() as usize;
        Self {
            ring: vec![nothing; places].into_boxed_slice(),
            depth,
            oldest: 0,
            next: 0,
            unsignalled: 0,
            unsignalled_before: 0,
        }
    }

    /// Whether there is room for an operation. One slot is reserved for the write that closes the queue: see
    /// [`Self::must_close`].
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.in_flight() + 1 < self.depth
    }

    /// Number of work requests in flight.
    #[inline]
    pub(super) fn in_flight(&self) -> u32 {
        self.next.wrapping_sub(self.oldest)
    }

    /// Adds a work request. Returns its number, and whether it must be signalled. One in `every` work requests must be.
    #[inline]
    pub(super) fn push(&mut self, lane: u32, tag: u32, len: u32, every: u32) -> (u32, bool) {
        let number = self.next;
        let signalled = self.unsignalled + 1 >= every;
        self.unsignalled_before = self.unsignalled;
        self.unsignalled = if signalled { 0 } else { self.unsignalled + 1 };
        let place = self.place(number);
        self.ring[place] = PendingWork { lane, tag, len };
        self.next = number.wrapping_add(1);
        (number, signalled)
    }

    /// Returns the oldest work request in flight.
    pub(super) fn oldest(&self) -> Option<PendingWork> {
        (self.in_flight() > 0).then(|| self.ring[self.place(self.oldest)])
    }

    /// Removes the newest work request, which was not posted to the device.
    pub(super) fn take_back(&mut self) {
        self.next = self.next.wrapping_sub(1);
        self.unsignalled = self.unsignalled_before;
    }

    /// Whether work requests are in flight but none is signalled. Their completion would go unnoticed.
    pub(super) fn must_close(&self) -> bool {
        self.unsignalled > 0 && self.unsignalled >= self.in_flight()
    }

    /// Removes and returns the oldest work request, unless it is newer than number `last`. Also returns whether it is
    /// number `last`.
    #[inline]
    pub(super) fn pop(&mut self, last: u32) -> Option<(PendingWork, bool)> {
        let left = last.wrapping_sub(self.oldest).wrapping_add(1);
        if self.in_flight() == 0 || left == 0 || left > self.in_flight() {
            return None;
        }
        let oldest = self.ring[self.place(self.oldest)];
        self.oldest = self.oldest.wrapping_add(1);
        Some((oldest, left == 1))
    }

    #[inline]
    fn place(&self, number: u32) -> usize {
        number as usize & (self.ring.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pushed(queue: &mut SendQueue, count: u32, every: u32) -> Vec<(u32, bool)> {
        (0..count).map(|tag| queue.push(3, tag, 8, every)).collect()
    }

    #[test]
    fn the_nth_is_signalled_and_the_others_end_with_it() {
        let mut queue = SendQueue::new(16);
        let numbers = pushed(&mut queue, 7, 3);
        let signalled: Vec<u32> = numbers.iter().filter(|it| it.1).map(|it| it.0).collect();
        assert_eq!(signalled, [2, 5]);
        assert!(!queue.must_close());
        let ended: Vec<_> = std::iter::from_fn(|| queue.pop(5)).collect();
        assert_eq!(ended.len(), 6);
        assert!(ended[5].1 && !ended[4].1);
        assert_eq!(ended[5].0.tag, 5);
        assert!(
            queue.must_close(),
            "the seventh work request is unsignalled"
        );
        let (last, signalled) = queue.push(SILENT, 0, 0, 1);
        assert!(signalled && !queue.must_close());
        assert_eq!(std::iter::from_fn(|| queue.pop(last)).count(), 2);
        assert_eq!((queue.in_flight(), queue.must_close()), (0, false));
    }

    #[test]
    fn numbers_wrap_around_at_32_bits() {
        let mut queue = SendQueue::new(5);
        (queue.oldest, queue.next) = (u32::MAX - 1, u32::MAX - 1);
        let mut tag = 0;
        for _ in 0..4 {
            let mut last = 0;
            while queue.has_room() {
                last = queue.push(1, tag, 0, 1).0;
                tag += 1;
            }
            assert_eq!(queue.in_flight(), 4);
            assert_eq!(std::iter::from_fn(|| queue.pop(last)).count(), 4);
            assert_eq!(queue.pop(last), None);
        }
        assert_eq!(tag, 16);
    }

    #[test]
    fn a_work_request_that_was_not_posted_is_removed() {
        let mut queue = SendQueue::new(8);
        pushed(&mut queue, 2, 3);
        let (third, signalled) = queue.push(1, 9, 0, 3);
        assert!(signalled);
        queue.take_back();
        assert_eq!(queue.in_flight(), 2);
        let (again, signalled) = queue.push(1, 10, 0, 3);
        assert_eq!((again, signalled), (third, true));
        queue.push(1, 11, 0, 3);
        queue.take_back();
        assert_eq!(queue.in_flight(), 3);
        assert!(!queue.must_close());
    }

    #[test]
    fn an_unknown_number_removes_nothing() {
        let mut queue = SendQueue::new(8);
        pushed(&mut queue, 2, 1);
        assert_eq!(queue.pop(2), None);
        assert_eq!(queue.pop(u32::MAX), None);
        assert_eq!(queue.in_flight(), 2);
    }
}
