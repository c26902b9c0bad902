//! Keys of a point: its requested options as names and values. Two sides' points with the same keys are compared.
//!
//! Keys are derived from the point in the record, so a new option needs no code here. Names are those of the record,
//! with dashes and without units: `size`, `pacing.depth`, `length.trials`.

use std::cmp::Ordering;

use serde::Serialize;
use serde_json::Value;
use tonnage_record::figures::{Row, Value as Figured, figure_by_field};
use tonnage_units::names::{nearest, quote};
use tonnage_units::quantity::human::{exact_duration, exact_size};
use tonnage_units::{Error, Result};

/// The most important keys, in display order. All other keys follow, sorted by name.
const IMPORTANT_KEYS: &[&str] = &[
    "kind",
    "label",
    "engine",
    "engine-options",
    "op",
    "phase",
    "transfers",
    "step",
    "ranks",
    "threads",
    "traffic",
    "memory",
    "memory-options",
    "size",
    "call-size",
    "depth",
    "batch",
];

/// Figures that distinguish the parts of a record.
const PART_FIGURES: &[&str] = &["phase", "transfers", "step"];

/// Keys that list the engines of a point with alternating parts. Each part of the record has its own engine instead.
const ENGINE_LISTS: &[&str] = &["engine", "engines", "backends"];

/// Maps an old key value in a baseline to its current name. `send-recv` meant pairs before the ring variant existed.
pub(crate) fn current_value<'a>(key: &str, value: &'a str) -> &'a str {
    match (key, value) {
        ("op", "send-recv") => "send-recv-pairs",
        (_, value) => value,
    }
}

/// Keys and values, in an order that depends only on the names.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize)]
pub struct PointKeys(Vec<(String, String)>);

/// A key in which two points differ, with both values. A value is `None` if the side does not have the key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KeyDifference {
    /// The key.
    pub key: String,
    /// The key's value on the first side.
    pub a: Option<String>,
    /// The key's value on the second side.
    pub b: Option<String>,
}

impl PointKeys {
    /// Keys of one part of a record.
    pub fn from_row(row: &Row<'_>) -> Self {
        let body = row.record.body.any();
        let mut keys = vec![("kind".to_owned(), row.record.body.kind().to_owned())];
        let mut point = row.record.body.point_json();
        if let Some(point) = point.as_object_mut() {
            ENGINE_LISTS
                .iter()
                .for_each(|list| drop(point.remove(*list)));
        }
        flatten(&point, "", &mut keys);
        keys.push(("engine".to_owned(), body.engine(row.part).to_owned()));
        if let Some(op) = body.operation(row.part) {
            keys.retain(|(key, _)| key != "op");
            keys.push(("op".to_owned(), op.to_owned()));
        }
        for figure in PART_FIGURES
            .iter()
            .filter_map(|field| figure_by_field(field))
        {
            if let Figured::Text(text) = (figure.value)(row) {
                keys.push((figure.field.to_owned(), text));
            }
        }
        Self::sorted(keys)
    }

