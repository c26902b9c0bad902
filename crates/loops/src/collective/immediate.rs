//! Immediates of native collectives: 32 bits that say what has come.
//!
//! Bit 31 tells a grant from a message; a grant has the rank that gives it. A message has its number in the lower 20
//! bits, the mark of its call above them, and in bit 30 the stream that the call belongs to.

/// Bits of a message's number.
const MESSAGE_BITS: u32 = 20;
const GRANT: u32 = 1 << 31;
const ALIGNING: u32 = 1 << 30;
const MARK_MASK: u32 = (1 << (30 - MESSAGE_BITS)) - 1;

/// Marks are numbers of calls modulo this. It is even, so that even and odd calls have even and odd marks.
const MARKS: u64 = MARK_MASK as u64 - 1;

/// Stream of calls. Barriers that ranks align by are counted apart: after a rooted call a rank can be in the next
/// barrier while another one still is in the barrier before the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallStream {
    /// Calls that are measured.
    Measured,
    /// Barriers before them.
    Aligning,
}

/// Mark of a call, by which its messages are told from those of the calls before it and after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark(u16);

impl Mark {
    /// Mark of no call.
    pub const NONE: Self = Self(u16::MAX);

    /// The mark of a call by its number.
    pub fn of_call(call: u64) -> Self {
        Self((call % MARKS) as u16)
    }

    /// The half of the scratch that the call uses, and of what has come.
    #[inline]
    pub fn half(self) -> usize {
        usize::from(self.0 & 1)
    }
}

/// Content of an immediate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// A message of a call.
    Message {
        /// The stream of the call.
        stream: CallStream,
        /// The call in its stream.
        mark: Mark,
        /// Its number.
        message: u32,
    },
    /// The peer's scratch may be put into once more.
    Grant {
        /// The peer.
        from: u32,
    },
}

impl Notice {
    /// Content of an immediate.
    #[inline]
    pub fn of(imm: u32) -> Self {
        if imm & GRANT != 0 {
            return Self::Grant { from: imm & !GRANT };
        }
        Self::Message {
            stream: match imm & ALIGNING {
                0 => CallStream::Measured,
                _ => CallStream::Aligning,
            },
            mark: Mark((imm >> MESSAGE_BITS & MARK_MASK) as u16),
            message: imm & ((1 << MESSAGE_BITS) - 1),
        }
    }

    /// The immediate that says it.
    #[inline]
    pub fn immediate(self) -> u32 {
        match self {
            Self::Message {
                stream,
                mark,
                message,
            } => {
                let aligning = if stream == CallStream::Aligning {
                    ALIGNING
                } else {
                    0
                };
                aligning | u32::from(mark.0) << MESSAGE_BITS | message
            }
            Self::Grant { from } => GRANT | from,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tonnage_collective::steps::MESSAGES_MAX;

    proptest! {
        #[test]
        fn what_is_said_is_read(call in any::<u64>(), message in 0..MESSAGES_MAX as u32, from in 0..1u32 << 31) {
            let mark = Mark::of_call(call);
            let of = |stream| Notice::Message { stream, mark, message };
            for arrival in [of(CallStream::Measured), of(CallStream::Aligning), Notice::Grant { from }] {
                prop_assert_eq!(Notice::of(arrival.immediate()), arrival);
            }
        }

        /// Else a rank that is a call ahead would put into the half that is still read.
        #[test]
        fn neighbouring_calls_have_other_marks_and_halves(call in 0..u64::MAX) {
            let (one, next) = (Mark::of_call(call), Mark::of_call(call + 1));
            prop_assert_ne!(one, next);
            prop_assert_ne!(one.half(), next.half());
            prop_assert_ne!(one, Mark::NONE);
        }
    }
}
