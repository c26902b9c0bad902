//! The memory checker of a worker. It fills the worker's memory before a trial, and compares the memory with the
//! expected state afterwards.

use std::rc::Rc;
use std::sync::Arc;

use super::assignment::WorkerAssignment;
use super::point_engine::compares_each;
use super::totals::TrialTotals;
use super::trial::{IssuedOperations, WARM_UP};
use super::verify::{ExpectedOperations, MemoryWatch};
use crate::bound::memory_copy::copy_rates;
use crate::opening::engine::EngineWorker;
use tonnage_engine::Verb;
use tonnage_engine::memory::{CopyRate, CopyRepetitions, Memory};
use tonnage_engine::pattern::Mismatches;
use tonnage_loops::each::{ComparisonFindings, ENGINE_AT_FAULT, TrialFindings};
use tonnage_loops::flow::Flow;
use tonnage_sys::clock::Clock;
use tonnage_units::{Error, Result};

/// Fills and checks the memory of a worker during one point.
pub(super) struct MemoryChecker<'a> {
    assignment: Rc<WorkerAssignment<'a>>,
    memory: Arc<dyn Memory>,
    watch: MemoryWatch,
    /// Results of comparing every operation; `None` if the point does not request it.
    findings: Option<Arc<ComparisonFindings>>,
    /// Number of the current trial.
    number: u64,
}

impl<'a> MemoryChecker<'a> {
    pub(super) fn new(assignment: &Rc<WorkerAssignment<'a>>, worker: &EngineWorker) -> Self {
        let (point, setup) = (assignment.point, &assignment.setup);
        let of = (setup.rank, setup.worker);
        Self {
            memory: Arc::clone(&worker.memory),
            watch: MemoryWatch::new(point, of, &assignment.layout),
            findings: worker.findings.clone().filter(|_| compares_each(point)),
            number: WARM_UP,
            assignment: Rc::clone(assignment),
        }
    }

    /// Begins trial `number`. [`Self::fill`] later writes the data of this trial.
    pub(super) fn begin(&mut self, number: u64) {
        self.number = number;
        if let Some(findings) = &self.findings {
            findings.take();
        }
    }

    /// Writes the trial's data.
    pub(super) fn fill(&mut self) -> Result<()> {
        self.watch.fill(self.memory.as_ref(), self.number)
    }

    /// Returns the operations that the flows issued since the last call.
    pub(super) fn issued(&mut self, flows: &[Flow]) -> Result<IssuedOperations> {
        self.watch.issued(self.memory.as_ref(), flows)
    }

    /// Returns whether every announced operation has been compared.
    pub(super) fn is_settled(&self) -> bool {
        let findings = self.findings.as_ref();
        findings.is_none_or(|findings| findings.is_settled())
    }

    /// Stops comparing. Later operations are not checked.
    pub(super) fn stop_comparing(&self) {
        if let Some(findings) = &self.findings {
            findings.set_pass_through(true);
        }
    }

    /// Compares each slot with the last operation on it. If operations were compared one by one during the trial, takes
    /// these results instead. Adds the number of correct bytes to `totals`.
    pub(super) fn check(
        &self,
        expected: &ExpectedOperations,
        totals: &mut TrialTotals,
    ) -> Result<()> {
        let point = self.assignment.point;
        let (mut moved, mut untouched) = (Mismatches::default(), Mismatches::default());
        self.watch.check(
            self.memory.as_ref(),
            self.number,
            expected,
            &mut moved,
            &mut untouched,
        )?;
        totals.verified_bytes = moved.checked_bytes - moved.wrong_bytes;
        if let Some(findings) = &self.findings {
            let reads = point.op == Verb::Read;
            let of = if reads { &expected.out } else { &expected.into };
            let moved_bytes = of.iter().sum::<u64>() * u64::from(point.slots.size_bytes);
            totals.verified_bytes = checked_each(&findings.take(), moved_bytes)?;
        }
        if point.op == Verb::CompareSwap {
            totals.swapped = expected.digests.iter().map(|digest| digest.count).sum();
        }
        if !moved.is_clean() {
            return Err(Error::Failed(format!(
                "in the moved data, {}",
                moved.describe()
            )));
        }
        if !untouched.is_clean() {
            return Err(Error::Failed(format!(
                "outside the moved data, {}",
                untouched.describe()
            )));
        }
        Ok(())
    }

    /// Advances the expected state past the trial that was just checked.
    pub(super) fn advance(&mut self, expected: &ExpectedOperations) {
        self.watch.advance(expected);
    }

    /// Measures copy rates over this point's footprint. All copiers use the same turns.
    pub(super) fn copy_rates(
        &self,
        clock: &Clock,
        turns: CopyRepetitions,
    ) -> Result<Vec<CopyRate>> {
        let WorkerAssignment { point, layout, .. } = &*self.assignment;
        copy_rates(self.memory.as_ref(), layout, point, clock, turns)
    }
}

/// Returns the number of correct bytes if all compared operations were right and moved `moved_bytes` in total.
/// Otherwise returns an error.
fn checked_each(found: &TrialFindings, moved_bytes: u64) -> Result<u64> {
    if let Some(wrong) = &found.wrong {
        return Err(Error::Failed(wrong.clone()));
    }
    if found.moved_bytes != moved_bytes {
        return Err(Error::Failed(format!(
            "--verify=each compared operations with {} bytes, but the initiators completed operations with \
             {moved_bytes}; {ENGINE_AT_FAULT}",
            found.moved_bytes
        )));
    }
    Ok(found.right_bytes)
}
