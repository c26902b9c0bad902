//! Differences in program, effective configuration, machine and variables between two sides.
//!
//! Differences in the machine and its variables make points incomparable unless the user accepts them. Differences in
//! the program and the effective configuration are only reported, because they are the subject of the comparison or
//! follow from it.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;
use tonnage_machine::Environment;
use tonnage_record::Record;
use tonnage_record::figures::Row;
use tonnage_units::names;
use tonnage_units::quantity::human::bytes;

use crate::keys::{KeyNames, flatten};

names! {
    /// Category of a difference.
    pub enum FactArea: "area" {
        /// The program that measured.
        Program = "program",
        /// Engines and memory as actually used.
        Effective = "effective",
        /// Hosts and their setup.
        Machine = "machine",
        /// Environment variables that control libraries.
        Variables = "variables",
    }
}

names! {
    /// Consequence of a difference.
    pub enum DifferenceWeight: "weight" {
        /// Makes points incomparable.
        Counts = "counts",
        /// Would make points incomparable, but was accepted.
        Accepted = "accepted",
        /// Only reported.
        Reported = "told",
    }
}

/// One difference between two sides.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    /// Category.
    pub area: FactArea,
    /// Name of the difference, as accepted by `--accept`.
    pub key: String,
    /// Values on the first side; empty if it has none.
    pub a: Vec<String>,
    /// Values on the second side.
    pub b: Vec<String>,
    /// Consequence.
    pub weight: DifferenceWeight,
}

/// Key of the canary. The canary is not part of the surroundings, but its difference can be accepted in the same way.
pub const CANARY: &str = "canary";

/// Key of the names of hosts.
const HOSTS: &str = "hosts";

/// Key of the memory size.
const MEMORY_TOTAL: &str = "memory.total";

/// Tolerance for memory sizes, because firmware reserves a varying amount.
const MEMORY_FRACTION_ALIKE: f64 = 0.01;

/// Differences that do not make points incomparable.
#[derive(Debug, Clone, Default)]
pub struct AcceptedDifferences {
    /// Names of accepted differences.
    pub names: KeyNames,
    /// Whether the sides alternated on one machine. Different library versions are then a consequence of the varied
    /// setting.
    pub alternated: bool,
}

/// Facts from the records of one side, each with all values that occur.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SurroundingFacts {
    values: BTreeMap<(FactArea, String), BTreeSet<String>>,
    memory_bytes: BTreeSet<u64>,
}

impl SurroundingFacts {
    /// Returns the facts about the hosts of a record, except those that differ in every run.
    pub fn of_hosts(record: &Record) -> Self {
        let mut facts = Self::default();
        for group in &record.environment {
            facts.add(FactArea::Machine, "launcher", &group.launcher);
            let hosts: Vec<&str> = group.hosts.iter().map(|host| host.name.as_str()).collect();
            facts.add(FactArea::Machine, HOSTS, &hosts.join(" "));
            let machine = &group.machine;
            for (name, version) in &machine.libraries {
                facts.add(FactArea::Machine, &format!("libraries.{name}"), version);
            }
            for (name, value) in &machine.variables {
                facts.add(FactArea::Variables, &format!("variables.{name}"), value);
            }
            facts.memory_bytes.extend(machine.memory.total_bytes);
            let mut machine = machine.clone();
            machine.libraries.clear();
            machine.variables.clear();
            machine.memory.total_bytes = None;
            machine
                .memory
                .huge_pools
                .iter_mut()
                .for_each(|pool| pool.free = 0);
            facts.add_json(
                FactArea::Machine,
                &serde_json::to_value(&machine).unwrap_or_default(),
            );
        }
        facts
    }

    /// Returns the facts about the program, and about the engines and memory that were actually used.
    pub fn of_run(record: &Record) -> Self {
        let mut facts = Self::default();
        facts.add(
            FactArea::Program,
            "program.version",
            &record.tonnage.version,
        );
        facts.add(
            FactArea::Program,
            "program.revision",
            &record.tonnage.git_revision,
        );
        for effective in &record.effective {
            let mut value = serde_json::to_value(effective).unwrap_or_default();
            if let Some(object) = value.as_object_mut() {
                object.remove("ranks");
            }
            facts.add_json(FactArea::Effective, &value);
        }
        facts
    }

    /// Adds the facts of another record of the same side.
    pub fn extend(&mut self, other: Self) {
        for (key, values) in other.values {
            self.values.entry(key).or_default().extend(values);
        }
        self.memory_bytes.extend(other.memory_bytes);
    }

