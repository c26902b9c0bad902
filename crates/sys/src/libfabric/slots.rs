//! The contexts that the library owns while operations are in flight.
//!
//! This module hands contexts out and takes them back, without allocating. [`super::post`] posts the operations
//! themselves.

use std::ffi::c_void;
use std::ptr::NonNull;

use super::handles::RegionHandle;

/// Memory that the library owns while an operation is in flight (`struct fi_context2`). Never read or written here.
#[repr(C, align(64))]
struct Context([*mut c_void; 8]);

/// Data of a slot's operation that is needed when it completes.
#[derive(Debug, Clone, Copy)]
struct Note {
    user: u64,
    region: RegionHandle,
    receive: bool,
    in_flight: bool,
}

/// The slots of an endpoint: first the slots for operations, then the slots for receives. They are separate, so that
/// neither kind can use up all slots.
pub(super) struct Slots {
    /// One context for each entry of `notes`. Only the addresses of contexts are used, so that no Rust reference
    /// aliases the library's writes.
    contexts: NonNull<Context>,
    notes: Vec<Note>,
    free_operations: Vec<u32>,
    free_receives: Vec<u32>,
    leaked: bool,
}

impl Slots {
    pub(super) fn new(operations: u32, receives: u32) -> Self {
        let all = operations + receives;
        let contexts: Vec<Context> = (0..all)
            .map(|_| Context([std::ptr::null_mut(); 8]))
            .collect();
        let contexts = Box::leak(contexts.into_boxed_slice());
        let note = |index| Note {
            user: 0,
            region: RegionHandle(0),
            receive: index >= operations,
            in_flight: false,
        };
        Self {
            contexts: NonNull::from(contexts).cast(),
            notes: (0..all).map(note).collect(),
            free_operations: (0..operations).rev().collect(),
            free_receives: (operations..all).rev().collect(),
            leaked: false,
        }
    }

    /// Makes `drop` leak the contexts, for a library that may still use them.
    pub(super) fn leak(&mut self) {
        self.leaked = true;
    }

    #[inline]
    fn free(&mut self, receive: bool) -> &mut Vec<u32> {
        if receive {
            &mut self.free_receives
        } else {
            &mut self.free_operations
        }
    }

    /// Takes a slot; `None` if all are in flight.
    #[inline]
    pub(super) fn take(
        &mut self,
        receive: bool,
        user: u64,
        region: RegionHandle,
    ) -> Option<(u32, *mut c_void)> {
        let index = self.free(receive).pop()?;
        let note = self.notes.get_mut(index as usize)?;
        (note.user, note.region, note.in_flight) = (user, region, true);
        // The pointer is within the allocation, because there are as many contexts as notes.
        let context = self.contexts.as_ptr().wrapping_add(index as usize);
        Some((index, context.cast()))
    }

    /// Whether an operation on this region is in flight.
    pub(super) fn uses(&self, region: RegionHandle) -> bool {
        let mut notes = self.notes.iter();
        notes.any(|note| note.in_flight && note.region == region)
    }

    #[inline]
    pub(super) fn give_back(&mut self, index: u32) {
        if let Some(note) = self.notes.get_mut(index as usize) {
            note.in_flight = false;
            let receive = note.receive;
            self.free(receive).push(index);
        }
    }

    /// Returns the index of a context's slot; `None` for a pointer that is not a slot.
    #[inline]
    fn index_of(&self, context: *mut c_void) -> Option<u32> {
        let from_start = (context as usize).checked_sub(self.contexts.as_ptr() as usize)?;
        let index = from_start / size_of::<Context>();
        let exact = from_start.is_multiple_of(size_of::<Context>()) && index < self.notes.len();
        exact.then_some(index as u32)
    }

    /// Frees the slot of a completed operation, and returns its `user` value and whether it was a receive. `None` if no
    /// operation in flight has this context.
    #[inline]
    pub(super) fn complete(&mut self, context: *mut c_void) -> Option<(u64, bool)> {
        let index = self.index_of(context)?;
        let note = self
            .notes
            .get(index as usize)
            .filter(|note| note.in_flight)?;
        let (user, receive) = (note.user, note.receive);
        self.give_back(index);
        Some((user, receive))
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        if !self.leaked {
            let slice =
                std::ptr::slice_from_raw_parts_mut(self.contexts.as_ptr(), self.notes.len());
            // SAFETY: the pointer came from Box::leak of a slice of this length, and is freed once. Only the endpoint
            // had addresses of contexts, and it was closed before.
            drop(unsafe { Box::from_raw(slice) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_free_again_when_its_operation_is_complete() {
        let mut slots = Slots::new(2, 1);
        let (_, first) = slots.take(false, 10, RegionHandle(10)).unwrap();
        let (_, second) = slots.take(false, 11, RegionHandle(11)).unwrap();
        assert!(
            slots.take(false, 12, RegionHandle(12)).is_none(),
            "all are in flight"
        );
        let (_, receive) = slots.take(true, 13, RegionHandle(13)).unwrap();
        assert!(
            slots.take(true, 14, RegionHandle(14)).is_none(),
            "receives have slots of their own"
        );
        assert!(slots.uses(RegionHandle(11)) && !slots.uses(RegionHandle(12)));
        assert_eq!(slots.complete(second), Some((11, false)));
        assert!(!slots.uses(RegionHandle(11)));
        assert_eq!(slots.complete(receive), Some((13, true)));
        assert!(
            slots.take(false, 15, RegionHandle(15)).is_some()
                && slots.take(true, 16, RegionHandle(16)).is_some()
        );
        assert_eq!(slots.complete(first), Some((10, false)));
        assert_eq!(slots.complete(first), None, "it is complete already");
    }

    #[test]
    fn a_pointer_that_is_no_slot_is_refused() {
        let mut slots = Slots::new(2, 0);
        let (_, context) = slots.take(false, 1, RegionHandle(1)).unwrap();
        for wrong in [
            std::ptr::null_mut(),
            context.wrapping_byte_add(8),
            context.wrapping_byte_add(1 << 20),
            context.wrapping_byte_sub(1 << 20),
        ] {
            assert_eq!(slots.complete(wrong), None);
        }
        assert_eq!(Slots::new(0, 0).complete(context), None);
    }
}
