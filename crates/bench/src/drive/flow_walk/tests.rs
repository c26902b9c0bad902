use super::*;
use crate::drive::walk::tests::point;
use proptest::prelude::*;

fn steps(walk: &mut FlowWalk, count: usize) -> Vec<(u64, u64)> {
    (0..count).map(|_| walk.next_slots()).collect()
}

/// All orders of both ends.
fn orders() -> impl Iterator<Item = (Addresses, Addresses)> {
    let remotes = |local| Addresses::ALL.iter().map(move |&remote| (local, remote));
    Addresses::ALL.iter().flat_map(move |&local| remotes(local))
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
            let mut walk = FlowWalk::new(&point, initiator, target);
            assert!(
                seen.insert(walk.next_slots()),
                "{seed} {initiator} {target}"
            );
        }
    }
}

#[test]
fn each_end_has_its_own_order() {
    let mut walk = FlowWalk::over((Addresses::Fixed, Addresses::Sequential), 3, 5);
    assert_eq!(steps(&mut walk, 4), [(0, 0), (0, 1), (0, 2), (0, 0)]);
    let mut walk = FlowWalk::over((Addresses::Sequential, Addresses::Fixed), 2, 5);
    assert_eq!(steps(&mut walk, 3), [(0, 0), (1, 0), (0, 0)]);
    let mut walk = FlowWalk::over((Addresses::Random, Addresses::Random), 1 << 40, 5);
    assert!(
        steps(&mut walk, 9)
            .iter()
            .all(|(local, remote)| local == remote)
    );
}

#[test]
fn skipping_equals_stepping_at_both_ends() {
    for orders in orders() {
        let mut stepped = FlowWalk::over(orders, 7, 5);
        let mut skipped = stepped.clone();
        steps(&mut stepped, 1000);
        skipped.skip(1000);
        assert_eq!(
            steps(&mut stepped, 20),
            steps(&mut skipped, 20),
            "{orders:?}"
        );
    }
}

proptest! {
    /// Each slot once in each round at either end, the two never in one order, and in the same pairs in all rounds.
    #[test]
    fn permuted_ends_differ_and_keep_their_pairs(slots in 2u64..200, seed in any::<u64>()) {
        let mut walk = FlowWalk::over((Addresses::Permuted, Addresses::Permuted), slots, seed);
        let mut pairs = std::collections::BTreeMap::new();
        for round in 0..3 {
            let steps = steps(&mut walk, slots as usize);
            let (mut local, mut remote): (Vec<_>, Vec<_>) = steps.iter().copied().unzip();
            prop_assert_ne!(&local, &remote);
            local.sort_unstable();
            remote.sort_unstable();
            prop_assert!(local.into_iter().eq(0..slots) && remote.into_iter().eq(0..slots));
            for (local, remote) in steps {
                let known = *pairs.entry(local).or_insert(remote);
                prop_assert_eq!(known, remote, "round {}", round);
            }
        }
    }
}

/// The slots of so many steps and their last sources, found by going through all of them.
fn by_hand(mut walk: FlowWalk, count: u64, lands: End) -> std::collections::BTreeMap<u64, u64> {
    (0..count).map(|_| walk.next_landing(lands)).collect()
}

#[test]
fn whoever_landed_last_is_found_from_the_end() {
    for orders in orders() {
        for lands in [End::Initiator, End::Target] {
            for count in [0, 1, 4, 5, 13, 500] {
                let mut walk = FlowWalk::over(orders, 5, 9);
                walk.skip(3);
                let (mut used, mut found) = ([false; 5], std::collections::BTreeMap::new());
                let visited = walk.each_landing(count, lands, &mut used, |landing, source| {
                    assert_eq!(found.insert(landing, source), None);
                    Ok(())
                });
                visited.unwrap();
                assert_eq!(
                    found,
                    by_hand(walk, count, lands),
                    "{orders:?} {lands:?} {count}"
                );
                let marked = (0..5).filter(|&slot| used[slot as usize]);
                assert!(marked.eq(found.keys().copied()), "{orders:?} {used:?}");
            }
        }
    }
}

/// It ends when all slots that can be used are, and not after any number of steps.
#[test]
fn a_long_trial_is_not_gone_through() {
    for orders in orders() {
        for lands in [End::Initiator, End::Target] {
            let mut used = [false; 5];
            let walk = FlowWalk::over(orders, 5, 9);
            walk.each_landing(u64::MAX, lands, &mut used, |_, _| Ok(()))
                .unwrap();
            let reached = used.iter().filter(|&&used| used).count() as u64;
            assert_eq!(reached, walk.landing_reach(lands), "{orders:?} {lands:?}");
        }
    }
}
