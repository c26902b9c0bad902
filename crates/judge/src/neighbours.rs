//! Finds the point on the other side that differs in the fewest keys. Keys and values are interned as numbers, because
//! each search visits all points.

use std::collections::HashMap;

use crate::keys::{KeyDifference, PointKeys};

/// Keys of the points of two sides.
#[derive(Default)]
pub(crate) struct Neighbours {
    keys: [Vec<PointKeys>; 2],
    numbers: [Vec<NumberedKeys>; 2],
}

/// Keys and values as interned numbers, sorted.
type NumberedKeys = Vec<(usize, usize)>;

impl Neighbours {
    /// Indexes points by their keys.
    pub(crate) fn new(keys: [Vec<PointKeys>; 2]) -> Self {
        Self {
            numbers: number_keys(&keys),
            keys,
        }
    }

    /// Returns the differences from the nearest point of the other side, with the first side's value first.
    pub(crate) fn nearest(&self, side: usize, at: usize) -> Option<Vec<KeyDifference>> {
        let own = self.numbers[side].get(at)?;
        let others = self.numbers[1 - side].iter().enumerate();
        let (nearest, _) = others.min_by_key(|(_, other)| count_differing(own, other))?;
        let (own, nearest) = (&self.keys[side][at], &self.keys[1 - side][nearest]);
        Some(match side {
            0 => own.differences(nearest),
            _ => nearest.differences(own),
        })
    }
}

fn number_keys(sides: &[Vec<PointKeys>; 2]) -> [Vec<NumberedKeys>; 2] {
    let mut texts: HashMap<&str, usize> = HashMap::new();
    let mut number = |text| {
        let next = texts.len();
        *texts.entry(text).or_insert(next)
    };
    sides.each_ref().map(|points| {
        let all = points.iter().map(|keys| {
            let pairs = keys.iter().map(|(key, value)| (number(key), number(value)));
            let mut pairs: NumberedKeys = pairs.collect();
            pairs.sort_unstable();
            pairs
        });
        all.collect()
    })
}

/// Returns the number of keys that only one point has, or that have different values.
fn count_differing(own: &[(usize, usize)], other: &[(usize, usize)]) -> usize {
    let (mut left, mut right, mut count) = (0, 0, 0);
    while let (Some(own), Some(other)) = (own.get(left), other.get(right)) {
        count += usize::from(own != other);
        left += usize::from(own.0 <= other.0);
        right += usize::from(other.0 <= own.0);
    }
    count + own.len() - left + other.len() - right
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_keys() -> impl Strategy<Value = PointKeys> {
        let names =
            prop::sample::subsequence(vec!["a", "size", "b.size", "depth", "x", "kind"], 0..6);
        let values = prop::collection::vec("[12]", 6);
        (names, values).prop_map(|(names, values)| {
            let pairs = names.into_iter().map(str::to_owned);
            pairs.zip(values).collect()
        })
    }

    proptest! {
        /// The count equals the number of reported differences.
        #[test]
        fn differences_are_counted_as_they_are_named(a in any_keys(), b in any_keys()) {
            let [a_numbers, b_numbers] = number_keys(&[vec![a.clone()], vec![b.clone()]]);
            prop_assert_eq!(count_differing(&a_numbers[0], &b_numbers[0]), a.differences(&b).len());
        }
    }
}
