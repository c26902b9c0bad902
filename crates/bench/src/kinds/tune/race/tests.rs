use super::*;

/// Runs a race. `figure` returns the figure of a value in a round. Returns the race and its winner.
fn raced(
    values: usize,
    less_is_better: bool,
    mut figure: impl FnMut(usize, usize) -> f64,
) -> (CandidateRace, usize) {
    let mut race = CandidateRace::new(values, less_is_better);
    while let Some(order) = race.round() {
        for at in order {
            let figure = figure(at, race.rounds());
            race.record(at, figure);
        }
    }
    let winner = race.winner().unwrap();
    (race, winner)
}

/// Runs a race without noise, except for a wave that affects all values equally.
fn still(truths: &[f64], less_is_better: bool) -> (CandidateRace, usize) {
    raced(truths.len(), less_is_better, |at, round| {
        truths[at] * (1.0 + 0.3 * (round as f64).sin())
    })
}

#[test]
fn the_cheapest_of_the_best_values_wins() {
    let (race, winner) = still(&[1.0, 9.8, 10.0, 10.05], false);
    assert_eq!(winner, 1);
    let outcomes = [0, 1, 2, 3].map(|at| race.outcome(at, Some(winner)));
    let (worse, as_good) = (TuneOutcome::Worse, TuneOutcome::AsGood);
    assert_eq!(outcomes, [worse, TuneOutcome::Won, as_good, as_good]);
    // The wave affects each figure, but not their ratio.
    assert!((race.gain(2, 1).unwrap().mean - (10.0 / 9.8 - 1.0)).abs() < 1e-12);
    assert!(race.rounds() <= 5, "{}", race.rounds());
    assert_eq!(still(&[1.0, 9.8, 10.0, 10.4], false).1, 3);
    assert_eq!(still(&[1.0, 1.02, 0.98, 0.9], true).1, 3);
    assert_eq!(still(&[1.0, 1.02, 0.98], true).1, 0);
}

/// There are many steps that are not worth their price. Together they must not lead to a bad winner.
#[test]
fn small_steps_do_not_lead_away_from_the_best() {
    let truths: Vec<f64> = (0..13).map(|step| 1.028f64.powi(step)).collect();
    let (_, winner) = still(&truths, false);
    assert!(winner >= 11, "{winner}");
}

#[test]
fn values_run_forwards_and_backwards_in_turn() {
    let mut race = CandidateRace::new(3, false);
    assert_eq!(race.round(), Some(vec![0, 1, 2]));
    assert_eq!(race.round(), Some(vec![2, 1, 0]));
    race.refuse(1);
    assert_eq!(race.round(), Some(vec![0, 2]));
    assert_eq!(race.outcome(1, None), TuneOutcome::Refused);
    assert_eq!(race.outcome(0, None), TuneOutcome::Unfinished);
    race.refuse(0);
    assert_eq!((race.round(), race.winner()), (None, Some(2)));
    race.refuse(2);
    assert_eq!((race.round(), race.winner()), (None, None));
}

/// If a value that eliminated another one is refused, the other one returns.
#[test]
fn an_eliminated_value_can_return() {
    let mut race = CandidateRace::new(3, false);
    for _ in 0..5 {
        for at in race.round().unwrap() {
            race.record(at, [1.0, 2.0, 4.0][at]);
        }
        race.eliminate();
        if race.open.len() == 1 {
            break;
        }
    }
    assert_eq!(race.open, [2]);
    race.refuse(2);
    assert_eq!((race.open.clone(), race.winner()), (vec![1], Some(1)));
}

/// A single disturbed trial must not eliminate a value.
#[test]
fn an_outlier_decides_nothing() {
    for struck in 0..2 {
        let (_, winner) = raced(2, false, |at, round| {
            let noise = 1.0 + 0.004 * ((at + 2 * round) as f64).sin();
            let outlier = if at == struck && round == 2 { 0.1 } else { 1.0 };
            [10.0, 11.0][at] * noise * outlier
        });
        assert_eq!(winner, 1, "{struck}");
    }
}

/// One value is much worse and noisy. It must not count as equally good because its interval is huge.
#[test]
fn a_noisy_value_does_not_win_by_its_noise() {
    for seed in 0..50 {
        let mut noise = Noise(seed);
        let (_, winner) = raced(2, true, |at, _| {
            let (truth, cv) = [(2565.0, 1.0), (177.0, 0.02)][at];
            truth * noise.factor(cv)
        });
        assert_eq!(winner, 1, "{seed}");
    }
}

/// Pseudorandom numbers by SplitMix64.
struct Noise(u64);

