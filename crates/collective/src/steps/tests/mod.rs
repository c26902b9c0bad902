//! Every operation with every algorithm: proofs by simulation, byte counts compared with theory, and broken programs
//! that the simulator must detect.

mod broken;
mod requests;
mod simulator;
mod theory;
mod whole;

use self::simulator::Case;
use super::emitter::{CallContext, Tuning};
use super::{Algorithm, Program, Step, build_program};
use crate::{Collective, Dtype, Reduction, Shape};

/// A call to test.
#[derive(Debug, Clone, Copy)]
struct Trial {
    op: Collective,
    algorithm: Algorithm,
    ranks: u32,
    root: u32,
    block: u64,
    chunk_elements: u64,
    in_place: bool,
    reduction: Reduction,
    /// Data up to this number of elements at a rank goes through the scratch, without signals.
    eager_elements: u64,
    slots: u64,
}

const DTYPE: Dtype = Dtype::Int32;

impl Trial {
    fn shape(&self) -> Shape {
        Shape {
            op: self.op,
            ranks: self.ranks,
            root: self.root,
            dtype: DTYPE,
            block: self.block,
        }
    }

    fn case(&self, calls: u32) -> Case {
        let context = |rank| CallContext {
            shape: self.shape(),
            reduction: self.reduction,
            rank,
            chunk_bytes: self.chunk_elements * DTYPE.bytes(),
            in_place: self.in_place,
            tuning: Tuning {
                eager_bytes_max: self.eager_elements * DTYPE.bytes(),
                slots_bytes: 0,
                slots_min: self.slots,
            },
        };
        let program = |rank| build_program(context(rank), self.algorithm).unwrap();
        Case {
            shape: self.shape(),
            reduction: self.reduction,
            in_place: self.in_place,
            programs: (0..self.ranks).map(program).collect(),
            calls,
        }
    }
}

/// Every combination of operation and algorithm.
fn forms() -> impl Iterator<Item = (Collective, Algorithm)> {
    let of = |op: Collective| {
        super::algorithms(op)
            .iter()
            .map(move |algorithm| (op, *algorithm))
    };
    Collective::ALL.into_iter().flat_map(of)
}

/// Bytes of each put.
fn puts(program: &Program) -> impl Iterator<Item = u64> {
    program.steps.iter().filter_map(|step| match step {
        Step::Put { bytes, .. } => Some(*bytes),
        _ => None,
    })
}
