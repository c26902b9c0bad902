//! Steps of a rank in the executor's form: peers are replaced by lanes, element types by kernels.

use std::num::NonZeroU32;

use super::immediate::CallStream;
use tonnage_collective::steps::{Buffer, InPlace, Place, Program, Step};
use tonnage_collective::{Collective, Dtype, Reduction, Shape};
use tonnage_engine::{Lane, Peer};
use tonnage_sys::fold::{Fold, Kernel, Number};
use tonnage_units::{Error, Result};

/// Steps of one rank in a call.
pub struct Script {
    /// The steps in order.
    pub moves: Vec<ResolvedStep>,
    pub rank: u32,
    /// Number of ranks in the call.
    pub ranks: NonZeroU32,
    /// The stream that the calls belong to.
    pub stream: CallStream,
    /// The operation, for error messages.
    op: Collective,
    /// Reduces elements.
    pub kernel: Kernel,
    /// Exclusive upper bound of the message numbers.
    pub messages: u32,
}

/// A step with its lane resolved; see [`Step`].
#[derive(Debug, Clone, Copy)]
pub enum ResolvedStep {
    /// Writes bytes into a peer's memory.
    Put {
        /// The lane to the peer.
        lane: Lane,
        /// The number under which the peer awaits the message.
        message: u32,
        /// Source at this rank.
        from: Place,
        /// Target at the peer.
        to: Place,
        bytes: u32,
    },
    /// Waits for a message.
    Await {
        /// The message number.
        message: u32,
    },
    /// A step in this rank's own memory.
    Work(LocalWork),
    /// Lets a peer write into this rank's scratch once more.
    Grant {
        /// The lane to the peer.
        lane: Lane,
    },
    /// Uses up one grant from a peer.
    Claim {
        /// Index of the peer in the ascending list of peers.
        place: u32,
        peer: Peer,
    },
}

/// A step that touches only this rank's memory.
#[derive(Debug, Clone, Copy)]
pub enum LocalWork {
    /// Reduces the elements of `from` into those of `to`.
    Fold {
        /// Elements that are read.
        from: Place,
        /// Elements that are read and written.
        to: Place,
        elements: u64,
    },
    /// Reduces two arrays of elements into a third.
    Combine {
        /// Elements that are read.
        one: Place,
        /// Elements that are read.
        other: Place,
        /// Elements that are written.
        to: Place,
        elements: u64,
    },
    /// Copies bytes.
    Copy {
        /// Source.
        from: Place,
        /// Target.
        to: Place,
        bytes: u64,
    },
    /// Divides elements by the number of ranks.
    Divide {
        /// The elements.
        place: Place,
        elements: u64,
    },
}

/// Position of a rank in the group that makes a call. The members' ranks are evenly spaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallPosition {
    /// The rank's index in the group.
    pub place: u32,
    /// The lowest rank of the group.
    pub first: Peer,
    /// Difference between the ranks of adjacent members.
    pub step: u32,
}

impl CallPosition {
    /// Returns the run's rank for this index in the group.
    pub fn rank(&self, place: u32) -> Peer {
        self.first.saturating_add(place.saturating_mul(self.step))
    }
}

/// Inputs of [`Script::new`] in addition to the program.
#[derive(Debug, Clone, Copy)]
pub struct ScriptParts<'a> {
    /// Position of this rank in the calling group. Steps name ranks by their index in the group.
    pub position: CallPosition,
    /// The stream that the calls belong to.
    pub stream: CallStream,
    /// The shape of the call.
    pub shape: Shape,
    /// True if input and output share one range.
    pub in_place: bool,
    /// The reduction, if the operation has one.
    pub reduction: Option<Reduction>,
    /// Peers in ascending order, with the lanes to them.
    pub lanes: &'a [(Peer, Lane)],
}

