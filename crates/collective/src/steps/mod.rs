//! Algorithms of collectives as steps: what a rank does in a call is a pure function of the call's shape and the rank.
//! Nothing is moved here, and nothing is waited for; whoever carries a [`Program`] out does that.
//!
//! # Carrying steps out
//!
//! Steps are taken strictly in order. Messages may arrive in any order, also those of one peer. A rank has an input, an
//! output, and a scratch of two halves, of which call k uses half k mod 2 on all ranks. A call ends when all of its
//! steps have been taken and all of its puts have left their source. Messages of call k + 1 may arrive during call k,
//! and one of call k + 2 as soon as the message of call k with its number has been awaited: two sets of flags suffice,
//! used in turn by calls.
//!
//! # Rules that every program keeps
//!
//! A put lands where nobody needs what is there:
//! - in the half of the scratch that belongs to call k, only when its rank is known to have done with call k - 2. The
//!   end of call k - 1 proves it where every rank's result depends on every rank: all of them have entered call k - 1.
//!   Other operations prove nothing, so the receiver grants each call but the first two (`Grant`, `Claim`), or says
//!   that it is there by a message of call k, or has told of free slots in call k - 1. In one call a place is used
//!   twice only after a message that says that it is free;
//! - in the output only when a message of this call has shown, directly or through others, that the rank has entered
//!   the call.
//!
//! And a source is not written to before its put is known to have arrived. The simulator beside the tests proves all of
//! it for 1 to 33 ranks: it follows what each rank knows, so that a proof holds for every order in which things can
//! happen.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `algorithm` | names of algorithms, and the operations that each has a form for |
//! | `program` | steps and figures of them |
//! | `emitter`, `slots` | what all algorithms are written with |
//! | `pairing`, `kin` | pairs and trees of ranks |
//! | `ring`, `halving`, `scattering`, `doubling`, `bruck`, `direct`, `tree`, `subtree` | the algorithms |

mod algorithm;
mod bruck;
mod direct;
mod doubling;
mod emitter;
mod halving;
mod kin;
mod pairing;
mod program;
mod ring;
mod scattering;
mod slots;
mod subtree;
#[cfg(test)]
mod tests;
mod tree;

use tonnage_units::{Error, Result};

pub use algorithm::{Algorithm, algorithms, check, check_in_place};
pub use program::{Buffer, GRANTS_INITIAL, MESSAGES_MAX, Place, Program, Step};

use crate::{Collective, Reduction, Shape};
use emitter::{CallSeat, Emitter, TooMany, Tuning};
use kin::Kin;

/// The one stretch that input and output lie in when a call works in place, as MPI and torch mean it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InPlace {
    /// Its length.
    pub bytes: u64,
    /// Offset of the input in it: of an all-gather, and of a gather at the root, that of the rank's block.
    pub input: u64,
    /// Offset of the output in it: of a reduce-scatter, and of a scatter at the root, that of the rank's block.
    pub output: u64,
}

impl InPlace {
    /// The stretch of a rank.
    pub fn of(shape: &Shape, rank: u32) -> Self {
        let (input, output) = (shape.input_bytes(rank), shape.output_bytes(rank));
        let block = shape.block_bytes() * u64::from(rank);
        Self {
            bytes: input.max(output),
            input: if input < output && input > 0 {
                block
            } else {
                0
            },
            output: if output < input && output > 0 {
                block
            } else {
                0
            },
        }
    }
}

/// Steps of a rank in a call of a shape. Messages longer than a chunk, which is rounded down to whole elements and is
/// at least one, are cut into chunks. Where no rank has data there are no steps, except of a barrier.
///
/// In place, input and output are the stretch that [`InPlace::of`] describes; otherwise they do not overlap, and the
/// input is only read.
///
/// # Errors
/// `Usage`, and the same at all ranks: an algorithm that has no form for the operation (or none in place), a rank or a
/// root outside of the group, or a chunk so short that there are more messages than numbers for them.
pub fn program(
    shape: &Shape,
    reduction: Reduction,
    algorithm: Algorithm,
    rank: u32,
    chunk_bytes: u64,
    in_place: bool,
) -> Result<Program> {
    let seat = CallSeat {
        shape: *shape,
        reduction,
        rank,
        chunk_bytes,
        in_place,
        tuning: Tuning::DEFAULT,
    };
    of_seat(seat, algorithm)
}

