//! Operations at a rate: the timetable of each worker, and how well it was kept.

use super::totals::TrialTotals;
use super::trial::{Schedule, WARM_UP};
use tonnage_loops::flow::Flow;
use tonnage_loops::paced::{Punctuality, Timetable};
use tonnage_plan::transfer::{Pacing, Rate, TransferPoint, TrialLength};
use tonnage_record::transfer::{Pace, Stall};

/// Returns the timetable of a worker. `place` is the worker's index among those that share their rank's rate. Their
/// bursts take turns at equal distances, and all workers end together. A trial with a given duration has the bursts
/// that are due within it. It may take twice as long, to catch up on late bursts.
pub(super) fn timetable(
    point: &TransferPoint,
    rate: Rate,
    place: u32,
    schedule: &Schedule,
) -> Timetable {
    let burst = u64::from(rate.burst);
    let burst_ns = burst as f64 * 1e9 / rate.rate_per_s;
    let rate_per_s = rate.rate_per_s / f64::from(point.measuring_threads());
    let operations = match schedule.length {
        TrialLength::DurationNs(ns) => (ns as f64 * rate_per_s / 1e9).ceil() as u64,
        TrialLength::Iterations(count) => count,
    };
    let operations = match schedule.length {
        // A burst may take longer than the warm-up, so the warm-up need not consist of whole bursts.
        TrialLength::DurationNs(_) if schedule.number != WARM_UP => {
            operations.next_multiple_of(burst)
        }
        _ => operations,
    };
    let planned_ns = (operations as f64 * 1e9 / rate_per_s) as u64;
    let most = point.iterations_max().unwrap_or(u64::MAX);
    let start_ns = schedule.start_ns + (f64::from(place) * burst_ns) as u64;
    Timetable {
        start_ns,
        rate_per_s,
        burst,
        operations: operations.max(1).min(most),
        end_ns: schedule.start_ns.saturating_add(planned_ns),
        give_up_ns: start_ns
            .saturating_add(planned_ns.saturating_mul(2))
            .saturating_add(1_000_000),
    }
}

/// Converts the longest stall of a rank's trial for the record.
pub(super) fn stall_from_punctuality(
    punctuality: &Punctuality,
    rank: u32,
    flows: &[Flow],
    schedule: &Schedule,
) -> Option<Stall> {
    let stall = punctuality.stall()?;
    Some(Stall {
        length_ns: stall.length_ns,
        begin_ns: stall.begin_ns.saturating_sub(schedule.start_ns),
        loop_ns: stall.turn_ns,
        rank,
        peer: flows.get(stall.flow)?.peer,
    })
}

/// Returns the offered and the reached rate over all trials.
pub(super) fn summarize_pace(
    point: &TransferPoint,
    trials: &[TrialTotals],
    reached_per_s: f64,
) -> Option<Pace> {
    let Pacing::Paced { rate, .. } = point.pacing else {
        return None;
    };
    let initiators = point.roles.initiating_at_once();
    let due: u64 = trials.iter().map(|totals| totals.due).sum();
    let late: u64 = trials.iter().map(|totals| totals.late).sum();
    let ended = trials.iter().map(|totals| totals.operations);
    let never = due.saturating_sub(ended.sum());
    Some(Pace {
        offered_per_s: rate.rate_per_s * f64::from(initiators),
        reached_per_s,
        late_fraction: late as f64 / due.max(1) as f64,
        never_issued_fraction: never as f64 / due.max(1) as f64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonnage_plan::point::Traffic;
    use tonnage_plan::roles::Roles;
    use tonnage_plan::testing::slots_point;
    use tonnage_plan::transfer::Access;

    /// Returns the timetables of two workers that share 1,000 operations per second in bursts of 4.
    fn of(length: TrialLength, number: u64) -> [Timetable; 2] {
        let rate = Rate {
            burst: 4,
            ..Rate::per_s(1000.0)
        };
        let point = TransferPoint {
            threads: 2,
            pacing: Pacing::Paced { depth: 4, rate },
            ..slots_point(Access::Sequential, 1 << 15)
        };
        let schedule = Schedule {
            start_ns: 0,
            length,
            number,
            round: 0,
            is_extra: false,
            is_loaded: true,
            lead_ns: 0,
        };
        [0, 1].map(|place| timetable(&point, rate, place, &schedule))
    }

    #[test]
    fn workers_take_turns_with_whole_bursts_and_end_together() {
        let [first, second] = of(TrialLength::DurationNs(30_000_000), 1);
        assert_eq!((first.start_ns, second.start_ns), (0, 4_000_000));
        // Each worker has 15 operations, which are rounded up to whole bursts. Together, 32 operations take 32 ms.
        assert_eq!([first.operations, second.operations], [16, 16]);
        assert_eq!([first.end_ns, second.end_ns], [32_000_000; 2]);
        assert_eq!((first.rate_per_s, first.burst), (500.0, 4));
    }

    #[test]
    fn the_offered_rate_counts_all_initiators() {
        let trials = [100, 300].map(|operations| TrialTotals {
            operations,
            due: 2 * operations,
            late: operations / 2,
            ..TrialTotals::default()
        });
        for (traffic, offered_per_s) in [
            (Traffic::Pair, 100.0),
            (Traffic::FanOut, 50.0),
            (Traffic::FanIn, 150.0),
            (Traffic::AllToAll, 200.0),
        ] {
            let rate = Rate::per_s(50.0);
            let point = TransferPoint {
                roles: Roles::new(traffic, 4),
                pacing: Pacing::Paced { depth: 4, rate },
                ..slots_point(Access::Sequential, 4)
            };
            let pace = summarize_pace(&point, &trials, 200.0).unwrap();
            assert_eq!(pace.offered_per_s, offered_per_s, "{traffic:?}");
            assert_eq!((pace.reached_per_s, pace.late_fraction), (200.0, 0.25));
        }
    }

    #[test]
    fn counted_operations_and_those_of_a_warm_up_are_not_rounded() {
        let [counted, _] = of(TrialLength::Iterations(6), 1);
        assert_eq!((counted.operations, counted.end_ns), (6, 12_000_000));
        let [warming, _] = of(TrialLength::DurationNs(2_000_000), WARM_UP);
        assert_eq!((warming.operations, warming.end_ns), (1, 2_000_000));
    }
}
