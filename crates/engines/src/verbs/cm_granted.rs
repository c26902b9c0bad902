//! Terms that rdma_cm granted, of all connections of a worker, for the record.

use std::collections::BTreeSet;

use tonnage_engine::Facts;
use tonnage_sys::verbs::PathTo;

/// Different values that are told one by one; of more only how many there are.
const TOLD_MAX: usize = 8;

/// Terms of paths, each value once.
#[derive(Default)]
pub(super) struct GrantedTerms {
    service_levels: BTreeSet<u32>,
    traffic_classes: BTreeSet<u32>,
    flow_labels: BTreeSet<u32>,
}

impl GrantedTerms {
    /// Notes those of one more path.
    pub(super) fn note(&mut self, path: &PathTo) {
        self.service_levels.insert(path.service_level.into());
        self.traffic_classes.insert(path.traffic_class.into());
        self.flow_labels.insert(path.flow_label);
    }

    /// Adds them to the facts: several values where paths differ.
    pub(super) fn add_to(&self, facts: Facts) -> Facts {
        let facts = told(facts, "service_level", &self.service_levels);
        let facts = told(facts, "traffic_class", &self.traffic_classes);
        told(facts, "flow_label_granted", &self.flow_labels)
    }
}

fn told(facts: Facts, name: &'static str, all: &BTreeSet<u32>) -> Facts {
    let words = || all.iter().map(u32::to_string).collect::<Vec<_>>();
    match all.len() {
        0 => facts,
        1 => facts.maybe(name, all.first().copied()),
        2..=TOLD_MAX => facts.with(name, words().join(", ")),
        many => facts.with(name, format!("{many} different ones")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_told_or_counted() {
        let fact = |values: std::ops::Range<u32>| {
            told(Facts::default(), "flow_label_granted", &values.collect())
                .get("flow_label_granted")
                .cloned()
        };
        assert_eq!(fact(0..0), None);
        assert_eq!(fact(5..6), Some(5u32.into()));
        assert_eq!(fact(5..8), Some("5, 6, 7".into()));
        assert_eq!(fact(0..9), Some("9 different ones".into()));
    }
}
