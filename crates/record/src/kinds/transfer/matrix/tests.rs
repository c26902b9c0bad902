//! Verdicts on matrices with known slow ranks and pairs.

use proptest::prelude::*;

use super::*;

/// All pairs of `ranks` ranks, with the rates that `rate` gives.
fn pairs(ranks: u32, rate: impl Fn(u32, u32) -> f64) -> Vec<PairRate> {
    let all = (0..ranks).flat_map(|from| (0..ranks).map(move |to| (from, to)));
    let all = all.filter(|(from, to)| from != to);
    let pair = |(initiator, target)| PairRate {
        initiator,
        target,
        payload_bytes: 1,
        bandwidth_bytes_per_s: 1.0,
        bandwidth_bytes_per_s_max: rate(initiator, target),
        ..PairRate::default()
    };
    all.map(pair).collect()
}

/// A rate with noise of up to 3 % that differs between pairs.
fn noisy(from: u32, to: u32) -> f64 {
    1e9 * (1.0 + 0.03 * f64::from((from * 7 + to * 13) % 11) / 11.0)
}

/// A noisy rate, divided by `times` if it is slow.
fn slowed(from: u32, to: u32, times: f64, is_slow: bool) -> f64 {
    noisy(from, to) / if is_slow { times } else { 1.0 }
}

/// The senders, receivers and pairs that the verdict marks as slow.
fn marked(verdict: &MatrixVerdict) -> (Vec<u32>, Vec<u32>, Vec<(u32, u32)>) {
    let ranks = |slow: &[SlowRank]| slow.iter().map(|one| one.rank).collect();
    let pairs = verdict.slow_pairs.iter();
    (
        ranks(&verdict.slow_senders),
        ranks(&verdict.slow_receivers),
        pairs.map(|pair| (pair.sender, pair.receiver)).collect(),
    )
}

#[test]
fn a_rank_that_sends_at_a_tenth_is_a_row_and_one_that_receives_a_column() {
    for ranks in [4, 6, 13] {
        let tenth = |slow: bool, from, to| slowed(from, to, 10.0, slow);
        let judged = |rate: &dyn Fn(u32, u32) -> f64| {
            marked(&judge(ranks, &pairs(ranks, rate), false).unwrap())
        };
        let sends = judged(&|from, to| tenth(from == 2, from, to));
        assert_eq!(sends, (vec![2], vec![], vec![]), "{ranks}");
        let receives = judged(&|from, to| tenth(to == 2, from, to));
        assert_eq!(receives, (vec![], vec![2], vec![]), "{ranks}");
        let both = judged(&|from, to| tenth(from == 2 || to == 2, from, to));
        assert_eq!(both, (vec![2], vec![2], vec![]), "{ranks}");
        let one = judged(&|from, to| tenth((from, to) == (1, 3), from, to));
        assert_eq!(one, (vec![], vec![], vec![(1, 3)]), "{ranks}");
    }
    // A slow pair of a slow sender is slower than the sender's other pairs.
    let rate = |from, to| match (from, to) {
        (2, 0) => 1e7,
        (2, _) => 1e8,
        _ => noisy(from, to),
    };
    let verdict = judge(6, &pairs(6, rate), false).unwrap();
    assert_eq!(marked(&verdict), (vec![2], vec![], vec![(2, 0)]));
    assert!((0.09..0.11).contains(&verdict.slow_senders[0].of_median));
    assert!((0.009..0.011).contains(&verdict.slow_pairs[0].of_median));
}

/// Up to half of a good sender's receivers are slow, but the good sender must not be marked.
#[test]
fn several_slow_ranks_are_marked_and_no_good_one() {
    for (ranks, slow) in [(5, 2), (7, 3), (6, 2), (16, 7)] {
        let receives = pairs(ranks, |from, to| slowed(from, to, 10.0, to < slow));
        let verdict = judge(ranks, &receives, false).unwrap();
        let expected: Vec<u32> = (0..slow).collect();
        assert_eq!(
            marked(&verdict),
            (vec![], expected.clone(), vec![]),
            "{ranks}"
        );
        let verdict = judge(ranks, &receives, true).unwrap();
        assert_eq!(marked(&verdict), (expected, vec![], vec![]), "{ranks}");
        assert_eq!(verdict.unclear, None);
    }
}

