//! Every operation by every algorithm: proofs by simulation, bytes as theory has them, and programs that are broken on
//! purpose, which the simulator must find.

mod broken;
mod requests;
mod simulator;
mod theory;
mod whole;

use self::simulator::Case;
use super::emitter::{CallSeat, Tuning};
use super::{Algorithm, Program, Step, of_seat};
use crate::{Collective, Dtype, Reduction, Shape};

/// A call to be tested.
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
    /// Scratch instead of signals up to so many elements at a rank.
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
        let seat = |rank| CallSeat {
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
        let program = |rank| of_seat(seat(rank), self.algorithm).unwrap();
        Case {
            shape: self.shape(),
            reduction: self.reduction,
            in_place: self.in_place,
            programs: (0..self.ranks).map(program).collect(),
            calls,
        }
    }
}

/// Every algorithm of every operation.
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