    /// Returns the keys of all parts of a record. Parts with equal keys get a `part` number.
    pub fn for_parts<'a>(rows: &[Row<'a>]) -> Vec<(Self, Row<'a>)> {
        let mut all: Vec<(Self, Row<'a>)> = Vec::with_capacity(rows.len());
        let mut plain: Vec<Self> = Vec::with_capacity(rows.len());
        for row in rows {
            let keys = Self::from_row(row);
            let before = plain.iter().filter(|known| **known == keys).count();
            plain.push(keys.clone());
            let keys = match before {
                0 => keys,
                _ => keys.with_key("part", (before + 1).to_string()),
            };
            all.push((keys, *row));
        }
        all
    }

    /// Iterates over the keys and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let pairs = self.0.iter();
        pairs.map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.iter()
            .find(|(known, _)| *known == key)
            .map(|(_, value)| value)
    }

    /// Removes the named keys. `verify=each` always stays, because a figure that includes verifying each operation
    /// matches only figures that do too.
    #[must_use]
    pub fn without(&self, names: &KeyNames) -> Self {
        let stays = |key: &str, value: &str| (key, value) == ("verify", "each");
        let mut kept = self.0.iter().collect::<Vec<_>>();
        kept.retain(|(key, value)| stays(key, value) || !names.matches(key));
        let kept = kept.into_iter();
        Self(kept.cloned().collect())
    }

    /// Returns the keys with equal values on both sides.
    #[must_use]
    pub fn shared_with(&self, other: &Self) -> Self {
        let shared = self
            .0
            .iter()
            .filter(|(key, value)| other.get(key) == Some(value));
        Self(shared.cloned().collect())
    }

    /// Returns the keys in which two points differ.
    pub fn differences(&self, other: &Self) -> Vec<KeyDifference> {
        let added = other.iter().filter(|(key, _)| self.get(key).is_none());
        let names = self.iter().chain(added).map(|(key, _)| key);
        let differing = names.filter(|key| self.get(key) != other.get(key));
        let mut all: Vec<KeyDifference> = differing
            .map(|key| KeyDifference {
                key: key.to_owned(),
                a: self.get(key).map(str::to_owned),
                b: other.get(key).map(str::to_owned),
            })
            .collect();
        all.sort_by(|left, right| sort_key(&left.key).cmp(&sort_key(&right.key)));
        all
    }

    /// Orders points by their values, comparing sizes and times as amounts: 512 B comes before 4 KiB, and both before
    /// text.
    pub fn by_value(&self, other: &Self) -> Ordering {
        let pairs = self.iter().zip(other.iter());
        let mut orders = pairs.map(|((own_key, own), (other_key, other))| {
            let keys = sort_key(own_key).cmp(&sort_key(other_key));
            let values = match (parse_amount(own), parse_amount(other)) {
                (Some(own), Some(other)) => own.total_cmp(&other),
                (own, other) => other.is_some().cmp(&own.is_some()),
            };
            keys.then(values).then_with(|| own.cmp(other))
        });
        let first = orders.find(|order| order.is_ne());
        first.unwrap_or_else(|| self.0.len().cmp(&other.0.len()))
    }

    /// Returns the keys that distinguish the parts of a record.
    pub fn part_keys(&self) -> impl Iterator<Item = (&str, &str)> {
        let is_part_key =
            |key: &str| ["engine", "op", "part"].contains(&key) || PART_FIGURES.contains(&key);
        self.iter().filter(move |(key, _)| is_part_key(key))
    }

    fn with_key(mut self, key: &str, value: String) -> Self {
        self.0.push((key.to_owned(), value));
        Self::sorted(self.0)
    }

    fn sorted(mut keys: Vec<(String, String)>) -> Self {
        keys.sort_by(|left, right| sort_key(&left.0).cmp(&sort_key(&right.0)));
        Self(keys)
    }
}

impl FromIterator<(String, String)> for PointKeys {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(pairs: I) -> Self {
        Self::sorted(pairs.into_iter().collect())
    }
}

/// Parses a number with an optional unit, as formatted by [`format_leaf`], and converts it to the smallest unit.
fn parse_amount(value: &str) -> Option<f64> {
    let (number, unit) = value.split_once(' ').unwrap_or((value, ""));
    let factor = match unit {
        "" | "B" | "ns" => 1.0,
        "KiB" => 1024.0,
        "MiB" => 1_048_576.0,
        "GiB" => 1_073_741_824.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return None,
    };
    number.parse().ok().map(|number: f64| number * factor)
}

/// Returns the sort position of a key: important keys come first, the others follow by name.
fn sort_key(key: &str) -> (usize, &str) {
    let last = key.rsplit('.').next().unwrap_or(key);
    let place = IMPORTANT_KEYS.iter().position(|first| *first == last);
    (place.unwrap_or(IMPORTANT_KEYS.len()), key)
}

/// Flattens any serializable value to pairs of path and value, so that a new field needs no code here.
pub fn flattened(part: &impl Serialize) -> Vec<(String, String)> {
    let mut pairs = Vec::new();
    // The value comes from a record, so it can be serialized.
    flatten(
        &serde_json::to_value(part).unwrap_or_default(),
        "",
        &mut pairs,
    );
    pairs
}

/// Adds the leaves of a JSON value under their paths. A list counts as one leaf.
pub(crate) fn flatten(value: &Value, path: &str, into: &mut Vec<(String, String)>) {
    match value {
        Value::Null => {}
        Value::Object(map) => {
            for (name, inner) in map {
                let path = match path.is_empty() {
                    true => name.clone(),
                    false => format!("{path}.{name}"),
                };
                flatten(inner, &path, into);
            }
        }
        leaf => into.push((without_unit(path), format_leaf(path, leaf))),
    }
}