impl ScriptParts<'_> {
    /// Resolves the lane and the locations of a step.
    fn resolve_step(&self, step: &Step) -> Result<ResolvedStep> {
        let own = |place| self.resolve_place(place, self.position.place);
        Ok(match *step {
            Step::Put {
                peer,
                message,
                from,
                to,
                bytes,
            } => ResolvedStep::Put {
                lane: self.lane(peer)?,
                message,
                from: own(from),
                to: self.resolve_place(to, peer),
                bytes: u32::try_from(bytes).map_err(|_| {
                    Error::Failed(format!("a message of {bytes} bytes is too long"))
                })?,
            },
            Step::Await { message } => ResolvedStep::Await { message },
            Step::Grant { peer } => ResolvedStep::Grant {
                lane: self.lane(peer)?,
            },
            Step::Claim { peer } => ResolvedStep::Claim {
                place: self.place(peer)? as u32,
                peer: self.position.rank(peer),
            },
            Step::Fold { from, to, elements } => ResolvedStep::Work(LocalWork::Fold {
                from: own(from),
                to: own(to),
                elements,
            }),
            Step::Combine {
                one,
                other,
                to,
                elements,
            } => ResolvedStep::Work(LocalWork::Combine {
                one: own(one),
                other: own(other),
                to: own(to),
                elements,
            }),
            Step::Copy { from, to, bytes } => ResolvedStep::Work(LocalWork::Copy {
                from: own(from),
                to: own(to),
                bytes,
            }),
            Step::Divide { at, elements } => ResolvedStep::Work(LocalWork::Divide {
                place: own(at),
                elements,
            }),
        })
    }

    /// Converts a peer's index in the group to its index in `lanes`.
    fn place(&self, number: u32) -> Result<usize> {
        let peer: Peer = self.position.rank(number);
        let known = self.lanes.binary_search_by_key(&peer, |(rank, _)| *rank);
        known.map_err(|_| Error::Failed(format!("there is no lane to rank {peer}")))
    }

    fn lane(&self, number: u32) -> Result<Lane> {
        Ok(self.lanes[self.place(number)?].1)
    }

    /// Converts a place to its location in the memory of group member `rank`. An in-place call keeps its input and
    /// output in one range, which begins at the output offset.
    fn resolve_place(&self, place: Place, rank: u32) -> Place {
        if !self.in_place {
            return place;
        }
        let stretch = InPlace::for_rank(&self.shape, rank);
        let before = match place.buffer {
            Buffer::Input => stretch.input,
            Buffer::Output => stretch.output,
            Buffer::Scratch => return place,
        };
        Place {
            buffer: Buffer::Output,
            offset: before + place.offset,
        }
    }
}

impl Script {
    /// Resolves a program.
    pub fn new(program: &Program, parts: ScriptParts<'_>) -> Result<Self> {
        let moves = program.steps.iter().map(|step| parts.resolve_step(step));
        let Shape {
            op, dtype, ranks, ..
        } = parts.shape;
        let none = || Error::Failed("a call without ranks".into());
        Ok(Self {
            moves: moves.collect::<Result<_>>()?,
            rank: parts.position.rank(parts.position.place),
            ranks: NonZeroU32::new(ranks).ok_or_else(none)?,
            stream: parts.stream,
            op,
            kernel: Kernel::best(number_type(dtype), fold(parts.reduction)),
            messages: program.messages,
        })
    }

    /// Adds the collective, the rank and the awaited message or grant to an error.
    #[cold]
    pub fn explain_wait(&self, error: Error, what: &str) -> Error {
        match error {
            Error::Failed(why) => Error::Failed(format!(
                "{}: rank {} waits for {what} of {}: {why}",
                self.op, self.rank, self.messages
            )),
            other => other,
        }
    }
}

/// Converts an element type to the kernels' type.
fn number_type(dtype: Dtype) -> Number {
    match dtype {
        Dtype::Float32 => Number::F32,
        Dtype::Float64 => Number::F64,
        Dtype::Float16 => Number::F16,
        Dtype::Bfloat16 => Number::Bf16,
        Dtype::Int8 => Number::I8,
        Dtype::Uint8 => Number::U8,
        Dtype::Int32 => Number::I32,
        Dtype::Int64 => Number::I64,
    }
}

/// Converts a reduction to the kernels' type. An average is a sum that is divided afterwards.
fn fold(reduction: Option<Reduction>) -> Fold {
    match reduction {
        None | Some(Reduction::Sum | Reduction::Avg) => Fold::Sum,
        Some(Reduction::Prod) => Fold::Prod,
        Some(Reduction::Min) => Fold::Min,
        Some(Reduction::Max) => Fold::Max,
    }
}
