//! Operations that were posted to paths in parts, and have not completed yet. All parts of an operation have the same
//! tag: the index of the operation's entry plus 1.

use tonnage_units::{Error, Result};

use crate::{Completion, Ending, Lane};

/// An operation or a flush in flight.
#[derive(Debug, Clone, Copy, Default)]
struct InFlight {
    tag: u32,
    lane: Lane,
    len: u32,
    imm: u32,
    /// Number of parts that have not completed; 0 if the entry is free.
    parts_left: u32,
    /// True if a part has failed and the failure was reported. The remaining parts then complete silently.
    failed: bool,
}

/// Entries for operations in flight. They are allocated when lanes are resolved, so posting allocates nothing.
#[derive(Debug, Default)]
pub(super) struct PathOperations {
    entries: Vec<InFlight>,
    free: Vec<u32>,
}

impl PathOperations {
    /// Grows to at least `count` entries.
    pub(super) fn grow_to(&mut self, count: usize) {
        let (from, to) = (self.entries.len(), self.entries.len().max(count));
        self.entries.resize(to, InFlight::default());
        self.free.reserve(to);
        // Low indices are used first, so that the entries in use stay in the cache.
        self.free.splice(0..0, (from as u32..to as u32).rev());
    }

    /// Takes an entry for an operation with this many parts. Returns the tag of the parts, which is never 0; `None` if
    /// all entries are in use.
    #[inline]
    pub(super) fn begin(
        &mut self,
        (lane, tag): (Lane, u32),
        len: u32,
        imm: u32,
        parts_left: u32,
    ) -> Option<u32> {
        let at = self.free.pop()?;
        self.entries[at as usize] = InFlight {
            tag,
            lane,
            len,
            imm,
            parts_left,
            failed: false,
        };
        Some(at + 1)
    }

    /// The lane of the operation with this tag.
    #[inline]
    pub(super) fn lane_of(&self, tag: u32) -> Option<Lane> {
        let entry = self.entries.get(tag.wrapping_sub(1) as usize)?;
        Some(entry.lane)
    }

    /// Adds a part to the operation with this tag.
    pub(super) fn add_part(&mut self, tag: u32) {
        if let Some(entry) = self.entries.get_mut(tag.wrapping_sub(1) as usize) {
            entry.parts_left += 1;
        }
    }

    /// Completes a part. Returns the completion of the operation if this part is its last, or its first to fail.
    ///
    /// # Errors
    /// If no operation with this tag is in flight.
    #[inline]
    pub(super) fn end_part(&mut self, part: &Completion) -> Result<Option<Completion>> {
        let at = part.tag.wrapping_sub(1);
        let entry = match self.entries.get_mut(at as usize) {
            Some(entry) if entry.parts_left > 0 => entry,
            _ => return Err(never_begun()),
        };
        entry.parts_left -= 1;
        let whole = Completion {
            tag: entry.tag,
            lane: entry.lane,
            len: entry.len,
            imm: entry.imm,
            ending: part.ending,
        };
        let (over, reported) = (entry.parts_left == 0, entry.failed);
        entry.failed |= matches!(part.ending, Ending::Failed(_));
        let report = !reported && (over || entry.failed);
        if over {
            self.free.push(at);
        }
        Ok(report.then_some(whole))
    }
}

#[cold]
fn never_begun() -> Error {
    Error::Failed(
        "a path completed an operation that was not in flight: it completed one twice, so its results cannot be \
         trusted".into(),
    )
}
