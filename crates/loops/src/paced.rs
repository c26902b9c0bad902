//! Open loop: operations are due at fixed times, and each latency counts from the time the operation was due. A stall
//! therefore shows in every operation that it delayed. A closed loop would hide it by waiting (coordinated omission).
//! Operations that were never issued count too: their waits are lower bounds of their latencies.
//!
//! The timetable assigns operations to the flows round-robin. Each flow has its own depth, so a stuck flow doesn't
//! delay others: the loop passes over the stuck flow's operations and issues them once its completions make room.

use super::flow::Flow;
use super::port::Port;
use super::recorder::Recorder;
use super::{BURST, Scratch};
use tonnage_engine::{Completion, Ending, Op};
use tonnage_units::Result;
use tonnage_units::histogram::Unfinished;

/// Number of loop iterations with new operations between two stall checks of the flows. With more flows than this, the
/// number of flows is used instead.
const LOOK_GRANTS: usize = 64;

/// The longest standstill is a stall if it exceeds the mean of all other standstills by this factor. In an overload all
/// standstills are long, so none of them is a stall.
const STALL_FACTOR: u64 = 20;

/// The timetable of one worker.
#[derive(Debug, Clone, Copy)]
pub struct Timetable {
    /// Time when the first operation is due.
    pub start_ns: u64,
    /// Operations per second of this worker.
    pub rate_per_s: f64,
    /// Number of operations that are due together, at least 1.
    pub burst: u64,
    /// Operations that are due in the trial.
    pub operations: u64,
    /// Earliest end of the trial: when the rank's next operation would be due.
    pub end_ns: u64,
    /// No operation is issued after this time, even if the loop is behind. The exception is a loop that has issued
    /// nothing: it issues one group.
    pub give_up_ns: u64,
}

impl Timetable {
    /// Time when an operation is due. All operations of a burst are due together.
    #[inline]
    fn due_ns(&self, index: u64) -> u64 {
        self.evenly_spaced_ns(index - self.place_in_burst(index))
    }

    /// Time when the next burst is due.
    #[inline]
    fn next_burst_ns(&self, index: u64) -> u64 {
        self.evenly_spaced_ns(index - self.place_in_burst(index) + self.burst)
    }

    #[inline]
    fn place_in_burst(&self, index: u64) -> u64 {
        // Avoids the division for most timetables.
        if self.burst == 1 {
            0
        } else {
            index % self.burst
        }
    }

    /// Time when an operation would be due if all were evenly spaced.
    #[inline]
    fn evenly_spaced_ns(&self, index: u64) -> u64 {
        self.start_ns + (index as f64 * 1e9 / self.rate_per_s) as u64
    }

    /// Number of operations that are due by `ns`.
    fn operations_due_by(&self, ns: u64) -> u64 {
        let passed_ns = ns.saturating_sub(self.start_ns) as f64;
        let most = (passed_ns * self.rate_per_s / 1e9) as u64 + self.burst + 1;
        let mut due = most.min(self.operations);
        while due > 0 && self.due_ns(due - 1) > ns {
            due -= 1;
        }
        due
    }
}

/// Results of a timetable.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Punctuality {
    /// Operations that completed.
    pub completed: u64,
    /// Operations that were never issued, or only after the next burst was due.
    pub late: u64,
    /// Time when the loop ended.
    pub ended_ns: u64,
    /// The longest standstill of a flow.
    pub longest: Standstill,
    /// Sum of all flows' standstills.
    standstills_ns: u64,
    /// Number of standstills.
    standstills: u64,
    /// Begin and end of the longest iteration of the loop.
    turn: (u64, u64),
}

/// A period in which operations of a flow were due or in flight and none of them ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Standstill {
    /// The flow.
    pub flow: usize,
    /// Begin.
    pub begin_ns: u64,
    /// Length.
    pub length_ns: u64,
    /// Part of the standstill that falls into the loop's longest iteration. If this is most of the standstill, the loop
    /// itself did not run.
    pub turn_ns: u64,
}

impl Punctuality {
    /// Returns the longest standstill, if it is a stall.
    pub fn stall(&self) -> Option<Standstill> {
        let others_ns = self.standstills_ns - self.longest.length_ns;
        let usual_ns = others_ns / self.standstills.max(2).saturating_sub(1);
        (self.longest.length_ns > usual_ns.saturating_mul(STALL_FACTOR)).then_some(self.longest)
    }

    #[inline]
    fn note_turn(&mut self, begin_ns: u64, end_ns: u64) {
        if end_ns.saturating_sub(begin_ns) > self.turn.1 - self.turn.0 {
            self.turn = (begin_ns, end_ns);
        }
    }

    #[inline]
    fn note_standstill(&mut self, flow: usize, begin_ns: u64, end_ns: u64) {
        let length_ns = end_ns.saturating_sub(begin_ns);
        // Operations that end together count as one wait.
        if length_ns == 0 {
            return;
        }
        self.standstills += 1;
        self.standstills_ns += length_ns;
        if length_ns > self.longest.length_ns {
            let shared_ns = end_ns
                .min(self.turn.1)
                .saturating_sub(begin_ns.max(self.turn.0));
            self.longest = Standstill {
                flow,
                begin_ns,
                length_ns,
                turn_ns: shared_ns,
            };
        }
    }
}

