//! Entries in the order in which a check measures them: the most telling first, as far as its time goes.

use std::collections::BTreeMap;

use super::BaselineEntry;

/// A point, and the entries that are judged by it.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckStep<'a> {
    /// The point's JSON.
    pub point: &'a str,
    /// Its entries.
    pub entries: Vec<&'a BaselineEntry>,
}

impl CheckStep<'_> {
    /// Longest time that it takes, in seconds.
    pub fn takes_s(&self) -> f64 {
        let times = self.entries.iter().map(|entry| entry.takes_s);
        times.fold(0.0, f64::max)
    }

    /// Short name of the point.
    pub fn name(&self) -> &str {
        self.entries.first().map_or("", |entry| &entry.name)
    }

    /// Ranks of the point, and hosts that they are on.
    pub fn shape(&self) -> (u32, u32) {
        let first = self.entries.first();
        first.map_or((1, 1), |entry| (entry.ranks, entry.spans))
    }

    /// Measure of how much it tells: close to what the machine can do at most, and hardly spread.
    fn telling(&self) -> f64 {
        let of = |entry: &&BaselineEntry| {
            let close = entry.of_limit.unwrap_or(0.0).min(1.0);
            close - entry.spread()
        };
        self.entries
            .iter()
            .map(of)
            .fold(f64::NEG_INFINITY, f64::max)
    }

    /// Its subject: engine, operation and device.
    fn about(&self) -> String {
        let Some(entry) = self.entries.first() else {
            return String::new();
        };
        let part = |key: &str| entry.part.get(key).map_or("", String::as_str);
        let device = entry.device.as_deref().unwrap_or_default();
        format!("{} {} {device}", part("engine"), part("op"))
    }
}

/// Points of some entries, the most telling first: of each engine, operation and device the one that is closest to its
/// limit and varies least, then the second of each, and so on.
pub fn telling_first<'a>(
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
    steps.sort_by(|left, right| right.telling().total_cmp(&left.telling()));
    let mut of_each: BTreeMap<String, usize> = BTreeMap::new();
    let mut ordered: Vec<(usize, CheckStep<'a>)> = Vec::with_capacity(steps.len());
    for step in steps {
        let round = of_each.entry(step.about()).or_default();
        ordered.push((*round, step));
        *round += 1;
    }
    // Stable: within a round the most telling stays first.
    ordered.sort_by_key(|(round, _)| *round);
    ordered.into_iter().map(|(_, step)| step).collect()
}

/// Points that fit into a time, and those that do not.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct WithinBudget<'a> {
    /// Points to measure, in their order.
    pub chosen: Vec<CheckStep<'a>>,
    /// Points that there is no time for.
    pub left: Vec<CheckStep<'a>>,
}

/// Takes points in their order as far as `budget_s` goes; one that is too long is passed over for shorter ones. Ranks
/// of each number are started once, which takes `start_s`; the longest point is measured once more for each of
/// `retests`, should it fail.
pub fn within<'a>(
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

/// Reserve in the time of points that follow others: the pace of those before was one of many.
const PACE_MARGIN: f64 = 1.5;

/// The fastest pace that is reckoned with.
const PACE_MIN: f64 = 0.05;

/// Pace that points are reckoned with after others took `pace` times the time that the baseline says.
pub fn pace_of_next(pace: f64) -> f64 {
    (PACE_MARGIN * pace).max(PACE_MIN)
}

/// As [`within`], where points take `pace` times the time that the baseline says.
pub fn within_at_pace<'a>(
    steps: Vec<CheckStep<'a>>,
    budget_s: f64,
    start_s: f64,
    retests: u32,
    pace: f64,
) -> WithinBudget<'a> {
    // A start takes as long as it takes, whatever the pace of points.
    within(steps, budget_s / pace, start_s / pace, retests)
}

/// The shortest time into which a point fits.
pub fn shortest_s(steps: &[CheckStep<'_>], start_s: f64, retests: u32) -> Option<f64> {
    let times = steps
        .iter()
        .map(|step| (start_s + step.takes_s()) * f64::from(retests + 1));
    times.min_by(f64::total_cmp)
}
