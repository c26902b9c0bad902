//! Three ranks in one process. Ranks 1 and 2 change words of rank 0.

use std::sync::Arc;

use super::*;
use crate::kinds::transfer::verify::reports::tests::reports;
use crate::kinds::transfer::verify::tests::memory;
use tonnage_engine::{Lane, Op};
use tonnage_plan::point::Traffic;
use tonnage_plan::testing::slots_point as point;
use tonnage_plan::transfer::{Access, TargetFootprint, TrialLength};

/// Rank 0 and its words, which ranks 1 and 2 change.
struct Contention {
    point: TransferPoint,
    layouts: Vec<SliceLayout>,
    memories: Vec<Arc<dyn Memory>>,
    walks: Vec<WordWalks>,
    flows: Vec<Flow>,
}

impl Contention {
    fn new(op: Verb, access: Access, target_footprint: TargetFootprint) -> Self {
        let mut point = point(access, 6);
        (point.op, point.slots.target_footprint) = (op, target_footprint);
        Self::of(point)
    }

    fn of(mut point: TransferPoint) -> Self {
        (point.roles.ranks, point.roles.traffic) = (3, Traffic::FanIn);
        (point.slots.stride_bytes, point.verify) = (16, tonnage_plan::transfer::Verification::Last);
        let layouts: Vec<_> = (0..3).map(|rank| SliceLayout::new(&point, rank)).collect();
        let flow = |rank: u32| {
            let far = layouts[0].into_origin_of(rank).unwrap();
            let near = layouts[rank as usize].out_origin(0);
            Flow::new(&flow_slots(&point), rank, 0, Lane(0), near, far)
        };
        let walks = |rank: u32| WordWalks::new(&point, (rank, 0), &layouts[rank as usize]);
        Self {
            memories: layouts.iter().map(memory).collect(),
            walks: (0..3).map(walks).collect(),
            flows: vec![flow(1), flow(2)],
            layouts,
            point,
        }
    }

    fn word(&self, rank: usize, offset: u64) -> u64 {
        let mut bytes = [0; 8];
        self.memories[rank].read(offset, &mut bytes).unwrap();
        u64::from_ne_bytes(bytes)
    }

    fn set(&self, rank: usize, offset: u64, word: u64) {
        let bytes = word.to_ne_bytes();
        self.memories[rank].write(offset, &bytes).unwrap();
    }

    fn fill(&mut self, number: u64) {
        for (walks, memory) in self.walks.iter_mut().zip(&self.memories) {
            walks.fill(&**memory, number).unwrap();
        }
    }

    /// Carries out one operation by rank 1 or 2, and returns it.
    fn carry_out(&mut self, rank: usize) -> Op {
        let op = self.flows[rank - 1].next_op(0);
        let old = self.word(0, op.remote);
        if self.point.op == Verb::FetchAdd {
            self.set(0, op.remote, old + u64::from(op.imm));
            self.set(rank, op.local, old);
        } else {
            if old == self.word(rank, op.local) {
                self.set(0, op.remote, self.word(rank, op.local + 8));
            }
            self.set(rank, op.local + 16, old);
        }
        op
    }

    /// Returns the offset to which the old value of an operation is written.
    fn landing(&self, op: Op) -> u64 {
        match self.point.op {
            Verb::FetchAdd => op.local,
            _ => op.local + 16,
        }
    }

    fn expected(&mut self) -> Vec<ExpectedOperations> {
        let mut issued = vec![vec![IssuedOperations::default()]];
        for rank in 1..3 {
            let flow = std::slice::from_ref(&self.flows[rank - 1]);
            let reported = self.walks[rank].issued(&*self.memories[rank], flow);
            issued.push(vec![reported.unwrap()]);
        }
        let expected = |rank| {
            let reports = reports(&self.point, rank, &issued);
            ExpectedOperations::new(&self.point, rank, 0, &reports).unwrap()
        };
        (0..3).map(expected).collect()
    }

    /// Returns the number of verified bytes, or the first error.
    fn check(&mut self, number: u64) -> Result<u64, String> {
        let expected = self.expected();
        let (mut moved, mut untouched) = (Mismatches::default(), Mismatches::default());
        // Checks initiators first, because their errors are more specific than the target's.
        for (rank, expected) in expected.iter().enumerate().rev() {
            let memory = &*self.memories[rank];
            self.walks[rank]
                .check(memory, number, expected, &mut moved, &mut untouched)
                .map_err(|error| error.to_string())?;
        }
        match untouched.is_clean() {
            true => Ok(moved.checked_bytes),
            false => Err(untouched.describe()),
        }
    }

    /// Returns the error after `change` was applied to the results of a trial.
    fn wrong(&mut self, change: &dyn Fn(&Self, Op)) -> String {
        self.fill(7);
        for _ in 0..5 {
            self.carry_out(2);
        }
        let op = self.carry_out(1);
        change(self, op);
        self.check(7).unwrap_err()
    }
}

fn all() -> impl Iterator<Item = Contention> {
    let footprints = [TargetFootprint::Own, TargetFootprint::Shared];
    let ops = [Verb::FetchAdd, Verb::CompareSwap].into_iter();
    ops.flat_map(move |op| {
        let access = Access::ALL.into_iter();
        access.flat_map(move |order| footprints.map(|it| Contention::new(op, order, it)))
    })
}

#[test]
fn words_are_right_for_any_initiators_and_orders() {
    for mut ranks in all() {
        for number in 1..4 {
            ranks.fill(number);
            for turn in 0..40 {
                ranks.carry_out(1 + usize::from(turn % 3 == number % 3));
            }
            assert_eq!(ranks.check(number), Ok(8 * 40), "{:?}", ranks.point);
        }
    }
}

