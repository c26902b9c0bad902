//! Labels points by the fewest keys that distinguish them.

use std::collections::{BTreeSet, HashMap};

use tonnage_judge::judging::PointJudgement;
use tonnage_judge::keys::{KeyDifference, PointKeys};
use tonnage_judge::matching::or_dash;

use crate::text::distinct;

/// Labels for the points of a comparison.
pub struct Labels {
    /// Keys that all points share, with values.
    pub shared: String,
    /// Ignored keys whose values differ between the sides in the same way at every point, such as the two engines.
    pub differing: String,
    /// Label of each point.
    pub points: Vec<String>,
    /// Names of the keys that distinguish points, as column headers.
    pub columns: Vec<String>,
    /// Values of these keys for each point.
    pub cells: Vec<Vec<String>>,
}

impl Labels {
    /// Labels the points.
    pub fn new(points: &[PointJudgement]) -> Self {
        let keys: Vec<&PointKeys> = points.iter().map(|point| &point.keys).collect();
        let distinguishing = distinguishing_keys(&keys);
        let shared = keys.split_first().map(|(first, rest)| {
            let everywhere = |keys: PointKeys, other: &&PointKeys| keys.shared_with(other);
            rest.iter().fold((*first).clone(), everywhere)
        });
        let paired = || points.iter().filter(|point| !point.differing.is_empty());
        let everywhere =
            |difference: &KeyDifference| paired().all(|point| point.differing.contains(difference));
        let all = paired().next().map_or(&[][..], |point| &point.differing);
        let common: Vec<&KeyDifference> = all.iter().filter(|it| everywhere(it)).collect();
        let of_point = |point: &PointJudgement| {
            let differing = |key: &str| point.differing.iter().find(|it| it.key == key);
            let parts = distinguishing.iter().map(|key| match differing(key) {
                Some(difference) => two_values(difference),
                None => format!("{key} {}", point.keys.get(key).unwrap_or("-")),
            });
            let own = point.differing.iter();
            let own = own.filter(|it| !common.contains(it) && !distinguishing.contains(&it.key));
            let own = own.map(two_values);
            parts.chain(own).collect::<Vec<_>>().join(", ")
        };
        let own = points.iter().flat_map(|point| &point.differing);
        let own = own
            .filter(|it| !common.contains(it))
            .map(|it| it.key.clone());
        let keys_of_cells = distinct(distinguishing.iter().cloned().chain(own));
        let shared = shared.unwrap_or_default();
        let shared = shared.iter().map(|(key, value)| format!("{key} {value}"));
        Self {
            shared: shared.collect::<Vec<_>>().join(", "),
            differing: common
                .iter()
                .copied()
                .map(two_values)
                .collect::<Vec<_>>()
                .join(", "),
            points: points.iter().map(of_point).collect(),
            columns: columns(&keys_of_cells),
            cells: points
                .iter()
                .map(|point| cells(point, &keys_of_cells))
                .collect(),
        }
    }
}

/// Headers: the last part of each key, or the whole key if that part is ambiguous.
fn columns(keys: &[String]) -> Vec<String> {
    let last = |key: &String| key.rsplit('.').next().unwrap_or_default().to_owned();
    let short: Vec<String> = keys.iter().map(last).collect();
    let is_unique = |name: &String| short.iter().filter(|it| *it == name).count() == 1;
    let header = |(key, short): (&String, &String)| match is_unique(short) {
        true => short.clone(),
        false => key.clone(),
    };
    keys.iter().zip(&short).map(header).collect()
}

/// Values of these keys for a point, as `a → b` if the sides differ.
fn cells(point: &PointJudgement, keys: &[String]) -> Vec<String> {
    let cell = |key: &String| match point.differing.iter().find(|it| it.key == *key) {
        Some(it) => format!("{} → {}", or_dash(&it.a), or_dash(&it.b)),
        None => point.keys.get(key).unwrap_or("-").to_owned(),
    };
    keys.iter().map(cell).collect()
}

fn two_values(difference: &KeyDifference) -> String {
    let (a, b) = (or_dash(&difference.a), or_dash(&difference.b));
    format!("{} {a} → {b}", difference.key)
}

/// Returns the first keys that distinguish all distinct points.
fn distinguishing_keys(points: &[&PointKeys]) -> Vec<String> {
    let mut classes: Vec<usize> = vec![0; points.len()];
    let mut count = usize::from(!points.is_empty());
    let mut parts = Vec::new();
    // All points use the same key order, but not all have the same keys.
    let mut names: Vec<&str> = Vec::new();
    let mut seen = BTreeSet::new();
    for point in points {
        names.extend(
            point
                .iter()
                .map(|(key, _)| key)
                .filter(|key| seen.insert(*key)),
        );
    }
    let ordered: PointKeys = names
        .into_iter()
        .map(|key| (key.to_owned(), String::new()))
        .collect();
    let distinct: BTreeSet<Vec<(&str, &str)>> =
        points.iter().map(|point| point.iter().collect()).collect();
    for (key, _) in ordered.iter() {
        if count == distinct.len() {
            break;
        }
        let mut numbers: HashMap<(usize, Option<&str>), usize> = HashMap::new();
        let split: Vec<usize> = points
            .iter()
            .zip(&classes)
            .map(|(point, &class)| {
                let next = numbers.len();
                *numbers.entry((class, point.get(key))).or_insert(next)
            })
            .collect();
        if numbers.len() > count {
            count = numbers.len();
            classes = split;
            parts.push(key.to_owned());
        }
    }
    parts
}
