use std::sync::Arc;

use super::reports::tests::reports;
use super::*;
use crate::kinds::transfer::trial::IssuedOperations;
use tonnage_engine::Lane;
use tonnage_engine::memory::Request;
use tonnage_engines::memory::HOST;
use tonnage_plan::point::Traffic;
use tonnage_plan::roles::Roles;
use tonnage_plan::testing::slots_point as point;
use tonnage_plan::transfer::{Access, Slots, Verification};

/// Allocates the memory for a layout.
pub(super) fn memory(layout: &SliceLayout) -> Arc<dyn Memory> {
    let request = Request {
        bytes: layout.bytes(),
        ..Request::default()
    };
    (HOST.allocate)(&request).unwrap()
}

fn issued(first: u64, end: u64) -> IssuedOperations {
    IssuedOperations {
        ranges: vec![(first, end)],
        digests: Vec::new(),
    }
}

#[test]
fn immediates_continue_across_the_32_bit_wrap() {
    let edge = 1u64 << 32;
    let by_hand = |numbers: std::ops::Range<u64>| {
        let mixed = numbers.map(|number| arrival_mix(7, (number & 0xffff_ffff) as u32));
        mixed.fold(0, u64::wrapping_add)
    };
    assert_eq!(
        (arrival_set(7, (3, 3)), arrival_set(7, (5, 8))),
        (0, by_hand(5..8))
    );
    assert_eq!(
        arrival_set(7, (edge - 3, edge + 4)),
        by_hand(edge - 3..edge + 4)
    );
    assert_eq!(arrival_set(7, (edge, edge + 4)), arrival_set(7, (0, 4)));
}

/// Two different sets of arrivals may have the same number and the same sum of immediates. The check must distinguish
/// them.
#[test]
fn arrivals_are_a_set_and_not_a_sum() {
    let set = |arrivals: &[(u32, u32)]| {
        let mixed = arrivals.iter().map(|&(peer, imm)| arrival_mix(peer, imm));
        mixed.fold(0, u64::wrapping_add)
    };
    let sent = [(0, 1), (0, 2), (0, 3), (0, 4)];
    assert_eq!(set(&sent), set(&[(0, 4), (0, 2), (0, 1), (0, 3)]));
    for other in [
        [(0, 1), (0, 1), (0, 4), (0, 4)],
        [(0, 0), (0, 2), (0, 3), (0, 5)],
        [(1, 1), (0, 2), (0, 3), (0, 4)],
    ] {
        assert_ne!(set(&sent), set(&other), "{other:?}");
    }
}

#[test]
fn lost_duplicated_and_changed_arrivals_are_detected() {
    let mut point = point(Access::Sequential, 4);
    point.op = Verb::WriteImm;
    let issued = vec![vec![issued(10, 14)], vec![IssuedOperations::default()]];
    let expected = ExpectedOperations::new(&point, 1, 0, &reports(&point, 1, &issued)).unwrap();
    assert_eq!((expected.arrivals, &expected.into[..]), (Some(4), &[4][..]));
    assert_eq!(expected.initiators, [(0, (10, 14))]);
    let seen = |peer: u32, immediates: &[u32], named| {
        let mixed = immediates.iter().map(|&imm| arrival_mix(peer, imm));
        let arrivals = Arrivals {
            count: immediates.len() as u64,
            set: mixed.fold(0, u64::wrapping_add),
            last_ns: 0,
        };
        check_arrivals(&point, &expected, &arrivals, named).is_ok()
    };
    assert!(seen(0, &[10, 11, 12, 13], true) && seen(u32::MAX, &[13, 11, 12, 10], false));
    for wrong in [
        &[10, 11, 12][..],
        &[10, 11, 12, 13, 13],
        &[10, 11, 12, 14],
        &[10, 10, 13, 13],
    ] {
        assert!(
            !seen(0, wrong, true) && !seen(u32::MAX, wrong, false),
            "{wrong:?}"
        );
    }
    assert!(!seen(1, &[10, 11, 12, 13], true));
}

