//! The header of a piece: the kind of message, the operation, and the range of bytes.

/// Size of a header.
pub(super) const HEADER_BYTES: u64 = 48;

/// Operation number in messages that belong to no operation.
pub(super) const NO_OPERATION: u32 = u32::MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum MessageKind {
    /// Bytes of a write.
    Write = 1,
    /// Bytes of a write that notifies the peer.
    WriteImm = 2,
    /// Bytes for the next receive.
    Send = 3,
    /// A request for bytes.
    ReadRequest = 4,
    /// Bytes that were requested.
    ReadData = 5,
    /// A piece was copied to its destination.
    Acknowledged = 6,
    /// A piece could not be copied to its destination.
    Refused = 7,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StagedMessage {
    pub(super) kind: MessageKind,
    /// The operation's number, assigned by the side that posted it.
    pub(super) operation: u32,
    /// Number of the region at the other side.
    pub(super) region: u32,
    pub(super) imm: u32,
    /// Offset of the operation's first byte in this region.
    pub(super) offset: u64,
    /// Bytes of the whole operation.
    pub(super) whole: u32,
    /// Number of the operation's bytes before this piece.
    pub(super) at: u32,
    /// Bytes of this piece.
    pub(super) len: u32,
    /// Reason for a refusal: one of the system's error numbers.
    pub(super) code: i32,
}

impl StagedMessage {
    pub(super) fn encode(&self) -> [u8; HEADER_BYTES as usize] {
        let mut bytes = [0; HEADER_BYTES as usize];
        let words = [
            self.kind as u32,
            self.operation,
            self.region,
            self.imm,
            self.whole,
            self.at,
            self.len,
            self.code as u32,
        ];
        for (place, word) in bytes.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes[32..40].copy_from_slice(&self.offset.to_le_bytes());
        bytes
    }

    /// Decodes a header; `None` if no peer of this version would write it.
    pub(super) fn decode(bytes: &[u8; HEADER_BYTES as usize]) -> Option<Self> {
        let word = |at: usize| {
            let mut word = [0; 4];
            word.copy_from_slice(&bytes[4 * at..4 * at + 4]);
            u32::from_le_bytes(word)
        };
        let mut offset = [0; 8];
        offset.copy_from_slice(&bytes[32..40]);
        let kind = match word(0) {
            1 => MessageKind::Write,
            2 => MessageKind::WriteImm,
            3 => MessageKind::Send,
            4 => MessageKind::ReadRequest,
            5 => MessageKind::ReadData,
            6 => MessageKind::Acknowledged,
            7 => MessageKind::Refused,
            _ => return None,
        };
        let message = Self {
            kind,
            operation: word(1),
            region: word(2),
            imm: word(3),
            whole: word(4),
            at: word(5),
            len: word(6),
            code: word(7) as i32,
            offset: u64::from_le_bytes(offset),
        };
        let fits = u64::from(message.at) + u64::from(message.len) <= u64::from(message.whole);
        fits.then_some(message)
    }

    /// Whether this piece ends its operation.
    pub(super) fn is_last(&self) -> bool {
        self.at + self.len == self.whole
    }

    /// Returns the acknowledgement of a piece. `operation` is an operation of the piece's sender, or none.
    pub(super) fn answer(&self, operation: u32, code: i32) -> Self {
        Self {
            kind: match code {
                0 => MessageKind::Acknowledged,
                _ => MessageKind::Refused,
            },
            operation,
            code,
            len: 0,
            ..*self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_decodes_and_invalid_bytes_do_not() {
        let message = StagedMessage {
            kind: MessageKind::ReadData,
            operation: 1,
            region: 2,
            imm: 3,
            offset: 4 << 40,
            whole: 60,
            at: 50,
            len: 10,
            code: -8,
        };
        assert_eq!(StagedMessage::decode(&message.encode()), Some(message));
        assert!(message.is_last());
        assert_eq!(message.answer(5, 0).kind, MessageKind::Acknowledged);
        assert_eq!(message.answer(5, 14).kind, MessageKind::Refused);
        let too_long = StagedMessage { len: 11, ..message };
        assert_eq!(StagedMessage::decode(&too_long.encode()), None);
        let wraps = StagedMessage {
            at: u32::MAX,
            ..message
        };
        assert_eq!(StagedMessage::decode(&wraps.encode()), None);
        assert_eq!(StagedMessage::decode(&[0; HEADER_BYTES as usize]), None);
    }
}
