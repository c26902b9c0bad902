use super::*;
use crate::kinds::files::testing::{point, with_stonewall};
use tonnage_ranks::testing::rank_info;

fn figures(begin_ns: u64, end_ns: u64) -> ThreadFigures {
    let span = |begin_ns, end_ns| Span { begin_ns, end_ns };
    ThreadFigures {
        open: span(begin_ns, begin_ns + 10),
        transfer: span(begin_ns + 10, end_ns - 10),
        done_ns: end_ns - 20,
        sync_ns: 10,
        close: span(end_ns - 10, end_ns),
        cpu_begin_ns: 0,
        cpu_ns: 7,
        transfer_cpu_ns: 5,
        sched: None,
    }
}

fn samples(transfers: u64, before_wall: u64) -> Samples {
    Samples {
        transfers,
        reads: transfers,
        before_wall,
        in_flight_max: transfers as u32,
        ..Samples::default()
    }
}

pub fn rank(number: u32, end_ns: u64, transfers: u64) -> PhaseTotals {
    let (figures, samples) = (figures(100, end_ns), samples(transfers, transfers));
    PhaseTotals::from_threads(number, [(&figures, &samples)].into_iter()).unwrap()
}

#[test]
fn the_sums_agree_with_iors_definitions() {
    let mut all = rank(0, 1_000_000_100, 4);
    all.merge(rank(1, 2_000_000_100, 4));
    let trial = all.trial(&point(2), None, 0, &[]);
    assert_eq!(trial.payload_bytes, 8 * 16);
    assert_eq!(trial.total_ns, 2_000_000_000);
    assert_eq!(trial.bandwidth_bytes_per_s, 64.0);
    assert_eq!(trial.transfer_ns, 2_000_000_000 - 20);
    assert_eq!(trial.open_of_rank.ns_mean, 10.0);
    assert_eq!(trial.transfer_of_rank.slowest, 1);
    assert_eq!(trial.outliers.len(), 1);
    assert_eq!((trial.cpu_ns, trial.transfer_cpu_ns), (14, 10));
    assert_eq!((trial.operations, trial.reads), (8, 8));
    let transfers = &trial.transfer_of_rank;
    assert_eq!(
        (transfers.ns_min, transfers.ns_max),
        (999_999_980, 1_999_999_980)
    );
    assert_eq!(
        (trial.first_done_ns, trial.last_done_ns),
        (1_000_000_080, 2_000_000_080)
    );
}

#[test]
fn the_order_of_merging_does_not_matter() {
    let ranks: Vec<_> = (0..20)
        .map(|number| rank(number, 5000 + u64::from(number % 3), 4))
        .collect();
    let sum = |order: Vec<usize>| {
        let mut all = ranks[order[0]].clone();
        for &at in &order[1..] {
            all.merge(ranks[at].clone());
        }
        all
    };
    assert_eq!(sum((0..20).collect()), sum((0..20).rev().collect()));
}

#[test]
fn threads_of_a_rank_count_as_one_rank() {
    let (one, mut other) = (figures(100, 1100), figures(150, 2100));
    other.sync_ns = 4;
    let (few, many) = (samples(3, 2), samples(5, 5));
    let both = PhaseTotals::from_threads(7, [(&one, &few), (&other, &many)].into_iter()).unwrap();
    let trial = both.trial(&with_stonewall(point(1), 1500, false), None, 0, &[]);
    // The maximum over the threads, not their sum.
    assert_eq!(trial.in_flight_max, Some(5));
    assert_eq!(trial.transfer_of_rank.ns_min, 2090 - 110);
    assert_eq!(trial.transfer_of_rank.ns_max, 2090 - 110);
    // Threads sync in parallel. The rank is done when its last thread is done.
    assert_eq!(trial.sync_of_rank.unwrap().ns_max, 10);
    assert_eq!(trial.first_done_ns, 2080);
    let wall = trial.stonewall.unwrap();
    assert_eq!(
        (wall.operations, wall.rank_bytes_min, wall.rank_bytes_max),
        (7, 112, 112)
    );
    assert_eq!(wall.bandwidth_bytes_per_s, 112.0 / 1390e-9);
}