#[test]
fn every_ping_has_an_answer() {
    let mut point = point(Access::Sequential, 4);
    point.pacing = Pacing::PingPong;
    point.op = Verb::WriteImm;
    // Rank 1 sent its report before it answered.
    let issued = vec![vec![issued(10, 14)], vec![issued(10, 10)]];
    for rank in [0, 1] {
        let expected =
            ExpectedOperations::new(&point, rank, 0, &reports(&point, rank, &issued)).unwrap();
        assert_eq!(expected.arrivals, Some(4));
        assert_eq!(expected.initiators, [(1 - rank, (10, 14))]);
        assert_eq!((expected.into, expected.out), (vec![4], vec![4]));
    }
    point.pacing = Pacing::Stream { depth: 4 };
    let expected = ExpectedOperations::new(&point, 0, 0, &reports(&point, 0, &issued)).unwrap();
    assert_eq!((expected.into, expected.out), (vec![], vec![4]));
}

#[test]
fn a_report_from_another_plan_is_rejected() {
    let point = point(Access::Sequential, 4);
    let took_part = reports(&point, 1, &[vec![IssuedOperations::default()], Vec::new()]);
    assert!(ExpectedOperations::new(&point, 1, 0, &took_part).is_err());
    // A rank that took no part has issued nothing.
    let none =
        ExpectedOperations::new(&point, 1, 0, &reports(&point, 1, &[Vec::new(), Vec::new()]));
    assert_eq!(none.unwrap().into, [0]);
}

#[test]
fn workers_report_their_operations_only_if_these_are_checked() {
    let asked = |op, verify: bool, moves_bytes| {
        let point = TransferPoint {
            op,
            verify: if verify {
                Verification::Last
            } else {
                Verification::Off
            },
            ..point(Access::Sequential, 4)
        };
        ExpectedOperations::is_needed(&point, moves_bytes)
    };
    for op in Verb::ALL {
        assert!(!asked(op, true, false) && !asked(op, false, false));
        assert!(asked(op, true, true));
        assert_eq!(asked(op, false, true), op.notifies_target());
    }
}

/// Both ends of a flow from rank 0 to rank 1, with 4 slots of 8 bytes and gaps of 8 bytes.
struct Pair {
    point: TransferPoint,
    memories: [Arc<dyn Memory>; 2],
    walks: [SliceWalks; 2],
    layouts: [SliceLayout; 2],
    flow: Flow,
}

impl Pair {
    fn new(op: Verb, pacing: Pacing) -> Self {
        Self::of(op, pacing, (Access::Sequential, Access::Sequential))
    }

    fn of(op: Verb, pacing: Pacing, (local, remote): (Access, Access)) -> Self {
        let example = point(remote, 4);
        let point = TransferPoint {
            op,
            pacing,
            slots: Slots {
                local_access: Some(local),
                stride_bytes: 16,
                footprint_bytes: 64,
                ..example.slots
            },
            verify: Verification::Last,
            ..example
        };
        let layouts = [0, 1].map(|rank| SliceLayout::new(&point, rank));
        let memories = layouts.each_ref().map(memory);
        let walks = [0, 1].map(|rank| SliceWalks::new(&point, (rank, 0), &layouts[rank as usize]));
        let origins = (layouts[0].out_origin(0), layouts[1].into_origin(0));
        let flow = Flow::new(&flow_slots(&point), 0, 1, Lane(0), origins.0, origins.1);
        Self {
            point,
            memories,
            walks,
            layouts,
            flow,
        }
    }

    /// Returns the rank to which bytes are moved.
    fn target(&self) -> usize {
        usize::from(self.point.op != Verb::Read)
    }

    fn fill(&self, number: u64) {
        for (walks, memory) in self.walks.iter().zip(&self.memories) {
            walks.fill(&**memory, number).unwrap();
        }
    }

    /// Fills both memories and carries out `operations` operations, as an engine would.
    fn trial(&mut self, number: u64, operations: u64) -> ExpectedOperations {
        self.fill(number);
        for _ in 0..operations {
            let op = self.flow.next_op(0);
            let mut bytes = vec![0; op.len as usize];
            let [near, far] = [(0, op.local), (1, op.remote)];
            let (from, to) = match self.point.op {
                Verb::Read => (far, near),
                _ => (near, far),
            };
            self.memories[from.0].read(from.1, &mut bytes).unwrap();
            self.memories[to.0].write(to.1, &bytes).unwrap();
        }
        let own = self.walks[0].issued(std::slice::from_ref(&self.flow));
        let range = (self.flow.issued - operations, self.flow.issued);
        assert_eq!(own.ranges, [range]);
        let issued = vec![vec![own], vec![IssuedOperations::default()]];
        let target = self.target() as u32;
        let reports = reports(&self.point, target, &issued);
        ExpectedOperations::new(&self.point, target, 0, &reports).unwrap()
    }

