//! Short names for points, derived only from their keys, so that a point usually has the same name in every file.
//!
//! A name contains the most important keys, except those with default values. Engine and operation are shown
//! separately. Further keys are added only if several points would have the same name.

use std::collections::{BTreeMap, HashMap};

use tonnage_judge::keys::PointKeys;

/// Keys used in every name, by their last component.
const NAME_KEYS: &[&str] = &[
    "label",
    "phase",
    "transfers",
    "step",
    "size",
    "pacing",
    "depth",
    "batch",
    "rate",
    "layout",
    "block",
    "transfer",
    "traffic",
    "ranks",
    "threads",
    "memory",
    "part",
];

/// Values that names omit: defaults, and pacings that the depth or batch size implies.
const DEFAULTS: &[(&str, &str)] = &[
    ("pacing", "stream"),
    ("pacing", "batch"),
    ("traffic", "pair"),
    ("threads", "1"),
    ("memory", "host"),
];

/// Key prefix of engine-specific options.
const ENGINE_OPTIONS: &str = "engine-options.";

/// Maximum length of a name, in characters.
const NAME_CHARS_MAX: usize = 120;

/// Names of points by key.
#[derive(Debug)]
pub struct PointNames(HashMap<PointKeys, String>);

impl PointNames {
    /// Names these points.
    pub fn new<'a>(points: impl IntoIterator<Item = &'a PointKeys>) -> Self {
        let mut groups: BTreeMap<String, Vec<&PointKeys>> = BTreeMap::new();
        for keys in points {
            let group = groups.entry(full(keys, &name_parts(keys))).or_default();
            if !group.contains(&keys) {
                group.push(keys);
            }
        }
        let mut names = HashMap::new();
        let mut taken: HashMap<String, usize> = HashMap::new();
        for mut group in groups.into_values() {
            group.sort_by(|left, right| left.by_value(right));
            let shared = group[1..]
                .iter()
                .fold(group[0].clone(), |shared, other| shared.shared_with(other));
            for keys in group {
                let own = keys.iter().filter(|(key, _)| shared.get(key).is_none());
                let parts = name_parts(keys);
                let own: Vec<_> = own
                    .map(|(key, value)| pair(key, value))
                    .filter(|pair| !parts.contains(pair))
                    .collect();
                let name = shortened(&[parts, own].concat().join(","));
                // Names may still be equal: because blanks were removed, or because a label looks like keys.
                let mut unique = name.clone();
                while let Some(before) = taken.get_mut(&full(keys, std::slice::from_ref(&unique))) {
                    *before += 1;
                    unique = format!("{name}#{before}");
                }
                let name = unique;
                taken.insert(full(keys, std::slice::from_ref(&name)), 1);
                names.insert(keys.clone(), name);
            }
        }
        Self(names)
    }

    /// Name of a point, or an empty string if it is unknown.
    pub fn name(&self, keys: &PointKeys) -> &str {
        self.0.get(keys).map_or("", String::as_str)
    }

    /// Name of a point, preceded by engine and operation.
    pub fn full(&self, keys: &PointKeys) -> String {
        full(keys, &[self.name(keys).to_owned()])
    }
}

fn full(keys: &PointKeys, parts: &[String]) -> String {
    let before = ["engine", "op"].into_iter().filter_map(|key| keys.get(key));
    let before = before.map(shortened).collect::<Vec<_>>().join(" ");
    format!("{before} {}", parts.join(",")).trim().to_owned()
}

/// Key-value pairs used in every name.
fn name_parts(keys: &PointKeys) -> Vec<String> {
    let mut parts: Vec<(usize, String)> = Vec::new();
    for (key, value) in keys.iter() {
        let last = key.rsplit('.').next().unwrap_or(key);
        let at = match key.starts_with(ENGINE_OPTIONS) {
            true => Some(NAME_KEYS.len()),
            false => NAME_KEYS.iter().position(|it| *it == last),
        };
        if let Some(at) = at
            && !DEFAULTS.contains(&(key, value))
        {
            parts.push((at, pair(last, value)));
        }
    }
    parts.sort_by_key(|(at, _)| *at);
    parts.into_iter().map(|(_, pair)| pair).collect()
}

