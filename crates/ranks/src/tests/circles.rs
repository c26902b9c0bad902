//! Collectives of a few ranks, in which the other ranks take no part.

use super::*;

/// In turn k, ranks k - 2 to k start together, and then ranks k - 1 and k exchange messages. So most ranks are members
/// in consecutive turns.
#[test]
fn a_group_meets_without_the_other_ranks() {
    for size in [2u32, 5, 13] {
        let starts = run_and_close(size, move |rank| {
            let me = rank.id();
            let mut starts = Vec::new();
            for turn in 1..u64::from(size) {
                let second = turn as u32;
                let first = second - 1;
                let before = first.checked_sub(1);
                let together =
                    RankGroup::new(2 * turn - 1, before.into_iter().chain([first, second]));
                if !together.contains(me) {
                    continue;
                }
                let (start_ns, Sum(sum)) = rank
                    .reduce_and_align_start(&together, "start", &Sum(u64::from(me)), SOON)
                    .unwrap();
                let all = before.into_iter().chain([first, second]);
                assert_eq!(sum, all.map(u64::from).sum::<u64>());
                starts.push((turn, start_ns));
                let pair = RankGroup::new(2 * turn, [first, second]);
                if !pair.contains(me) {
                    continue;
                }
                let outsider = (0..13).find(|rank| !pair.contains(*rank)).unwrap();
                let wrong = rank.start_exchange(&pair, "end", vec![(outsider, Vec::new())]);
                assert!(wrong.is_err(), "{outsider}");
                let other = if me == first { second } else { first };
                let told = vec![(other, vec![me as u8])];
                let pending = rank.start_exchange(&pair, "end", told).unwrap();
                let heard = rank.finish_exchange(pending, SOON).unwrap();
                assert_eq!(heard, [(other, vec![other as u8])]);
            }
            rank.barrier("all", SOON).unwrap();
            starts
        });
        let mut known = std::collections::BTreeMap::new();
        for (turn, start_ns) in starts.into_iter().flatten() {
            assert_eq!(*known.entry(turn).or_insert(start_ns), start_ns, "{turn}");
        }
        assert!(known.values().is_sorted(), "{known:?}");
        assert_eq!(known.len(), size as usize - 1);
    }
}

/// A group of all ranks behaves like a collective of all ranks.
#[test]
fn a_circle_may_be_of_all() {
    run_and_close(4, |rank| {
        let all = RankGroup::new(1, 0..4);
        let pending = rank.start_group_barrier(&all, "all").unwrap();
        rank.finish_barrier(pending, SOON).unwrap();
        let few = RankGroup::new(1, [1, 2]);
        if few.contains(rank.id()) {
            let pending = rank.start_group_barrier(&few, "few").unwrap();
            rank.finish_barrier(pending, SOON).unwrap();
        }
    });
}

/// Rank 41 enters a collective, but the other member, rank 40, does not. The other ranks are asked, but none of them
/// may be blamed. There are more of them than a message describes individually.
#[test]
fn a_rank_missing_in_a_group_is_named() {
    for error in run(48, |mut rank| {
        let few = RankGroup::new(3, [40, 41]);
        rank.set_phase("asleep");
        if rank.id() == 41 {
            let pending = rank.start_group_barrier(&few, "turn").unwrap();
            let waited = Duration::from_millis(200);
            return rank.finish_barrier(pending, waited).unwrap_err();
        }
        rank.barrier("all", SOON).unwrap_err()
    }) {
        assert_eq!(blamed(&error), (40, "h40".into()));
        says(&error, &["turn", "asleep"]);
        assert!(!error.to_string().contains("missing too"), "{error}");
    }
}

/// If a rank is lost while two ranks are in a collective, ranks that wait in later collectives also stop waiting.
#[test]
fn ranks_waiting_for_their_turn_learn_of_a_lost_rank() {
    for error in run(7, |mut rank| {
        if rank.id() == 3 {
            let error = Error::Failed("gone".into());
            rank.fail(&error);
            return error;
        }
        let few = RankGroup::new(1 + u64::from(rank.id()), [3, rank.id().max(4)]);
        if !few.contains(rank.id()) {
            return rank.barrier("all", SOON).unwrap_err();
        }
        let pending = rank.start_group_barrier(&few, "turn");
        let met = pending.and_then(|pending| rank.finish_barrier(pending, SOON));
        met.unwrap_err()
    }) {
        assert!(error.to_string().contains("gone"), "{error}");
    }
}