#[test]
fn slow_pairs_are_unclear_if_most_are_slow_or_all_differ() {
    // The two slow ranks slow 18 of the 30 pairs.
    let most = pairs(6, |from, to| slowed(from, to, 10.0, from.min(to) < 2));
    let verdict = judge(6, &most, false).unwrap();
    assert_eq!(verdict.unclear, Some(Unclear::MostAreSlow));
    let all = pairs(6, |from, to| {
        1e9 / f64::from(1 << ((from * 5 + to * 3) % 7))
    });
    let verdict = judge(6, &all, false).unwrap();
    assert_eq!(verdict.unclear, Some(Unclear::WideRates));
}

#[test]
fn bytes_of_reads_flow_towards_the_initiator() {
    let rates = pairs(6, |from, to| slowed(from, to, 10.0, from == 2));
    let verdict = judge(6, &rates, true).unwrap();
    assert_eq!(marked(&verdict), (vec![], vec![2], vec![]));
}

#[test]
fn few_ranks_have_slow_pairs_but_no_slow_ranks() {
    let verdict = judge(
        3,
        &pairs(3, |from, _| if from == 0 { 1e8 } else { 1e9 }),
        false,
    );
    let verdict = verdict.unwrap();
    assert_eq!(verdict.unclear, Some(Unclear::FewRanks));
    assert_eq!(marked(&verdict), (vec![], vec![], vec![(0, 1), (0, 2)]));
    let verdict = judge(2, &pairs(2, |_, _| 1e9), false).unwrap();
    assert_eq!(marked(&verdict), (vec![], vec![], vec![]));
    assert_eq!(judge(2, &pairs(2, |_, _| 0.0), false), None);
}

/// Pairs of ranks on hosts with two ranks each. The two ranks of a host reach each other ten times as fast as others.
fn on_hosts(ranks: u32, rate: impl Fn(u32, u32) -> f64) -> Vec<PairRate> {
    let mut pairs = pairs(ranks, rate);
    for pair in &mut pairs {
        if pair.initiator / 2 == pair.target / 2 {
            pair.within_host = true;
            pair.bandwidth_bytes_per_s_max *= 10.0;
        }
    }
    pairs
}

/// Six ranks run on two CPUs. Ranks on the same CPU take turns, and their pairs are slow only for this reason.
#[test]
fn pairs_on_one_cpu_are_not_compared_with_others() {
    let share = |from: u32, to: u32| from % 2 == to % 2;
    let mut pairs = pairs(6, |from, to| slowed(from, to, 5.0, share(from, to)));
    let told = judge(6, &pairs, false).unwrap();
    assert_eq!(marked(&told).2.len(), 12, "{told:?}");
    for pair in &mut pairs {
        pair.shares_cpu = share(pair.initiator, pair.target);
    }
    let verdict = judge(6, &pairs, false).unwrap();
    assert_eq!(marked(&verdict), (vec![], vec![], vec![]));
    assert_eq!((verdict.on_one_cpu, verdict.unclear), (12, None));
    // All pairs share a link that is slower than the CPUs, so they are equally fast. A slower pair is then slow
    // individually.
    for pair in &mut pairs {
        let slow = (pair.initiator, pair.target) == (2, 0);
        pair.bandwidth_bytes_per_s_max = if slow { 1e8 } else { 1e9 };
    }
    let verdict = judge(6, &pairs, false).unwrap();
    assert_eq!(marked(&verdict), (vec![], vec![], vec![(2, 0)]));
    assert_eq!(verdict.on_one_cpu, 0);
}

