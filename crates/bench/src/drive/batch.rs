//! Post a batch, wait for all of it, again. The latency is that of the batch.

use super::flow::Flow;
use super::port::{Port, own};
use super::recorder::Recorder;
use super::until::Until;
use super::{BURST, Scratch};
use tonnage_engine::Completion;
use tonnage_units::Result;

/// Runs batches of `batch` operations on each flow until `until` says so. Returns the number of completed operations.
///
/// A batch that is larger than the engine's queue is handed over as room appears, as an application would.
///
/// # Errors
/// When the engine fails or the run is stopped.
pub fn batch<R: Recorder>(
    port: &mut Port,
    flows: &mut [Flow],
    batch: u32,
    scratch: &mut Scratch,
    until: &mut Until,
    recorder: &mut R,
) -> Result<u64> {
    let mut batches = 0;
    let size = u64::from(batch) * flows.len() as u64;
    while until.grant(1) == 1 {
        let start_ns = recorder.now_ns();
        one_batch(port, flows, size, scratch)?;
        recorder.sample(recorder.now_ns().saturating_sub(start_ns));
        batches += 1;
    }
    Ok(batches * size)
}

/// One batch, the flows taking turns.
#[inline]
fn one_batch(port: &mut Port, flows: &mut [Flow], size: u64, scratch: &mut Scratch) -> Result<()> {
    let mut done = [Completion::EMPTY; BURST];
    let staged = &mut scratch.staged;
    staged.clear();
    let (mut taken, mut issued, mut completed, mut turn) = (0, 0, 0, 0);
    while completed < size {
        if taken == staged.len() && issued < size {
            staged.clear();
            taken = 0;
            let count = (size - issued).min(BURST as u64);
            for _ in 0..count {
                staged.push(flows[turn].next_op(0));
                turn = if turn + 1 == flows.len() { 0 } else { turn + 1 };
            }
            issued += count;
        }
        if taken < staged.len() {
            taken += port.post(&staged[taken..])?;
        }
        let count = port.poll(&mut done)?;
        completed += own(&done[..count]) as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::mock::{Counter, Mock, flow, silent_port};
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn each_batch_is_complete_before_the_next_and_timed_once() {
        for size in [1, 3, 64, 1000] {
            let (mut mock, stop) = (Mock::new(7), AtomicBool::new(false));
            let mut recorder = Counter::default();
            let mut flows = [flow(0, 1), flow(1, 2)];
            let completed = batch(
                &mut silent_port(&mut mock, &stop),
                &mut flows,
                size,
                &mut Scratch::new(2, 1),
                &mut Until::operations(5),
                &mut recorder,
            )
            .unwrap();
            assert_eq!(completed, 5 * 2 * u64::from(size));
            assert_eq!(recorder.samples, [1; 5]);
            assert_eq!(flows.map(|flow| flow.issued), [5 * u64::from(size); 2]);
            assert!(mock.most_in_flight <= 2 * size as usize);
        }
    }
}
