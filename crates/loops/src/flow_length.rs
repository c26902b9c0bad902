//! Length of a stream's flows: endless, or a fixed number of operations per flow.

use tonnage_sys::clock::Clock;

use super::Scratch;
use super::flow::Flow;
use super::port::Port;
use tonnage_engine::Flush;
use tonnage_units::Result;

/// Consequence of a completion for its flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlowStep {
    /// Another operation of the flow replaces the completed one.
    Next,
    /// No operation replaces the completed one.
    Retired,
    /// The flow's last operation has completed; [`FlowLength::close_finished_flows`] closes the flow
    /// using this operation's tag.
    Last,
    /// The completion belongs to the flush that closes the flow, not to an operation.
    Flushed,
}

/// Decides how many operations each flow of a stream issues. The methods run inside the loop, so they must not allocate
/// or take a lock.
pub trait FlowLength {
    /// Assigns the initial tags to flows.
    fn begin(&mut self, scratch: &mut Scratch, flows: usize);

    /// Notes that the operation, or the flush, with this tag has completed.
    fn ended(&mut self, flow_of_tag: &[u32], tag: u32) -> FlowStep;

    /// Closes flows with a completed last operation, and returns the number of flushes posted. `tags` contains the flow
    /// of each tag and the list of retired tags. This method may add to that list.
    fn close_finished_flows(
        &mut self,
        port: &mut Port<'_>,
        flows: &[Flow],
        tags: (&[u32], &mut Vec<u32>),
    ) -> Result<usize>;

    /// Returns a count that grows while a flow makes progress; `None` once the flow is complete.
    fn progress(&self, flow: usize, flows: &[Flow]) -> Option<u64>;

    /// Returns whether no flow is waiting to be closed.
    fn is_closed(&self) -> bool;
}

/// Flows that go on until the loop ends.
#[derive(Debug, Clone, Copy)]
pub struct UntilLoopEnds;

impl FlowLength for UntilLoopEnds {
    fn begin(&mut self, scratch: &mut Scratch, _flows: usize) {
        scratch.reset();
    }

    #[inline]
    fn ended(&mut self, _: &[u32], _: u32) -> FlowStep {
        FlowStep::Next
    }

    #[inline]
    fn close_finished_flows(
        &mut self,
        _: &mut Port<'_>,
        _: &[Flow],
        _: (&[u32], &mut Vec<u32>),
    ) -> Result<usize> {
        Ok(0)
    }

    fn progress(&self, flow: usize, flows: &[Flow]) -> Option<u64> {
        flows.get(flow).map(|flow| flow.issued)
    }

    #[inline]
    fn is_closed(&self) -> bool {
        true
    }
}

/// Flows with a fixed number of operations each. A finished flow is closed while other flows continue, so that each
/// flow has its own end time. This costs one clock read per flow.
#[derive(Debug)]
pub struct FlowLoads {
    flows: Vec<FlowLoad>,
    /// Tags of the last operations of flows that wait to be closed.
    closing: Vec<u32>,
    /// True if completions alone don't prove that the bytes have arrived.
    flushes: bool,
    clock: Clock,
}

/// Operation counts of one flow, and its end time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowLoad {
    /// Total number of operations.
    pub operations: u64,
    /// Operations that have not been assigned to a tag.
    unissued: u64,
    /// Operations that have not completed.
    open: u64,
    is_closing: bool,
    /// Time when the last operation had completed, in nanoseconds on the worker's clock; 0 until then. If completion
    /// doesn't prove arrival, it is the time when the closing flush had completed.
    pub ended_ns: u64,
}

impl FlowLoads {
    /// Creates loads for at most `flows` flows. With `flushes`, each flow is closed by a flush.
    pub fn new(flows: usize, flushes: bool, clock: Clock) -> Self {
        Self {
            flows: Vec::with_capacity(flows),
            closing: Vec::with_capacity(flows),
            flushes,
            clock,
        }
    }

    /// Sets the number of operations of each flow for the next trial. Allocates nothing if there are no more flows than
    /// [`Self::new`] made room for.
    pub fn set(&mut self, clock: Clock, operations: impl Iterator<Item = u64>) {
        self.clock = clock;
        self.closing.clear();
        self.flows.clear();
        self.flows.extend(operations.map(|operations| FlowLoad {
            operations,
            unissued: operations,
            open: operations,
            is_closing: false,
            ended_ns: 0,
        }));
    }

    /// Total operations of all flows.
    pub fn operations(&self) -> u64 {
        let all = self.flows.iter().map(|flow| flow.operations);
        all.fold(0, u64::saturating_add)
    }

    /// Returns the flows, in order.
    pub fn flows(&self) -> &[FlowLoad] {
        &self.flows
    }
}

impl FlowLength for FlowLoads {
    fn begin(&mut self, scratch: &mut Scratch, flows: usize) {
        scratch.share_out(flows, |flow| {
            let load = &mut self.flows[flow];
            let takes = load.unissued > 0;
            load.unissued -= u64::from(takes);
            takes
        });
    }