#[test]
fn pairs_within_hosts_are_compared_with_each_other() {
    for ranks in [4, 6, 16] {
        let verdict = judge(ranks, &on_hosts(ranks, noisy), false).unwrap();
        assert_eq!(marked(&verdict), (vec![], vec![], vec![]), "{ranks}");
        assert_eq!(verdict.unclear, None);
        let [across, within] =
            [false, true].map(|within| verdict.rate_spread(within).unwrap().median_bytes_per_s);
        assert!((9.0..11.0).contains(&(within / across)));
    }
    // Transfers out of the second host are slow, but transfers between its two ranks are not.
    let pairs = on_hosts(8, |from, to| {
        slowed(from, to, 10.0, from / 2 == 1 && to / 2 != 1)
    });
    let verdict = judge(8, &pairs, false).unwrap();
    assert_eq!(marked(&verdict), (vec![2, 3], vec![], vec![]));
    let slow = pairs.iter().filter(|pair| verdict.is_slow(pair, false));
    assert!(
        slow.clone()
            .all(|pair| pair.initiator / 2 == 1 && !pair.within_host)
    );
    assert_eq!(slow.count(), 2 * 6);
    // Two ranks of one host that are slow only with each other are found as slow pairs.
    let pairs = on_hosts(8, |from, to| {
        slowed(from, to, 4.0, from / 2 == 1 && to / 2 == 1)
    });
    let verdict = judge(8, &pairs, false).unwrap();
    assert_eq!(marked(&verdict), (vec![], vec![], vec![(2, 3), (3, 2)]));
}

#[test]
fn ranks_of_a_small_rack_are_not_slow_because_of_the_path_to_others() {
    for (ranks, small) in [(8, 2), (16, 2), (9, 3)] {
        let pairs = pairs(ranks, |from, to| {
            slowed(from, to, 4.0, (from < small) != (to < small))
        });
        let verdict = judge(ranks, &pairs, false).unwrap();
        let (senders, receivers, slow) = marked(&verdict);
        if ranks < 16 {
            assert_eq!((senders, receivers), (vec![], vec![]), "{ranks} {small}");
            assert!(
                slow.iter()
                    .all(|&(from, to)| (from < small) != (to < small))
            );
        } else {
            // For these ranks, 14 of 15 peers are behind the slow path. This looks the same as a slow rank.
            assert_eq!((senders, receivers), (vec![0, 1], vec![0, 1]));
        }
    }
}

#[test]
fn a_pair_that_moved_nothing_is_slow() {
    let none = |from, to| slowed(from, to, f64::INFINITY, (from, to) == (1, 3));
    let verdict = judge(6, &pairs(6, none), false).unwrap();
    assert_eq!(marked(&verdict), (vec![], vec![], vec![(1, 3)]));
    assert_eq!(verdict.slow_pairs[0].of_median, 0.0);
    let row = |from, to| if from == 1 { 0.0 } else { noisy(from, to) };
    let verdict = judge(6, &pairs(6, row), false).unwrap();
    assert_eq!(marked(&verdict), (vec![1], vec![], vec![]));
}

#[test]
fn a_thousand_ranks_are_judged_though_a_hundred_are_slow() {
    let pairs = pairs(1000, |from, to| {
        slowed(from, to, 5.0, from.is_multiple_of(10) || to == 7)
    });
    let (senders, receivers, slow) = marked(&judge(1000, &pairs, false).unwrap());
    assert!(senders.into_iter().eq((0..1000).step_by(10)));
    assert_eq!((receivers, slow), (vec![7], vec![]));
}

proptest! {
    #[test]
    fn even_noise_marks_nothing(noise in proptest::collection::vec(0.0f64..1.0, 36)) {
        let judged = |spread: f64| {
            let rates = pairs(6, |from, to| 1e9 * (-spread * noise[(from * 6 + to) as usize]).exp());
            judge(6, &rates, false).unwrap()
        };
        prop_assert_eq!(marked(&judged(1.29f64.ln())), (vec![], vec![], vec![]));
        // By chance, a single pair may be marked as slow, but never all pairs of a rank.
        let wide = judged(1.65f64.ln());
        prop_assert_eq!((wide.slow_senders, wide.slow_receivers), (vec![], vec![]));
    }

    #[test]
    fn the_verdict_does_not_depend_on_the_unit(scale in 1e-3f64..1e3) {
        let rate = |from, to| slowed(from, to, 4.0, to == 1);
        let one = judge(6, &pairs(6, rate), false).unwrap();
        let other = judge(6, &pairs(6, |from, to| scale * rate(from, to)), false).unwrap();
        prop_assert_eq!(marked(&one), marked(&other));
    }
}
