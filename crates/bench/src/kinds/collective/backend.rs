//! The contract of those who carry collectives out, beside that of engines and that of calls on files: one object for
//! each rank. Whoever calls, times: a backend inside this process has only the call, and one loop times all of them
//! ([`tonnage_loops::calls`]); one in another process times itself.

use std::sync::Arc;

use crate::deadlines::DEADLINES;
use crate::failure::{StepFailure, agree};
use crate::kinds::kind::Stage;
use tonnage_collective::steps::InPlace;
use tonnage_collective::{Algorithm, Shape};
use tonnage_engine::Facts;
use tonnage_loops::calls::CallSpan;
use tonnage_plan::collective::CollectivePoint;
use tonnage_record::{Effective, Limit};
use tonnage_sys::mapping::Arena;
use tonnage_units::Result;

/// One rank's part of a backend that is open on all ranks.
pub trait Backend {
    /// Makes ready for the calls of a point, untimed. All ranks do it together.
    fn prepare(
        &mut self,
        point: &CollectivePoint,
        stage: &mut Stage<'_>,
    ) -> Result<Prepared, StepFailure>;

    /// Chooses what was left to it among ways that it tries out, untimed. All ranks do it together, and choose alike.
    /// `fill` writes the inputs anew.
    fn choose(
        &mut self,
        _fill: &mut dyn FnMut(&Buffers) -> Result<()>,
        _stage: &mut Stage<'_>,
    ) -> Result<Choice, StepFailure> {
        Ok(Choice::default())
    }

    /// Makes ready for a run, while no rank is in a call: all ranks do it, and then wait for each other.
    fn settle(&mut self) -> Result<()> {
        Ok(())
    }

    /// Measures the upper bound of what each rank sends in a point, before its first call and after its last; `None`
    /// where there is none. All ranks do it together, and its memory may hold other data afterwards.
    fn limit(
        &mut self,
        _point: &CollectivePoint,
        _stage: &mut Stage<'_>,
    ) -> Result<Option<Limit>, StepFailure> {
        Ok(None)
    }

    /// Memory of the inputs and outputs of this rank.
    fn buffers(&self) -> &Buffers;

    /// Carries out the iterations of a trial, or of a part of one, and says when each began and ended.
    fn run(&mut self, order: &mut CallOrder<'_>) -> Result<()>;

    /// Brings the ends of a run on all ranks together; all are in step afterwards.
    fn agree(&mut self, stage: &mut Stage<'_>, ended: Result<()>) -> Result<(), StepFailure> {
        agree(stage.rank, "calls", ended, DEADLINES.operations)
    }

    /// Real choices of all ranks, for the record.
    fn effective(&self) -> Vec<Effective>;
}

/// Facts about a backend that is ready for a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prepared {
    /// True when results take the place of the inputs.
    pub in_place: bool,
    /// False for one that calls nothing, of which there is nothing to check.
    pub has_results: bool,
}

/// A way that a backend was asked for or chose.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Choice {
    pub algorithm: Option<Algorithm>,
    /// The longest message.
    pub chunk_bytes: Option<u64>,
    /// Others, in the backend's own words.
    pub facts: Facts,
}

/// Memory of one rank's inputs and outputs, for one point.
#[derive(Debug, Clone)]
pub struct Buffers {
    /// The memory.
    pub arena: Arc<Arena>,
    /// Offset of the input.
    pub input: u64,
    /// Offset of the output.
    pub output: u64,
}

impl Buffers {
    /// Buffers of a rank that lie one behind the other from `input` and `output` on, or in place: where the result
    /// takes the place of the input, both are in one stretch from `output` on.
    pub fn new(
        arena: &Arc<Arena>,
        (input, output): (u64, u64),
        shape: &Shape,
        rank: u32,
        in_place: bool,
    ) -> Self {
        let own = in_place.then(|| InPlace::for_rank(shape, rank));
        Self {
            arena: Arc::clone(arena),
            input: own.as_ref().map_or(input, |own| output + own.input),
            output: own.as_ref().map_or(output, |own| output + own.output),
        }
    }
}

/// Iterations to carry out.
pub struct CallOrder<'a> {
    /// Number of iterations.
    pub iterations: u64,
    /// True when the ranks are aligned before each of them, outside its time.
    pub align: bool,
    /// True when the result of the last one is looked at afterwards.
    pub is_checked: bool,
    /// Called before each iteration with its number, outside its time.
    pub before: &'a mut dyn FnMut(u64) -> Result<()>,
    /// Begin and end of each iteration are put here; it has room for all of them.
    pub spans: &'a mut Vec<CallSpan>,
}