    /// Returns the names that `--accept` accepts.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(|(_, key)| key.as_str())
    }

    /// Returns the differences from another side.
    pub fn differences(&self, other: &Self, accepted: &AcceptedDifferences) -> Vec<Difference> {
        let none = BTreeSet::new();
        let keys: BTreeSet<_> = self.values.keys().chain(other.values.keys()).collect();
        let mut found = Vec::new();
        for key in keys {
            let [a, b] = [self, other].map(|side| side.values.get(key).unwrap_or(&none));
            if a != b {
                found.push(Difference {
                    area: key.0,
                    key: key.1.clone(),
                    a: a.iter().cloned().collect(),
                    b: b.iter().cloned().collect(),
                    weight: weight(key.0, &key.1, a.is_empty() || b.is_empty(), accepted),
                });
            }
        }
        found.extend(self.memory_difference(other, accepted));
        found.sort_by_key(|difference| difference.area);
        found
    }

    fn memory_difference(
        &self,
        other: &Self,
        accepted: &AcceptedDifferences,
    ) -> Option<Difference> {
        let near = |one: u64, other: u64| {
            one.abs_diff(other) as f64 <= MEMORY_FRACTION_ALIKE * one.max(other) as f64
        };
        let has_counterparts = |own: &Self, other: &Self| {
            let mut totals = own.memory_bytes.iter();
            totals.all(|&total| other.memory_bytes.iter().any(|&one| near(total, one)))
        };
        let known = !self.memory_bytes.is_empty() && !other.memory_bytes.is_empty();
        let alike = has_counterparts(self, other) && has_counterparts(other, self);
        let shown = |side: &Self| {
            side.memory_bytes
                .iter()
                .map(|&total| bytes(total as f64))
                .collect()
        };
        (known && !alike).then(|| Difference {
            area: FactArea::Machine,
            key: MEMORY_TOTAL.to_owned(),
            a: shown(self),
            b: shown(other),
            weight: weight(FactArea::Machine, MEMORY_TOTAL, false, accepted),
        })
    }

    fn add(&mut self, area: FactArea, key: &str, value: &str) {
        let values = self.values.entry((area, key.to_owned())).or_default();
        values.insert(value.to_owned());
    }

    fn add_json(&mut self, area: FactArea, value: &Value) {
        let mut leaves = Vec::new();
        flatten(value, "", &mut leaves);
        leaves
            .iter()
            .for_each(|(key, value)| self.add(area, key, value));
    }
}

/// Facts about one machine, by the names that `--accept` and `--match` accept.
pub(crate) fn facts_of_machine(machine: &Environment) -> Vec<(String, String)> {
    let mut facts = Vec::new();
    flatten(
        &serde_json::to_value(machine).unwrap_or_default(),
        "",
        &mut facts,
    );
    facts
}

/// Returns whether two records describe the same hosts, apart from their clocks.
pub(crate) fn same_hosts(left: &Record, right: &Record) -> bool {
    let mut groups = left.environment.iter().zip(&right.environment);
    left.environment.len() == right.environment.len()
        && groups.all(|(left, right)| {
            let mut names = left.hosts.iter().zip(&right.hosts);
            left.launcher == right.launcher
                && left.machine == right.machine
                && left.hosts.len() == right.hosts.len()
                && names.all(|(left, right)| left.name == right.name)
        })
}

/// Returns the facts about the hosts of some rows. Consecutive records of the same hosts are evaluated once.
pub(crate) fn facts_of_hosts(rows: &[Row<'_>]) -> SurroundingFacts {
    let mut facts = SurroundingFacts::default();
    let mut last: Option<&Record> = None;
    for row in rows {
        if !last.is_some_and(|known| same_hosts(known, row.record)) {
            facts.extend(SurroundingFacts::of_hosts(row.record));
            last = Some(row.record);
        }
    }
    facts
}

/// Returns the consequence of a difference. A library that only one side loaded is only reported, because the other
/// side did not use it.
fn weight(
    area: FactArea,
    key: &str,
    one_sided: bool,
    accepted: &AcceptedDifferences,
) -> DifferenceWeight {
    let is_only_reported = match area {
        FactArea::Program | FactArea::Effective => true,
        FactArea::Machine => {
            let is_expected = one_sided || accepted.alternated;
            key == HOSTS || is_expected && key.starts_with("libraries.")
        }
        FactArea::Variables => false,
    };
    match (is_only_reported, accepted.names.matches(key)) {
        (true, _) => DifferenceWeight::Reported,
        (false, true) => DifferenceWeight::Accepted,
        (false, false) => DifferenceWeight::Counts,
    }
}

/// Returns the keys that can always be accepted, even if no record has them.
pub(crate) fn always_acceptable<'a>() -> impl Iterator<Item = &'a str> {
    [
        CANARY,
        MEMORY_TOTAL,
        "libraries",
        "variables",
        "launcher",
        "kernel",
        "os",
    ]
    .into_iter()
}