/// Steps of a rank, with the sizes that decide between variants.
fn of_seat(seat: CallSeat, algorithm: Algorithm) -> Result<Program> {
    let (shape, rank) = (seat.shape, seat.rank);
    check(shape.op, algorithm, seat.in_place)?;
    for (what, rank) in [("rank", rank), ("root", shape.root)] {
        if rank >= shape.ranks {
            return Err(Error::Usage(format!(
                "{what} {rank} is outside of the group, whose ranks are below {}",
                shape.ranks
            )));
        }
    }
    let element = shape.dtype.bytes();
    let seat = CallSeat {
        chunk_bytes: (seat.chunk_bytes / element).max(1) * element,
        ..seat
    };
    let mut out = Emitter::new(seat, MESSAGES_MAX);
    if shape.ranks == 1 {
        out.keep(0, 0, shape.output_bytes(rank));
    } else if shape.block > 0 || shape.op == Collective::Barrier {
        let emitted = emit(&mut out, algorithm);
        emitted.map_err(|many| too_many(seat, algorithm, many.messages))?;
    }
    Ok(out.finish())
}

fn emit(out: &mut Emitter, algorithm: Algorithm) -> Result<(), TooMany> {
    use Collective::{AllGather, AllReduce, AllToAll, Barrier, Broadcast};
    use Collective::{Gather, Reduce, ReduceScatter, Scatter, SendRecvPairs, SendRecvRing};
    let seat = out.seat;
    match (seat.shape.op, algorithm) {
        (AllReduce, Algorithm::HalvingDoubling) => halving::all_reduce(out),
        (AllReduce, Algorithm::RecursiveDoubling) => doubling::all_reduce(out),
        (AllReduce, Algorithm::Tree) => tree::all_reduce(out),
        (AllReduce, _) => ring::all_reduce(out),
        (ReduceScatter, Algorithm::Pairwise) => scattering::pairwise(out),
        (ReduceScatter, Algorithm::HalvingDoubling) => scattering::halving(out),
        (ReduceScatter, _) => ring::reduce_scatter(out),
        (AllGather, Algorithm::Bruck) => bruck::all_gather(out),
        (AllGather, Algorithm::RecursiveDoubling) => doubling::all_gather(out),
        (AllGather, _) => ring::all_gather(out),
        (AllToAll, Algorithm::Bruck) => bruck::all_to_all(out),
        // Everything at once, or one peer's block on its way while the next is put, so that none is put to by many.
        (AllToAll, Algorithm::Linear) => direct::all_to_all(out, seat.ranks() - 1),
        (AllToAll, _) => direct::all_to_all(out, 1),
        (Broadcast, Algorithm::Ring) => tree::broadcast(out, Kin::chain(&seat)),
        (Broadcast, _) => tree::broadcast(out, Kin::binomial(&seat)),
        (Reduce, Algorithm::Ring) => tree::reduce(out, Kin::chain(&seat)),
        (Reduce, _) => tree::reduce(out, Kin::binomial(&seat)),
        (Gather, Algorithm::Tree) => subtree::gather(out),
        (Gather, _) => direct::gather(out),
        (Scatter, Algorithm::Tree) => subtree::scatter(out),
        (Scatter, _) => direct::scatter(out),
        (Barrier, Algorithm::Tree) => tree::barrier(out),
        (Barrier, _) => bruck::barrier(out),
        (SendRecvPairs | SendRecvRing, _) => direct::send_recv(out),
    }
}

/// An error that names the shortest chunk that leads to few enough messages.
fn too_many(seat: CallSeat, algorithm: Algorithm, messages: u64) -> Error {
    let op = seat.shape.op;
    let element = seat.shape.dtype.bytes();
    let fits = |elements: u64| {
        let chunk_bytes = elements * element;
        // Nothing is emitted before messages have been numbered.
        let seat = CallSeat {
            chunk_bytes,
            ..seat
        };
        let counted = emit(&mut Emitter::new(seat, 0), algorithm);
        counted.map_or_else(|many| many.messages <= MESSAGES_MAX, |()| true)
    };
    let (mut short, mut fit) = (
        seat.chunk_bytes / element,
        seat.shape.block.max(1) * u64::from(seat.ranks()),
    );
    let complaint = format!("{op} by {algorithm} has {messages} messages, {MESSAGES_MAX} at most");
    if !fits(fit) {
        return Error::Usage(format!(
            "{complaint}, however long its chunks: choose another algorithm or fewer ranks"
        ));
    }
    while fit - short > 1 {
        let middle = short + (fit - short) / 2;
        if fits(middle) {
            fit = middle;
        } else {
            short = middle;
        }
    }
    Error::Usage(format!(
        "{complaint}: --chunk must be at least {}",
        fit * element
    ))
}
