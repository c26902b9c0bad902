//! Reads a plan from TOML and writes one. Messages name the file and the line; a plan that was written reads back the
//! same.

use std::ops::Range;
use std::path::Path;

use serde::Deserialize;
use toml::de::{DeTable, DeValue, Deserializer};
use toml::{Spanned, Value};

use crate::expand::any_table;
use crate::given::GivenPoint;
use crate::kind::KindEntry;
use crate::kinds::{Experiment, KINDS};
use crate::options::{Parsed, Source};
use crate::plan::{Origin, Plan};
use tonnage_units::Count;
use tonnage_units::names::nearest;
use tonnage_units::names::quote;
use tonnage_units::{Error, Result};

/// Longest plan that is read. Plans are written by hand, so a longer file is probably something else.
pub const PLAN_BYTES_MAX: u64 = 1 << 20;

/// Maximum number of experiments of each kind in one plan. An experiment keeps its sweeps in memory, so the limit
/// bounds the memory that a short text can use.
pub const EXPERIMENTS_MAX: usize = 1000;

/// Key of the tables with points copied from records.
const GIVEN: &str = "point";

/// Keys of a plan other than the tables of its kinds.
const PLAN_KEYS: [&str; 4] = ["name", "title", "ranks", GIVEN];
const PLAN_NEEDS: [(&str, &str); 1] = [("name", "my-plan")];

impl Plan {
    /// Reads a plan file.
    pub fn load(path: &Path) -> Result<Self> {
        let shown = path.display();
        let unreadable = |why: &dyn std::fmt::Display| {
            Error::Usage(format!(
                "the plan {shown} cannot be read: {why}; `tonnage plans` lists those inside this program"
            ))
        };
        let metadata = std::fs::metadata(path).map_err(|error| unreadable(&error))?;
        if !metadata.is_file() || metadata.len() > PLAN_BYTES_MAX {
            return Err(unreadable(&"it is not a file of at most 1 MiB"));
        }
        let text = std::fs::read_to_string(path).map_err(|error| unreadable(&error))?;
        Self::from_toml(&text, &shown.to_string())
    }

    /// Reads a plan; `path` is only for messages. [`Plan::points`] checks combinations of values.
    pub fn from_toml(text: &str, path: &str) -> Result<Self> {
        let located = |span: Option<Range<usize>>, message: &str| {
            let line = line_of(text, span);
            Error::Usage(format!("{path}:{line}: {}", message.trim_end()))
        };
        let table = DeTable::parse(text).map_err(|e| located(e.span(), e.message()))?;
        check_keys(table.get_ref()).map_err(|wrong| located(Some(wrong.span), &wrong.message))?;
        plan(table).map_err(|e| located(e.span(), e.message()))
    }

    /// Returns the plan as TOML, as `--print-plan` prints it. [`Plan::from_toml`] reads it back as the same plan.
    /// Only given options are written; defaults are not.
    pub fn to_toml(&self) -> Result<String> {
        let mut lines = vec![line("name", string_value(&self.name))];
        lines.extend(
            self.title
                .as_deref()
                .map(|title| line("title", string_value(title))),
        );
        lines.extend(
            self.ranks
                .map(|ranks| line("ranks", Value::Integer(ranks.into()))),
        );
        if self.experiments.is_empty() && self.given.is_empty() {
            lines.extend(KINDS.first().map(|kind| format!("{} = []", kind.key)));
        }
        for experiment in &self.experiments {
            let table = experiment.write();
            let table = table
                .map_err(|error| Error::Failed(format!("the plan has no form in TOML: {error}")))?;
            lines.push(format!("\n[[{}]]", experiment.kind()));
            lines.extend(table.into_iter().map(|(key, value)| line(&key, value)));
        }
        for given in &self.given {
            lines.push(format!("\n[[{GIVEN}]]"));
            lines.push(line("json", string_value(&given.json)));
            lines.push(line("checksum", string_value(&given.checksum)));
        }
        lines.push(String::new());
        Ok(lines.join("\n"))
    }
}

fn line(key: &str, value: Value) -> String {
    format!("{key} = {value}")
}

fn string_value(value: &str) -> Value {
    Value::String(value.to_owned())
}

/// An unknown or missing key.
struct KeyError {
    span: Range<usize>,
    message: String,
}

/// Keys of a plan other than its experiments.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanHead {
    name: String,
    title: Option<String>,
    #[serde(default, deserialize_with = "ranks")]
    ranks: Option<u32>,
    #[serde(default)]
    point: Vec<GivenPoint>,
}