/// One flow's part of a timetable.
#[derive(Debug, Default)]
pub(super) struct PacedFlow {
    /// Tags that are not in flight.
    pub(super) free: Vec<u32>,
    /// Index of the flow's next operation to issue.
    next: u64,
    /// Number of the flow's operations, from `next` on, that are due and that the loop passed over.
    passed: u64,
    /// Operations that the engine rejected, in order.
    refused: Vec<Op>,
    /// True while the flow is queued in `Scratch::behind`.
    is_queued: bool,
    /// Begin of the current standstill: the flow's last completion or, if nothing was in flight then, the due time of
    /// the next operation.
    since_ns: u64,
}

impl PacedFlow {
    /// Returns whether the flow's next operation can be issued as soon as it is due.
    #[inline]
    fn is_open(&self) -> bool {
        self.passed == 0 && !self.free.is_empty() && self.refused.is_empty()
    }

    /// Issues the flow's next operation; `None` if its depth is used up.
    #[inline]
    fn issue(
        &mut self,
        flow: &mut Flow,
        (timetable, flows): (&Timetable, u64),
        (posted_ns, depth): (&mut [u64], usize),
    ) -> Option<Op> {
        let tag = self.free.pop()?;
        let due_ns = timetable.due_ns(self.next);
        if self.free.len() + 1 == depth {
            self.since_ns = self.since_ns.max(due_ns);
        }
        posted_ns[tag as usize] = due_ns;
        self.next += flows;
        Some(flow.next_op(tag))
    }

    /// Returns whether the flow should be queued because it can issue operations that were passed over.
    #[inline]
    fn can_catch_up(&self) -> bool {
        self.passed > 0 && !self.is_queued && !self.free.is_empty() && self.refused.is_empty()
    }
}

impl Scratch {
    /// Buffers for `flows` paced lanes with `depth` operations in flight on each.
    #[must_use]
    pub fn for_paced(flows: usize, depth: usize) -> Self {
        let flow = || PacedFlow {
            free: Vec::with_capacity(depth),
            refused: Vec::with_capacity(depth.min(BURST)),
            ..PacedFlow::default()
        };
        let mut scratch = Self::new(flows, depth);
        scratch.paced = std::iter::repeat_with(flow).take(flows).collect();
        scratch.behind.reserve(flows);
        scratch.refusing.reserve(flows);
        scratch
    }

    /// Gives each of `flows` flows a window and its first operation in a timetable.
    fn begin_paced(&mut self, flows: usize, start_ns: u64) {
        self.ready.clear();
        self.staged.clear();
        self.behind.clear();
        self.refusing.clear();
        self.retired.clear();
        let used = flows * self.depth;
        self.retired
            .extend(used as u32..self.flow_of_tag.len() as u32);
        for (at, flow) in self.paced.iter_mut().enumerate() {
            let tags = match at < flows {
                true => at * self.depth..(at + 1) * self.depth,
                false => 0..0,
            };
            self.flow_of_tag[tags.clone()].fill(at as u32);
            flow.free.clear();
            flow.free.extend(tags.rev().map(|tag| tag as u32));
            flow.refused.clear();
            (flow.next, flow.passed) = (at as u64, 0);
            (flow.is_queued, flow.since_ns) = (false, start_ns);
        }
    }

    /// Returns the operations of the last timetable that were due by `ended_ns` and never issued, one entry per flow.
    pub fn never_issued(
        &self,
        flows: usize,
        timetable: &Timetable,
        ended_ns: u64,
    ) -> impl Iterator<Item = Unfinished> {
        let (timetable, due) = (*timetable, timetable.operations_due_by(ended_ns));
        let each = flows.max(1) as u64;
        let left = self
            .paced
            .iter()
            .take(flows)
            .filter(move |flow| flow.next < due);
        left.map(move |flow| {
            let more = (due - 1 - flow.next) / each;
            let wait_ns = |index| ended_ns.saturating_sub(timetable.due_ns(index));
            Unfinished {
                count: more + 1,
                shortest_ns: wait_ns(flow.next + more * each),
                longest_ns: wait_ns(flow.next),
            }
        })
    }
}

/// Issues the operations of a timetable. Flows alternate, each with at most the scratch's window in flight. The loop
/// doesn't end before its timetable does, so the measured rate cannot exceed the offered rate.
///
/// `scratch` must come from [`Scratch::for_paced`]. Afterwards, [`Scratch::never_issued`] returns the operations that
/// were never issued.
pub fn paced<R: Recorder>(
    port: &mut Port,
    flows: &mut [Flow],
    timetable: &Timetable,
    scratch: &mut Scratch,
    recorder: &mut R,
) -> Result<Punctuality> {
    let clock = port.clock;
    run_paced_by_clock(|| clock.now_ns(), port, flows, timetable, scratch, recorder)
}

