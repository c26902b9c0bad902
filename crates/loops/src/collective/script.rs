//! Steps of a rank as the executor takes them: lanes in place of peers, kernels in place of types.

use std::num::NonZeroU32;

use super::immediate::CallStream;
use tonnage_collective::steps::{Buffer, InPlace, Place, Program, Step};
use tonnage_collective::{Collective, Dtype, Reduction, Shape};
use tonnage_engine::{Lane, Peer};
use tonnage_sys::fold::{Fold, Kernel, Number};
use tonnage_units::{Error, Result};

/// Steps of one rank in a call.
pub struct Script {
    /// The steps in their order.
    pub moves: Vec<Move>,
    pub rank: u32,
    /// Ranks of the call.
    pub ranks: NonZeroU32,
    /// The stream of its calls.
    pub stream: CallStream,
    /// The operation, for messages.
    op: Collective,
    /// Folds elements.
    pub kernel: Kernel,
    /// Bound of the numbers of messages.
    pub messages: u32,
}

/// A step with its lane resolved; see [`Step`].
#[derive(Debug, Clone, Copy)]
pub enum Move {
    /// Writes bytes into a peer's memory.
    Put {
        /// The lane to the peer.
        lane: Lane,
        /// The peer's number of the message.
        message: u32,
        /// Source at this rank.
        from: Place,
        /// Target at the peer.
        to: Place,
        /// Length.
        bytes: u32,
    },
    /// Waits until a message has come.
    Await {
        /// Its number.
        message: u32,
    },
    /// Something that concerns this rank's memory alone.
    Work(LocalWork),
    /// Lets a peer put into the scratch once more.
    Grant {
        /// The lane to the peer.
        lane: Lane,
    },
    /// Uses up a grant of a peer's.
    Claim {
        /// Place of the peer among all peers.
        place: u32,
        peer: Peer,
    },
}

/// A step that concerns one rank's memory alone.
#[derive(Debug, Clone, Copy)]
pub enum LocalWork {
    /// Folds elements into others.
    Fold {
        /// Elements that are read.
        from: Place,
        /// Elements that are read and written.
        to: Place,
        /// Number of elements.
        elements: u64,
    },
    /// Folds two rows of elements into a third.
    Combine {
        /// Elements that are read.
        one: Place,
        /// Elements that are read.
        other: Place,
        /// Elements that are written.
        to: Place,
        /// Number of elements.
        elements: u64,
    },
    /// Copies bytes.
    Copy {
        /// Source.
        from: Place,
        /// Target.
        to: Place,
        /// Length.
        bytes: u64,
    },
    /// Divides elements by the number of ranks.
    Divide {
        /// The elements.
        place: Place,
        /// Number of elements.
        elements: u64,
    },
}

/// Seat of a rank among those that call together: their numbers in the run are equally far apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seat {
    /// The rank's number among them.
    pub place: u32,
    /// The first of them.
    pub first: Peer,
    /// Numbers from one of them to the next.
    pub step: u32,
}

impl Seat {
    /// The rank of the run that has a number here.
    pub fn rank(&self, place: u32) -> Peer {
        self.first.saturating_add(place.saturating_mul(self.step))
    }
}

/// Parts of a script beside its program.
#[derive(Debug, Clone, Copy)]
pub struct ScriptParts<'a> {
    /// Seat of this rank in the group that calls; steps name ranks by their numbers there.
    pub seat: Seat,
    /// The stream of its calls.
    pub stream: CallStream,
    /// The call.
    pub shape: Shape,
    /// True when input and output are one stretch.
    pub in_place: bool,
    /// Combination of the elements, where there is one.
    pub reduction: Option<Reduction>,
    /// Peers in ascending order, with the lanes to them.
    pub lanes: &'a [(Peer, Lane)],
}

impl ScriptParts<'_> {
    /// The step with its lane and its places resolved.
    fn resolved(&self, step: &Step) -> Result<Move> {
        let own = |place| self.settled(place, self.seat.place);
        Ok(match *step {
            Step::Put {
                peer,
                message,
                from,
                to,
                bytes,
            } => Move::Put {
                lane: self.lane(peer)?,
                message,
                from: own(from),
                to: self.settled(to, peer),
                bytes: u32::try_from(bytes).map_err(|_| {
                    Error::Failed(format!("a message of {bytes} bytes is too long"))
                })?,
            },
            Step::Await { message } => Move::Await { message },
            Step::Grant { peer } => Move::Grant {
                lane: self.lane(peer)?,
            },
            Step::Claim { peer } => Move::Claim {
                place: self.place(peer)? as u32,
                peer: self.seat.rank(peer),
            },
            Step::Fold { from, to, elements } => Move::Work(LocalWork::Fold {
                from: own(from),
                to: own(to),
                elements,
            }),
            Step::Combine {
                one,
                other,
                to,
                elements,
            } => Move::Work(LocalWork::Combine {
                one: own(one),
                other: own(other),
                to: own(to),
                elements,
            }),
            Step::Copy { from, to, bytes } => Move::Work(LocalWork::Copy {
                from: own(from),
                to: own(to),
                bytes,
            }),
            Step::Divide { at, elements } => Move::Work(LocalWork::Divide {
                place: own(at),
                elements,
            }),
        })
    }

    /// Place among all peers of one that has a number in the group.
    fn place(&self, number: u32) -> Result<usize> {
        let peer: Peer = self.seat.rank(number);
        let known = self.lanes.binary_search_by_key(&peer, |(rank, _)| *rank);
        known.map_err(|_| Error::Failed(format!("there is no lane to rank {peer}")))
    }

    fn lane(&self, number: u32) -> Result<Lane> {
        Ok(self.lanes[self.place(number)?].1)
    }

    /// The place in the memory of the rank with a number, where in place both buffers are parts of one stretch that
    /// begins with the output.
    fn settled(&self, place: Place, rank: u32) -> Place {
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
    /// The script of a program.
    pub fn new(program: &Program, parts: ScriptParts<'_>) -> Result<Self> {
        let moves = program.steps.iter().map(|step| parts.resolved(step));
        let Shape {
            op, dtype, ranks, ..
        } = parts.shape;
        let none = || Error::Failed("a call of no ranks".into());
        Ok(Self {
            moves: moves.collect::<Result<_>>()?,
            rank: parts.seat.rank(parts.seat.place),
            ranks: NonZeroU32::new(ranks).ok_or_else(none)?,
            stream: parts.stream,
            op,
            kernel: Kernel::best(number(dtype), fold(parts.reduction)),
            messages: program.messages,
        })
    }

    /// An error with what the rank was waiting for.
    #[cold]
    pub fn waits(&self, error: Error, what: &str) -> Error {
        match error {
            Error::Failed(why) => Error::Failed(format!(
                "{}: rank {} waits for {what} of {}: {why}",
                self.op, self.rank, self.messages
            )),
            other => other,
        }
    }
}

/// Type of elements as kernels know it.
fn number(dtype: Dtype) -> Number {
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

/// Reduction as kernels know it; an average is a sum that is divided.
fn fold(reduction: Option<Reduction>) -> Fold {
    match reduction {
        None | Some(Reduction::Sum | Reduction::Avg) => Fold::Sum,
        Some(Reduction::Prod) => Fold::Prod,
        Some(Reduction::Min) => Fold::Min,
        Some(Reduction::Max) => Fold::Max,
    }
}