fn ranks<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> std::result::Result<Option<u32>, D::Error> {
    let Count(count) = Count::deserialize(deserializer)?;
    let too_many = |_| serde::de::Error::custom(format!("{count} is far too many"));
    u32::try_from(count).map(Some).map_err(too_many)
}

/// Reads a plan from a table with checked keys. Experiments keep their order in the text.
fn plan(table: Spanned<DeTable<'_>>) -> Parsed<Plan> {
    let span = table.span();
    let mut table = table.into_inner();
    let mut experiments = Vec::new();
    for kind in &KINDS {
        let Some(DeValue::Array(tables)) = table.remove(kind.key).map(Spanned::into_inner) else {
            continue;
        };
        for table in tables {
            let span = table.span();
            let DeValue::Table(table) = table.into_inner() else {
                continue;
            };
            let start = span.start;
            experiments.push((start, (kind.read)(Source::new(span, table))?));
        }
    }
    experiments.sort_by_key(|(start, _)| *start);
    let head = PlanHead::deserialize(Deserializer::from(Spanned::new(span, table)))?;
    let experiments = experiments.into_iter();
    Ok(Plan {
        name: head.name,
        title: head.title,
        ranks: head.ranks,
        experiments: experiments.map(|(_, experiment)| experiment).collect(),
        given: head.point,
        origin: Origin::File,
    })
}

/// Checks keys before values are read, because a mistyped key is the most common mistake and deserves the best message.
fn check_keys(table: &DeTable<'_>) -> std::result::Result<(), KeyError> {
    let mut keys = PLAN_KEYS.to_vec();
    keys.extend(KINDS.iter().map(|kind| kind.key));
    check_table(table, 0..0, "a plan", &keys, &PLAN_NEEDS)?;
    let mut tables = KINDS.iter().map(|kind| kind.key).chain([GIVEN]);
    if !tables.any(|key| table.contains_key(key)) {
        return Err(KeyError {
            span: 0..0,
            message: format!("a plan needs experiments: write {} for each", any_table()),
        });
    }
    KINDS
        .iter()
        .filter_map(|kind| Some((kind, table.get(kind.key)?)))
        .try_for_each(|(kind, list)| check_experiments(kind, list))
}

fn check_experiments(
    kind: &KindEntry<Experiment>,
    list: &Spanned<DeValue<'_>>,
) -> std::result::Result<(), KeyError> {
    let key = kind.key;
    let not_tables = |span| KeyError {
        span,
        message: format!("each experiment is a table under [[{key}]]"),
    };
    let DeValue::Array(items) = list.get_ref() else {
        return Err(not_tables(list.span()));
    };
    if let Some(item) = items.get(EXPERIMENTS_MAX) {
        return Err(KeyError {
            span: item.span(),
            message: format!("a plan has at most {EXPERIMENTS_MAX} {key}s: make several plans"),
        });
    }
    let keys = (kind.keys)();
    for item in items.iter() {
        let DeValue::Table(table) = item.get_ref() else {
            return Err(not_tables(item.span()));
        };
        check_table(table, item.span(), kind.name, &keys, kind.needs)?;
    }
    Ok(())
}

fn check_table(
    table: &DeTable<'_>,
    span: Range<usize>,
    what: &str,
    keys: &[&str],
    needs: &[(&str, &str)],
) -> std::result::Result<(), KeyError> {
    let unknown = table
        .keys()
        .find(|key| !keys.contains(&key.get_ref().as_ref()));
    if let Some(key) = unknown {
        let name = key.get_ref().as_ref();
        let hint = match nearest(name, keys) {
            Some(near) => format!("did you mean {near:?}? "),
            None => String::new(),
        };
        let all = keys.join(", ");
        let message = format!(
            "unknown key {}: {hint}the keys of {what} are {all}",
            quote(name)
        );
        return Err(KeyError {
            span: key.span(),
            message,
        });
    }
    match needs.iter().find(|(key, _)| !table.contains_key(*key)) {
        Some((key, example)) => {
            let message = format!("{what} needs the key {key:?}: write {key} = {example:?}");
            Err(KeyError { span, message })
        }
        None => Ok(()),
    }
}

/// Returns the number, from 1, of the line on which a span begins.
fn line_of(text: &str, span: Option<Range<usize>>) -> usize {
    let start = span.map_or(0, |span| span.start).min(text.len());
    text.as_bytes()[..start]
        .iter()
        .filter(|byte| **byte == b'\n')
        .count()
        + 1
}

#[cfg(test)]
mod tests;
