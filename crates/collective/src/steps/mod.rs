//! Algorithms of collectives as steps. A rank's steps in a call are a pure function of the call's shape and the rank.
//! This module neither moves data nor waits; the executor of a [`Program`] does both.
//!
//! # Executing steps
//!
//! Steps are executed strictly in order. Messages may arrive in any order, even messages from the same peer. A rank has
//! an input, an output, and a scratch with two halves; call k uses half k mod 2 on all ranks. A call ends when all its
//! steps have been executed and all its puts have left their source.
//!
//! Messages of call k + 1 may arrive during call k. A message of call k + 2 may arrive only after the message with the
//! same number in call k has been awaited. So two sets of flags suffice; consecutive calls alternate between them.
//!
//! # Rules that every program follows
//!
//! A put may overwrite content only when it is no longer needed:
//!
//! - In the scratch half of call k, this holds once the target rank is known to have finished call k - 2. If every
//!   rank's result depends on every rank, the end of call k - 1 proves it: all ranks have entered call k - 1. In other
//!   operations, the receiver must provide the proof. It grants each call except the first two (`Grant`, `Claim`),
//!   signals in call k that it is ready, or has released slots in call k - 1. Within a call, a location is reused only
//!   after a message has released it.
//! - In the output, this holds once a message of this call has proved, directly or indirectly, that the target rank has
//!   entered the call.
//!
//! In addition, the source of a put may only be overwritten when the put is known to have arrived. The simulator in the
//! tests proves these rules for 1 to 33 ranks. It tracks what each rank knows, so a proof holds for every possible
//! order of events.
//!
//! | file | contents |
//! | --- | --- |
//! | `algorithm` | names of algorithms, and the operations that each one supports |
//! | `program` | steps and their properties |
//! | `emitter`, `slots` | building blocks of all algorithms |
//! | `pairing`, `tree_neighbors` | pairs and trees of ranks |
//! | `ring`, `halving`, `scattering`, `doubling`, `bruck`, `direct`, `tree`, `subtree` | the algorithms |

mod algorithm;
mod bruck;
mod direct;
mod doubling;
mod emitter;
mod halving;
mod pairing;
mod program;
mod ring;
mod scattering;
mod slots;
mod subtree;
#[cfg(test)]
mod tests;
mod tree;
mod tree_neighbors;

use tonnage_units::{Error, Result};

pub use algorithm::{Algorithm, algorithms, check, check_in_place};
pub use program::{Buffer, GRANTS_INITIAL, MESSAGES_MAX, Place, Program, Step};

use crate::{Collective, Reduction, Shape};
use emitter::{CallContext, Emitter, TooManyMessages, Tuning};
use tree_neighbors::TreeNeighbors;

/// The single buffer that contains input and output when a call works in place, as MPI and torch define it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InPlace {
    /// Length of the buffer.
    pub bytes: u64,
    /// Offset of the input in the buffer. For an all-gather, and for a gather at the root, it is the offset of the
    /// rank's block.
    pub input: u64,
    /// Offset of the output in the buffer. For a reduce-scatter, and for a scatter at the root, it is the offset of the
    /// rank's block.
    pub output: u64,
}

