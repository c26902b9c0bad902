//! Operations at a rate: the timetable of each worker, and what came of it.

use super::totals::TrialTotals;
use super::trial::Schedule;
use tonnage_loops::flow::Flow;
use tonnage_loops::paced::{Punctuality, Timetable};
use tonnage_plan::transfer::{Pacing, Rate, TransferPoint, TrialLength};
use tonnage_record::transfer::{Pace, Stall};

/// The timetable of one worker, the `place`-th of those that share the rate of its rank: their bursts take turns, evenly
/// spaced. A trial by time gets the bursts that are due within it, and as long again to work off what is late.
pub(super) fn timetable(
    point: &TransferPoint,
    rate: Rate,
    place: u32,
    schedule: &Schedule,
) -> Timetable {
    let burst_ns = f64::from(rate.burst) * 1e9 / rate.rate_per_s;
    let start_ns = schedule.start_ns + (f64::from(place) * burst_ns) as u64;
    let burst = u64::from(rate.burst);
    let rate_per_s = rate.rate_per_s / f64::from(point.measuring_workers());
    let operations = match schedule.length {
        TrialLength::DurationNs(ns) => {
            ((ns as f64 * rate_per_s / 1e9).ceil() as u64).next_multiple_of(burst)
        }
        TrialLength::Iterations(count) => count,
    };
    let planned_ns = (operations as f64 * 1e9 / rate_per_s) as u64;
    let most = point.iterations_max().unwrap_or(u64::MAX);
    Timetable {
        start_ns,
        rate_per_s,
        burst,
        operations: operations.max(1).min(most),
        give_up_ns: start_ns
            .saturating_add(planned_ns.saturating_mul(2))
            .saturating_add(1_000_000),
    }
}

/// The longest stall of the trial of a rank, for the record.
pub(super) fn stall(
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

/// The rates that were asked for and reached, over all trials.
pub(super) fn pace(
    point: &TransferPoint,
    trials: &[TrialTotals],
    reached_per_s: f64,
) -> Option<Pace> {
    let Pacing::Paced { rate, .. } = point.pacing else {
        return None;
    };
    let initiators = point.roles().initiating_at_once();
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