    #[inline]
    fn ended(&mut self, flow_of_tag: &[u32], tag: u32) -> FlowStep {
        let load = &mut self.flows[flow_of_tag[tag as usize] as usize];
        if load.is_closing {
            load.ended_ns = self.clock.now_ns();
            return FlowStep::Flushed;
        }
        load.open -= 1;
        if load.unissued > 0 {
            load.unissued -= 1;
            return FlowStep::Next;
        }
        if load.open > 0 {
            return FlowStep::Retired;
        }
        if self.flushes {
            self.closing.push(tag);
            return FlowStep::Last;
        }
        load.ended_ns = self.clock.now_ns();
        FlowStep::Retired
    }

    #[inline]
    fn close_finished_flows(
        &mut self,
        port: &mut Port<'_>,
        flows: &[Flow],
        (flow_of_tag, retired): (&[u32], &mut Vec<u32>),
    ) -> Result<usize> {
        let (mut at, mut posted) = (0, 0);
        while let Some(&tag) = self.closing.get(at) {
            let index = flow_of_tag[tag as usize] as usize;
            let load = &mut self.flows[index];
            match port.begin_flush(&flows[index], tag)? {
                // The engine has no room; try again after the next poll.
                Flush::Again => {
                    at += 1;
                    continue;
                }
                Flush::Posted => {
                    load.is_closing = true;
                    posted += 1;
                }
                Flush::Delivered => {
                    load.ended_ns = self.clock.now_ns();
                    retired.push(tag);
                }
            }
            self.closing.swap_remove(at);
        }
        Ok(posted)
    }

    fn progress(&self, flow: usize, _: &[Flow]) -> Option<u64> {
        let load = self.flows.get(flow).filter(|load| load.open > 0)?;
        Some(load.operations - load.open)
    }