/// The loop of [`paced`] with any clock, so that tests can use virtual time.
#[inline]
fn run_paced_by_clock<R: Recorder>(
    clock: impl Fn() -> u64,
    port: &mut Port,
    flows: &mut [Flow],
    timetable: &Timetable,
    scratch: &mut Scratch,
    recorder: &mut R,
) -> Result<Punctuality> {
    scratch.begin_paced(flows.len(), timetable.start_ns);
    let Scratch {
        paced,
        behind,
        refusing,
        posted_ns,
        flow_of_tag,
        staged,
        depth,
        ..
    } = scratch;
    let (depth, operations) = (*depth, timetable.operations);
    let (tags, turns) = (flows.len() * depth, (timetable, flows.len() as u64));
    let mut done = [Completion::EMPTY; BURST];
    let mut result = Punctuality::default();
    // The next operation to issue or pass over, and its flow.
    let (mut next, mut turn) = (0, 0);
    let (mut issued, mut in_flight, mut taken) = (0, 0, 0);
    let (mut grants, looks) = (0, LOOK_GRANTS.max(flows.len()));
    let mut looked_ns = timetable.start_ns;
    loop {
        let now_ns = clock();
        result.note_turn(looked_ns, now_ns);
        looked_ns = now_ns;
        // Even a loop that got no CPU time until now issues one group of operations: a trial without operations would
        // measure nothing.
        let given_up = now_ns > timetable.give_up_ns && issued > 0;
        if taken == staged.len() {
            staged.clear();
            taken = 0;
            // Reserve up to half of a burst for flows that are behind, so that neither those flows nor the others wait.
            let room = BURST - behind.len().min(BURST / 2);
            let mut passes = flows.len();
            while next < operations
                && !given_up
                && staged.len() < room
                && in_flight + staged.len() < tags
                && timetable.due_ns(next) <= now_ns
            {
                let flow = &mut paced[turn];
                if flow.is_open() {
                    staged.extend(flow.issue(&mut flows[turn], turns, (posted_ns, depth)));
                    result.late += u64::from(now_ns > timetable.next_burst_ns(next));
                } else if passes > 0 {
                    passes -= 1;
                    flow.passed += 1;
                } else {
                    break;
                }
                turn = if turn + 1 == flows.len() { 0 } else { turn + 1 };
                next += 1;
            }
            while staged.len() < BURST
                && !given_up
                && let Some(at) = behind.pop_front()
            {
                let flow = &mut paced[at as usize];
                flow.is_queued = false;
                if !flow.refused.is_empty() {
                    continue;
                }
                result.late += u64::from(now_ns > timetable.next_burst_ns(flow.next));
                staged.extend(flow.issue(&mut flows[at as usize], turns, (posted_ns, depth)));
                flow.passed -= 1;
                if flow.can_catch_up() {
                    flow.is_queued = true;
                    behind.push_back(at);
                }
            }
            issued += staged.len() as u64;
            in_flight += staged.len();
            // With one flow, the stall check of idle polls suffices.
            grants += usize::from(flows.len() > 1 && !staged.is_empty());
            if grants == looks {
                grants = 0;
                port.check_stalled_flows(flows, |at| {
                    (paced[at].free.len() < depth).then_some(flows[at].issued)
                })?;
            }
        }
        if let Some(at) = refusing.pop_front() {
            let flow = &mut paced[at as usize];
            let count = port.post(&flow.refused)?;
            flow.refused.drain(..count);
            if !flow.refused.is_empty() {
                refusing.push_back(at);
            } else if flow.can_catch_up() {
                flow.is_queued = true;
                behind.push_back(at);
            }
        }
        if taken < staged.len() {
            taken += port.post(&staged[taken..])?;
            if taken < staged.len() && flows.len() > 1 {
                // Operations of other flows must not wait for the rejected one.
                let at = flow_of_tag[staged[taken].tag as usize];
                let refused = &mut paced[at as usize].refused;
                staged.drain(..taken);
                taken = 0;
                staged.retain(|op| {
                    let is_other = flow_of_tag[op.tag as usize] != at;
                    if !is_other {
                        refused.push(*op);
                    }
                    is_other
                });
                refusing.push_back(at);
            }
        }
        let count = port.poll(&mut done)?;
        let now_ns = match count > 0 {
            // Standstills are measured even if the recorder has no clock.
            true => recorder.now_ns().max(now_ns),
            false => now_ns,
        };
        // The process may have been suspended during this iteration. Therefore note the iteration before the
        // standstills, which are compared with the longest one.
        result.note_turn(looked_ns, now_ns);
        for completion in &done[..count] {
            if completion.ending == Ending::Done {
                let at = flow_of_tag[completion.tag as usize];
                let flow = &mut paced[at as usize];
                recorder.sample(now_ns.saturating_sub(posted_ns[completion.tag as usize]));
                result.note_standstill(at as usize, flow.since_ns, now_ns);
                flow.since_ns = now_ns;
                flow.free.push(completion.tag);
                if flow.can_catch_up() {
                    flow.is_queued = true;
                    behind.push_back(at);
                }
                in_flight -= 1;
                result.completed += 1;
            }
        }
        if count > 0 {
            recorder.progress(result.completed);
        }
        let finished = issued == operations && now_ns >= timetable.end_ns;
        if in_flight == 0 && (finished || given_up) {
            result.late += operations - issued;
            result.ended_ns = now_ns;
            for (at, flow) in paced.iter().enumerate().take(flows.len()) {
                if flow.next < operations {
                    let begin_ns = flow.since_ns.max(timetable.due_ns(flow.next));
                    result.note_standstill(at, begin_ns, now_ns);
                }
            }
            return Ok(result);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::stall::StallWatch;
    use super::*;
    use crate::testing::{flow, mock, silent_port};
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::sync::{Arc, Mutex};
    use tonnage_engine::Ending;
    use tonnage_engine::testing::{ends_except_on, stalling_after};
    use tonnage_sys::clock::Clock;
    use tonnage_units::histogram::LatencyHistogram;

    /// Reads a clock and keeps latencies.
    struct Samples<F>(F, Vec<u64>);

    impl<F: Fn() -> u64> Recorder for Samples<F> {
        fn now_ns(&self) -> u64 {
            self.0()
        }

        fn sample(&mut self, latency_ns: u64) {
            self.1.push(latency_ns);
        }
    }

    /// Runs one flow with four operations in flight.
    fn of_one_flow<R: Recorder>(port: &mut Port, due: &Timetable, recorder: &mut R) -> Punctuality {
        let (flows, mut scratch) = (&mut [flow(0, 1)], Scratch::for_paced(1, 4));
        paced(port, flows, due, &mut scratch, recorder).unwrap()
    }

    #[test]
    fn a_stall_shows_in_every_operation_that_it_delayed() {
        let (mut mock, stop) = (mock(7), AtomicBool::new(false));
        mock.lock().ends = Some(stalling_after(50, 20_000_000));
        let clock = Clock::new();
        let start_ns = clock.now_ns();
        let timetable = Timetable {
            start_ns,
            rate_per_s: 10_000.0,
            burst: 1,
            operations: 300,
            end_ns: 0,
            give_up_ns: start_ns + 5_000_000_000,
        };
        let mut recorder = Samples(|| clock.now_ns(), Vec::new());
        let mut port = silent_port(&mut mock, &stop);
        let result = of_one_flow(&mut port, &timetable, &mut recorder);
        assert_eq!(result.completed, 300);
        // 20 ms at 10,000 per second delay about 200 operations, each by the rest of the stall.
        let delayed = recorder.1.iter().filter(|&&ns| ns > 1_000_000).count();
        assert!(delayed > 150, "{delayed} of 300 operations show the stall");
        assert!(result.late > 150, "{} late", result.late);
    }

    #[test]
    fn a_trial_lasts_as_long_as_its_timetable_and_issues_an_operation_even_if_late() {
        let (mut mock, stop) = (mock(7), AtomicBool::new(false));
        let mut port = silent_port(&mut mock, &stop);
        let clock = port.clock;
        for (late_ns, operations) in [(0, 10), (50_000_000, 10)] {
            let start_ns = clock.now_ns() - late_ns;
            let timetable = Timetable {
                start_ns,
                rate_per_s: 1000.0,
                burst: 1,
                operations,
                end_ns: start_ns + 10_000_000,
                give_up_ns: start_ns + 20_000_000,
            };
            let mut recorder = Samples(|| clock.now_ns(), Vec::new());
            let result = of_one_flow(&mut port, &timetable, &mut recorder);
            let took_ns = clock.now_ns() - start_ns;
            assert!(result.completed > 0, "{result:?}");
            assert!(took_ns >= 10_000_000, "{took_ns}");
        }
    }

    #[test]
    fn an_impossible_rate_is_given_up_and_counted_as_late() {
        let (mut mock, stop) = (mock(7), AtomicBool::new(false));
        let mut port = silent_port(&mut mock, &stop);
        let clock = port.clock;
        let start_ns = clock.now_ns();
        let timetable = Timetable {
            start_ns,
            rate_per_s: 1e12,
            burst: 1,
            operations: 1 << 40,
            end_ns: 0,
            give_up_ns: start_ns + 5_000_000,
        };
        let mut recorder = Samples(|| clock.now_ns(), Vec::with_capacity(1 << 20));
        let result = of_one_flow(&mut port, &timetable, &mut recorder);
        assert!(result.completed > 0 && result.late > (1 << 39));
    }

    /// Keeps the time of each sample.
    struct Ends(Clock, Vec<u64>);

    impl Recorder for Ends {
        fn now_ns(&self) -> u64 {
            self.0.now_ns()
        }

        fn sample(&mut self, _latency_ns: u64) {
            self.1.push(self.0.now_ns());
        }
    }

    #[test]
    fn no_operation_is_issued_before_it_is_due() {
        let (mut mock, stop) = (mock(7), AtomicBool::new(false));
        let mut port = silent_port(&mut mock, &stop);
        let clock = port.clock;
        let start_ns = clock.now_ns();
        let timetable = Timetable {
            start_ns,
            rate_per_s: 50.0,
            burst: 1,
            operations: 2,
            end_ns: start_ns + 40_000_000,
            give_up_ns: start_ns + 5_000_000_000,
        };
        let mut recorder = Ends(clock, Vec::new());
        of_one_flow(&mut port, &timetable, &mut recorder);
        let took_ns = clock.now_ns() - start_ns;
        assert!(took_ns >= 40_000_000, "{took_ns}");
        let ends = recorder.1;
        assert!(
            ends.len() == 2 && ends[1] >= start_ns + 20_000_000,
            "{ends:?}"
        );
    }

    /// All `operations` are due at once.
    fn all_due(clock: Clock, operations: u64) -> Timetable {
        let start_ns = clock.now_ns();
        Timetable {
            start_ns,
            rate_per_s: 1e12,
            burst: 1,
            operations,
            end_ns: 0,
            give_up_ns: u64::MAX,
        }
    }

    #[test]
    fn flows_take_turns_in_bounded_bursts() {
        let (mut mock, stop) = (mock(1000), AtomicBool::new(false));
        let mut port = silent_port(&mut mock, &stop);
        let timetable = all_due(port.clock, 99);
        let flows = &mut [flow(0, 1), flow(1, 2), flow(2, 3)];
        let mut scratch = Scratch::for_paced(3, 40);
        // A recorder without a clock doesn't keep the loop from ending.
        let silent = &mut super::super::recorder::Silent;
        let result = paced(&mut port, flows, &timetable, &mut scratch, silent).unwrap();
        assert_eq!(result.completed, 99);
        assert!(result.late <= 99, "{result:?}");
        assert!(flows.iter().all(|flow| flow.issued == 33));
        assert_eq!(mock.lock().most_handed, BURST);
    }

    #[test]
    fn latencies_go_from_the_due_time_to_the_completion() {
        let (mut mock, stop) = (mock(7), AtomicBool::new(false));
        let mut port = silent_port(&mut mock, &stop);
        let clock = port.clock;
        let timetable = all_due(clock, 20);
        // The recorder's clock is a second ahead.
        let mut recorder = Samples(|| clock.now_ns() + 1_000_000_000, Vec::new());
        of_one_flow(&mut port, &timetable, &mut recorder);
        let most_ns = recorder.now_ns() - timetable.start_ns;
        let latencies = recorder.1;
        assert_eq!(latencies.len(), 20);
        assert!(
            latencies
                .iter()
                .all(|latency| (1_000_000_000..=most_ns).contains(latency)),
            "{latencies:?}, at most {most_ns}"
        );
    }

    #[test]
    fn an_operation_never_issued_is_late_once() {
        let (mut mock, stop) = (mock(7), AtomicBool::new(false));
        let mut port = silent_port(&mut mock, &stop);
        let timetable = Timetable {
            give_up_ns: 0,
            ..all_due(port.clock, 1000)
        };
        let clock = port.clock;
        let mut recorder = Samples(|| clock.now_ns(), Vec::new());
        let result = of_one_flow(&mut port, &timetable, &mut recorder);
        assert!(result.completed > 0 && result.completed < 1000);
        assert!(
            (1000 - result.completed..=1000).contains(&result.late),
            "{result:?}"
        );
    }

    /// The part of a [`Case`] that stalls for a while.
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Still {
        /// The process: the loop doesn't run.
        Process,
        /// The process, inside a poll that then finds completions.
        Poll,
        /// The engine: nothing completes.
        Engine,
        /// One lane: none of its operations completes.
        Lane(u32),
        /// One lane: the engine accepts none of its operations.
        RefusedLane(u32),
    }

    /// A trial of 200 ms at 10,000 operations per second, in virtual time, so that the test's own speed doesn't matter.
    #[derive(Debug, Clone, Copy)]
    struct Case {
        still: Still,
        begin_ns: u64,
        stall_ns: u64,
        lanes: u32,
        depth: usize,
    }

    const RATE_PER_S: f64 = 10_000.0;
    const OPERATIONS: u64 = 2_000;
    const GIVE_UP_NS: u64 = 401_000_000;
    /// Virtual time per clock read. Completions follow within a few clock reads.
    const LOOK_NS: u64 = 2_000;
    /// Maximum virtual time for issuing the delayed operations: one after the other, two clock reads each.
    const DRAIN_NS: u64 = OPERATIONS * 2 * LOOK_NS;

    /// Results of a case.
    struct Driven {
        result: Punctuality,
        latencies: LatencyHistogram,
        /// Latencies of completed operations.
        samples: Vec<u64>,
        /// Maximum number of operations in flight per lane.
        most_in_flight: Vec<usize>,
    }

    /// Virtual time.
    #[derive(Clone, Default)]
    struct Time(Arc<AtomicU64>);

    impl Time {
        fn get(&self) -> u64 {
            self.0.load(Ordering::Relaxed)
        }

        fn set(&self, now_ns: u64) -> u64 {
            self.0.store(now_ns, Ordering::Relaxed);
            now_ns
        }
    }

    impl Case {
        fn new(still: Still, stall_ns: u64) -> Self {
            Self {
                still,
                begin_ns: 50_000_000,
                stall_ns,
                lanes: 1,
                depth: 16,
            }
        }

        fn end_ns(&self) -> u64 {
            self.begin_ns + self.stall_ns
        }

        fn is_still(&self, now_ns: u64) -> bool {
            (self.begin_ns..self.end_ns()).contains(&now_ns)
        }

        fn due_ns(index: u64) -> u64 {
            index * 100_000
        }

        /// Returns whether the stall delays an operation that is due during it.
        fn holds_up(&self, index: u64) -> bool {
            let lane = index % u64::from(self.lanes);
            match self.still {
                Still::Process | Still::Poll | Still::Engine => true,
                Still::Lane(still) | Still::RefusedLane(still) => lane == u64::from(still),
            }
        }

        /// Returns the expected latencies, sorted. Each affected operation that is due during the stall waits for the
        /// stall's end; all others take no time.
        fn latencies_ns(&self) -> Vec<u64> {
            let latency_ns =
                |index| match self.is_still(Self::due_ns(index)) && self.holds_up(index) {
                    true => self.end_ns() - Self::due_ns(index),
                    false => 0,
                };
            let mut all: Vec<u64> = (0..OPERATIONS).map(latency_ns).collect();
            all.sort_unstable();
            all
        }

        /// Runs the real loop.
        fn drive(self) -> Driven {
            let time = Time::default();
            let passing = time.clone();
            let clock = move || {
                let next_ns = passing.get() + LOOK_NS;
                match self.still == Still::Process && self.is_still(next_ns) {
                    true => passing.set(self.end_ns()),
                    false => passing.set(next_ns),
                }
            };
            let lanes = self.lanes as usize;
            let in_flight = Arc::new(Mutex::new(vec![(0usize, 0usize); lanes]));
            let mut mock = mock(1000);
            let (taken, flying) = (time.clone(), Arc::clone(&in_flight));
            mock.lock().takes = Some(Box::new(move |op| {
                let lane = op.lane.0;
                let takes = !(self.still == Still::RefusedLane(lane) && self.is_still(taken.get()));
                let (now, most) = &mut flying.lock().unwrap()[lane as usize];
                *now += usize::from(takes);
                *most = (*most).max(*now);
                takes
            }));
            let flying = Arc::clone(&in_flight);
            mock.lock().ends = Some(Box::new(move |op| {
                if self.still == Still::Poll && self.is_still(time.get()) {
                    time.set(self.end_ns());
                }
                let is_still = match self.still {
                    Still::Process | Still::Poll | Still::RefusedLane(_) => false,
                    Still::Engine => true,
                    Still::Lane(lane) => lane == op.lane.0,
                };
                let ends = !(is_still && self.is_still(time.get()));
                flying.lock().unwrap()[op.lane.0 as usize].0 -= usize::from(ends);
                ends.then_some(Ending::Done)
            }));
            let timetable = Timetable {
                start_ns: 0,
                rate_per_s: RATE_PER_S,
                burst: 1,
                operations: OPERATIONS,
                end_ns: 0,
                give_up_ns: GIVE_UP_NS,
            };
            let stop = AtomicBool::new(false);
            let mut flows: Vec<Flow> = (0..self.lanes).map(|lane| flow(lane, lane + 1)).collect();
            let mut scratch = Scratch::for_paced(lanes, self.depth);
            let mut recorder = Samples(&clock, Vec::new());
            let mut port = silent_port(&mut mock, &stop);
            let (ends, all) = ((&mut scratch, &mut recorder), &mut flows[..]);
            let result =
                run_paced_by_clock(&clock, &mut port, all, &timetable, ends.0, ends.1).unwrap();
            let samples = recorder.1;
            let mut latencies = LatencyHistogram::new();
            samples.iter().for_each(|&ns| latencies.record(ns));
            for waits in scratch.never_issued(lanes, &timetable, result.ended_ns) {
                latencies.record_unfinished(&waits);
            }
            let in_flight = in_flight.lock().unwrap();
            Driven {
                result,
                latencies,
                samples,
                most_in_flight: in_flight.iter().map(|(_, most)| *most).collect(),
            }
        }
    }

    const STALLS_NS: [u64; 6] = [
        100_000_000,
        300_000_000,
        340_000_000,
        400_000_000,
        1_200_000_000,
        3_000_000_000,
    ];

    fn near(found_ns: u64, model_ns: u64) -> bool {
        found_ns.abs_diff(model_ns) <= DRAIN_NS + model_ns / 500
    }

    #[test]
    fn percentiles_are_those_of_the_model_however_long_the_stall() {
        for still in [Still::Process, Still::Poll, Still::Engine] {
            for stall_ns in STALLS_NS {
                for depth in [1, 16] {
                    let case = Case {
                        depth,
                        ..Case::new(still, stall_ns)
                    };
                    let driven = case.drive();
                    let model = case.latencies_ns();
                    let latencies = &driven.latencies;
                    assert_eq!(latencies.count(), OPERATIONS, "{case:?}");
                    let quantile_ns = |part| latencies.quantile_ns(part).unwrap();
                    let at =
                        |part: f64| model[((OPERATIONS as f64 * part).ceil() as usize).max(1) - 1];
                    for (found_ns, model_ns) in [
                        (quantile_ns(0.5), at(0.5)),
                        (quantile_ns(0.9), at(0.9)),
                        (quantile_ns(0.99), at(0.99)),
                        (quantile_ns(0.999), at(0.999)),
                        (latencies.max_ns().unwrap(), at(1.0)),
                    ] {
                        assert!(
                            near(found_ns, model_ns),
                            "{case:?}: {found_ns}, not {model_ns}"
                        );
                    }
                    let mean_ns = model.iter().sum::<u64>() / OPERATIONS;
                    assert!(
                        near(latencies.mean_ns().unwrap() as u64, mean_ns),
                        "{case:?}: {latencies:?}"
                    );
                    // Latencies of operations that are never issued are lower bounds, and are marked as such.
                    let is_given_up = case.end_ns() > GIVE_UP_NS;
                    let unfinished = OPERATIONS - driven.result.completed;
                    assert_eq!(unfinished > 1000, is_given_up, "{case:?}: {unfinished}");
                    match latencies.lower_bounds() {
                        None => assert!(!is_given_up, "{case:?}"),
                        Some(bounds) => {
                            assert!(is_given_up && bounds.has_extremes(), "{case:?}");
                            assert_eq!(bounds.unfinished, unfinished, "{case:?}");
                            assert!(bounds.has_percentile(quantile_ns(0.99)), "{case:?}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_stall_has_its_time_and_length_and_shows_whether_the_loop_ran() {
        for still in [
            Still::Process,
            Still::Poll,
            Still::Engine,
            Still::Lane(1),
            Still::RefusedLane(1),
        ] {
            for stall_ns in [100_000_000, 400_000_000, 1_200_000_000] {
                let case = Case {
                    lanes: 3,
                    ..Case::new(still, stall_ns)
                };
                let stall = case.drive().result.stall();
                let stall = stall.unwrap_or_else(|| panic!("no stall: {case:?}"));
                assert!(near(stall.length_ns, stall_ns), "{case:?}: {stall:?}");
                assert!(near(stall.begin_ns, case.begin_ns), "{case:?}: {stall:?}");
                match still {
                    Still::Process | Still::Poll => {
                        assert!(near(stall.turn_ns, stall_ns), "{case:?}: {stall:?}");
                    }
                    Still::Engine => assert!(stall.turn_ns < DRAIN_NS, "{case:?}: {stall:?}"),
                    Still::Lane(lane) | Still::RefusedLane(lane) => {
                        assert_eq!(stall.flow, lane as usize, "{case:?}: {stall:?}");
                    }
                }
            }
        }
        assert_eq!(Case::new(Still::Engine, 0).drive().result.stall(), None);
    }

    #[test]
    fn a_stuck_lane_delays_no_other_and_keeps_to_its_window() {
        for still in [Still::Lane(1), Still::RefusedLane(1)] {
            for (stall_ns, depth) in [
                (100_000_000, 1),
                (100_000_000, 200),
                (300_000_000, 4),
                (1_200_000_000, 16),
            ] {
                let case = Case {
                    lanes: 3,
                    depth,
                    ..Case::new(still, stall_ns)
                };
                let driven = case.drive();
                assert_eq!(driven.latencies.count(), OPERATIONS, "{case:?}");
                assert!(
                    driven.most_in_flight.iter().all(|most| *most <= depth),
                    "{case:?}: {:?}",
                    driven.most_in_flight
                );
                let model = case.latencies_ns();
                let slow = |ns: &&u64| **ns > DRAIN_NS;
                let expected = model.iter().filter(slow).count();
                let unfinished = OPERATIONS - driven.result.completed;
                let found = driven.samples.iter().filter(slow).count() + unfinished as usize;
                let drained = (DRAIN_NS / Case::due_ns(3)) as usize + 1;
                assert!(
                    found.abs_diff(expected) <= drained,
                    "{case:?}: {found} operations are held up, not {expected}"
                );
                // All operations of the other lanes were issued in time.
                let others = OPERATIONS - OPERATIONS / 3;
                assert!(
                    driven.result.completed >= others,
                    "{case:?}: {:?}",
                    driven.result
                );
            }
        }
    }

    #[test]
    fn an_overload_is_not_a_stall_and_its_unissued_operations_are_marked() {
        let (now, mut next_ns) = (Time::default(), 0);
        let time = now.clone();
        let clock = || now.set(now.get() + LOOK_NS);
        let (mut mock, stop) = (mock(1000), AtomicBool::new(false));
        // One operation completes per millisecond; ten are due.
        mock.lock().ends = Some(Box::new(move |_| {
            let ends = time.get() >= next_ns;
            if ends {
                next_ns = time.get() + 1_000_000;
            }
            ends.then_some(Ending::Done)
        }));
        let timetable = Timetable {
            start_ns: 0,
            rate_per_s: RATE_PER_S,
            burst: 1,
            operations: OPERATIONS,
            end_ns: 0,
            give_up_ns: GIVE_UP_NS,
        };
        let (flows, mut scratch) = (&mut [flow(0, 1), flow(1, 2)], Scratch::for_paced(2, 4));
        let mut recorder = Samples(&clock, Vec::new());
        let mut port = silent_port(&mut mock, &stop);
        let ends = (&mut scratch, &mut recorder);
        let result =
            run_paced_by_clock(clock, &mut port, flows, &timetable, ends.0, ends.1).unwrap();
        assert_eq!(result.stall(), None, "{result:?}");
        assert!((300..500).contains(&result.completed), "{result:?}");
        let waits: Vec<_> = scratch
            .never_issued(2, &timetable, result.ended_ns)
            .collect();
        let never: u64 = waits.iter().map(|waits| waits.count).sum();
        assert_eq!(never, OPERATIONS - result.completed);
        // The last operation was due at the end of the timetable and has waited since then.
        let shortest_ns = waits.iter().map(|waits| waits.shortest_ns).min().unwrap();
        assert_eq!(shortest_ns, result.ended_ns - Case::due_ns(OPERATIONS - 1));
        assert_eq!(result.late, result.late.max(never));
    }

    /// A lane on which no operation ever ends is reported, even while other lanes make progress.
    #[test]
    fn a_lane_that_stays_stuck_ends_the_trial_and_is_named() {
        let (mut mock, stop) = (mock(1000), AtomicBool::new(false));
        mock.lock().ends = Some(ends_except_on(tonnage_engine::Lane(1)));
        let watch = StallWatch::new(10_000_000, 0, 2);
        let mut port = silent_port(&mut mock, &stop).with_watch(watch);
        let start_ns = port.clock.now_ns();
        let timetable = Timetable {
            start_ns,
            rate_per_s: 1e6,
            burst: 1,
            operations: 1 << 40,
            end_ns: 0,
            give_up_ns: u64::MAX,
        };
        let (flows, mut scratch) = (&mut [flow(0, 1), flow(1, 7)], Scratch::for_paced(2, 4));
        let clock = port.clock;
        let mut recorder = Samples(|| clock.now_ns(), Vec::with_capacity(1 << 20));
        let error = paced(&mut port, flows, &timetable, &mut scratch, &mut recorder);
        assert!(error.is_err());
        assert_eq!(port.stall().unwrap().peer, Some(7));
        assert!(scratch.waiting_flows().contains(&1));
    }

    #[test]
    fn a_burst_is_due_at_once_and_the_mean_rate_stays() {
        let timetable = Timetable {
            start_ns: 5,
            rate_per_s: 1e6,
            burst: 4,
            operations: 10,
            end_ns: 0,
            give_up_ns: u64::MAX,
        };
        let due: Vec<u64> = (0..10).map(|index| timetable.due_ns(index) - 5).collect();
        assert_eq!(due, [0, 0, 0, 0, 4000, 4000, 4000, 4000, 8000, 8000]);
        for (passed_ns, due) in [
            (0, 4),
            (3999, 4),
            (4000, 8),
            (7999, 8),
            (8000, 10),
            (80_000, 10),
        ] {
            assert_eq!(
                timetable.operations_due_by(5 + passed_ns),
                due,
                "{passed_ns}"
            );
        }
    }

    /// Bursts of 4 on `flows` flows, one operation per microsecond, in virtual time. Each clock read takes 100 ns, and
    /// clock read number `long_look` takes 50 µs more.
    fn bursts(flows: usize, long_look: Option<u64>) -> (Punctuality, Vec<u64>) {
        let (mut mock, stop) = (mock(1000), AtomicBool::new(false));
        let mut port = silent_port(&mut mock, &stop);
        let looks = AtomicU64::new(0);
        let late = AtomicU64::new(0);
        let clock = || {
            let look = looks.fetch_add(1, Ordering::Relaxed);
            if Some(look) == long_look {
                late.store(50_000, Ordering::Relaxed);
            }
            look * 100 + late.load(Ordering::Relaxed)
        };
        let timetable = Timetable {
            start_ns: 1000,
            rate_per_s: 1e6,
            burst: 4,
            operations: 400,
            end_ns: 401_000,
            give_up_ns: u64::MAX,
        };
        let mut each: Vec<Flow> = (0..flows as u32).map(|at| flow(at, at + 1)).collect();
        let mut scratch = Scratch::for_paced(flows, 8);
        let mut recorder = Samples(clock, Vec::new());
        let by = || recorder.0();
        let result = run_paced_by_clock(
            by,
            &mut port,
            &mut each,
            &timetable,
            &mut scratch,
            &mut Samples(clock, Vec::new()),
        );
        let issued = each.iter().map(|flow| flow.issued).collect();
        recorder.1.clear();
        (result.unwrap(), issued)
    }

    #[test]
    fn bursts_in_time_are_neither_late_nor_a_stall() {
        for flows in [1, 3] {
            let (result, issued) = bursts(flows, None);
            assert_eq!((result.completed, result.late), (400, 0), "{flows} flows");
            assert_eq!(result.stall(), None, "{result:?}");
            assert!(
                issued
                    .iter()
                    .all(|each| each.abs_diff(400 / flows as u64) <= 1),
                "{issued:?}"
            );
            assert!(result.ended_ns >= 401_000, "{result:?}");
        }
    }

    #[test]
    fn bursts_that_were_held_up_are_late() {
        let (result, _) = bursts(1, Some(1000));
        // 50 µs delay about 12 bursts of 4. All delayed bursts but the last are issued after the following burst was
        // due.
        assert!((30..=60).contains(&result.late), "{result:?}");
    }
}