    /// Returns the number of verified bytes, of wrong bytes among these, and of wrong bytes elsewhere.
    fn check(&self, number: u64, expected: &ExpectedOperations) -> (u64, u64, u64) {
        let (mut moved, mut untouched) = (Mismatches::default(), Mismatches::default());
        let (walks, memory) = (&self.walks[self.target()], &*self.memories[self.target()]);
        let checked = walks.check(memory, number, expected, &mut moved, &mut untouched);
        checked.unwrap();
        let elsewhere = untouched.wrong_bytes;
        (moved.checked_bytes, moved.wrong_bytes, elsewhere)
    }

    /// Returns the offset of the first slot to which bytes are moved.
    fn landing(&self) -> u64 {
        self.origin(self.target())
    }

    fn origin(&self, rank: usize) -> u64 {
        match rank {
            0 => self.layouts[0].out_origin(0),
            _ => self.layouts[1].into_origin(0),
        }
    }

    /// Returns whether some operation uses slots with different numbers at its two ends.
    fn differs(&self) -> bool {
        let (local, remote) = self.point.slots.orders();
        local != remote || local == Access::Permuted
    }

    /// Overwrites each destination slot, one at a time, with the source slot of the same number. A check that ignored
    /// which slots belong together would accept this. Returns how many of these errors are found.
    fn misplace(&self, landing: u64, number: u64, expected: &ExpectedOperations) -> usize {
        let source = 1 - self.target();
        let from = self.origin(source);
        let mut found = 0;
        for slot in 0..4 {
            let (at, mut own, mut other) = (slot * 16, [0; 8], [0; 8]);
            let memory = &self.memories[self.target()];
            memory.read(landing + at, &mut own).unwrap();
            self.memories[source].read(from + at, &mut other).unwrap();
            memory.write(landing + at, &other).unwrap();
            let (_, wrong, elsewhere) = self.check(number, expected);
            // Only wrong bytes in a used slot count. In an unused slot, they would count as `elsewhere`.
            found += usize::from(wrong > 0 && elsewhere == 0);
            memory.write(landing + at, &own).unwrap();
        }
        found
    }

    fn damage(&self, offset: u64) {
        let (memory, at) = (&self.memories[self.target()], self.landing() + offset);
        let mut byte = [0];
        memory.read(at, &mut byte).unwrap();
        memory.write(at, &[!byte[0]]).unwrap();
    }
}

/// One worker's bytes must not be accepted in another worker's memory, even at the same offset.
#[test]
fn workers_of_a_pair_have_their_own_data() {
    for op in [Verb::Write, Verb::Read] {
        let mut pair = Pair::new(op, Pacing::Stream { depth: 4 });
        let expected = pair.trial(1, 3);
        assert_eq!(pair.check(1, &expected), (24, 0, 0), "{op:?}");
        let rank = pair.target();
        let other = SliceWalks::new(&pair.point, (rank as u32, 1), &pair.layouts[rank]);
        pair.walks[rank] = other;
        assert_ne!(pair.check(1, &expected).1, 0, "{op:?}");
    }
}

#[test]
fn a_wrong_byte_is_found_wherever_it_lies() {
    for op in [Verb::Write, Verb::Read] {
        let mut pair = Pair::new(op, Pacing::Stream { depth: 4 });
        let expected = pair.trial(1, 3);
        assert_eq!(pair.check(1, &expected), (24, 0, 0), "{op:?}");
        assert_ne!(
            pair.check(2, &expected).1,
            0,
            "data of trial 1 are wrong for trial 2"
        );
        // A wrong byte is in a used slot, a gap, an unused slot, after the last slot, or in the guard.
        for (offset, wrong) in [
            (0, (24, 1, 0)),
            (39, (24, 1, 0)),
            (40, (24, 0, 1)),
            (47, (24, 0, 1)),
            (48, (24, 0, 1)),
            (63, (24, 0, 1)),
            (64, (24, 0, 1)),
            (64 + GUARD_BYTES - 1, (24, 0, 1)),
        ] {
            pair.damage(offset);
            assert_eq!(pair.check(1, &expected), wrong, "{op:?} {offset}");
            pair.damage(offset);
        }
        // Bytes that have not arrived count as wrong.
        let mut more = expected.clone();
        match op {
            Verb::Read => more.out[0] += 1,
            _ => more.into[0] += 1,
        }
        let (checked, wrong, _) = pair.check(1, &more);
        assert!(checked == 32 && wrong > 0, "{op:?} {wrong}");
    }
}

