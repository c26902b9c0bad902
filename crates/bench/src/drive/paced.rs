//! Open loop: operations are due at fixed times, and each latency counts from the time the operation was due. A stall
//! therefore shows in every operation that it delayed, and is not hidden by a loop that politely waits (coordinated
//! omission).

use super::flow::Flow;
use super::port::Port;
use super::recorder::Recorder;
use super::{BURST, Scratch};
use tonnage_engine::{Completion, Ending};
use tonnage_units::Result;

/// The timetable of one worker.
#[derive(Debug, Clone, Copy)]
pub struct Timetable {
    /// Time at which the first operation is due.
    pub start_ns: u64,
    /// Operations per second of this worker.
    pub rate_per_s: f64,
    /// Operations that are due in the trial.
    pub operations: u64,
    /// No operation is issued after this, however far behind the loop is.
    pub give_up_ns: u64,
}

impl Timetable {
    #[inline]
    fn due_ns(&self, index: u64) -> u64 {
        self.start_ns + (index as f64 * 1e9 / self.rate_per_s) as u64
    }
}

/// Punctuality of the operations of a timetable.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Punctuality {
    /// Operations that completed.
    pub completed: u64,
    /// Operations that were issued after the following one was due, or never.
    pub late: u64,
}

/// Issues the operations of a timetable, the flows taking turns, with at most the scratch's tags in flight. It ends no
/// sooner than one more operation would be due, so that the reached rate cannot come out above the offered one.
///
/// # Errors
/// When the engine fails or the run is stopped.
pub fn paced<R: Recorder>(
    port: &mut Port,
    flows: &mut [Flow],
    timetable: &Timetable,
    scratch: &mut Scratch,
    recorder: &mut R,
) -> Result<Punctuality> {
    scratch.reset();
    let Scratch {
        ready,
        posted_ns,
        staged,
        ..
    } = scratch;
    let mut done = [Completion::EMPTY; BURST];
    let mut result = Punctuality::default();
    let (mut taken, mut issued, mut in_flight, mut turn) = (0, 0, 0u64, 0);
    let end_ns = timetable.due_ns(timetable.operations);
    loop {
        let now_ns = port.clock.now_ns();
        // Even a loop that the system kept from beginning issues one operation: a trial of none would measure nothing.
        let given_up = now_ns > timetable.give_up_ns && issued > 0;
        if taken == staged.len() {
            staged.clear();
            taken = 0;
            while issued < timetable.operations && staged.len() < BURST {
                let due_ns = timetable.due_ns(issued);
                if due_ns > now_ns || given_up {
                    break;
                }
                let Some(tag) = ready.pop_front() else { break };
                posted_ns[tag as usize] = due_ns;
                staged.push(flows[turn].next_op(tag));
                turn = if turn + 1 == flows.len() { 0 } else { turn + 1 };
                issued += 1;
                result.late += u64::from(now_ns > timetable.due_ns(issued));
            }
            in_flight += staged.len() as u64;
        }
        if taken < staged.len() {
            taken += port.post(&staged[taken..])?;
        }
        let count = port.poll(&mut done)?;
        let now_ns = if count > 0 { recorder.now_ns() } else { now_ns };
        for completion in &done[..count] {
            if completion.ending == Ending::Done {
                recorder.sample(now_ns.saturating_sub(posted_ns[completion.tag as usize]));
                ready.push_back(completion.tag);
                in_flight -= 1;
                result.completed += 1;
            }
        }
        if count > 0 {
            recorder.progress(result.completed);
        }
        let finished = issued == timetable.operations && now_ns >= end_ns;
        if in_flight == 0 && (finished || given_up) {
            result.late += timetable.operations - issued;
            return Ok(result);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::mock::{Mock, flow, silent_port};
    use super::*;
    use std::sync::atomic::AtomicBool;
    use tonnage_sys::clock::Clock;

    struct Samples(Clock, Vec<u64>);

    impl Recorder for Samples {
        fn now_ns(&self) -> u64 {
            self.0.now_ns()
        }

        fn sample(&mut self, latency_ns: u64) {
            self.1.push(latency_ns);
        }
    }

    #[test]
    fn a_stall_shows_in_every_operation_that_it_delayed() {
        let (mut mock, stop) = (Mock::new(7), AtomicBool::new(false));
        mock.stall_ns = Some((50, 20_000_000));
        let clock = Clock::new();
        let start_ns = clock.now_ns();
        let timetable = Timetable {
            start_ns,
            rate_per_s: 10_000.0,
            operations: 300,
            give_up_ns: start_ns + 5_000_000_000,
        };
        let mut recorder = Samples(clock, Vec::new());
        let result = paced(
            &mut silent_port(&mut mock, &stop),
            &mut [flow(0, 1)],
            &timetable,
            &mut Scratch::new(1, 4),
            &mut recorder,
        )
        .unwrap();
        assert_eq!(result.completed, 300);
        // 20 ms at 10,000 per second hold up some 200 operations, each by what was left of the stall.
        let delayed = recorder
            .1
            .iter()
            .filter(|&&latency| latency > 1_000_000)
            .count();
        assert!(delayed > 150, "{delayed} of 300 operations show the stall");
        assert!(result.late > 150, "{} late", result.late);
    }

    #[test]
    fn a_trial_lasts_as_long_as_its_timetable_and_does_something_even_when_it_comes_late() {
        let (mut mock, stop) = (Mock::new(7), AtomicBool::new(false));
        let mut port = silent_port(&mut mock, &stop);
        let clock = port.clock;
        for (late_ns, operations) in [(0, 10), (50_000_000, 10)] {
            let start_ns = clock.now_ns() - late_ns;
            let timetable = Timetable {
                start_ns,
                rate_per_s: 1000.0,
                operations,
                give_up_ns: start_ns + 20_000_000,
            };
            let mut recorder = Samples(clock, Vec::new());
            let mut scratch = Scratch::new(1, 4);
            let mut flows = [flow(0, 1)];
            let result = paced(
                &mut port,
                &mut flows,
                &timetable,
                &mut scratch,
                &mut recorder,
            )
            .unwrap();
            let took_ns = clock.now_ns() - start_ns;
            assert!(result.completed > 0, "{result:?}");
            assert!(took_ns >= 10_000_000, "{took_ns}");
        }
    }

    #[test]
    fn an_impossible_rate_is_given_up_and_counted_as_late() {
        let (mut mock, stop) = (Mock::new(7), AtomicBool::new(false));
        let mut port = silent_port(&mut mock, &stop);
        let clock = port.clock;
        let start_ns = clock.now_ns();
        let timetable = Timetable {
            start_ns,
            rate_per_s: 1e12,
            operations: 1 << 40,
            give_up_ns: start_ns + 5_000_000,
        };
        let mut recorder = Samples(clock, Vec::with_capacity(1 << 20));
        let result = paced(
            &mut port,
            &mut [flow(0, 1)],
            &timetable,
            &mut Scratch::new(1, 4),
            &mut recorder,
        )
        .unwrap();
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
    fn no_operation_is_issued_before_it_is_due_and_the_last_one_has_its_time_too() {
        let (mut mock, stop) = (Mock::new(7), AtomicBool::new(false));
        let mut port = silent_port(&mut mock, &stop);
        let clock = port.clock;
        let start_ns = clock.now_ns();
        let timetable = Timetable {
            start_ns,
            rate_per_s: 50.0,
            operations: 2,
            give_up_ns: start_ns + 5_000_000_000,
        };
        let mut recorder = Ends(clock, Vec::new());
        let mut scratch = Scratch::new(1, 4);
        let flows = &mut [flow(0, 1)];
        paced(&mut port, flows, &timetable, &mut scratch, &mut recorder).unwrap();
        let took_ns = clock.now_ns() - start_ns;
        assert!(took_ns >= 40_000_000, "{took_ns}");
        let ends = recorder.1;
        assert!(
            ends.len() == 2 && ends[1] >= start_ns + 20_000_000,
            "{ends:?}"
        );
    }

    /// Everything of `operations` is due at once.
    fn all_due(clock: Clock, operations: u64) -> Timetable {
        let start_ns = clock.now_ns();
        Timetable {
            start_ns,
            rate_per_s: 1e12,
            operations,
            give_up_ns: u64::MAX,
        }
    }

    #[test]
    fn flows_take_turns_in_bursts_that_have_a_bound() {
        let (mut mock, stop) = (Mock::new(1000), AtomicBool::new(false));
        let mut port = silent_port(&mut mock, &stop);
        let timetable = all_due(port.clock, 99);
        let flows = &mut [flow(0, 1), flow(1, 2), flow(2, 3)];
        let mut scratch = Scratch::new(3, 40);
        // A recorder without a clock does not keep the loop from its end.
        let result = paced(
            &mut port,
            flows,
            &timetable,
            &mut scratch,
            &mut super::super::recorder::Silent,
        )
        .unwrap();
        assert_eq!(result.completed, 99);
        assert!(result.late <= 99, "{result:?}");
        assert!(flows.iter().all(|flow| flow.issued == 33));
        assert_eq!(mock.most_handed, BURST);
    }

    /// Reads the clock a second late.
    struct SecondLate(Samples);

    impl Recorder for SecondLate {
        fn now_ns(&self) -> u64 {
            self.0.now_ns() + 1_000_000_000
        }

        fn sample(&mut self, latency_ns: u64) {
            self.0.sample(latency_ns);
        }
    }

    #[test]
    fn latencies_go_from_the_due_time_to_the_completion() {
        let (mut mock, stop) = (Mock::new(7), AtomicBool::new(false));
        let mut port = silent_port(&mut mock, &stop);
        let clock = port.clock;
        let timetable = all_due(clock, 20);
        let mut recorder = SecondLate(Samples(clock, Vec::new()));
        let mut scratch = Scratch::new(1, 4);
        let flows = &mut [flow(0, 1)];
        paced(&mut port, flows, &timetable, &mut scratch, &mut recorder).unwrap();
        let most_ns = recorder.now_ns() - timetable.start_ns;
        let latencies = recorder.0.1;
        assert_eq!(latencies.len(), 20);
        assert!(
            latencies
                .iter()
                .all(|latency| (1_000_000_000..=most_ns).contains(latency)),
            "{latencies:?}, at most {most_ns}"
        );
    }

    #[test]
    fn what_is_never_issued_is_late_once() {
        let (mut mock, stop) = (Mock::new(7), AtomicBool::new(false));
        let mut port = silent_port(&mut mock, &stop);
        let timetable = Timetable {
            give_up_ns: 0,
            ..all_due(port.clock, 1000)
        };
        let flows = &mut [flow(0, 1)];
        let mut recorder = Samples(port.clock, Vec::new());
        let mut scratch = Scratch::new(1, 4);
        let result = paced(&mut port, flows, &timetable, &mut scratch, &mut recorder).unwrap();
        assert!(result.completed > 0 && result.completed < 1000);
        assert!(
            (1000 - result.completed..=1000).contains(&result.late),
            "{result:?}"
        );
    }
}
