//! Detects operations that make no progress, for example because the data path was cut while the control channel is
//! alive.
//!
//! The loops check occasionally and only when they have time: when nothing completes, or after some dozens of
//! iterations that posted operations. [`super::port`] and its callers handle a stall.

use super::flow::Flow;

/// A flow counts as stalled only after this number of checks without progress. A pause of the whole process must not
/// look like a stalled flow.
const QUIET_LOOKS: u32 = 8;

/// The allowed time without progress is the larger of two values. One is the longest such time so far plus the
/// patience, because an outage may also hit a slow operation. The other is the longest time multiplied by this factor.
const QUIET_FACTOR: u64 = 3;

/// Slowest rate assumed for the first operations, when nothing is known of the path yet: 1 µs per byte (1 MB/s), a
/// twelfth of a 100 Mb/s link.
const FIRST_NS_PER_BYTE: u64 = 1000;

/// Watches over the operations of one worker.
#[derive(Debug, Clone)]
pub struct StallWatch {
    /// Time without progress that is always tolerated, for example when a cable is pulled and put back.
    patience_ns: u64,
    /// Longest expected time of an operation while none has completed.
    first_ns: u64,
    all: WatchedProgress,
    flows: Vec<WatchedProgress>,
}

/// A stall: its duration and the affected peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stall {
    /// Time without progress.
    pub quiet_ns: u64,
    /// Operations that have not completed.
    pub in_flight: u64,
    /// The affected peer; `None` if operations with other peers also stopped.
    pub peer: Option<u32>,
}

#[derive(Debug, Clone, Copy, Default)]
struct WatchedProgress {
    count: u64,
    since_ns: u64,
    looked_ns: u64,
    quiet_ns: u64,
    quiet_looks: u32,
    /// False until the count was first seen to change.
    has_moved: bool,
    /// Longest earlier time without progress.
    longest_ns: u64,
}

impl WatchedProgress {
    /// Checks a count. After a pause between checks that is longer than `pause_ns_max`, the time without progress
    /// starts from zero, because this process itself may have been suspended.
    fn update(&mut self, count: u64, now_ns: u64, pause_ns_max: u64) {
        let is_first = self.looked_ns == 0;
        let paused = now_ns.saturating_sub(self.looked_ns) > pause_ns_max;
        self.looked_ns = now_ns;
        if is_first || paused || count != self.count {
            self.has_moved |= !is_first && count != self.count;
            if !paused {
                self.longest_ns = self.longest_ns.max(self.quiet_ns);
            }
            self.count = count;
            self.restart(now_ns);
        } else {
            self.quiet_looks += 1;
            self.quiet_ns = now_ns.saturating_sub(self.since_ns);
        }
    }

    fn restart(&mut self, now_ns: u64) {
        self.since_ns = now_ns;
        self.quiet_ns = 0;
        self.quiet_looks = 0;
    }
}

impl StallWatch {
    /// Creates a watch over operations of `size_bytes` on `flows` flows.
    pub fn new(patience_ns: u64, size_bytes: u32, flows: usize) -> Self {
        Self {
            patience_ns,
            first_ns: u64::from(size_bytes) * FIRST_NS_PER_BYTE,
            all: WatchedProgress::default(),
            flows: vec![WatchedProgress::default(); flows],
        }
    }

    fn allowed_pause_ns(&self, progress: &WatchedProgress, in_flight: u64) -> u64 {
        let known_ns = match progress.has_moved {
            false => self.first_ns.saturating_mul(in_flight),
            true => progress.longest_ns,
        };
        let again_ns = progress.longest_ns.saturating_mul(QUIET_FACTOR);
        self.patience_ns.saturating_add(known_ns).max(again_ns)
    }

    /// Checks an idle worker with `completed` operations so far and `in_flight` outstanding ones.
    pub fn check_worker(&mut self, completed: u64, in_flight: u64, now_ns: u64) -> Option<Stall> {
        let mut all = self.all;
        all.update(completed, now_ns, self.patience_ns / 2);
        if in_flight == 0 {
            all.restart(now_ns);
        }
        self.all = all;
        let stalled = all.quiet_ns > self.allowed_pause_ns(&all, in_flight);
        stalled.then_some(Stall {
            quiet_ns: all.quiet_ns,
            in_flight,
            peer: None,
        })
    }

