//! Pairs that move bytes both ways: sums of the direction back, from which and the sums of both the record's are made.

use super::direction_totals::DirectionTotals;
use super::totals::TrialTotals;
use tonnage_record::spread::spread;
use tonnage_record::transfer::{Directions, PairDirection, Trial, TrialDirection, TrialDirections};
use tonnage_units::Reduce;

/// Sums of everything in these.
pub fn sums(totals: &TrialTotals) -> DirectionTotals {
    DirectionTotals {
        operations: totals.operations,
        payload_bytes: totals.payload_bytes,
        samples: totals.samples,
        unfinished: totals.unfinished,
        latency_ns_sum: totals.latency_ns_sum,
    }
}

/// Forward and back.
fn both(totals: &TrialTotals) -> [DirectionTotals; 2] {
    [sums(totals).without(totals.back), totals.back]
}

/// Both directions of a trial.
pub fn of_trial(totals: &TrialTotals) -> TrialDirections {
    let [forward, back] = both(totals).map(|direction| direction.trial(totals.window_ns));
    TrialDirections { forward, back }
}

/// Both directions of all trials; `None` where there is one.
pub fn summary(trials: &[Trial], totals: &[TrialTotals]) -> Option<Directions> {
    let said: Option<Vec<&TrialDirections>> = trials
        .iter()
        .map(|trial| trial.directions.as_ref())
        .collect();
    let said = said.filter(|said| !said.is_empty())?;
    let mut all = [DirectionTotals::default(); 2];
    for trial in totals {
        for (sum, direction) in all.iter_mut().zip(both(trial)) {
            sum.merge(direction);
        }
    }
    let direction = |sum: DirectionTotals, of: fn(&TrialDirections) -> &TrialDirection| {
        let rates = said.iter().map(|trial| of(trial).bandwidth_bytes_per_s);
        PairDirection {
            operations: sum.operations,
            payload_bytes: sum.payload_bytes,
            bandwidth_bytes_per_s: spread(&rates.collect::<Vec<_>>()),
            latency_ns_mean: (sum.samples > 0)
                .then(|| sum.latency_ns_sum as f64 / sum.samples as f64),
            unfinished: sum.unfinished,
        }
    };
    let [forward, back] = all;
    Some(Directions {
        forward: direction(forward, |trial| &trial.forward),
        back: direction(back, |trial| &trial.back),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directions_add_up_to_the_trial() {
        let totals = [(300, 100), (500, 500)].map(|(all, back)| TrialTotals {
            window_ns: 2_000_000_000,
            operations: all,
            payload_bytes: 8 * all,
            samples: all,
            unfinished: all,
            latency_ns_sum: 10 * (all - back) + 70 * back,
            back: DirectionTotals {
                operations: back,
                payload_bytes: 8 * back,
                samples: back,
                unfinished: back,
                latency_ns_sum: 70 * back,
            },
            ..TrialTotals::NONE
        });
        let trials: Vec<Trial> = totals
            .iter()
            .map(|totals| Trial {
                directions: Some(of_trial(totals)),
                ..totals.trial(false)
            })
            .collect();
        let rates = trials.iter().map(|trial| {
            let both = trial.directions.as_ref().unwrap();
            let [forward, back] =
                [&both.forward, &both.back].map(|direction| direction.bandwidth_bytes_per_s);
            (forward, back, trial.bandwidth_bytes_per_s)
        });
        assert!(rates.eq([(800.0, 400.0, 1200.0), (0.0, 2000.0, 2000.0)]));
        let both = summary(&trials, &totals).unwrap();
        assert_eq!((both.forward.operations, both.back.operations), (200, 600));
        assert_eq!((both.forward.unfinished, both.back.unfinished), (200, 600));
        assert_eq!(both.forward.latency_ns_mean, Some(10.0));
        assert_eq!(both.back.latency_ns_mean, Some(70.0));
        assert_eq!(both.back.bandwidth_bytes_per_s.mean, 1200.0);
        let one_way: Vec<_> = totals.iter().map(|totals| totals.trial(false)).collect();
        assert_eq!(summary(&one_way, &totals), None);
        assert_eq!(summary(&[], &[]), None);
    }
}
