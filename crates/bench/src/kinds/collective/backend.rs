//! The contract of backends that carry out collectives, one object per rank. It parallels the contracts of engines and
//! of file engines. A backend in this process only makes the calls, and one loop times the calls of all such backends
//! ([`tonnage_loops::calls`]). A backend in another process measures the times itself.

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

/// One rank's side of a backend that is open on all ranks.
pub trait Backend {
    /// Prepares the calls of a point, outside measured times. All ranks call this together.
    fn prepare(
        &mut self,
        point: &CollectivePoint,
        stage: &mut Stage<'_>,
    ) -> Result<Prepared, StepFailure>;

    /// Tries out the alternatives that the plan left open, outside measured times, and chooses one. All ranks call this
    /// together and make the same choice. `fill` rewrites the inputs.
    fn choose(
        &mut self,
        _fill: &mut dyn FnMut(&Buffers) -> Result<()>,
        _stage: &mut Stage<'_>,
    ) -> Result<Choice, StepFailure> {
        Ok(Choice::default())
    }

    /// Prepares a run while no rank is inside a call. All ranks call this, and then wait for each other.
    fn settle(&mut self) -> Result<()> {
        Ok(())
    }

    /// Measures the upper bound of the bytes that each rank sends, before the first call of a point and after the last
    /// one. Returns `None` if there is no bound. All ranks call this together. The measurement may overwrite the
    /// memory.
    fn bound(
        &mut self,
        _point: &CollectivePoint,
        _stage: &mut Stage<'_>,
    ) -> Result<Option<Bound>, StepFailure> {
        Ok(None)
    }

    /// Returns the memory of this rank's inputs and outputs.
    fn buffers(&self) -> &Buffers;

    /// Carries out iterations of a trial, and records the start and end of each one.
    fn run(&mut self, order: &mut CallOrder<'_>) -> Result<()>;

    /// Combines the outcomes of a run on all ranks. Afterwards, all ranks continue at the same step.
    fn agree(&mut self, stage: &mut Stage<'_>, ended: Result<()>) -> Result<(), StepFailure> {
        agree(stage.rank, "calls", ended, DEADLINES.operations)
    }

    /// Returns the effective configuration of all ranks, for the record.
    fn effective(&self) -> Vec<Effective>;
}

/// Properties of a backend that is prepared for a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prepared {
    /// Whether results overwrite the inputs.
    pub in_place: bool,
    /// Whether there are results to check. False for a backend that makes no calls.
    pub has_results: bool,
}

/// The algorithm and message length that the user requested or the backend chose.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Choice {
    pub algorithm: Option<Algorithm>,
    /// Maximum length of a message.
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
    /// Places the input of a rank at offset `input`, and its output at `output`. If results overwrite inputs, both are
    /// in one range that begins at `output`.
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
    /// Whether the ranks are aligned before each iteration, outside the iteration's time.
    pub align: bool,
    /// Whether the result of the last iteration is checked afterwards.
    pub is_checked: bool,
    /// Function that is called before each iteration with the iteration's number, outside the iteration's time.
    pub before: &'a mut dyn FnMut(u64) -> Result<()>,
    /// Receives the start and end of each iteration. Its capacity suffices for all of them.
    pub spans: &'a mut Vec<CallSpan>,
}
