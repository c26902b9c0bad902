//! The contract of backends that carry out collectives, parallel to the contracts of engines and of calls on files: one
//! object per rank. If a backend runs in this process, it only makes the call and one loop times all backends
//! ([`tonnage_loops::calls`]). A backend in another process times itself.

use std::sync::Arc;

use crate::deadlines::DEADLINES;
use crate::failure::{StepFailure, agree};
use crate::kinds::kind::Stage;
use tonnage_collective::steps::InPlace;
use tonnage_collective::{Algorithm, Shape};
use tonnage_engine::Facts;
use tonnage_loops::calls::CallSpan;
use tonnage_plan::collective::CollectivePoint;
use tonnage_record::{Bound, Effective};
use tonnage_sys::mapping::Arena;
use tonnage_units::Result;

/// One rank's part of a backend that is open on all ranks.
pub trait Backend {
    /// Prepares the calls of a point, untimed. All ranks do it together.
    fn prepare(
        &mut self,
        point: &CollectivePoint,
        stage: &mut Stage<'_>,
    ) -> Result<Prepared, StepFailure>;

    /// Tries out the alternatives that the plan left open, untimed, and chooses one. All ranks do it together and make
    /// the same choice. `fill` rewrites the inputs.
    fn choose(
        &mut self,
        _fill: &mut dyn FnMut(&Buffers) -> Result<()>,
        _stage: &mut Stage<'_>,
    ) -> Result<Choice, StepFailure> {
        Ok(Choice::default())
    }

    /// Prepares a run while no rank is in a call. All ranks do it, then wait for each other.
    fn settle(&mut self) -> Result<()> {
        Ok(())
    }

    /// Measures the upper bound of the bytes that each rank sends in a point, before its first call and after its last.
    /// Returns `None` if there is no bound. All ranks do it together; it may overwrite the memory.
    fn bound(
        &mut self,
        _point: &CollectivePoint,
        _stage: &mut Stage<'_>,
    ) -> Result<Option<Bound>, StepFailure> {
        Ok(None)
    }

    /// Memory of the inputs and outputs of this rank.
    fn buffers(&self) -> &Buffers;

    /// Carries out the iterations of a trial, or of a part of one, and records when each began and ended.
    fn run(&mut self, order: &mut CallOrder<'_>) -> Result<()>;

    /// Combines the outcome of a run on all ranks. All are in step afterwards.
    fn agree(&mut self, stage: &mut Stage<'_>, ended: Result<()>) -> Result<(), StepFailure> {
        agree(stage.rank, "calls", ended, DEADLINES.operations)
    }

    /// Returns the choices of all ranks in effect, for the record.
    fn effective(&self) -> Vec<Effective>;
}

/// Properties of a backend that is prepared for a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prepared {
    /// Whether results replace the inputs.
    pub in_place: bool,
    /// Whether there are results to check; false for a backend that calls nothing.
    pub has_results: bool,
}

/// The alternative that a backend was asked for or chose.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Choice {
    pub algorithm: Option<Algorithm>,
    /// The longest message.
    pub chunk_bytes: Option<u64>,
    /// Other choices, under the backend's own names.
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
    /// Places a rank's buffers one behind the other at `input` and `output`. If results replace inputs, both lie in one
    /// range that begins at `output`.
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

/// Request to carry out iterations of a call.
pub struct CallOrder<'a> {
    /// Number of iterations.
    pub iterations: u64,
    /// Whether the ranks are aligned before each iteration, outside its time.
    pub align: bool,
    /// Whether the result of the last iteration is checked afterwards.
    pub is_checked: bool,
    /// Called before each iteration with its number, outside its time.
    pub before: &'a mut dyn FnMut(u64) -> Result<()>,
    /// Receives begin and end of each iteration; it has capacity for all of them.
    pub spans: &'a mut Vec<CallSpan>,
}
