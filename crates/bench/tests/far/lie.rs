//! Lies that the engine of tests tells about one operation, and the options that ask for them.

use tonnage_engine::{EngineOption, OptionKind};

pub const LIE: EngineOption = EngineOption {
    name: "lie",
    kind: OptionKind::Choice(&[
        "none",
        "flip",
        "flip-all",
        "drop",
        "double",
        "swap",
        "truncate",
        "late",
        "elsewhere",
        "echo",
        "stranger",
        "last-visits",
        "exchange",
        "again",
        "short",
    ]),
    variants: &[],
    about: "the lie about one operation, which completes as if nothing were wrong",
};

pub const AT: EngineOption = EngineOption {
    name: "at",
    kind: OptionKind::Number {
        min: 0,
        max: 1 << 20,
        default: 0,
    },
    variants: &[],
    about: "number of the operation of each worker that is lied about, from 0",
};

/// A lie about one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lie {
    /// One of its bytes is changed.
    Flip,
    /// One of its bytes is changed, and one of each operation after it.
    FlipAll,
    /// Its bytes stay where they are, and nobody is notified.
    Drop,
    /// It completes twice, or the target is notified twice.
    Double,
    /// It carries the bytes of another slot.
    Swap,
    /// Only its first half moves.
    Truncate,
    /// It moves when its lane is given back.
    Late,
    /// It lands one slot further.
    Elsewhere,
    /// The target is notified again once it has nothing else to do.
    Echo,
    /// The target is notified as if the rank after this one had sent it.
    Stranger,
    /// No operation before it moves anything: with one for each slot left, only the last visit of each does.
    LastVisits,
    /// It and the next one are exchanged: their bytes, or of write-imms their immediates.
    Exchange,
    /// It is delivered again with the next visit of its slot, over that; of write-imms the immediates of four in a row
    /// become those of the first and the last, twice, so that their number and sum stay.
    Again,
    /// Half of it moves, and the other half when another operation has been handed over.
    Short,
}

impl Lie {
    /// The lie of this name.
    pub fn of(name: &str) -> Option<Self> {
        Some(match name {
            "flip" => Self::Flip,
            "flip-all" => Self::FlipAll,
            "drop" => Self::Drop,
            "double" => Self::Double,
            "swap" => Self::Swap,
            "truncate" => Self::Truncate,
            "late" => Self::Late,
            "elsewhere" => Self::Elsewhere,
            "echo" => Self::Echo,
            "stranger" => Self::Stranger,
            "last-visits" => Self::LastVisits,
            "exchange" => Self::Exchange,
            "again" => Self::Again,
            "short" => Self::Short,
            _ => return None,
        })
    }

    /// Returns whether it is about more than one operation, each in a way of its own.
    pub fn is_of_several(self) -> bool {
        matches!(self, Self::Exchange | Self::Again | Self::Short)
    }

    /// Returns whether it is told about this operation, where it begins with that one.
    pub fn is_of<T: PartialOrd>(self, this: T, first: T) -> bool {
        match self {
            Self::FlipAll => this >= first,
            Self::LastVisits => this < first,
            _ => this == first,
        }
    }
}
