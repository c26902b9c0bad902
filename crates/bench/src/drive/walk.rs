//! Order in which the slots of a footprint are used. Both ends of a flow walk the same way, so that the n-th operation
//! uses the same slot on either side and the data that belongs there is known.

use tonnage_plan::transfer::{Addresses, TransferPoint};

/// An endless sequence of slot numbers below `slots`.
#[derive(Debug, Clone)]
pub struct Walk {
    addresses: Addresses,
    slots: u64,
    state: u64,
}

impl Walk {
    /// The walk of one flow of a point. Different flows walk differently under random addresses.
    pub fn new(point: &TransferPoint, initiator: u32, target: u32) -> Self {
        let flow = u64::from(initiator) << 32 | u64::from(target);
        // An odd constant spreads neighbouring flows over the seeds.
        let seed = point.seed ^ flow.wrapping_mul(0xd129_0b26_6821_4d87);
        Self::over(point.addresses, point.slots(), seed)
    }

    /// A walk over `slots` slots, at least one.
    pub fn over(addresses: Addresses, slots: u64, seed: u64) -> Self {
        let state = match addresses {
            Addresses::Random => seed,
            Addresses::Sequential | Addresses::Fixed => 0,
        };
        Self {
            addresses,
            slots: slots.max(1),
            state,
        }
    }

    /// Number of slots.
    pub fn slots(&self) -> u64 {
        self.slots
    }

    /// The next slot.
    #[inline]
    pub fn next_slot(&mut self) -> u64 {
        match self.addresses {
            Addresses::Fixed => 0,
            Addresses::Sequential => {
                let slot = self.state;
                self.state = if slot + 1 == self.slots { 0 } else { slot + 1 };
                slot
            }
            Addresses::Random => {
                // SplitMix64; the high half of the product maps it to the slots without a division. The bias is below
                // slots / 2^64.
                self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let mut x = self.state;
                x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                x ^= x >> 31;
                ((u128::from(x) * u128::from(self.slots)) >> 64) as u64
            }
        }
    }

    /// Walks `count` steps and marks the slots that are used. Stops early when all are.
    pub fn mark(&mut self, count: u64, used: &mut [bool]) {
        let mut left = used.iter().filter(|&&used| !used).count();
        for _ in 0..count {
            if left == 0 {
                break;
            }
            if let Some(slot) = used.get_mut(self.next_slot() as usize)
                && !*slot
            {
                *slot = true;
                left -= 1;
            }
        }
    }

    /// Goes `count` steps on without looking at the slots.
    pub fn skip(&mut self, count: u64) {
        match self.addresses {
            Addresses::Fixed => {}
            Addresses::Sequential => self.state = (self.state + count % self.slots) % self.slots,
            Addresses::Random => {
                self.state = self
                    .state
                    .wrapping_add(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(count));
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use tonnage_engine::Verb;
    use tonnage_plan::point::{LimitChoice, Traffic};
    use tonnage_plan::transfer::{Pacing, PointLength, TrialLength};

    /// A small point for unit tests of the loops.
    pub(crate) fn point(addresses: Addresses, slots: u64) -> TransferPoint {
        TransferPoint {
            label: None,
            engine: "mock".into(),
            engine_options: Default::default(),
            op: Verb::Write,
            traffic: Traffic::Pair,
            ranks: 2,
            initiators: None,
            target_shift: 0,
            workers: 1,
            queue_pairs: 1,
            cut: None,
            place: None,
            size_bytes: 8,
            pacing: Pacing::Stream { window: 4 },
            memory: "host".into(),
            footprint_bytes: slots * 8,
            stride_bytes: 8,
            addresses,
            seed: 5,
            latency: true,
            verify: false,
            limit: LimitChoice::None,
            length: PointLength {
                trials: 1,
                trial: TrialLength::Iterations(100),
                warmup_ns: 0,
                until_ci: None,
                max_duration_ns: None,
            },
        }
    }

    #[test]
    fn sequential_goes_round_and_fixed_stays() {
        let mut walk = Walk::new(&point(Addresses::Sequential, 3), 0, 1);
        assert_eq!(
            (0..7).map(|_| walk.next_slot()).collect::<Vec<_>>(),
            [0, 1, 2, 0, 1, 2, 0]
        );
        let mut walk = Walk::new(&point(Addresses::Fixed, 3), 0, 1);
        assert_eq!((0..3).map(|_| walk.next_slot()).sum::<u64>(), 0);
    }

    #[test]
    fn random_is_repeatable_in_range_and_even() {
        let mut counts = [0u32; 10];
        let mut walk = Walk::new(&point(Addresses::Random, 10), 0, 1);
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
        let mut other = Walk::new(&point(Addresses::Random, 10), 1, 2);
        assert!(
            (0..20)
                .map(|_| other.next_slot())
                .ne((0..20).map(|_| walk.next_slot()))
        );
    }

    #[test]
    fn random_is_split_mix_64() {
        // The first numbers of its authors' code for the seed 0, without the last bit.
        let mut walk = Walk::over(Addresses::Random, 1 << 63, 0);
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
    fn every_flow_and_seed_has_a_walk_of_its_own() {
        let mut seen = std::collections::HashSet::new();
        for seed in 0..16 {
            for (initiator, target) in [(0, 1), (1, 0), (1, 2), (2, 1), (3, 1), (1, 3)] {
                let point = TransferPoint {
                    seed,
                    ..point(Addresses::Random, 1 << 60)
                };
                let mut walk = Walk::new(&point, initiator, target);
                assert!(seen.insert(walk.next_slot()), "{seed} {initiator} {target}");
            }
        }
    }

    #[test]
    fn skipping_equals_stepping() {
        for addresses in [Addresses::Sequential, Addresses::Random, Addresses::Fixed] {
            let mut stepped = Walk::new(&point(addresses, 7), 0, 1);
            let mut skipped = stepped.clone();
            for _ in 0..1000 {
                stepped.next_slot();
            }
            skipped.skip(1000);
            assert_eq!(stepped.next_slot(), skipped.next_slot());
            // As many steps as a flow can ever have made.
            skipped.skip(u64::MAX);
            assert!(skipped.next_slot() < 7);
        }
    }

    #[test]
    fn marking_finds_the_slots_of_so_many_steps() {
        let mut used = vec![false; 5];
        Walk::new(&point(Addresses::Sequential, 5), 0, 1).mark(3, &mut used);
        assert_eq!(used, [true, true, true, false, false]);
        // It stops when all are used, and not after a million steps.
        let (mut walk, mut used) = (
            Walk::new(&point(Addresses::Sequential, 5), 0, 1),
            [false; 5],
        );
        walk.mark(1_000_001, &mut used);
        assert_eq!(walk.next_slot(), 0);
    }
}
