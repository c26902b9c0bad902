//! Matches the points of two sides, and explains points without a partner.

use std::collections::{HashMap, HashSet};

use tonnage_record::body::Part;
use tonnage_record::figures::Row;
use tonnage_record::{Outcome, Record};
use tonnage_units::{Error, Result};

use crate::keys::{KeyDifference, KeyNames, PointKeys};
use crate::neighbours::Neighbours;

/// Maximum number of unmatched points that get a nearest neighbour. Each search visits all points of the other side.
const NEAREST_FOR_MAX: usize = 200;

/// A point, or one part of it, with all its rows on one side.
#[derive(Debug)]
pub struct SidePoint<'a> {
    /// Requested options.
    pub keys: PointKeys,
    /// Rows of its records.
    pub rows: Vec<Row<'a>>,
}

impl SidePoint<'_> {
    /// Returns the number of runs that include this point.
    pub fn runs(&self) -> usize {
        let ids = self.rows.iter().map(|row| row.record.run_id.as_str());
        ids.collect::<HashSet<_>>().len()
    }
}

/// Returns the points of two sides, in order of first appearance. If repetitions ran in random order, the points are
/// sorted by value.
pub fn points<'a>(sides: &[Vec<&'a Record>; 2]) -> [Vec<SidePoint<'a>>; 2] {
    let parts = part_keys_of_unmeasured(sides);
    [0, 1].map(|side| {
        let records = &sides[side];
        let mut found = SidePoints::default();
        for record in records {
            let rows = Row::all_of_record(record);
            let others = unmeasured(record).and_then(|point| parts.get(&point));
            let is_whole = matches!(&rows[..], [row] if row.part == Part::Whole);
            let own = match others.is_some() && is_whole {
                true => Vec::new(),
                false => PointKeys::for_parts(&rows),
            };
            let others = others.into_iter().flatten();
            let others = others.filter(|keys| own.iter().all(|(known, _)| known != *keys));
            others.for_each(|keys| found.add(keys.clone(), rows[0]));
            own.into_iter().for_each(|(keys, row)| found.add(keys, row));
        }
        let mut points = found.points;
        if records.iter().any(|record| record.repetition.is_some()) {
            points.sort_by(|left, right| left.keys.by_value(&right.keys));
        }
        points
    })
}

/// Returns the keys of all parts of each point that was not measured in some record; the index is the point's JSON. An
/// unmeasured record lacks the phases or steps that it did not reach. So the keys come from records that did measure
/// the point.
fn part_keys_of_unmeasured(sides: &[Vec<&Record>; 2]) -> HashMap<String, Vec<PointKeys>> {
    let records = || sides.iter().flatten();
    let points: HashSet<String> = records().filter_map(|record| unmeasured(record)).collect();
    let mut parts: HashMap<String, Vec<PointKeys>> = HashMap::new();
    if points.is_empty() {
        return parts;
    }
    for record in records().filter(|record| record.outcome == Outcome::Measured) {
        let point = record.body.point_json().to_string();
        if !points.contains(&point) {
            continue;
        }
        let known = parts.entry(point).or_default();
        for (keys, _) in PointKeys::for_parts(&Row::all_of_record(record)) {
            if !known.contains(&keys) {
                known.push(keys);
            }
        }
    }
    parts
}

/// Returns the point of a record that was not measured; `None` if it was measured.
fn unmeasured(record: &Record) -> Option<String> {
    let is_measured = record.outcome == Outcome::Measured;
    (!is_measured).then(|| record.body.point_json().to_string())
}

/// Points, and the index of each by its keys.
#[derive(Default)]
struct SidePoints<'a> {
    places: HashMap<PointKeys, usize>,
    points: Vec<SidePoint<'a>>,
}

impl<'a> SidePoints<'a> {
    fn add(&mut self, keys: PointKeys, row: Row<'a>) {
        match self.places.get(&keys) {
            Some(&at) => self.points[at].rows.push(row),
            None => {
                self.places.insert(keys.clone(), self.points.len());
                self.points.push(SidePoint {
                    keys,
                    rows: vec![row],
                });
            }
        }
    }
}

