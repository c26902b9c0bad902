use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use super::*;
use crate::testing::slots;
use proptest::prelude::*;

fn steps(walk: &mut FlowWalk, count: usize) -> Vec<(u64, u64)> {
    (0..count).map(|_| walk.next_slots()).collect()
}

/// All combinations of orders at the two ends.
fn orders() -> impl Iterator<Item = (Access, Access)> {
    let remotes = |local| Access::ALL.iter().map(move |&remote| (local, remote));
    Access::ALL.iter().flat_map(move |&local| remotes(local))
}

#[test]
fn every_flow_and_seed_has_a_walk_of_its_own() {
    let mut seen = std::collections::HashSet::new();
    for seed in 0..16 {
        for (initiator, target) in [(0, 1), (1, 0), (1, 2), (2, 1), (3, 1), (1, 3)] {
            let slots = FlowSlots {
                seed,
                ..slots(Access::Random, 1 << 60)
            };
            let mut walk = FlowWalk::new(&slots, initiator, target);
            assert!(
                seen.insert(walk.next_slots()),
                "{seed} {initiator} {target}"
            );
        }
    }
}

#[test]
fn each_end_has_its_own_order() {
    let mut walk = FlowWalk::with_orders((Access::Fixed, Access::Sequential), 3, 5);
    assert_eq!(steps(&mut walk, 4), [(0, 0), (0, 1), (0, 2), (0, 0)]);
    let mut walk = FlowWalk::with_orders((Access::Sequential, Access::Fixed), 2, 5);
    assert_eq!(steps(&mut walk, 3), [(0, 0), (1, 0), (0, 0)]);
    let mut walk = FlowWalk::with_orders((Access::Random, Access::Random), 1 << 40, 5);
    assert!(
        steps(&mut walk, 9)
            .iter()
            .all(|(local, remote)| local == remote)
    );
}

#[test]
fn skipping_equals_stepping_at_both_ends() {
    for orders in orders() {
        let mut stepped = FlowWalk::with_orders(orders, 7, 5);
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
    /// In each round, each end uses each slot once. The orders of the two ends never match, and the pairs are the same
    /// in all rounds.
    #[test]
    fn permuted_ends_differ_and_keep_their_pairs(slots in 2u64..200, seed in any::<u64>()) {
        let mut walk = FlowWalk::with_orders((Access::Permuted, Access::Permuted), slots, seed);
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

/// The landing slots of `count` steps and their last sources, found by stepping through all of them.
fn by_hand(mut walk: FlowWalk, count: u64, lands: FlowEnd) -> std::collections::BTreeMap<u64, u64> {
    (0..count).map(|_| walk.next_landing(lands)).collect()
}

#[test]
fn the_last_data_of_a_slot_is_found_from_the_end() {
    for orders in orders() {
        for lands in [FlowEnd::Initiator, FlowEnd::Target] {
            for count in [0, 1, 4, 5, 13, 500] {
                let mut walk = FlowWalk::with_orders(orders, 5, 9);
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

/// The search must stop once all reachable slots are used, independent of the number of steps.
#[test]
fn a_long_trial_is_not_searched_completely() {
    for orders in orders() {
        for lands in [FlowEnd::Initiator, FlowEnd::Target] {
            let mut used = [false; 5];
            let walk = FlowWalk::with_orders(orders, 5, 9);
            walk.each_landing(u64::MAX, lands, &mut used, |_, _| Ok(()))
                .unwrap();
            let reached = used.iter().filter(|&&used| used).count() as u64;
            assert_eq!(reached, walk.landing_reach(lands), "{orders:?} {lands:?}");
        }
    }
}

/// Number of slots compared per case.
const STEPS: u64 = 40;

/// Replaces the kernel headers that the kernel module's `walk.h` needs, and prints a walk.
const KERNEL: &str = "#include <stdbool.h>\n#include <stdio.h>\ntypedef unsigned long long u64;\ntypedef unsigned int u32;\n\
    static inline int fls64(u64 x) { return x ? 64 - __builtin_clzll(x) : 0; }\n\
    static inline u64 mul_u64_u64_shr(u64 a, u64 b, unsigned int s) { return ((unsigned __int128)a * b) >> s; }\n\
    #include \"walk.h\"\n\
    static void walk(u32 local, u32 remote, u64 slots, u64 seed, u64 begin, int steps) {\n\
    struct tkr_walk w; u64 a, b; tkr_walk_init(&w, local, remote, slots, seed, begin);\n\
    while (steps--) { tkr_walk_next(&w, &a, &b); printf(\"%llu %llu\\n\", a, b); } }\n";

fn number(access: Access) -> &'static str {
    match access {
        Access::Fixed => "TKR_FIXED",
        Access::Sequential => "TKR_SEQUENTIAL",
        Access::Random => "TKR_RANDOM",
        Access::Permuted => "TKR_PERMUTED",
    }
}

/// The kernel module must compute the same walk. The test compiles the module's own `walk.h`.
#[test]
fn the_kernel_goes_through_the_same_slots() {
    let (mut program, mut ours) = (format!("{KERNEL}int main(void) {{\n"), String::new());
    for local in Access::ALL {
        for remote in Access::ALL {
            for (slots, seed, begin) in [
                (1, 0, 0),
                (7, 5, 0),
                (12, u64::MAX, 1_000_003),
                (65_536, 9, 65_530),
                (1 << 40, 1 << 63, u64::MAX - 3),
            ] {
                let (one, other) = (number(local), number(remote));
                writeln!(
                    program,
                    "walk({one}, {other}, {slots}ull, {seed}ull, {begin}ull, {STEPS});"
                )
                .unwrap();
                let mut walk = FlowWalk::with_orders((local, remote), slots, seed);
                walk.skip(begin);
                for _ in 0..STEPS {
                    let (here, there) = walk.next_slots();
                    writeln!(ours, "{here} {there}").unwrap();
                }
            }
        }
    }
    program.push_str("}\n");
    let folder = tempfile::tempdir().unwrap();
    let (source, binary) = (folder.path().join("walk.c"), folder.path().join("walk"));
    std::fs::write(&source, program).unwrap();
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernel/tonnage_kread");
    let compiled = Command::new("cc")
        .arg("-I")
        .args([&module, &source])
        .arg("-o")
        .arg(&binary)
        .status()
        .unwrap();
    assert!(compiled.success());
    let said = Command::new(&binary).output().unwrap().stdout;
    assert!(String::from_utf8(said).unwrap() == ours);
}
