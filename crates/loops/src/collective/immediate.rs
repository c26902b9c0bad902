//! Immediates of native collectives: 32 bits that identify a message or a grant.
//!
//! Bit 31 is set for a grant, and the other bits are then the granting rank. In a message, bits 0 to 19 are its number,
//! bits 20 to 29 the mark of its call, and bit 30 the call's stream.

/// Width of a message's number, in bits.
const MESSAGE_BITS: u32 = 20;
const GRANT: u32 = 1 << 31;
const ALIGNING: u32 = 1 << 30;
const MARK_MASK: u32 = (1 << (30 - MESSAGE_BITS)) - 1;

/// Number of distinct marks: a call's mark is its number modulo `MARKS`. `MARKS` is even, so that even calls always
/// have even marks.
const MARKS: u64 = MARK_MASK as u64 - 1;

/// Stream of calls. Each stream counts its own calls. After a rooted call, a rank can be in the next alignment barrier
/// while another rank is still in the previous one. With a common count, both barriers would use the same scratch half.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallStream {
    /// Measured calls.
    Measured,
    /// Barriers before measured calls.
    Aligning,
}

/// Mark of a call. The mark distinguishes the messages of this call from those of the calls before and after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallMark(u16);

impl CallMark {
    /// Matches no call.
    pub const NONE: Self = Self(u16::MAX);

    /// Returns the mark of the call with this number.
    pub fn for_call(call: u64) -> Self {
        Self((call % MARKS) as u16)
    }

    /// Index of the scratch half, and of the arrival list, that the call uses.
    #[inline]
    pub fn scratch_half(self) -> usize {
        usize::from(self.0 & 1)
    }
}

/// Decoded content of an immediate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecodedImmediate {
    /// A message of a call.
    Message {
        /// The stream of the call.
        stream: CallStream,
        /// The mark of the call.
        mark: CallMark,
        /// The number of the message.
        message: u32,
    },
    /// Permits one more write to the peer, because part of its scratch is free again.
    Grant {
        /// The peer.
        from: u32,
    },
}

impl DecodedImmediate {
    /// Decodes an immediate.
    #[inline]
    pub fn from_immediate(imm: u32) -> Self {
        if imm & GRANT != 0 {
            return Self::Grant { from: imm & !GRANT };
        }
        Self::Message {
            stream: match imm & ALIGNING {
                0 => CallStream::Measured,
                _ => CallStream::Aligning,
            },
            mark: CallMark((imm >> MESSAGE_BITS & MARK_MASK) as u16),
            message: imm & ((1 << MESSAGE_BITS) - 1),
        }
    }

    /// Encodes this as an immediate.
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
            let mark = CallMark::for_call(call);
            let of = |stream| DecodedImmediate::Message { stream, mark, message };
            for arrival in [of(CallStream::Measured), of(CallStream::Aligning), DecodedImmediate::Grant { from }] {
                prop_assert_eq!(DecodedImmediate::from_immediate(arrival.immediate()), arrival);
            }
        }

        /// Consecutive calls must use different scratch halves. Otherwise a rank that is one call ahead would write
        /// into a half that its peer still reads.
        #[test]
        fn neighbouring_calls_have_other_marks_and_halves(call in 0..u64::MAX) {
            let (one, next) = (CallMark::for_call(call), CallMark::for_call(call + 1));
            prop_assert_ne!(one, next);
            prop_assert_ne!(one.scratch_half(), next.scratch_half());
            prop_assert_ne!(one, CallMark::NONE);
        }
    }
}