impl Noise {
    /// Returns a number that is uniformly distributed between 0 and 1.
    fn even(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) >> 11) as f64 / (1u64 << 53) as f64 + f64::MIN_POSITIVE
    }

    /// Returns a log-normally distributed factor around 1.
    fn factor(&mut self, cv: f64) -> f64 {
        let (radius, turn) = (self.even(), self.even());
        let normal = (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * turn).cos();
        (cv * normal).exp()
    }
}

/// A simulated race. It has the true figures, the noise of a trial, and the fraction of trials that take two to five
/// times as long. Three limits follow. The mean loss compares the winner with the best value, and excludes the loss
/// that a cheaper value is allowed. Then come the fraction of races that lose more than 5 % in this sense, and the
/// trials per value.
struct Case {
    truths: Vec<f64>,
    cv: f64,
    outliers: f64,
    loss_max: f64,
    bad_max: f64,
    trials_max: f64,
}

const RACES: u64 = 150;

/// Returns three averages over many noisy races: the mean loss beyond the allowed one, the fraction of bad winners, and
/// the trials per value.
fn simulated(case: &Case) -> (f64, f64, f64) {
    let best = case.truths.iter().copied().fold(0.0, f64::max);
    let values = case.truths.len();
    let (mut loss, mut bad, mut trials) = (0.0, 0.0, 0.0);
    for seed in 0..RACES {
        let mut noise = Noise(seed << 32);
        // In each round, a disturbance affects all values.
        let mut machine = (0, 1.0);
        let (_, winner) = raced(values, false, |at, round| {
            if machine.0 != round {
                machine = (round, noise.factor(0.1));
            }
            let outlier = if noise.even() < case.outliers {
                2.0 + 3.0 * noise.even()
            } else {
                1.0
            };
            trials += 1.0;
            case.truths[at] * machine.1 * noise.factor(case.cv) / outlier
        });
        let lost = 1.0 - case.truths[winner] / best;
        // A cheaper value is allowed this loss.
        let lost = (lost - WORTH).max(0.0);
        loss += lost;
        bad += f64::from(u8::from(lost > 0.05));
    }
    let races = RACES as f64;
    (loss / races, bad / races, trials / races / values as f64)
}

/// The limits leave room for chance. An earlier method eliminated values for good, and treated "undecided" as "equally
/// good". On the ladder it lost 5 to 17 %, and chose a bad winner in 76 to 98 of 100 races.
#[test]
fn little_is_lost_at_any_noise_level() {
    let ladder: Vec<f64> = (0..13)
        .map(|log2| f64::from(1 << log2))
        .map(|depth| depth / (depth + 8.0))
        .collect();
    let steps: Vec<f64> = (0..13).map(|step| 1.029f64.powi(step)).collect();
    let mut one_better = vec![1.0; 13];
    one_better[7] = 1.1;
    let options = vec![1.0, 0.95, 1.07];
    let case = |truths: &[f64], (cv, outliers), (loss_max, bad_max, trials_max)| Case {
        truths: truths.to_vec(),
        cv,
        outliers,
        loss_max,
        bad_max,
        trials_max,
    };
    for (at, case) in [
        case(&ladder, (0.01, 0.0), (0.01, 0.0, 9.0)),
        case(&ladder, (0.05, 0.04), (0.01, 0.03, 10.0)),
        case(&ladder, (0.1, 0.0), (0.012, 0.04, 10.0)),
        case(&ladder, (0.2, 0.0), (0.018, 0.12, 10.0)),
        case(&ladder, (0.2, 0.04), (0.02, 0.15, 10.0)),
        case(&steps, (0.01, 0.0), (0.01, 0.0, 8.0)),
        case(&steps, (0.05, 0.04), (0.012, 0.04, 10.0)),
        case(&steps, (0.2, 0.0), (0.04, 0.4, 10.0)),
        case(&one_better, (0.01, 0.0), (0.001, 0.01, 5.0)),
        case(&one_better, (0.05, 0.0), (0.005, 0.05, 10.0)),
        case(&one_better, (0.05, 0.04), (0.012, 0.12, 10.0)),
        case(&one_better, (0.1, 0.0), (0.022, 0.35, 10.0)),
        case(&options, (0.01, 0.0), (0.001, 0.01, 7.0)),
        case(&options, (0.1, 0.0), (0.015, 0.2, 10.0)),
    ]
    .into_iter()
    .enumerate()
    {
        let (loss, bad, trials) = simulated(&case);
        assert!(
            loss <= case.loss_max && bad <= case.bad_max && trials <= case.trials_max,
            "case {at}: loss {loss:.4}, bad {bad:.3}, {trials:.1} trials for each value"
        );
    }
}
