//! Slots that a flow's operations use at both ends. Both ends compute the same from [`FlowSlots`] alone, so that it is
//! known everywhere which slot the n-th operation uses on either side, and whose data lands where.

use tonnage_engine::{Addresses, Verb};
use tonnage_units::Result;

use super::walk::Walk;
use crate::permutation::{Permutation, mix};

/// Operations and slots that all flows of a point have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowSlots {
    /// Operation.
    pub op: Verb,
    /// Payload bytes of one operation, 1 or more.
    pub size_bytes: u32,
    /// Bytes between the starts of two neighbouring slots.
    pub stride_bytes: u64,
    /// Slots of a flow, 1 or more.
    pub slots: u64,
    /// Orders of the slots at the initiator's end and at the target's.
    pub orders: (Addresses, Addresses),
    /// Places for the words of atomic operations at the initiator's end. Other operations have slots there.
    pub word_places: u64,
    /// Seeds the orders.
    pub seed: u64,
}

impl FlowSlots {
    /// The seed of one flow.
    pub fn seed_of(&self, initiator: u32, target: u32) -> u64 {
        let flow = u64::from(initiator) << 32 | u64::from(target);
        // An odd constant spreads neighbouring flows over the seeds.
        self.seed ^ flow.wrapping_mul(0xd129_0b26_6821_4d87)
    }
}

/// The slots of one flow: of the initiator's end, and of the target's.
#[derive(Debug, Clone)]
pub struct FlowWalk {
    local: Walk,
    remote: RemoteWalk,
}

/// Slots at the target's end.
#[derive(Debug, Clone)]
enum RemoteWalk {
    /// Those of the initiator's end.
    Same,
    /// Those that the slots of the initiator's end are paired with.
    Paired(Pairing),
    /// In an order of their own.
    Own(Walk),
}

/// Fixed pairs of the slots of both ends, as in a table of pages: whatever the order of the slots at one end, that at
/// the other differs from it, and yet the data of one slot always land in the same one.
#[derive(Debug, Clone)]
struct Pairing {
    permutation: Permutation,
    slots: u64,
    /// 1 where the permutation alone might leave all slots in their places.
    turn: u64,
}

impl Pairing {
    fn new(slots: u64, seed: u64) -> Self {
        let slots = slots.max(1);
        let permutation = Permutation::new(slots, mix(!seed));
        Self {
            permutation,
            slots,
            turn: u64::from(slots > 1 && permutation.of(0) == 0),
        }
    }

    #[inline]
    fn partner(&self, slot: u64) -> u64 {
        let turned = self.permutation.of(slot) + self.turn;
        if turned == self.slots { 0 } else { turned }
    }
}

impl FlowWalk {
    /// The walk of one flow. Different flows walk differently under random and permuted addresses.
    pub fn new(slots: &FlowSlots, initiator: u32, target: u32) -> Self {
        let seed = slots.seed_of(initiator, target);
        if slots.op.is_atomic() {
            let (_, remote) = slots.orders;
            return Self {
                local: Walk::over(Addresses::Sequential, slots.word_places, seed),
                remote: RemoteWalk::Own(Walk::over(remote, slots.slots, seed)),
            };
        }
        Self::over(slots.orders, slots.slots, seed)
    }

    /// A walk over `slots` slots, at least one, at either end: in these orders at the initiator's and the target's.
    pub fn over((local, remote): (Addresses, Addresses), slots: u64, seed: u64) -> Self {
        Self {
            local: Walk::over(local, slots, seed),
            remote: match remote {
                Addresses::Permuted if local == remote => {
                    RemoteWalk::Paired(Pairing::new(slots, seed))
                }
                _ if local == remote => RemoteWalk::Same,
                _ => RemoteWalk::Own(Walk::over(remote, slots, seed)),
            },
        }
    }

    /// The next operation's slots: at the initiator's end, and at the target's.
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

    /// Goes `count` operations on without looking at the slots.
    pub fn skip(&mut self, count: u64) {
        self.local.skip(count);
        if let RemoteWalk::Own(walk) = &mut self.remote {
            walk.skip(count);
        }
    }

    /// The next operation's slots where bytes land and where they come from.
    fn next_landing(&mut self, lands: End) -> (u64, u64) {
        let (local, remote) = self.next_slots();
        match lands {
            End::Initiator => (local, remote),
            End::Target => (remote, local),
        }
    }

    /// Slots where bytes ever land.
    fn landing_reach(&self, lands: End) -> u64 {
        match (lands, &self.remote) {
            (End::Target, RemoteWalk::Own(walk)) => walk.reach(),
            (End::Initiator, _) | (_, RemoteWalk::Same | RemoteWalk::Paired(_)) => {
                self.local.reach()
            }
        }
    }

    /// Visits each slot where the next `count` operations land, with the slot whose data landed there last, and marks
    /// it as used. It goes backwards and ends when all slots are used, not after any number of operations.
    pub fn each_landing(
        &self,
        count: u64,
        lands: End,
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
pub enum End {
    /// The rank that posts the operations.
    Initiator,
    /// The other.
    Target,
}

#[cfg(test)]
mod tests;
