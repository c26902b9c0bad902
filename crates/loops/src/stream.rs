//! A true sliding window: the window is kept full, with a new operation for every completion.

use super::flow::Flow;
use super::flow_length::{FlowLength, FlowStep, UntilLoopEnds};
use super::port::Port;
use super::recorder::Recorder;
use super::until::Until;
use super::{BURST, Scratch};
use tonnage_engine::{Completion, Ending};
use tonnage_units::Result;

/// Number of loop iterations with new operations between two stall checks of the flows. With more flows than this, the
/// number of flows is used instead, because a check takes time per flow.
const LOOK_GRANTS: usize = 64;

/// Runs until `until` ends the loop and everything in flight has completed. Returns the number of completed operations.
///
/// The window is per flow: a completed operation is replaced by an operation of the same flow, and the flows alternate.
/// One clock read is both the end of completed operations and the start of the next ones. If the engine does not accept
/// an operation at once, the wait is part of its latency.
pub fn run_stream<R: Recorder>(
    port: &mut Port,
    flows: &mut [Flow],
    scratch: &mut Scratch,
    until: &mut Until,
    recorder: &mut R,
) -> Result<u64> {
    run_stream_of_length(port, flows, scratch, until, recorder, &mut UntilLoopEnds)
}

/// Like [`run_stream`], for flows that may end on their own. The loop also ends when all flows have ended.
pub fn run_stream_of_length<R: Recorder, L: FlowLength>(
    port: &mut Port,
    flows: &mut [Flow],
    scratch: &mut Scratch,
    until: &mut Until,
    recorder: &mut R,
    length: &mut L,
) -> Result<u64> {
    length.begin(scratch, flows.len());
    let Scratch {
        ready,
        posted_ns,
        flow_of_tag,
        retired,
        staged,
        ..
    } = scratch;
    let mut done = [Completion::EMPTY; BURST];
    let (mut taken, mut in_flight, mut completed) = (0, 0, 0);
    let (mut grants, looks) = (0, LOOK_GRANTS.max(flows.len()));
    let mut now_ns = recorder.now_ns();
    loop {
        if taken == staged.len() {
            staged.clear();
            taken = 0;
            let granted = until.grant(ready.len().min(BURST));
            if granted == 0 && in_flight == 0 && length.is_closed() {
                return Ok(completed);
            }
            for tag in ready.drain(..granted) {
                posted_ns[tag as usize] = now_ns;
                staged.push(flows[flow_of_tag[tag as usize] as usize].next_op(tag));
            }
            in_flight += granted;
            grants += usize::from(granted > 0);
            if grants == looks {
                grants = 0;
                port.check_stalled_flows(flows, |index| length.progress(index, flows))?;
            }
        }
        if taken < staged.len() {
            taken += port.post(&staged[taken..])?;
        }
        let count = port.poll(&mut done)?;
        if count > 0 {
            now_ns = recorder.now_ns();
        }
        for completion in &done[..count] {
            if completion.ending == Ending::Done {
                in_flight -= 1;
                let ended = length.ended(flow_of_tag, completion.tag);
                if ended == FlowStep::Flushed {
                    retired.push(completion.tag);
                    continue;
                }
                recorder.sample(now_ns.saturating_sub(posted_ns[completion.tag as usize]));
                completed += 1;
                match ended {
                    FlowStep::Next => ready.push_back(completion.tag),
                    FlowStep::Retired => retired.push(completion.tag),
                    FlowStep::Last | FlowStep::Flushed => {}
                }
            }
        }
        if count > 0 {
            recorder.progress(completed);
        }
        in_flight += length.close_finished_flows(port, flows, (flow_of_tag, retired))?;
    }
}

#[cfg(test)]
mod tests {
    use super::super::recorder::Silent;
    use super::super::stall::StallWatch;
    use super::*;
    use crate::testing::{Counter, flow, mock, silent_port};
    use std::sync::atomic::AtomicBool;
    use tonnage_engine::Lane;
    use tonnage_engine::testing::{ends_except_on, failing_after, stalling_after};
    use tonnage_sys::clock::Clock;

    #[test]
    fn the_exact_number_of_operations_runs_within_the_window() {
        for (depth, operations) in [(1, 1000), (4, 1000), (64, 5000), (100, 99)] {
            let (mut mock, stop) = (mock(200), AtomicBool::new(false));
            let mut flows = [flow(0, 1), flow(1, 2)];
            let mut scratch = Scratch::new(2, depth);
            let mut until = Until::operations(operations);
            let mut port = silent_port(&mut mock, &stop);
            let completed =
                run_stream(&mut port, &mut flows, &mut scratch, &mut until, &mut Silent).unwrap();
            assert_eq!(completed, operations);
            let told = port.take_most_in_flight();
            assert_eq!(told, mock.lock().most_in_flight as u64);
            assert_eq!(mock.lock().posted, operations);
            // Flows alternate with any window, so that no flow starves.
            let [one, other] = [&flows[0], &flows[1]].map(|flow| flow.issued);
            assert!(one.abs_diff(other) <= depth as u64, "{one} and {other}");
            let most = mock.lock().most_in_flight;
            assert!(
                most <= 2 * depth && (operations < 1000 || most == 2 * depth),
                "{most} of {depth}"
            );
        }
    }