    #[inline]
    fn is_closed(&self) -> bool {
        self.closing.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::super::recorder::{Recorder, Silent};
    use super::super::stall::StallWatch;
    use super::super::stream::run_stream_of_length;
    use super::super::until::Until;
    use super::*;
    use crate::testing::{Counter, flow, mock, silent_port};
    use tonnage_engine::testing::stalling_after;

    fn loads(operations: &[u64], flushes: bool) -> FlowLoads {
        let mut loads = FlowLoads::new(operations.len(), flushes, Clock::new());
        loads.set(Clock::new(), operations.iter().copied());
        loads
    }

    /// Streams all operations of the loads.
    fn stream_all(
        port: &mut Port,
        flows: &mut [Flow],
        scratch: &mut Scratch,
        recorder: &mut impl Recorder,
        loads: &mut FlowLoads,
    ) -> Result<u64> {
        let mut until = Until::operations(loads.operations());
        run_stream_of_length(port, flows, scratch, &mut until, recorder, loads)
    }

    #[test]
    fn each_flow_has_its_operations_and_a_time_when_they_have_arrived() {
        for (depth, flushes) in [(1, true), (4, true), (64, true), (4, false)] {
            let (mut mock, stop) = (mock(200), AtomicBool::new(false));
            let mut flows = [flow(0, 1), flow(1, 2), flow(2, 3)];
            let mut scratch = Scratch::new(3, depth);
            let (mut loads, mut recorder) = (loads(&[1000, 10, 0], flushes), Counter::default());
            let port = &mut silent_port(&mut mock, &stop);
            let completed = stream_all(port, &mut flows, &mut scratch, &mut recorder, &mut loads);
            assert_eq!(completed.unwrap(), 1010);
            let issued: Vec<_> = flows.iter().map(|flow| flow.issued).collect();
            assert_eq!(issued, [1000, 10, 0]);
            // A flush is not counted as an operation, and is retried if it was rejected at first.
            assert_eq!(recorder.samples.len(), 1010);
            assert_eq!(mock.lock().flushes, if flushes { 3 } else { 0 });
            let ended: Vec<_> = loads.flows().iter().map(|flow| flow.ended_ns).collect();
            assert!(ended[0] > ended[1] && ended[1] > 0, "{ended:?}");
            assert_eq!(ended[2], 0);
            assert!(scratch.waiting_flows().is_empty());
        }
    }

    /// The progress of an endless flow is its number of issued operations. The stall watch has no other sign of
    /// progress.
    #[test]
    fn an_endless_flow_makes_progress_with_each_operation() {
        let mut flows = [flow(0, 1), flow(1, 2)];
        for issued in 0..3 {
            assert_eq!(UntilLoopEnds.progress(0, &flows), Some(issued));
            flows[0].next_op(0);
        }
        assert_eq!(UntilLoopEnds.progress(1, &flows), Some(0));
        assert_eq!(UntilLoopEnds.progress(2, &flows), None);
    }

    /// Drives the loads without a loop: two operations of the first flow and one of the second are in flight.
    #[test]
    fn a_flow_makes_progress_until_it_is_closed_once() {
        let (mut mock, stop) = (mock(200), AtomicBool::new(false));
        let mut port = silent_port(&mut mock, &stop);
        let flows = [flow(0, 1), flow(1, 2)];
        let mut loads = loads(&[3, 1], true);
        loads.begin(&mut Scratch::new(2, 2), 2);
        let (tags, mut retired) = ([0, 0, 1], Vec::new());
        let progress = |loads: &FlowLoads| [0, 1].map(|index| loads.progress(index, &flows));
        assert_eq!(progress(&loads), [Some(0), Some(0)]);
        assert_eq!(loads.ended(&tags, 2), FlowStep::Last);
        assert_eq!(progress(&loads), [Some(0), None]);
        assert!(!loads.is_closed());
        // The mock rejects the first flush.
        let mut close = |loads: &mut FlowLoads| {
            let posted = loads.close_finished_flows(&mut port, &flows, (&tags, &mut retired));
            (posted.unwrap(), loads.is_closed())
        };
        assert_eq!(close(&mut loads), (0, false));
        assert_eq!(close(&mut loads), (1, true));
        assert_eq!(close(&mut loads), (0, true));
        assert_eq!(loads.flows()[1].ended_ns, 0);
        assert_eq!(loads.ended(&tags, 2), FlowStep::Flushed);
        assert!(loads.flows()[1].ended_ns > 0);
        assert_eq!(loads.ended(&tags, 0), FlowStep::Next);
        assert_eq!(loads.ended(&tags, 1), FlowStep::Retired);
        assert_eq!(progress(&loads), [Some(2), None]);
        assert_eq!(loads.ended(&tags, 0), FlowStep::Last);
        assert_eq!(close(&mut loads), (1, true));
    }

    #[test]
    fn few_flows_have_their_own_windows_and_no_more() {
        let (mut mock, stop) = (mock(200), AtomicBool::new(false));
        let mut scratch = Scratch::new(3, 4);
        let mut each = |flows: &mut [Flow], operations: &[u64]| {
            let (mut loads, mut until) = (loads(operations, true), Until::operations(u64::MAX));
            let mut port = silent_port(&mut mock, &stop);
            let (scratch, recorder) = (&mut scratch, &mut Silent);
            let completed =
                run_stream_of_length(&mut port, flows, scratch, &mut until, recorder, &mut loads);
            (completed.unwrap(), port.take_most_in_flight())
        };
        assert_eq!(each(&mut [flow(0, 1)], &[100]), (100, 4));
        let (completed, most) = each(&mut [flow(0, 1), flow(1, 2)], &[100, 3]);
        assert!(completed == 103 && most <= 8, "{completed} {most}");
        assert_eq!(each(&mut [], &[]), (0, 0));
        assert_eq!(each(&mut [flow(0, 1)], &[0]), (0, 0));
    }

    #[test]
    fn endless_flows_end_with_the_trial() {
        let (mut mock, stop) = (mock(200), AtomicBool::new(false));
        let mut flows = [flow(0, 1), flow(1, 2)];
        let (mut scratch, mut loads) = (Scratch::new(2, 4), loads(&[u64::MAX, 0], true));
        let clock = Clock::new();
        let mut until = Until::time(clock, clock.now_ns() + 1_000_000);
        let mut port = silent_port(&mut mock, &stop);
        let (flows, scratch, loads) = (&mut flows, &mut scratch, &mut loads);
        let completed =
            run_stream_of_length(&mut port, flows, scratch, &mut until, &mut Silent, loads);
        assert_eq!(completed.unwrap(), flows[0].issued);
        assert_eq!((flows[1].issued, mock.lock().flushes), (0, 0));
    }

    #[test]
    fn in_a_stall_only_unfinished_flows_are_waiting() {
        let (mut mock, stop) = (mock(200), AtomicBool::new(false));
        // The second flow is complete when the first one's last operations get stuck for 30 s. That is longer than the
        // watch needs to be sure, even on a machine that rarely runs this thread.
        mock.lock().ends = Some(stalling_after(500, 30_000_000_000));
        let watch = StallWatch::new(200_000_000, 1, 2);
        let mut port = silent_port(&mut mock, &stop).with_watch(watch);
        let mut flows = [flow(0, 1), flow(1, 2)];
        let (mut scratch, mut loads) = (Scratch::new(2, 4), loads(&[1000, 10], false));
        let (flows, loads) = (&mut flows, &mut loads);
        let result = stream_all(&mut port, flows, &mut scratch, &mut Silent, loads);
        assert!(result.is_err(), "{result:?}");
        assert_eq!(scratch.waiting_flows(), [0]);
    }

    /// A flow that has completed while another goes on must not be mistaken for a cut path.
    #[test]
    fn a_flow_that_has_ended_has_not_stalled() {
        for flushes in [true, false] {
            let (mut mock, stop) = (mock(200), AtomicBool::new(false));
            let mut flows = [flow(0, 1), flow(1, 2), flow(2, 3)];
            let mut loads = loads(&[300_000, 10, 0], flushes);
            let watch = StallWatch::new(1_000_000, 0, 3);
            let mut port = silent_port(&mut mock, &stop).with_watch(watch);
            let (flows, scratch) = (&mut flows, &mut Scratch::new(3, 8));
            let completed = stream_all(&mut port, flows, scratch, &mut Silent, &mut loads);
            assert_eq!(completed.unwrap(), 300_010);
        }
    }
}
