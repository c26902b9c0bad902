//! Report of an open engine, for the record: common fields, and facts that only this engine has.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The library, device, options and limits that an engine uses.
///
/// In JSON this is one flat object: the facts are keys next to the fields.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct EngineReport {
    /// The engine's name in the list of engines. For collectives, the full name of the backend, including the text
    /// after the colon.
    pub name: String,
    /// The library that the engine loaded; absent if there is none.
    #[serde(flatten)]
    pub library: Option<LibraryReport>,
    /// The library's provider or driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Version of the provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider_version: Option<String>,
    /// The device, as named in `--devices`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Reports of all devices, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<EngineReport>,
    /// Granted options, queue sizes, and other facts about the engine.
    #[serde(flatten)]
    pub facts: Facts,
}

/// A library that an engine has loaded.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LibraryReport {
    /// Name and release of the library: "libfabric 1.22", "Open MPI v4.1.4".
    pub version: String,
    /// The file from which the library was loaded.
    pub library: String,
}

/// Named facts. The names are JSON keys: lower case with underscores, the unit last.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Facts(pub BTreeMap<String, Fact>);

/// Names of facts that other code reads, regardless of the engine.
pub mod fact_names {
    /// False if bytes do not really move.
    pub const MOVES_BYTES: &str = "moves_bytes";
    /// The clock from which latencies are computed.
    pub const CLOCK: &str = "clock";
    /// Devices that `--devices all` left out, each with the reason.
    pub const DEVICES_LEFT_OUT: &str = "devices_left_out";
    /// Hints that had no effect, each with its reason.
    pub const HINTS_NOT_TAKEN: &str = "hints_not_taken";
    /// Version of the Python that a worker runs in.
    pub const PYTHON: &str = "python";
    /// Version of CUDA in the Python that a worker runs in.
    pub const CUDA: &str = "cuda";
    /// Doubts about the measurement, which the table shows too.
    pub const REMARKS: &str = "remarks";
    /// Consequence for the measurement if hints had no effect.
    pub const HINTS_NOT_TAKEN_EFFECT: &str = "hints_not_taken_effect";
}

impl Facts {
    /// Adds a fact, replacing one of the same name.
    #[must_use]
    pub fn with_fact(mut self, name: &str, fact: impl Into<Fact>) -> Self {
        self.0.insert(name.to_owned(), fact.into());
        self
    }

    /// Adds a fact, if there is one.
    #[must_use]
    pub fn with_optional_fact(self, name: &str, fact: Option<impl Into<Fact>>) -> Self {
        match fact {
            Some(fact) => self.with_fact(name, fact),
            None => self,
        }
    }

    /// The fact of this name.
    pub fn get(&self, name: &str) -> Option<&Fact> {
        self.0.get(name)
    }

    /// Texts of all facts with this name, including elements of lists and facts in nested groups.
    pub fn texts(&self, name: &str) -> Vec<&str> {
        let mut found = Vec::new();
        for (own, fact) in &self.0 {
            fact.add_texts(own == name, name, &mut found);
        }
        found
    }

    /// Adds other facts, replacing those of the same name.
    pub fn extend(&mut self, others: Self) {
        self.0.extend(others.0);
    }
}

/// A value of a fact.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Fact {
    /// Yes or no.
    Flag(bool),
    /// A whole number.
    Count(u64),
    /// Any other number.
    Number(f64),
    /// A text.
    Text(String),
    /// A list.
    List(Vec<Fact>),
    /// Facts about one thing.
    Group(Facts),
    /// Unknown.
    Unknown,
}

impl Fact {
    /// Collects this fact's texts if `is_named`, and the texts of nested facts called `name`.
    fn add_texts<'a>(&'a self, is_named: bool, name: &str, found: &mut Vec<&'a str>) {
        match self {
            Self::Text(text) if is_named => found.push(text),
            Self::List(all) => all
                .iter()
                .for_each(|one| one.add_texts(is_named, name, found)),
            Self::Group(facts) => found.extend(facts.texts(name)),
            _ => {}
        }
    }

    /// The text, if this fact is one.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }
}

impl From<bool> for Fact {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl From<u32> for Fact {
    fn from(count: u32) -> Self {
        Self::Count(count.into())
    }
}

impl From<u64> for Fact {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<usize> for Fact {
    fn from(count: usize) -> Self {
        Self::Count(count as u64)
    }
}

impl From<&str> for Fact {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Fact {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Facts> for Fact {
    fn from(facts: Facts) -> Self {
        Self::Group(facts)
    }
}

impl<T: Into<Fact>> From<Vec<T>> for Fact {
    fn from(list: Vec<T>) -> Self {
        Self::List(list.into_iter().map(Into::into).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_report_is_one_flat_object_and_reads_back() {
        let report = EngineReport {
            name: "fabric".into(),
            library: Some(LibraryReport {
                version: "libfabric 1.22".into(),
                library: "/usr/lib/libfabric.so.1".into(),
            }),
            provider: Some("tcp".into()),
            device: Some("eth0".into()),
            facts: Facts::default()
                .with_fact("depth", 64u32)
                .with_fact("ordering", vec!["RAW", "WAW"])
                .with_fact("progress", Facts::default().with_fact("data", "manual"))
                .with_optional_fact("why_embedded", None::<String>),
            ..EngineReport::default()
        };
        assert_eq!(report.facts.texts("ordering"), ["RAW", "WAW"]);
        assert_eq!(report.facts.texts("data"), ["manual"]);
        assert!(report.facts.texts("depth").is_empty());
        let flat = json!({
            "name": "fabric", "version": "libfabric 1.22", "library": "/usr/lib/libfabric.so.1",
            "provider": "tcp", "device": "eth0", "depth": 64, "ordering": ["RAW", "WAW"],
            "progress": {"data": "manual"},
        });
        assert_eq!(serde_json::to_value(&report).unwrap(), flat);
        assert_eq!(
            serde_json::from_value::<EngineReport>(flat).unwrap(),
            report
        );
        let bare = json!({"name": "shm"});
        let report: EngineReport = serde_json::from_value(bare.clone()).unwrap();
        assert_eq!(report.library, None);
        assert_eq!(serde_json::to_value(&report).unwrap(), bare);
    }
}