impl InPlace {
    /// The buffer of a rank.
    pub fn for_rank(shape: &Shape, rank: u32) -> Self {
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

/// Returns the steps of a rank in a call. Messages longer than a chunk are cut into chunks. A chunk is rounded down to
/// whole elements, but has at least one. If no rank has data, there are no steps, except for a barrier.
///
/// In place, input and output are in the buffer that [`InPlace::for_rank`] describes. Otherwise input and output do not
/// overlap, and the input is only read.
///
/// # Errors
/// `Usage`, the same at all ranks. The algorithm may not support the operation, or may not support it in place. A rank
/// or root may be outside of the group. Chunks may be so short that there are more messages than message numbers.
pub fn program(
    shape: &Shape,
    reduction: Reduction,
    algorithm: Algorithm,
    rank: u32,
    chunk_bytes: u64,
    in_place: bool,
) -> Result<Program> {
    let context = CallContext {
        shape: *shape,
        reduction,
        rank,
        chunk_bytes,
        in_place,
        tuning: Tuning::DEFAULT,
    };
    build_program(context, algorithm)
}

/// Returns the steps of a rank, with the `Tuning` of the context.
fn build_program(context: CallContext, algorithm: Algorithm) -> Result<Program> {
    let (shape, rank) = (context.shape, context.rank);
    check(shape.op, algorithm, context.in_place)?;
    for (what, rank) in [("rank", rank), ("root", shape.root)] {
        if rank >= shape.ranks {
            return Err(Error::Usage(format!(
                "{what} {rank} is outside the group of {} ranks",
                shape.ranks
            )));
        }
    }
    let element = shape.dtype.bytes();
    let context = CallContext {
        chunk_bytes: (context.chunk_bytes / element).max(1) * element,
        ..context
    };
    let mut out = Emitter::new(context, MESSAGES_MAX);
    if shape.ranks == 1 {
        out.keep(0, 0, shape.output_bytes(rank));
    } else if shape.block > 0 || shape.op == Collective::Barrier {
        let emitted = emit(&mut out, algorithm);
        emitted.map_err(|many| too_many(context, algorithm, many.messages))?;
    }
    Ok(out.finish())
}

fn emit(out: &mut Emitter, algorithm: Algorithm) -> Result<(), TooManyMessages> {
    use Collective::{AllGather, AllReduce, AllToAll, Barrier, Broadcast};
    use Collective::{Gather, Reduce, ReduceScatter, Scatter, SendRecvPairs, SendRecvRing};
    let context = out.context;
    match (context.shape.op, algorithm) {
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
        // Linear puts all blocks at once. Pairwise waits for a block before it puts the one after next, so that a rank
        // is not the target of many ranks at once.
        (AllToAll, Algorithm::Linear) => direct::all_to_all(out, context.ranks() - 1),
        (AllToAll, _) => direct::all_to_all(out, 1),
        (Broadcast, Algorithm::Ring) => tree::broadcast(out, TreeNeighbors::chain(&context)),
        (Broadcast, _) => tree::broadcast(out, TreeNeighbors::binomial(&context)),
        (Reduce, Algorithm::Ring) => tree::reduce(out, TreeNeighbors::chain(&context)),
        (Reduce, _) => tree::reduce(out, TreeNeighbors::binomial(&context)),
        (Gather, Algorithm::Tree) => subtree::gather(out),
        (Gather, _) => direct::gather(out),
        (Scatter, Algorithm::Tree) => subtree::scatter(out),
        (Scatter, _) => direct::scatter(out),
        (Barrier, Algorithm::Tree) => tree::barrier(out),
        (Barrier, _) => bruck::barrier(out),
        (SendRecvPairs | SendRecvRing, _) => direct::send_recv(out),
    }
}

/// The error for too many messages. It names the shortest chunk for which message numbers suffice.
fn too_many(context: CallContext, algorithm: Algorithm, messages: u64) -> Error {
    let op = context.shape.op;
    let element = context.shape.dtype.bytes();
    let fits = |elements: u64| {
        let chunk_bytes = elements * element;
        // With a limit of 0 messages, emission stops right after the messages have been counted.
        let context = CallContext {
            chunk_bytes,
            ..context
        };
        let counted = emit(&mut Emitter::new(context, 0), algorithm);
        counted.map_or_else(|many| many.messages <= MESSAGES_MAX, |()| true)
    };
    let (mut short, mut fit) = (
        context.chunk_bytes / element,
        context.shape.block.max(1) * u64::from(context.ranks()),
    );
    let complaint = format!(
        "{op} with algorithm {algorithm} would need {messages} messages, more than {MESSAGES_MAX}"
    );
    if !fits(fit) {
        return Error::Usage(format!(
            "{complaint}, even with the longest chunks: use another --algorithm or fewer ranks"
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