    /// Checks the flows of a worker that is posting operations, because one flow may be stuck while the others make
    /// progress. If checks are too far apart to find the stall, [`Self::check_worker`] finds it once nothing more is
    /// posted.
    ///
    /// `count` returns the progress of a flow by its index, or `None` if the flow has finished.
    pub fn check_flows(
        &mut self,
        flows: &[Flow],
        count: impl Fn(usize) -> Option<u64>,
        (in_flight, now_ns): (u64, u64),
    ) -> Option<Stall> {
        for (index, flow) in flows.iter().enumerate() {
            let progress = self.flows.get_mut(index)?;
            let Some(count) = count(index) else {
                progress.restart(now_ns);
                continue;
            };
            progress.update(count, now_ns, self.patience_ns / 2);
            let progress = *progress;
            let is_late = progress.quiet_ns > self.allowed_pause_ns(&progress, in_flight);
            if is_late && progress.quiet_looks >= QUIET_LOOKS {
                return Some(Stall {
                    quiet_ns: progress.quiet_ns,
                    in_flight,
                    peer: Some(flow.peer),
                });
            }
        }
        None
    }

    /// Resets the quiet times of the flows, for example between two trials.
    pub fn restart(&mut self) {
        for progress in &mut self.flows {
            progress.looked_ns = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::flow;

    const PATIENCE_NS: u64 = 1000;

    fn watch(size_bytes: u32) -> StallWatch {
        StallWatch::new(PATIENCE_NS, size_bytes, 2)
    }

    /// Checks flows that never finish.
    fn at_flows(watch: &mut StallWatch, flows: &[Flow], at: (u64, u64)) -> Option<Stall> {
        watch.check_flows(flows, |index| Some(flows[index].issued), at)
    }

    /// Checks every 100 ns from `from_ns` on; returns the time when a stall is found.
    fn found(
        watch: &mut StallWatch,
        (completed, in_flight): (u64, u64),
        from_ns: u64,
    ) -> Option<u64> {
        (from_ns..from_ns + 100 * PATIENCE_NS)
            .step_by(100)
            .find(|&now_ns| watch.check_worker(completed, in_flight, now_ns).is_some())
    }

    #[test]
    fn a_stall_is_found_after_the_patience() {
        let mut watch = watch(0);
        assert_eq!(watch.check_worker(4, 1, 50), None);
        assert_eq!(watch.check_worker(5, 1, 100), None);
        assert_eq!(found(&mut watch, (5, 1), 200), Some(1200));
    }

    #[test]
    fn an_empty_window_is_not_a_stall() {
        assert_eq!(found(&mut watch(0), (5, 0), 100), None);
    }

    #[test]
    fn first_operations_get_a_microsecond_per_byte() {
        assert_eq!(
            found(&mut watch(3), (0, 2), 100),
            Some(100 + 1000 + 6000 + 100)
        );
    }

    /// After a quiet time of 400 ns, this time plus the patience is allowed. After 800 ns, three times the quiet time
    /// is longer, so it is allowed instead.
    #[test]
    fn slow_operations_may_be_slow_again() {
        for (looks, forgiven_ns) in [(&[100, 500, 950][..], 1400), (&[100, 500, 900, 950], 2400)] {
            let mut watch = watch(0);
            let (last_ns, quiet) = looks.split_last().unwrap();
            for &now_ns in quiet {
                assert_eq!(watch.check_worker(1, 1, now_ns), None);
            }
            assert_eq!(watch.check_worker(2, 1, *last_ns), None);
            let expected = last_ns + forgiven_ns + 50;
            assert_eq!(found(&mut watch, (2, 1), 1000), Some(expected));
        }
    }

    #[test]
    fn a_stop_of_this_process_is_not_a_stall() {
        let mut watch = watch(0);
        assert_eq!(watch.check_worker(4, 1, 50), None);
        assert_eq!(watch.check_worker(5, 1, 100), None);
        assert_eq!(watch.check_worker(5, 1, 5000), None);
        assert_eq!(found(&mut watch, (5, 1), 5100), Some(6100));
    }

    /// A gap of up to half the patience between two checks must not be mistaken for a suspended process. After longer
    /// gaps no stall is reported.
    #[test]
    fn checks_too_far_apart_find_no_stall() {
        for (step, expected) in [(500, Some(1600)), (501, None), (900, None)] {
            let mut watch = watch(0);
            assert_eq!(watch.check_worker(4, 1, 50), None);
            let mut looks = (100..20_000).step_by(step);
            let found = looks.find(|&now_ns| watch.check_worker(5, 1, now_ns).is_some());
            assert_eq!(found, expected, "{step}");
        }
        for step in [501, 900] {
            let (mut flows, mut watch) = ([flow(0, 4), flow(1, 7)], watch(0));
            for now_ns in (100..50_000).step_by(step) {
                flows[0].next_op(0);
                assert_eq!(at_flows(&mut watch, &flows, (9, now_ns)), None, "{step}");
            }
        }
    }

    /// Only a count that has never moved may get the time for first operations.
    #[test]
    fn a_count_that_has_moved_gets_no_first_operation_time() {
        let mut watch = watch(3);
        for (completed, now_ns) in [(4, 50), (5, 100), (6, 150)] {
            assert_eq!(watch.check_worker(completed, 1, now_ns), None);
        }
        assert_eq!(found(&mut watch, (6, 1), 200), Some(1200));
    }

    #[test]
    fn a_flow_that_stalls_while_others_move_is_named() {
        let mut flows = [flow(0, 4), flow(1, 7)];
        let mut watch = watch(0);
        assert_eq!(at_flows(&mut watch, &flows, (9, 50)), None);
        flows[1].next_op(0);
        for now_ns in (100..=1100).step_by(100) {
            flows[0].next_op(0);
            assert_eq!(at_flows(&mut watch, &flows, (9, now_ns)), None);
        }
        flows[0].next_op(0);
        let stall = at_flows(&mut watch, &flows, (9, 1200)).unwrap();
        assert_eq!((stall.peer, stall.quiet_ns), (Some(flows[1].peer), 1100));
        watch.restart();
        assert_eq!(at_flows(&mut watch, &flows, (9, 5000)), None);
    }

    #[test]
    fn a_flow_that_has_not_moved_yet_gets_time_for_its_operations_in_flight() {
        let mut flows = [flow(0, 4), flow(1, 7)];
        // A millisecond per operation.
        let mut watch = watch(1000);
        flows[1].next_op(0);
        let mut found = None;
        for now_ns in (100..=100_000).step_by(100) {
            flows[0].next_op(0);
            found = found.or(at_flows(&mut watch, &flows, (1, now_ns)));
        }
        assert_eq!(found, None);
    }

    #[test]
    fn one_long_pause_is_not_blamed_on_a_flow() {
        let mut flows = [flow(0, 4), flow(1, 7)];
        let mut watch = watch(0);
        for now_ns in [100, 9000, 9100] {
            flows[0].next_op(0);
            assert_eq!(at_flows(&mut watch, &flows, (9, now_ns)), None);
        }
    }

    #[test]
    fn a_finished_flow_may_be_quiet() {
        let flows = [flow(0, 4), flow(1, 7)];
        let mut watch = watch(0);
        let mut look = |at: u64, ended: Option<u64>| {
            let count = |index| if index == 0 { Some(at) } else { ended };
            watch.check_flows(&flows, count, (9, 100 * at))
        };
        for at in 1..100 {
            assert_eq!(look(at, (at < 5).then_some(at)), None, "{at}");
        }
        // Once the second flow reports a count again, its stall is found.
        let found: Vec<_> = (100..200).filter_map(|at| look(at, Some(5))).collect();
        assert_eq!(
            found.first().and_then(|stall| stall.peer),
            Some(flows[1].peer)
        );
    }
}