/// Removes the unit from a name, and replaces underscores by dashes.
fn without_unit(name: &str) -> String {
    let bare = ["_bytes", "_ns", "-bytes", "-ns"]
        .iter()
        .find_map(|unit| name.strip_suffix(unit));
    let bare = bare.unwrap_or(name);
    // A `kind` tag selects the variant of an option.
    bare.strip_suffix(".kind").unwrap_or(bare).replace('_', "-")
}

fn format_leaf(path: &str, leaf: &Value) -> String {
    let whole = leaf.as_u64();
    match (leaf, whole) {
        (_, Some(bytes)) if path.ends_with("_bytes") => exact_size(bytes),
        (_, Some(ns)) if path.ends_with("_ns") => exact_duration(ns),
        (Value::String(text), _) => text.clone(),
        (other, _) => other.to_string(),
    }
}

/// Key names as given to `--ignore` and `--accept`: a whole key, its beginning, or one of its components.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeyNames(Vec<String>);

impl KeyNames {
    /// Checks that each name matches a known key.
    ///
    /// # Errors
    /// `Usage` for an unknown name; the message suggests the nearest one.
    pub fn checked<'a>(
        option: &str,
        names: &[String],
        known: impl Iterator<Item = &'a str>,
    ) -> Result<Self> {
        let mut known: Vec<&str> = known.collect();
        known.sort_unstable();
        known.dedup();
        for name in names {
            let one = Self::from_iter([name.as_str()]);
            if !known.iter().any(|key| one.matches(key)) {
                let hint = match nearest(&without_unit(name), &known) {
                    Some(near) => format!("did you mean {near:?}?"),
                    None => format!("there are {}", known.join(", ")),
                };
                return Err(Error::Usage(format!(
                    "{option} has no key {}: {hint}",
                    quote(name)
                )));
            }
        }
        Ok(names.iter().map(String::as_str).collect())
    }

    /// Returns whether these names include a key.
    pub fn matches(&self, key: &str) -> bool {
        let key = without_unit(key);
        self.0.iter().any(|name| {
            let inside = |part: &str| part == name || part.starts_with(&format!("{name}."));
            let mut rests = key.match_indices('.').map(|(at, _)| &key[at + 1..]);
            inside(&key) || rests.any(inside)
        })
    }

    /// Returns whether there are no names.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'a> FromIterator<&'a str> for KeyNames {
    fn from_iter<I: IntoIterator<Item = &'a str>>(names: I) -> Self {
        Self(names.into_iter().map(current_name).collect())
    }
}

/// Names that schema 2 of records and other benchmarks have for keys, with the names of today.
const OTHER_NAMES: &[(&str, &str)] = &[
    ("window", "depth"),
    ("iodepth", "depth"),
    ("limit", "bound"),
    ("addresses", "access"),
    ("local-addresses", "local-access"),
    ("qps", "queue-pairs"),
    ("workers", "threads"),
];

/// Returns a key's name without its unit, with the names of today for its components.
fn current_name(name: &str) -> String {
    let name = without_unit(name);
    let parts = name.split('.').map(|part| {
        let other = OTHER_NAMES.iter().find(|(other, _)| *other == part);
        other.map_or(part, |(_, current)| *current)
    });
    parts.collect::<Vec<_>>().join(".")
}

