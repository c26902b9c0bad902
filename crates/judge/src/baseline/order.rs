//! Orders entries for a check: the most informative points first, within the time budget.

use std::collections::BTreeMap;

use super::BaselineEntry;

/// A point, with the entries that its measurement decides.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckStep<'a> {
    /// The point's JSON.
    pub point: &'a str,
    /// Entries of the step.
    pub entries: Vec<&'a BaselineEntry>,
}

impl CheckStep<'_> {
    /// Longest measuring time of an entry, in seconds.
    pub fn takes_s(&self) -> f64 {
        let times = self.entries.iter().map(|entry| entry.takes_s);
        times.fold(0.0, f64::max)
    }

    /// Short name of the point.
    pub fn name(&self) -> &str {
        self.entries.first().map_or("", |entry| &entry.name)
    }

    /// Number of ranks and of hosts.
    pub fn shape(&self) -> (u32, u32) {
        let first = self.entries.first();
        first.map_or((1, 1), |entry| (entry.ranks, entry.spans))
    }

    /// Returns how informative the point is: the closer to its bound and the less it varies, the more.
    fn informativeness(&self) -> f64 {
        let of = |entry: &&BaselineEntry| {
            let close = entry.of_bound.unwrap_or(0.0).min(1.0);
            close - entry.relative_spread()
        };
        self.entries
            .iter()
            .map(of)
            .fold(f64::NEG_INFINITY, f64::max)
    }

    /// Engine, operation and device.
    fn subject(&self) -> String {
        let Some(entry) = self.entries.first() else {
            return String::new();
        };
        let part = |key: &str| entry.part.get(key).map_or("", String::as_str);
        let device = entry.device.as_deref().unwrap_or_default();
        format!("{} {} {device}", part("engine"), part("op"))
    }
}

/// Orders points by how informative they are. The first round has the most informative point of each engine, operation
/// and device. The second round has the second best of each, and so on.
pub fn most_informative_first<'a>(
    entries: impl IntoIterator<Item = &'a BaselineEntry>,
) -> Vec<CheckStep<'a>> {
    let mut steps: Vec<CheckStep<'a>> = Vec::new();
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    for entry in entries {
        match places.get(entry.point.as_str()) {
            Some(&at) => steps[at].entries.push(entry),
            None => {
                places.insert(&entry.point, steps.len());
                steps.push(CheckStep {
                    point: &entry.point,
                    entries: vec![entry],
                });
            }
        }
    }
    steps.sort_by(|left, right| right.informativeness().total_cmp(&left.informativeness()));
    let mut of_each: BTreeMap<String, usize> = BTreeMap::new();
    let mut ordered: Vec<(usize, CheckStep<'a>)> = Vec::with_capacity(steps.len());
    for step in steps {
        let round = of_each.entry(step.subject()).or_default();
        ordered.push((*round, step));
        *round += 1;
    }
    // The sort is stable: within a round, the most informative point stays first.
    ordered.sort_by_key(|(round, _)| *round);
    ordered.into_iter().map(|(_, step)| step).collect()
}

/// Points that fit into a time budget, and those that do not.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct WithinBudget<'a> {
    /// Points to measure, in order.
    pub chosen: Vec<CheckStep<'a>>,
    /// Points left out because the budget is too short.
    pub left: Vec<CheckStep<'a>>,
}

/// Selects points in order until `budget_s` is used up. A point that is too long is skipped, so that later, shorter
/// ones can fit. Each distinct number of ranks and hosts costs one start of `start_s`. The budget also reserves
/// `retests` repeats of the longest selected point, because it may fail.
pub fn fit_budget<'a>(
    steps: Vec<CheckStep<'a>>,
    budget_s: f64,
    start_s: f64,
    retests: u32,
) -> WithinBudget<'a> {
    let mut found = WithinBudget::default();
    let mut shapes: Vec<(u32, u32)> = Vec::new();
    let (mut sum_s, mut longest_s) = (0.0, 0.0_f64);
    for step in steps {
        let is_new = !shapes.contains(&step.shape());
        let start = if is_new { start_s } else { 0.0 };
        let longest = longest_s.max(step.takes_s());
        let again = f64::from(retests) * (start_s + longest);
        if sum_s + start + step.takes_s() + again > budget_s {
            found.left.push(step);
            continue;
        }
        sum_s += start + step.takes_s();
        longest_s = longest;
        if is_new {
            shapes.push(step.shape());
        }
        found.chosen.push(step);
    }
    found
}

/// Safety factor on the estimated time of later points, because the pace of a few points may not be typical.
const PACE_MARGIN: f64 = 1.5;

/// Lower limit of the estimated pace.
const PACE_MIN: f64 = 0.05;

/// Returns the pace to assume for later points, if earlier points took `pace` times as long as the baseline states.
pub fn next_pace(pace: f64) -> f64 {
    (PACE_MARGIN * pace).max(PACE_MIN)
}

/// As [`fit_budget`], but points take `pace` times as long as the baseline states.
pub fn fit_budget_at_pace<'a>(
    steps: Vec<CheckStep<'a>>,
    budget_s: f64,
    start_s: f64,
    retests: u32,
    pace: f64,
) -> WithinBudget<'a> {
    // Dividing both times scales the points alone: a start still takes `start_s`.
    fit_budget(steps, budget_s / pace, start_s / pace, retests)
}

/// Returns the shortest budget that fits at least one point.
pub fn shortest_s(steps: &[CheckStep<'_>], start_s: f64, retests: u32) -> Option<f64> {
    let times = steps
        .iter()
        .map(|step| (start_s + step.takes_s()) * f64::from(retests + 1));
    times.min_by(f64::total_cmp)
}