/// Whatever the order of slots at both ends, the check expects the data that arrived last. If an operation came from a
/// slot with another number, data from the slot with the same number are wrong.
#[test]
fn every_slot_is_checked_for_the_source_that_landed_there_last() {
    let pacing = Pacing::Batch { batch: 1 };
    let orders = Access::ALL.iter();
    for orders in orders.flat_map(|&one| Access::ALL.iter().map(move |&other| (one, other))) {
        for op in [Verb::Write, Verb::Read] {
            let mut pair = Pair::of(op, pacing, orders);
            let (mut moved_anew, landing) = (0, pair.landing());
            for (number, operations) in [(1, 3), (2, 1), (3, 40)] {
                let expected = pair.trial(number, operations);
                let (checked, wrong, elsewhere) = pair.check(number, &expected);
                assert!(
                    checked >= 8 && (wrong, elsewhere) == (0, 0),
                    "{op:?} {orders:?}"
                );
                moved_anew += pair.misplace(landing, number, &expected);
                pair.walks[pair.target()].advance(&expected);
            }
            assert_eq!(moved_anew > 0, pair.differs(), "{op:?} {orders:?}");
        }
    }
}

/// A shared footprint is filled once. Its data are the same for all initiators, but belong to no flow.
#[test]
fn a_shared_footprint_holds_the_targets_own_data() {
    let mut point = TransferPoint {
        op: Verb::Read,
        roles: Roles::new(Traffic::FanIn, 3),
        verify: Verification::Last,
        ..point(Access::Sequential, 4)
    };
    point.slots.target_footprint = TargetFootprint::Shared;
    let layouts = [0, 1, 2].map(|rank| SliceLayout::new(&point, rank));
    let memories = layouts.each_ref().map(memory);
    let walks = [0, 1, 2].map(|rank| SliceWalks::new(&point, (rank, 0), &layouts[rank as usize]));
    for (memory, walks) in memories.iter().zip(&walks) {
        walks.fill(&**memory, 1).unwrap();
    }
    let expected = ExpectedOperations {
        out: vec![4],
        ..ExpectedOperations::default()
    };
    let wrong = |rank: usize| {
        let (mut moved, mut untouched) = (Mismatches::default(), Mismatches::default());
        let checked = walks[rank].check(&*memories[rank], 1, &expected, &mut moved, &mut untouched);
        checked.unwrap();
        assert!(untouched.is_clean());
        moved.wrong_bytes
    };
    for initiator in [1, 2] {
        assert_eq!(
            wrong(initiator),
            32,
            "initiator {initiator} has read nothing yet"
        );
        let mut bytes = [0; 32];
        let from = layouts[0].into_origin_of(initiator as u32).unwrap();
        memories[0].read(from, &mut bytes).unwrap();
        memories[initiator].write(0, &bytes).unwrap();
        assert_eq!(wrong(initiator), 0);
        // Writes the data that would belong to a flow, which must be found wrong.
        memories[initiator]
            .fill(0, 0, 32, Key::new(point.slots.seed, 1, initiator as u32, 0))
            .unwrap();
        assert!(wrong(initiator) > 16);
    }
}

#[test]
fn the_byte_that_signals_an_arrival_is_not_data() {
    for (op, bytes) in [(Verb::Write, 7), (Verb::WriteImm, 8)] {
        let mut pair = Pair::new(op, Pacing::PingPong);
        pair.fill(1);
        // Moves bytes in both directions, so that each end has written into the other's slots.
        let layout = &pair.layouts[1];
        let mut data = [0; 8];
        let op = pair.flow.next_op(0);
        pair.memories[0].read(op.local, &mut data).unwrap();
        let into = layout.into_origin(0);
        pair.memories[1].write(into, &data).unwrap();
        let expected = ExpectedOperations {
            into: vec![1],
            out: vec![1],
            ..ExpectedOperations::default()
        };
        assert_eq!(pair.check(1, &expected), (bytes, 0, 0));
        pair.damage(7);
        assert_eq!(pair.check(1, &expected), (bytes, bytes - 7, 0));
    }
}