    #[test]
    fn the_clock_is_read_once_for_simultaneous_completions() {
        let (mut mock, stop) = (mock(200), AtomicBool::new(false));
        // Empty polls must not read the clock.
        mock.lock().ends = Some(stalling_after(5, 1_000_000));
        let mut recorder = Counter::default();
        let completed = run_stream(
            &mut silent_port(&mut mock, &stop),
            &mut [flow(0, 1)],
            &mut Scratch::new(1, 1),
            &mut Until::operations(10),
            &mut recorder,
        );
        assert_eq!(completed.unwrap(), 10);
        assert_eq!(recorder.samples, [1; 10]);
        assert_eq!(recorder.readings.get(), 11);
    }

    /// Nothing completes for 200 ms, but the patience is only 50 ms. The stream must not count as stalled, because the
    /// time allowed for first operations covers the other 150 ms.
    #[test]
    fn operations_in_flight_at_the_end_get_their_time() {
        let (mut mock, stop) = (mock(64), AtomicBool::new(false));
        mock.lock().ends = Some(stalling_after(0, 200_000_000));
        let watch = StallWatch::new(50_000_000, 1 << 20, 1);
        let mut port = silent_port(&mut mock, &stop).with_watch(watch);
        let mut until = Until::operations(8);
        let (mut flows, mut scratch) = ([flow(0, 1)], Scratch::new(1, 8));
        let completed = run_stream(&mut port, &mut flows, &mut scratch, &mut until, &mut Silent);
        assert_eq!(completed.unwrap(), 8);
    }

    /// Keeps the progress reports of the loop.
    #[derive(Default)]
    struct ProgressLog(Vec<u64>);

    impl Recorder for ProgressLog {
        fn now_ns(&self) -> u64 {
            0
        }

        fn sample(&mut self, _: u64) {}

        fn progress(&mut self, completed: u64) {
            self.0.push(completed);
        }
    }

    #[test]
    fn progress_is_reported_only_after_completions() {
        let (mut mock, stop) = (mock(200), AtomicBool::new(false));
        let (mut flows, mut scratch) = ([flow(0, 1), flow(1, 2)], Scratch::new(2, 4));
        let (mut until, mut told) = (Until::operations(1000), ProgressLog::default());
        let mut port = silent_port(&mut mock, &stop);
        run_stream(&mut port, &mut flows, &mut scratch, &mut until, &mut told).unwrap();
        assert!(told.0.is_sorted_by(|one, next| one < next), "{:?}", told.0);
        assert!(told.0.len() > 1 && told.0.last() == Some(&1000));
    }

    /// Each flow must be checked separately, because a worker with other active flows is never quiet as a whole.
    #[test]
    fn a_stalled_flow_among_others_ends_the_loop() {
        let (mut mock, stop) = (mock(200), AtomicBool::new(false));
        mock.lock().ends = Some(ends_except_on(Lane(1)));
        // The watch finds a stall only if checks are at most half of this patience apart. On two busy CPUs they may be
        // 25 ms apart or more.
        let watch = StallWatch::new(200_000_000, 0, 2);
        let mut port = silent_port(&mut mock, &stop).with_watch(watch);
        let (mut flows, mut scratch) = ([flow(0, 1), flow(1, 2)], Scratch::new(2, 4));
        // Far longer than detection takes. A loop that finds the stall only at the end would not name the peer.
        let clock = Clock::new();
        let mut until = Until::time(clock, clock.now_ns() + 20_000_000_000);
        let result = run_stream(&mut port, &mut flows, &mut scratch, &mut until, &mut Silent);
        assert!(result.is_err(), "{result:?}");
        assert_eq!(port.stall().and_then(|stall| stall.peer), Some(2));
    }

    #[test]
    fn a_stopped_run_ends_a_loop_even_if_nothing_completes() {
        let (mut mock, stop) = (mock(7), AtomicBool::new(true));
        mock.lock().ends = None;
        let mut until = Until::operations(10);
        let result = run_stream(
            &mut silent_port(&mut mock, &stop),
            &mut [flow(0, 1)],
            &mut Scratch::new(1, 4),
            &mut until,
            &mut Silent,
        );
        assert!(result.is_err());
    }

    #[test]
    fn a_failed_operation_ends_the_loop_with_its_code() {
        let (mut mock, stop) = (mock(7), AtomicBool::new(false));
        mock.lock().ends = Some(failing_after(5, 77));
        let mut until = Until::operations(10);
        let error = run_stream(
            &mut silent_port(&mut mock, &stop),
            &mut [flow(0, 1)],
            &mut Scratch::new(1, 4),
            &mut until,
            &mut Silent,
        );
        assert!(error.unwrap_err().to_string().contains("(77)"));
    }
}