#[test]
fn swaps_of_one_initiator_all_succeed_and_two_share_the_successes() {
    let successes = |access, who: fn(usize) -> usize| {
        let mut ranks = Contention::new(Verb::CompareSwap, access, TargetFootprint::Shared);
        ranks.fill(1);
        for turn in 0..50 {
            ranks.carry_out(who(turn));
        }
        let expected = ranks.expected();
        expected[0].digests.iter().map(|it| it.count).sum::<u64>()
    };
    assert_eq!(successes(Access::Random, |_| 2), 50);
    assert_eq!(successes(Access::Fixed, |turn| 1 + turn % 2), 25);
}

#[test]
fn each_kind_of_damage_is_reported() {
    for mut ranks in all() {
        let lost = ranks.wrong(&|ranks, op| ranks.set(0, op.remote, ranks.word(0, op.remote) + 1));
        assert!(
            lost.contains("and their initiators received old values for"),
            "{lost}"
        );
        let huge = ranks.wrong(&|ranks, op| ranks.set(0, op.remote, u64::MAX));
        assert!(
            huge.contains("and their initiators received old values for"),
            "{huge}"
        );
        let silent = ranks.wrong(&|ranks, op| ranks.set(1, ranks.landing(op), UNANSWERED));
        assert!(silent.contains("the old value did not arrive"), "{silent}");
        let gap = ranks.wrong(&|ranks, op| ranks.set(0, op.remote + 8, 0));
        assert!(gap.contains("bytes are wrong"), "{gap}");
        let last = ranks.wrong(&|ranks, op| {
            let mut byte = [0];
            ranks.memories[0].read(op.remote + 15, &mut byte).unwrap();
            ranks.memories[0]
                .write(op.remote + 15, &[!byte[0]])
                .unwrap();
        });
        assert!(last.contains("bytes are wrong"), "{last}");
        let guard = ranks.wrong(&|ranks, _| {
            let guard = ranks.layouts[0].into_origin(0) + ranks.point.slots.footprint_bytes;
            ranks.set(0, guard, 0);
        });
        assert!(guard.contains("bytes are wrong"), "{guard}");
        let behind = ranks.wrong(&|ranks, _| ranks.set(1, ranks.point.local_bytes(), 0));
        assert!(behind.contains("bytes are wrong"), "{behind}");
    }
}

#[test]
fn an_old_value_that_arrived_twice_is_reported() {
    let mut ranks = Contention::new(Verb::FetchAdd, Access::Fixed, TargetFootprint::Shared);
    ranks.fill(1);
    ranks.carry_out(1);
    let second = ranks.carry_out(2);
    assert_eq!(ranks.word(2, second.local), 1);
    ranks.set(2, second.local, 0);
    let error = ranks.check(1).unwrap_err();
    assert!(error.contains("one old value arrived twice"), "{error}");
}

/// A failed swap changes no word, so only its initiator can notice a missing answer. It must notice this in any round
/// of a trial.
#[test]
fn a_missing_answer_in_an_earlier_round_is_reported() {
    let mut ranks = Contention::new(Verb::CompareSwap, Access::Fixed, TargetFootprint::Shared);
    ranks.fill(1);
    ranks.carry_out(2);
    let failed = ranks.carry_out(1);
    ranks.set(1, ranks.landing(failed), UNANSWERED);
    let (mut all, later) = (ranks.expected(), ranks.expected());
    all[1].add_round(&later[1]);
    let (mut moved, mut untouched) = (Mismatches::default(), Mismatches::default());
    let (walks, memory) = (&ranks.walks[1], &*ranks.memories[1]);
    let error = walks.check(memory, 1, &all[1], &mut moved, &mut untouched);
    let error = error.unwrap_err().to_string();
    assert!(error.contains("the old value did not arrive"), "{error}");
}

/// Creates a test of compare-swap with about `result_slots` result slots. Each operation of a trial has one.
fn with_result_slots(result_slots: u64) -> Contention {
    let mut point = point(Access::Sequential, 6);
    point.op = Verb::CompareSwap;
    let each = u64::from(point.batch_share_max().max(1));
    point.length.trial = TrialLength::Iterations(result_slots / each);
    Contention::of(point)
}

/// Result slots are written and read in chunks. The number of operations is not a multiple of a chunk, and later trials
/// continue at the beginning. The check must be right then too.
#[test]
fn more_operations_than_result_slots_in_a_chunk_are_right() {
    let mut ranks = with_result_slots(10_000);
    assert!((9000..=10_000).contains(&ranks.point.word_places()));
    for number in 1..5 {
        ranks.fill(number);
        for _ in 0..7001 {
            ranks.carry_out(1);
        }
        assert_eq!(ranks.check(number), Ok(8 * 7001), "{number}");
        // With a single initiator, each swap finds the value that it expects.
        let words = ranks.layouts[0].into_origin_of(1).unwrap();
        let slots = (0..ranks.point.slots.count()).map(|slot| ranks.word(0, words + 16 * slot));
        assert_eq!(slots.sum::<u64>(), 7001, "{number}");
    }
}

#[test]
fn a_trial_has_one_result_slot_per_operation_and_rejects_more_operations() {
    for more in [0, 1] {
        let mut ranks = with_result_slots(64);
        let result_slots = ranks.point.word_places();
        ranks.fill(1);
        for _ in 0..result_slots + more {
            ranks.carry_out(1);
        }
        let flow = std::slice::from_ref(&ranks.flows[0]);
        let reported = ranks.walks[1].issued(&*ranks.memories[1], flow);
        assert_eq!(reported.is_ok(), more == 0);
    }
}
