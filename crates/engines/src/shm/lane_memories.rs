//! Copies the bytes of one operation between the two memories of a lane.

use std::sync::atomic::{AtomicU64, Ordering};

use tonnage_engine::{Ending, Op, WORD_BYTES};
use tonnage_sys::mapping::{Arena, OutOfRange};

use super::tuner::Tuner;
use crate::rings::{Arrival, PeerRings};

/// The memories at both ends of a lane.
pub(super) struct LaneMemories<'a> {
    pub(super) own: &'a Arena,
    pub(super) far: &'a Arena,
}

impl LaneMemories<'_> {
    #[inline]
    pub(super) fn write(
        &self,
        op: &Op,
        ordered: bool,
        tuner: &mut Tuner,
    ) -> Result<(), OutOfRange> {
        let Self { own, far } = self;
        tuner.run(op.len, |method| {
            if ordered {
                own.copy_to_last_byte_last(op.local, far, op.remote, op.len, method)
            } else {
                own.copy_to(op.local, far, op.remote, op.len, method)
            }
        })
    }

    #[inline]
    pub(super) fn read(&self, op: &Op, tuner: &mut Tuner) -> Result<(), OutOfRange> {
        tuner.run(op.len, |method| {
            self.far
                .copy_to(op.remote, self.own, op.local, op.len, method)
        })
    }

    #[inline]
    pub(super) fn write_imm(
        &self,
        op: &Op,
        peer: &mut PeerRings,
        tuner: &mut Tuner,
    ) -> Result<bool, OutOfRange> {
        if !peer.outbox.has_room()? {
            return Ok(false);
        }
        self.write(op, false, tuner)?;
        peer.outbox.push_arrival(Arrival {
            tag: 0,
            len: op.len,
            imm: op.imm,
        })?;
        Ok(true)
    }

    #[inline]
    pub(super) fn fetch_add(&self, op: &Op) -> Result<(), InvalidWord> {
        check_word(op)?;
        let (old, far) = (word(self.own, op.local)?, word(self.far, op.remote)?);
        old.store(
            far.fetch_add(op.imm.into(), Ordering::AcqRel),
            Ordering::Release,
        );
        Ok(())
    }

    #[inline]
    pub(super) fn compare_swap(&self, op: &Op) -> Result<(), InvalidWord> {
        check_word(op)?;
        let own = |index: u64| word(self.own, op.local + index * u64::from(WORD_BYTES));
        let [expected, new, old] = [own(0)?, own(1)?, own(2)?];
        let [expected, new] = [expected, new].map(|word| word.load(Ordering::Acquire));
        let far = word(self.far, op.remote)?;
        let found = far.compare_exchange(expected, new, Ordering::AcqRel, Ordering::Acquire);
        old.store(found.unwrap_or_else(|found| found), Ordering::Release);
        Ok(())
    }

    /// Sends into the peer's next receive. If the send is too long for it, the send fails and the receive stays posted.
    #[inline]
    pub(super) fn send(
        &self,
        op: &Op,
        peer: &mut PeerRings,
        region: u32,
        tuner: &mut Tuner,
        ending: &mut Ending,
    ) -> Result<bool, OutOfRange> {
        if !peer.outbox.has_room()? {
            return Ok(false);
        }
        let Some(receive) = peer.outbox.next_receive()? else {
            return Ok(false);
        };
        if let Some(code) = receive.refuses(op.len, region) {
            *ending = Ending::Failed(code);
            return Ok(true);
        }
        tuner.run(op.len, |method| {
            self.own
                .copy_to(op.local, self.far, receive.offset, op.len, method)
        })?;
        peer.outbox.take_receive()?;
        peer.outbox.push_arrival(Arrival {
            tag: receive.tag,
            len: op.len,
            imm: op.imm,
        })?;
        Ok(true)
    }
}

/// Reason for refusing an atomic operation.
#[derive(Debug)]
pub(super) enum InvalidWord {
    /// A memory of `size` bytes has no aligned word at this offset.
    Offset { offset: u64, size: u64 },
    /// The operation has this length, which is not the length of a word.
    Length(u32),
}

impl std::fmt::Display for InvalidWord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Offset { offset, size } => write!(
                f,
                "there is no aligned word of {WORD_BYTES} bytes at offset {offset} of {size}"
            ),
            Self::Length(len) => {
                write!(f, "an atomic operation has {WORD_BYTES} bytes, not {len}")
            }
        }
    }
}

/// Returns the aligned word at an offset.
fn word(arena: &Arena, offset: u64) -> Result<&AtomicU64, InvalidWord> {
    let size = arena.len() as u64;
    arena
        .word(offset)
        .ok_or(InvalidWord::Offset { offset, size })
}

#[inline]
fn check_word(op: &Op) -> Result<(), InvalidWord> {
    match op.len {
        WORD_BYTES => Ok(()),
        len => Err(InvalidWord::Length(len)),
    }
}