/// Returns keys that points can have, even if none of the given records has them.
pub(crate) fn known_names<'a>() -> impl Iterator<Item = &'a str> {
    IMPORTANT_KEYS.iter().copied()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn keys(pairs: &[(&str, &str)]) -> PointKeys {
        let owned = pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        owned.collect()
    }

    #[test]
    fn names_of_schema_2_are_names_of_keys() {
        let keys = [
            "pacing.depth",
            "bound",
            "slots.access",
            "division.queue_pairs",
            "threads",
        ];
        for (old, new) in ["pacing.window", "limit", "addresses", "qps", "workers"]
            .iter()
            .zip(keys)
        {
            assert!(KeyNames::from_iter([*old]).matches(new), "{old}");
            KeyNames::checked("--ignore", &[(*old).to_owned()], keys.into_iter()).unwrap();
        }
    }

    #[test]
    fn leaves_are_named_by_their_path_without_units() {
        let value = serde_json::json!({
            "size_bytes": 65536, "engine_options": {"tx_size": "8"}, "pacing": {"kind": "stream", "depth": 16},
            "length": {"warmup_ns": 50_000_000}, "label": null, "list": [1, 2],
        });
        let mut found = Vec::new();
        flatten(&value, "", &mut found);
        let found = PointKeys::sorted(found);
        assert_eq!(
            found.iter().collect::<Vec<_>>(),
            [
                ("size", "64 KiB"),
                ("pacing.depth", "16"),
                ("engine-options.tx-size", "8"),
                ("length.warmup", "50 ms"),
                ("list", "[1,2]"),
                ("pacing", "stream"),
            ]
        );
    }

    #[test]
    fn a_name_takes_a_key_its_inside_and_its_end() {
        let names: KeyNames = ["engine_options", "depth", "size_bytes"]
            .into_iter()
            .collect();
        for key in [
            "engine-options.tx-size",
            "pacing.depth",
            "size",
            "engine-options",
        ] {
            assert!(names.matches(key), "{key}");
        }
        for key in ["engine", "pacing", "call-size", "depths", "length.size-max"] {
            assert!(!names.matches(key), "{key}");
        }
        let variables: KeyNames = ["variables.FI_SHM_TX_SIZE"].into_iter().collect();
        assert!(
            variables.matches("variables.FI_SHM_TX_SIZE") && !variables.matches("variables.FI_SHM")
        );
    }

    #[test]
    fn a_name_of_nothing_is_refused_with_the_nearest() {
        let checked = |name: &str| {
            let known = ["engine", "size", "pacing.depth"].into_iter();
            KeyNames::checked("--ignore", &[name.to_owned()], known)
        };
        assert!(checked("depth").is_ok());
        let text = checked("engin").unwrap_err().to_string();
        assert!(
            text.contains("--ignore") && text.contains("\"engine\""),
            "{text}"
        );
        assert_eq!(checked("nothing").unwrap_err().exit_code(), 2);
    }

    #[test]
    fn points_are_ordered_by_size() {
        let sizes = ["64 B", "1000 B", "1 KiB", "16 KiB", "1 MiB", "1 GiB"];
        let mut points: Vec<PointKeys> = sizes
            .iter()
            .rev()
            .map(|size| keys(&[("op", "read"), ("size", size)]))
            .collect();
        points.push(keys(&[("op", "read")]));
        points.push(keys(&[("op", "a"), ("size", "1 GiB")]));
        points.sort_by(PointKeys::by_value);
        let found: Vec<_> = points
            .iter()
            .map(|point| point.get("size").unwrap_or("none"))
            .collect();
        assert_eq!(
            found,
            [
                "1 GiB", "none", "64 B", "1000 B", "1 KiB", "16 KiB", "1 MiB", "1 GiB"
            ]
        );
        let units = ["7 ns", "1 us", "1 ms", "1 s", "x"].map(parse_amount);
        assert_eq!(units, [Some(7.0), Some(1e3), Some(1e6), Some(1e9), None]);
    }

    proptest! {
        /// The order must be total and consistent, because sorting needs that.
        #[test]
        fn points_have_one_order(
            a in "[0-9x]{1,2}( KiB| ns)?", b in "[0-9x]{1,2}( KiB| ns)?", c in "[0-9x]{1,2}( KiB| ns)?",
        ) {
            let [a, b, c] = [&a, &b, &c].map(|value| keys(&[("size", value.as_str())]));
            prop_assert_eq!(a.by_value(&b), b.by_value(&a).reverse());
            if a.by_value(&b).is_le() && b.by_value(&c).is_le() {
                prop_assert!(a.by_value(&c).is_le());
            }
        }
    }

    #[test]
    fn differences_include_keys_that_one_side_lacks() {
        let a = keys(&[("size", "1"), ("engine", "shm"), ("queue-pairs", "2")]);
        let b = keys(&[("size", "1"), ("engine", "null")]);
        let found = a.differences(&b);
        assert_eq!(found.len(), 2);
        assert_eq!(
            (found[0].key.as_str(), found[0].b.as_deref()),
            ("engine", Some("null"))
        );
        assert_eq!(
            (found[1].key.as_str(), found[1].b.as_deref()),
            ("queue-pairs", None)
        );
        assert_eq!(a.shared_with(&b), keys(&[("size", "1")]));
        let names: KeyNames = ["queue-pairs", "engine"].into_iter().collect();
        assert_eq!(a.without(&names), b.without(&names));
    }

    #[test]
    fn figures_with_verify_each_match_no_others_even_if_ignored() {
        let of = |verify| keys(&[("size", "1"), ("verify", verify)]);
        let names: KeyNames = ["verify"].into_iter().collect();
        let without = |verify| of(verify).without(&names);
        assert_eq!(without("true"), without("false"));
        assert_ne!(without("each"), without("true"));
        assert_eq!(without("each"), of("each"));
    }
}
