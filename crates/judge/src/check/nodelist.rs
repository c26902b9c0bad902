//! Folds host names as schedulers do: `n[1-3,7]`.

use std::collections::{BTreeMap, BTreeSet};

/// Folds names that differ only in their trailing number. Numbers with leading zeros are only folded together if they
/// have the same width.
pub fn fold_names<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let mut groups: BTreeMap<(&str, usize), BTreeSet<u64>> = BTreeMap::new();
    let mut plain: BTreeSet<&str> = BTreeSet::new();
    for name in names {
        let stem = name.trim_end_matches(|it: char| it.is_ascii_digit());
        let digits = &name[stem.len()..];
        match digits.parse() {
            Ok(number) => {
                // Leading zeros are part of a name: 01 and 1 are different hosts.
                let width = if digits.len() > 1 && digits.starts_with('0') {
                    digits.len()
                } else {
                    0
                };
                groups.entry((stem, width)).or_default().insert(number);
            }
            Err(_) => {
                plain.insert(name);
            }
        }
    }
    let folded = groups.iter().map(|((stem, width), numbers)| {
        let ranges = ranges(numbers, *width);
        match numbers.len() {
            1 => format!("{stem}{ranges}"),
            _ => format!("{stem}[{ranges}]"),
        }
    });
    let mut all: Vec<String> = folded.collect();
    all.extend(plain.into_iter().map(str::to_owned));
    all.join(",")
}

fn ranges(numbers: &BTreeSet<u64>, width: usize) -> String {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for &number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(number) => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    let written = ranges.iter().map(|(first, last)| match first == last {
        true => format!("{first:0width$}"),
        false => format!("{first:0width$}-{last:0width$}"),
    });
    written.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::fold_names;

    #[test]
    fn numbers_at_the_end_are_folded() {
        for (names, expected) in [
            (&["n1", "n2", "n3", "n7"][..], "n[1-3,7]"),
            (&["n7"], "n7"),
            (&["h1", "h0"], "h[0-1]"),
            (&["n09", "n10", "n08"], "n10,n[08-09]"),
            (&["login", "n1", "m1", "m2"], "m[1-2],n1,login"),
            (&["n1", "n1"], "n1"),
            (&[], ""),
            (&["n99999999999999999999999"], "n99999999999999999999999"),
        ] {
            assert_eq!(fold_names(names.iter().copied()), expected);
        }
    }
}
