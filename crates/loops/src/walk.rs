//! The order in which the slots of a footprint are used at one end of a flow. [`super::flow_walk`] combines both ends.

use crate::permutation::{GOLDEN, Permutation, mix_bits};
use tonnage_engine::Access;

/// An endless sequence of slot numbers below `slots`.
#[derive(Debug, Clone)]
pub struct SlotWalk {
    access: Access,
    slots: u64,
    state: u64,
    rounds: PermutedRounds,
}

/// Rounds of a permuted walk. Each round has its own order.
#[derive(Debug, Clone)]
struct PermutedRounds {
    seed: u64,
    /// Number of the round; it wraps after 2^64 rounds.
    round: u64,
    order: Permutation,
}

impl PermutedRounds {
    fn new(slots: u64, seed: u64, round: u64) -> Self {
        Self {
            seed,
            round,
            order: Permutation::new(slots, seed ^ mix_bits(round)),
        }
    }
}

impl SlotWalk {
    /// Creates a walk over `slots` slots (at least one).
    pub fn new(access: Access, slots: u64, seed: u64) -> Self {
        let state = match access {
            Access::Random => seed,
            Access::Sequential | Access::Permuted | Access::Fixed => 0,
        };
        let slots = slots.max(1);
        Self {
            access,
            slots,
            state,
            rounds: PermutedRounds::new(slots, seed, 0),
        }
    }

    /// Number of slots.
    pub fn slots(&self) -> u64 {
        self.slots
    }

    /// Returns the next slot.
    #[inline]
    pub fn next_slot(&mut self) -> u64 {
        match self.access {
            Access::Fixed => 0,
            Access::Sequential => {
                let slot = self.state;
                self.state = if slot + 1 == self.slots { 0 } else { slot + 1 };
                slot
            }
            Access::Permuted => {
                let slot = self.rounds.order.permute(self.state);
                self.state += 1;
                if self.state == self.slots {
                    self.begin_round(1);
                    self.state = 0;
                }
                slot
            }
            Access::Random => {
                // SplitMix64. The high half of the product maps the number to a slot without a division. The bias is
                // below slots / 2^64.
                self.state = self.state.wrapping_add(GOLDEN);
                ((u128::from(mix_bits(self.state)) * u128::from(self.slots)) >> 64) as u64
            }
        }
    }

    /// Begins the round that is `further` rounds ahead.
    fn begin_round(&mut self, further: u64) {
        let PermutedRounds { seed, round, .. } = self.rounds;
        self.rounds = PermutedRounds::new(self.slots, seed, round.wrapping_add(further));
    }

    /// Number of distinct slots that the walk ever reaches.
    pub fn reach(&self) -> u64 {
        match self.access {
            Access::Fixed => 1,
            Access::Sequential | Access::Random | Access::Permuted => self.slots,
        }
    }

    /// Advances by `count` steps.
    pub fn skip(&mut self, count: u64) {
        match self.access {
            Access::Fixed => {}
            Access::Sequential => self.state = (self.state + count % self.slots) % self.slots,
            Access::Permuted => {
                let behind = self.state + count % self.slots;
                let rounds = count / self.slots + behind / self.slots;
                if rounds > 0 {
                    self.begin_round(rounds);
                }
                self.state = behind % self.slots;
            }
            Access::Random => {
                self.state = self.state.wrapping_add(GOLDEN.wrapping_mul(count));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sequential_goes_round_and_fixed_stays() {
        let mut walk = SlotWalk::new(Access::Sequential, 3, 5);
        assert_eq!(
            (0..7).map(|_| walk.next_slot()).collect::<Vec<_>>(),
            [0, 1, 2, 0, 1, 2, 0]
        );
        let mut walk = SlotWalk::new(Access::Fixed, 3, 5);
        assert_eq!((0..3).map(|_| walk.next_slot()).sum::<u64>(), 0);
    }

    #[test]
    fn random_is_repeatable_in_range_and_even() {
        let mut counts = [0u32; 10];
        let mut walk = SlotWalk::new(Access::Random, 10, 5);
        let mut again = walk.clone();
        for _ in 0..10_000 {
            let slot = walk.next_slot();
            assert_eq!(slot, again.next_slot());
            counts[slot as usize] += 1;
        }
        assert!(
            counts.iter().all(|&count| (850..1150).contains(&count)),
            "{counts:?}"
        );
        let mut other = SlotWalk::new(Access::Random, 10, 6);
        assert!(
            (0..20)
                .map(|_| other.next_slot())
                .ne((0..20).map(|_| walk.next_slot()))
        );
    }

    proptest! {
        #[test]
        fn each_round_of_a_permuted_walk_has_each_slot_once(slots in 1u64..300, seed in any::<u64>()) {
            let mut walk = SlotWalk::new(Access::Permuted, slots, seed);
            for _ in 0..4 {
                let mut round: Vec<u64> = (0..slots).map(|_| walk.next_slot()).collect();
                round.sort_unstable();
                prop_assert!(round.into_iter().eq(0..slots));
            }
        }

        #[test]
        fn skipping_any_number_equals_stepping(slots in 1u64..40, seed in any::<u64>(), counts in proptest::collection::vec(0u64..200, 1..6)) {
            for access in Access::ALL {
                let mut stepped = SlotWalk::new(access, slots, seed);
                let mut skipped = stepped.clone();
                for &count in &counts {
                    (0..count).for_each(|_| {
                        stepped.next_slot();
                    });
                    skipped.skip(count);
                    prop_assert_eq!(stepped.next_slot(), skipped.next_slot());
                }
            }
        }
    }

    #[test]
    fn rounds_and_seeds_have_orders_of_their_own() {
        let round = |walk: &mut SlotWalk| (0..64).map(|_| walk.next_slot()).collect::<Vec<_>>();
        let mut seen = std::collections::HashSet::new();
        for seed in 0..100 {
            let mut walk = SlotWalk::new(Access::Permuted, 64, seed);
            for _ in 0..100 {
                assert!(seen.insert(round(&mut walk)), "{seed}");
            }
        }
    }

    #[test]
    fn random_is_split_mix_64() {
        // The first numbers of the authors' own code for seed 0, shifted right by one bit.
        let mut walk = SlotWalk::new(Access::Random, 1 << 63, 0);
        assert_eq!(walk.slots(), 1 << 63);
        for number in [
            0xe220_a839_7b1d_cdaf_u64,
            0x6e78_9e6a_a1b9_65f4,
            0x06c4_5d18_8009_454f,
        ] {
            assert_eq!(walk.next_slot(), number >> 1);
        }
    }

    #[test]
    fn skipping_equals_stepping() {
        for access in Access::ALL {
            let mut stepped = SlotWalk::new(access, 7, 5);
            let mut skipped = stepped.clone();
            for _ in 0..1000 {
                stepped.next_slot();
            }
            skipped.skip(1000);
            assert_eq!(stepped.next_slot(), skipped.next_slot());
            // The maximum number of steps that a flow can have made.
            skipped.skip(u64::MAX);
            assert!(skipped.next_slot() < 7);
        }
    }
}
