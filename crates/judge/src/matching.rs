//! Points of two sides and their partners, and why some have none.

use std::collections::{HashMap, HashSet};

use tonnage_record::Record;
use tonnage_record::figures::Row;
use tonnage_units::{Error, Result};

use crate::keys::{KeyDifference, KeyNames, Keys};

/// Points without a partner whose nearest one is looked for; it takes all points of the other side for each.
const NEAREST_FOR_MAX: usize = 200;

/// A point, or a part of one, with everything that one side measured of it.
#[derive(Debug)]
pub struct SidePoint<'a> {
    /// Options that were asked for.
    pub keys: Keys,
    /// Rows of its records.
    pub rows: Vec<Row<'a>>,
}

/// Points of records, in the order in which each comes first; where that is drawn anew in each repetition, in the order
/// of their values.
pub fn points<'a>(records: &[&'a Record]) -> Vec<SidePoint<'a>> {
    let mut places: HashMap<Keys, usize> = HashMap::new();
    let mut points: Vec<SidePoint<'a>> = Vec::new();
    for record in records {
        for (keys, row) in Keys::of_parts(&Row::of(record)) {
            match places.get(&keys) {
                Some(&at) => points[at].rows.push(row),
                None => {
                    places.insert(keys.clone(), points.len());
                    points.push(SidePoint {
                        keys,
                        rows: vec![row],
                    });
                }
            }
        }
    }
    if records.iter().any(|record| record.repetition.is_some()) {
        points.sort_by(|left, right| left.keys.by_value(&right.keys));
    }
    points
}

/// A point without a partner.
#[derive(Debug)]
pub struct Alone {
    /// Its place among the points of its side.
    pub at: usize,
    /// Keys in which it differs from the nearest point of the other side, as values of the first side and of the
    /// second; `None` where nobody looked, or there is no other point.
    pub nearest: Option<Vec<KeyDifference>>,
}

/// Points that belong together, by their places, and those without a partner.
#[derive(Debug, Default)]
pub struct Matched {
    /// Places of partners on both sides.
    pub pairs: Vec<(usize, usize)>,
    /// Points that one side alone has, of the first side and of the second.
    pub alone: [Vec<Alone>; 2],
}

/// Matches points: those that are alike in all keys first, then those that differ in ignored keys alone.
///
/// # Errors
/// `Usage` where several points of a side would be one without the ignored keys.
pub fn matched(sides: [&[SidePoint<'_>]; 2], ignored: &KeyNames) -> Result<Matched> {
    let mut left: [Vec<usize>; 2] = [Vec::new(), (0..sides[1].len()).collect()];
    let mut pairs = Vec::new();
    let by_keys: HashMap<&Keys, usize> = sides[1]
        .iter()
        .zip(0..)
        .map(|(it, at)| (&it.keys, at))
        .collect();
    let mut taken = vec![false; sides[1].len()];
    for (at, point) in sides[0].iter().enumerate() {
        match by_keys.get(&point.keys) {
            Some(&partner) => {
                taken[partner] = true;
                pairs.push((at, partner));
            }
            None => left[0].push(at),
        }
    }
    left[1].retain(|&at| !taken[at]);
    if !ignored.is_empty() {
        pairs.extend(by_fewer_keys(sides, &mut left, ignored)?);
    }
    pairs.sort_unstable();
    let alone = [0, 1].map(|side: usize| {
        let own = left[side].iter().zip(0..);
        own.map(|(&at, count)| Alone {
            at,
            nearest: match count < NEAREST_FOR_MAX {
                true => nearest(sides, side, at, ignored),
                false => None,
            },
        })
        .collect()
    });
    Ok(Matched { pairs, alone })
}

/// Partners among the points that are left, which are taken from there.
fn by_fewer_keys(
    sides: [&[SidePoint<'_>]; 2],
    left: &mut [Vec<usize>; 2],
    ignored: &KeyNames,
) -> Result<Vec<(usize, usize)>> {
    let mut groups: HashMap<Keys, [Vec<usize>; 2]> = HashMap::new();
    for (side, places) in left.iter().enumerate() {
        for &at in places {
            let keys = sides[side][at].keys.without(ignored);
            groups.entry(keys).or_default()[side].push(at);
        }
    }
    let mut pairs = Vec::new();
    let mut groups: Vec<_> = groups.into_values().collect();
    // The order in which a message names the first of several must not depend on hashes.
    groups.sort_unstable();
    for group in groups {
        match &group {
            [first, second] if first.is_empty() || second.is_empty() => {}
            [first, second] if first.len() == 1 && second.len() == 1 => {
                pairs.push((first[0], second[0]));
            }
            _ => return Err(ambiguous(sides, &group)),
        }
    }
    for (side, places) in left.iter_mut().enumerate() {
        let paired: HashSet<usize> = pairs.iter().map(|pair| [pair.0, pair.1][side]).collect();
        places.retain(|at| !paired.contains(at));
    }
    Ok(pairs)
}

fn ambiguous(sides: [&[SidePoint<'_>]; 2], group: &[Vec<usize>; 2]) -> Error {
    let side = usize::from(group[0].len() < 2);
    let [first, second] = [0, 1].map(|nth| &sides[side][group[side][nth]].keys);
    let differing = first.differences(second);
    let keys: Vec<String> = differing
        .iter()
        .map(|it| format!("{} ({}, {}, …)", it.key, known(&it.a), known(&it.b)))
        .collect();
    let letter = ["A", "B"][side];
    Error::Usage(format!(
        "without the ignored keys several points of side {letter} would be one, for they differ in {} alone: ignore fewer \
         keys, or measure one of them only",
        keys.join(", ")
    ))
}

/// A value, or a dash where there is none.
pub fn known(value: &Option<String>) -> &str {
    value.as_deref().unwrap_or("-")
}

/// Differences from the point of the other side that differs in the fewest keys.
fn nearest(
    sides: [&[SidePoint<'_>]; 2],
    side: usize,
    at: usize,
    ignored: &KeyNames,
) -> Option<Vec<KeyDifference>> {
    let own = &sides[side][at].keys;
    let others = sides[1 - side].iter();
    let count = |other: &&SidePoint<'_>| {
        let differing = own.differences(&other.keys);
        differing.iter().filter(|it| !ignored.take(&it.key)).count()
    };
    let nearest = others.min_by_key(count)?;
    let mut differing = match side {
        0 => own.differences(&nearest.keys),
        _ => nearest.keys.differences(own),
    };
    differing.retain(|it| !ignored.take(&it.key));
    Some(differing)
}