/// A point without a partner.
#[derive(Debug)]
pub struct UnmatchedPoint {
    /// Index among the points of its side.
    pub at: usize,
    /// Keys that differ from the nearest point of the other side. `None` if no search was made or the other side has no
    /// points.
    pub nearest: Option<Vec<KeyDifference>>,
}

/// Matched pairs of points, by index, and points without a partner.
#[derive(Debug, Default)]
pub struct Matches {
    /// Index of each matched point on the first and the second side.
    pub pairs: Vec<(usize, usize)>,
    /// Points that only the first side has, and points that only the second side has.
    pub alone: [Vec<UnmatchedPoint>; 2],
}

/// Matches points. Points with all keys equal are matched first, then points that differ only in ignored keys.
///
/// # Errors
/// `Usage` if ignoring the keys would merge several points of a side.
pub fn match_points(sides: [&[SidePoint<'_>]; 2], ignored: &KeyNames) -> Result<Matches> {
    let mut left: [Vec<usize>; 2] = [Vec::new(), (0..sides[1].len()).collect()];
    let mut pairs = Vec::new();
    let by_keys: HashMap<&PointKeys, usize> = sides[1]
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
        pairs.extend(match_without_ignored(sides, &mut left, ignored)?);
    }
    pairs.sort_unstable();
    let search = match left.iter().all(Vec::is_empty) {
        true => Neighbours::default(),
        false => Neighbours::new(sides.map(|points| {
            let all = points.iter().map(|point| point.keys.without(ignored));
            all.collect()
        })),
    };
    let alone = [0, 1].map(|side: usize| {
        let own = left[side].iter().zip(0..);
        own.map(|(&at, count)| UnmatchedPoint {
            at,
            nearest: match count < NEAREST_FOR_MAX {
                true => search.nearest(side, at),
                false => None,
            },
        })
        .collect()
    });
    Ok(Matches { pairs, alone })
}

/// Matches the remaining points by the keys that are not ignored, and removes the matched points from `left`.
fn match_without_ignored(
    sides: [&[SidePoint<'_>]; 2],
    left: &mut [Vec<usize>; 2],
    ignored: &KeyNames,
) -> Result<Vec<(usize, usize)>> {
    let mut groups: HashMap<PointKeys, [Vec<usize>; 2]> = HashMap::new();
    for (side, places) in left.iter().enumerate() {
        for &at in places {
            let keys = sides[side][at].keys.without(ignored);
            groups.entry(keys).or_default()[side].push(at);
        }
    }
    let mut pairs = Vec::new();
    let mut groups: Vec<_> = groups.into_values().collect();
    // The groups are sorted so that error messages do not depend on hash order.
    groups.sort_unstable();
    for group in groups {
        match &group {
            [first, second] if first.is_empty() || second.is_empty() => {}
            [first, second] if first.len() == 1 && second.len() == 1 => {
                pairs.push((first[0], second[0]));
            }
            _ => return Err(ambiguous_match_error(sides, &group)),
        }
    }
    for (side, places) in left.iter_mut().enumerate() {
        let paired: HashSet<usize> = pairs.iter().map(|pair| [pair.0, pair.1][side]).collect();
        places.retain(|at| !paired.contains(at));
    }
    Ok(pairs)
}

fn ambiguous_match_error(sides: [&[SidePoint<'_>]; 2], group: &[Vec<usize>; 2]) -> Error {
    let side = usize::from(group[0].len() < 2);
    let [first, second] = [0, 1].map(|nth| &sides[side][group[side][nth]].keys);
    let differing = first.differences(second);
    let keys: Vec<String> = differing
        .iter()
        .map(|it| format!("{} ({}, {}, …)", it.key, or_dash(&it.a), or_dash(&it.b)))
        .collect();
    let letter = ["A", "B"][side];
    Error::Usage(format!(
        "--ignore would merge several points of side {letter}, which differ only in {}: ignore fewer \
         keys, or measure one of them only",
        keys.join(", ")
    ))
}

/// The value, or a dash if there is none.
pub fn or_dash(value: &Option<String>) -> &str {
    value.as_deref().unwrap_or("-")
}