#[test]
fn a_stonewall_records_rank_extremes_and_worn_out_transfers() {
    let of_rank = |number, before_wall| {
        let (figures, samples) = (figures(100, 1000), samples(9, before_wall));
        PhaseTotals::from_threads(number, [(&figures, &samples)].into_iter()).unwrap()
    };
    let mut all = of_rank(0, 5);
    all.merge(of_rank(1, 3));
    all.merge(of_rank(2, 4));
    let wall = |wear_out| {
        all.trial(&with_stonewall(point(3), 500, wear_out), None, 0, &[])
            .stonewall
            .unwrap()
    };
    let worn = wall(true);
    assert_eq!((worn.operations, worn.payload_bytes), (12, 12 * 16));
    assert_eq!((worn.rank_bytes_min, worn.rank_bytes_max), (3 * 16, 5 * 16));
    assert_eq!(worn.worn_out_transfers, Some(9));
    assert_eq!(wall(false).worn_out_transfers, None);
}

#[test]
fn a_phase_without_syncs_has_no_sync_times() {
    let (mut figures, samples) = (figures(100, 1000), samples(4, 4));
    figures.sync_ns = 0;
    let all = PhaseTotals::from_threads(0, [(&figures, &samples)].into_iter()).unwrap();
    assert_eq!(all.trial(&point(1), None, 0, &[]).sync_of_rank, None);
}

#[test]
fn an_outlier_exceeds_the_mean_by_a_quarter_or_the_users_threshold() {
    let infos = [(0, "a"), (1, "b")].map(|(rank, host)| rank_info(rank, host));
    // Transfers take 300 ns on one rank and `slow_ns` on the other. If that is 500, the mean is 400.
    let outliers = |slow_ns: u64, outlier_ns| {
        let mut all = rank(0, 420, 4);
        all.merge(rank(1, slow_ns + 120, 4));
        all.trial(&point(2), outlier_ns, 0, &infos).outliers
    };
    assert_eq!(outliers(500, None), []);
    assert_eq!(outliers(500, Some(100)), []);
    for (slow_ns, outlier_ns) in [(502, None), (500, Some(99))] {
        let expected = Outlier {
            rank: 1,
            host: "b".into(),
            ns: slow_ns,
        };
        assert_eq!(outliers(slow_ns, outlier_ns), [expected]);
    }
}

#[test]
fn an_empty_phase_reports_whether_its_stonewall_came_too_soon() {
    let moved = |transfers| {
        let (figures, samples) = (figures(2_499_990, 9_000_000), samples(transfers, transfers));
        PhaseTotals::from_threads(0, [(&figures, &samples)].into_iter()).unwrap()
    };
    let why = |point: &FilePoint| moved(0).why_empty(point, Phase::Write, 2);
    let too_soon = Some(
        "the write phase of repetition 3 moved nothing: its stonewall came 8ms after the start, when no rank had ended \
         a transfer (files were open after 2.5 ms); give it more time"
            .to_string(),
    );
    let too_little = Some(
        "the write phase of repetition 3 moved nothing: less had been written before than one transfer of each rank"
            .to_string(),
    );
    // The last transfer ended 10 ns before the files were closed.
    let until_ns = 8_999_990;
    assert_eq!(why(&with_stonewall(point(1), 8_000_000, false)), too_soon);
    let at_the_end = why(&with_stonewall(point(1), until_ns, false)).unwrap();
    assert!(at_the_end.contains("its stonewall came"), "{at_the_end}");
    assert_eq!(
        why(&with_stonewall(point(1), until_ns + 1, false)),
        too_little
    );
    assert_eq!(why(&point(1)), too_little);
    assert_eq!(moved(1).why_empty(&point(1), Phase::Write, 2), None);
}
