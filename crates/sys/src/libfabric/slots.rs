//! The contexts that the library owns while operations are in flight.
//!
//! What lives here: handing them out and taking them back, without allocating. What does not: the operations
//! themselves, which are in [`super::post`].

use std::ffi::c_void;

/// What the library owns while an operation is in flight (`struct fi_context2`), and what comes back with it.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Slot {
    context: [*mut c_void; 8],
    user: u64,
    receive: bool,
}

/// The slots of an endpoint: those of operations, and behind them those of receives, so that neither can use up the
/// other's.
#[derive(Default)]
pub(super) struct Slots {
    slots: Box<[Slot]>,
    free_operations: Vec<u32>,
    free_receives: Vec<u32>,
}

impl Slots {
    pub(super) fn new(operations: u32, receives: u32) -> Self {
        let slot = |receive| Slot {
            context: [std::ptr::null_mut(); 8],
            user: 0,
            receive,
        };
        let all = operations + receives;
        let slots = (0..all).map(|index| slot(index >= operations)).collect();
        Self {
            slots,
            free_operations: (0..operations).rev().collect(),
            free_receives: (operations..all).rev().collect(),
        }
    }

    /// Leaves the slots allocated for ever.
    pub(super) fn leak(self) {
        Box::leak(self.slots);
    }

    /// Takes a slot; `None` when all are in flight.
    #[inline]
    pub(super) fn take(&mut self, receive: bool, user: u64) -> Option<(u32, *mut c_void)> {
        let free = if receive {
            &mut self.free_receives
        } else {
            &mut self.free_operations
        };
        let index = free.pop()?;
        let slot = self.slots.get_mut(index as usize)?;
        slot.user = user;
        Some((index, (&raw mut slot.context).cast()))
    }

    #[inline]
    pub(super) fn give_back(&mut self, index: u32, receive: bool) {
        if receive {
            self.free_receives.push(index);
        } else {
            self.free_operations.push(index);
        }
    }

    /// The slot that a context lies in; `None` for a pointer that is none of ours.
    #[inline]
    fn index_of(&self, context: *mut c_void) -> Option<u32> {
        let from_start = (context as usize).checked_sub(self.slots.as_ptr() as usize)?;
        let index = from_start / size_of::<Slot>();
        let exact = from_start.is_multiple_of(size_of::<Slot>()) && index < self.slots.len();
        exact.then_some(index as u32)
    }

    /// Takes back the slot of a completed operation, and says what it was for.
    #[inline]
    pub(super) fn complete(&mut self, context: *mut c_void) -> Option<(u64, bool)> {
        let index = self.index_of(context)?;
        let slot = self.slots.get(index as usize)?;
        let (user, receive) = (slot.user, slot.receive);
        self.give_back(index, receive);
        Some((user, receive))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_free_again_when_its_operation_is_complete() {
        let mut slots = Slots::new(2, 1);
        let (_, first) = slots.take(false, 10).unwrap();
        let (_, second) = slots.take(false, 11).unwrap();
        assert!(slots.take(false, 12).is_none(), "all are in flight");
        let (_, receive) = slots.take(true, 13).unwrap();
        assert!(slots.take(true, 14).is_none(), "receives have their own");
        assert_eq!(slots.complete(second), Some((11, false)));
        assert_eq!(slots.complete(receive), Some((13, true)));
        assert!(slots.take(false, 15).is_some() && slots.take(true, 16).is_some());
        assert_eq!(slots.complete(first), Some((10, false)));
    }

    #[test]
    fn a_pointer_that_is_no_slot_is_refused() {
        let mut slots = Slots::new(2, 0);
        let (_, context) = slots.take(false, 1).unwrap();
        for wrong in [
            std::ptr::null_mut(),
            context.wrapping_byte_add(8),
            context.wrapping_byte_add(1 << 20),
            context.wrapping_byte_sub(1 << 20),
        ] {
            assert_eq!(slots.complete(wrong), None);
        }
        assert_eq!(Slots::default().complete(context), None);
    }
}