fn pair(key: &str, value: &str) -> String {
    match key {
        "label" => value.to_owned(),
        _ => format!("{key}={}", value.replace(' ', "")),
    }
}

/// Makes a text one line of limited length: control characters become Rust escapes. A text that was cut ends with a
/// checksum of the whole text.
pub fn shortened(text: &str) -> String {
    let each = text.chars().map(|it| match it.is_control() {
        true => it.escape_unicode().to_string(),
        false => it.to_string(),
    });
    let text = &each.collect::<String>();
    match text.char_indices().nth(NAME_CHARS_MAX) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}~{:08x}", &text[..end], fnv_1a(text)),
    }
}

/// 32-bit FNV-1a, which is stable across versions of the program.
fn fnv_1a(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn keys(pairs: &[(&str, &str)]) -> PointKeys {
        let owned = pairs.iter();
        let owned = owned.map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        owned.collect()
    }

    #[test]
    fn a_name_has_unusual_and_distinguishing_keys() {
        let base = [
            ("kind", "transfer"),
            ("engine", "shm"),
            ("op", "write"),
            ("ranks", "2"),
            ("threads", "1"),
            ("size", "64 KiB"),
            ("pacing", "stream"),
            ("pacing.depth", "16"),
            ("seed", "1"),
        ];
        let alone = keys(&base);
        let other = keys(&[&base[..8], &[("seed", "2")]].concat());
        let names = PointNames::new([&alone]);
        assert_eq!(names.name(&alone), "size=64KiB,depth=16,ranks=2");
        assert_eq!(names.full(&alone), "shm write size=64KiB,depth=16,ranks=2");
        let names = PointNames::new([&alone, &other, &alone]);
        assert_eq!(names.name(&alone), "size=64KiB,depth=16,ranks=2,seed=1");
        assert_eq!(names.name(&other), "size=64KiB,depth=16,ranks=2,seed=2");
        // Points of different engines need no further key, because the full name starts with the engine.
        let engine = keys(&[("engine", "null"), ("size", "64 KiB")]);
        assert_eq!(
            PointNames::new([&alone, &engine]).name(&alone),
            "size=64KiB,depth=16,ranks=2"
        );
    }

    #[test]
    fn nothing_in_a_name_steers_a_terminal() {
        let keys = keys(&[("label", "a\u{1b}[2J\nb"), ("engine", "x\ty")]);
        assert_eq!(
            PointNames::new([&keys]).full(&keys),
            "x\\u{9}y a\\u{1b}[2J\\u{a}b"
        );
    }

    #[test]
    fn long_names_are_cut_and_stay_apart() {
        let long = |end: &str| keys(&[("label", &("é".repeat(10_000) + end))]);
        let (one, other) = (long("1"), long("2"));
        let names = PointNames::new([&one, &other]);
        assert_ne!(names.name(&one), names.name(&other));
        assert_eq!(names.name(&one).chars().count(), NAME_CHARS_MAX + 9);
        assert_eq!(fnv_1a(""), 0x811c_9dc5);
        assert_eq!(fnv_1a("foobar"), 0xbf9c_f968);
    }

    proptest! {
        #[test]
        fn different_points_have_different_names(
            all in proptest::collection::vec(
                proptest::collection::vec(
                    (proptest::sample::select(&["label", "size", "seed", "op", "x.y"][..]), "[ ab=,]{0,3}"), 0..5),
                1..8),
        ) {
            let all: Vec<PointKeys> = all.iter().map(|pairs| {
                let mut pairs = pairs.clone();
                pairs.sort();
                pairs.dedup_by(|left, right| left.0 == right.0);
                pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
            }).collect();
            let names = PointNames::new(&all);
            for (at, one) in all.iter().enumerate() {
                for other in &all[..at] {
                    let same = (names.name(one), one.get("op"), one.get("engine"))
                        == (names.name(other), other.get("op"), other.get("engine"));
                    prop_assert_eq!(one == other, same, "{:?} {:?}", one, other);
                }
            }
        }
    }
}
