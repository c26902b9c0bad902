//! Slots that a flow's operations use at both ends. Both ends compute the same walk from [`FlowSlots`] alone. Each end
//! therefore knows the slots of the n-th operation on both sides.

use tonnage_engine::{Access, Verb};
use tonnage_units::Result;

use super::walk::SlotWalk;
use crate::permutation::{Permutation, mix_bits};

/// Verb and slot layout common to all flows of a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowSlots {
    /// The verb.
    pub op: Verb,
    /// Payload bytes of one operation, at least 1.
    pub size_bytes: u32,
    /// Distance between adjacent slots in bytes.
    pub stride_bytes: u64,
    /// Slots per flow, at least 1.
    pub slots: u64,
    /// Orders of the slots at the initiator and at the target.
    pub orders: (Access, Access),
    /// Number of words at the initiator that receive results of atomic operations. Other operations use the initiator's
    /// slots.
    pub word_places: u64,
    /// Seeds the orders.
    pub seed: u64,
}

impl FlowSlots {
    /// Returns the seed of one flow.
    pub fn seed_of(&self, initiator: u32, target: u32) -> u64 {
        let flow = u64::from(initiator) << 32 | u64::from(target);
        // An odd constant spreads adjacent flows over the seeds.
        self.seed ^ flow.wrapping_mul(0xd129_0b26_6821_4d87)
    }
}

/// The slots of one flow at both ends.
#[derive(Debug, Clone)]
pub struct FlowWalk {
    local: SlotWalk,
    remote: RemoteWalk,
}

/// Slots at the target.
#[derive(Debug, Clone)]
enum RemoteWalk {
    /// The target's slot is the same as the initiator's.
    Same,
    /// The slot paired with the initiator's slot.
    Paired(SlotPairing),
    /// An independent order.
    Own(SlotWalk),
}

/// Fixed pairs of initiator and target slots, as in a page table. The orders at the two ends always differ, but data
/// from one initiator slot always land in the same target slot.
#[derive(Debug, Clone)]
struct SlotPairing {
    permutation: Permutation,
    slots: u64,
    /// Added to each permuted slot: 1 if the permutation could be the identity, otherwise 0.
    turn: u64,
}

impl SlotPairing {
    fn new(slots: u64, seed: u64) -> Self {
        let slots = slots.max(1);
        let permutation = Permutation::new(slots, mix_bits(!seed));
        Self {
            permutation,
            slots,
            turn: u64::from(slots > 1 && permutation.permute(0) == 0),
        }
    }

    #[inline]
    fn partner(&self, slot: u64) -> u64 {
        let turned = self.permutation.permute(slot) + self.turn;
        if turned == self.slots { 0 } else { turned }
    }
}

impl FlowWalk {
    /// Creates the walk of one flow. In random and permuted order, each flow visits the slots in its own order.
    pub fn new(slots: &FlowSlots, initiator: u32, target: u32) -> Self {
        let seed = slots.seed_of(initiator, target);
        if slots.op.is_atomic() {
            let (_, remote) = slots.orders;
            return Self {
                local: SlotWalk::new(Access::Sequential, slots.word_places, seed),
                remote: RemoteWalk::Own(SlotWalk::new(remote, slots.slots, seed)),
            };
        }
        Self::with_orders(slots.orders, slots.slots, seed)
    }

    /// Creates a walk over `slots` slots (at least one) at each end, in the given orders at the initiator and the
    /// target.
    pub fn with_orders((local, remote): (Access, Access), slots: u64, seed: u64) -> Self {
        Self {
            local: SlotWalk::new(local, slots, seed),
            remote: match remote {
                Access::Permuted if local == remote => {
                    RemoteWalk::Paired(SlotPairing::new(slots, seed))
                }
                _ if local == remote => RemoteWalk::Same,
                _ => RemoteWalk::Own(SlotWalk::new(remote, slots, seed)),
            },
        }
    }

    /// Returns the next operation's slots at the initiator and at the target.
    #[inline]
    pub fn next_slots(&mut self) -> (u64, u64) {
        let local = self.local.next_slot();
        let remote = match &mut self.remote {
            RemoteWalk::Same => local,
            RemoteWalk::Paired(pairing) => pairing.partner(local),
            RemoteWalk::Own(walk) => walk.next_slot(),
        };
        (local, remote)
    }

    /// Advances by `count` operations.
    pub fn skip(&mut self, count: u64) {
        self.local.skip(count);
        if let RemoteWalk::Own(walk) = &mut self.remote {
            walk.skip(count);
        }
    }

    /// Returns the next operation's destination slot and source slot.
    fn next_landing(&mut self, lands: FlowEnd) -> (u64, u64) {
        let (local, remote) = self.next_slots();
        match lands {
            FlowEnd::Initiator => (local, remote),
            FlowEnd::Target => (remote, local),
        }
    }

    /// Number of slots that data can ever land in.
    fn landing_reach(&self, lands: FlowEnd) -> u64 {
        match (lands, &self.remote) {
            (FlowEnd::Target, RemoteWalk::Own(walk)) => walk.reach(),
            (FlowEnd::Initiator, _) | (_, RemoteWalk::Same | RemoteWalk::Paired(_)) => {
                self.local.reach()
            }
        }
    }

    /// Visits each slot in which the next `count` operations land, and marks the slot as used. `visit` gets the slot
    /// and the source slot of its last data. The search goes backwards and stops once all reachable slots are used, so
    /// its cost doesn't grow with `count`.
    pub fn each_landing(
        &self,
        count: u64,
        lands: FlowEnd,
        used: &mut [bool],
        mut visit: impl FnMut(u64, u64) -> Result<()>,
    ) -> Result<()> {
        let mut left = self.landing_reach(lands).min(used.len() as u64);
        for step in (0..count).rev() {
            if left == 0 {
                break;
            }
            let mut walk = self.clone();
            walk.skip(step);
            let (landing, source) = walk.next_landing(lands);
            if let Some(used) = used.get_mut(landing as usize)
                && !std::mem::replace(used, true)
            {
                left -= 1;
                visit(landing, source)?;
            }
        }
        Ok(())
    }
}

/// One end of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlowEnd {
    /// The rank that posts the operations.
    Initiator,
    /// The rank that the operations act on.
    Target,
}

#[cfg(test)]
mod tests;
