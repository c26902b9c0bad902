//! Expands a plan to its points. Every mistake that can be found before a rank starts is refused here, in one sentence
//! that names the nearest valid choice. Each kind expands its own experiments.

use std::collections::HashSet;

use crate::bounds::POINTS_MAX;
use crate::cells::Cell;
use crate::kinds::{KINDS, Point};
use crate::plan::Plan;
use crate::point::PointNotes;
use crate::refuse::usage_error;
use tonnage_engine::Lists;
use tonnage_units::names::quote;
use tonnage_units::{Error, Result};

/// A point, with facts that only readers of its results need.
#[derive(Debug, Clone, PartialEq)]
pub struct Planned {
    /// The point.
    pub point: Point,
    /// Facts for readers of the results.
    pub reading: PointNotes,
    /// Why this cell cannot be measured. `None` if it can be. An impossible cell is recorded as skipped.
    pub impossible: Option<String>,
}

impl From<Point> for Planned {
    fn from(point: Point) -> Self {
        Self {
            point,
            reading: PointNotes::default(),
            impossible: None,
        }
    }
}

impl Plan {
    /// Returns the plan's points for a run of `ranks` ranks with the engines and memories of `lists`. The points are in
    /// measuring order: experiments are in the order of the plan. The same plan always expands to the same points.
    pub fn points(&self, ranks: u32, lists: &Lists) -> Result<Vec<Planned>> {
        let named = self.origin.named(self.expand(ranks, lists));
        let mut planned = named?;
        for cell in &mut planned {
            let why = cell.impossible.take();
            cell.impossible = why.map(|why| self.origin.renamed(&why));
        }
        Ok(planned)
    }

    fn expand(&self, ranks: u32, lists: &Lists) -> Result<Vec<Planned>> {
        if self.experiments.is_empty() && self.given.is_empty() {
            return usage_error(format!("the plan has no experiment: add {}", any_table()));
        }
        let mut planned = Vec::new();
        let mut seen = HashSet::new();
        for (index, experiment) in self.experiments.iter().enumerate() {
            check_label(experiment.any().label()).map_err(|error| self.located(index, error))?;
            let points_max = POINTS_MAX - planned.len();
            let expanded = experiment.points(ranks, lists, points_max);
            let (cells, reading) = expanded.map_err(|error| self.located(index, error))?;
            for Cell { point, impossible } in cells {
                let text = serde_json::to_string(&point)
                    .map_err(|error| Error::Failed(format!("a point has no JSON form: {error}")))?;
                if !seen.insert(text) {
                    let error = Error::Usage(format!(
                        "the same point is asked for twice ({}): leave one of them out, or give one a --label",
                        point.any().name()
                    ));
                    return Err(self.located(index, error));
                }
                let reading = reading.clone();
                planned.push(Planned {
                    point,
                    reading,
                    impossible,
                });
            }
        }
        planned.extend(self.given_points(ranks)?);
        Ok(planned)
    }

    /// Returns the plan's `[[point]]` entries, which are copies of recorded points. Refuses a point for a different
    /// number of ranks.
    fn given_points(&self, ranks: u32) -> Result<Vec<Planned>> {
        let planned = self.given.iter().map(|given| match given.ranks() {
            Some(own) if own != ranks => usage_error(format!(
                "a [[point]] is of {own} ranks, and the run has {ranks}: use --ranks {own}"
            )),
            _ => given.point().map(Planned::from),
        });
        planned.collect()
    }

    /// Prefixes an error with the name of its experiment, unless the plan has only one.
    fn located(&self, index: usize, error: Error) -> Error {
        match (error, self.experiments.get(index)) {
            (Error::Usage(message), Some(experiment)) if self.experiments.len() > 1 => {
                let kind = experiment.kind();
                let before = self.experiments.iter().take(index);
                let number = before.filter(|other| other.kind() == kind).count() + 1;
                let label = experiment.any().label();
                let label = label
                    .map(|label| format!(" ({})", quote(label)))
                    .unwrap_or_default();
                Error::Usage(format!("{kind} {number}{label}: {message}"))
            }
            (other, _) => other,
        }
    }
}

/// Refuses a label with control characters, which would garble a terminal or the lines around it.
fn check_label(label: Option<&str>) -> Result<()> {
    match label {
        Some(label) if label.chars().any(char::is_control) => usage_error(format!(
            "--label {} has line breaks or other control characters: name it in one line of text",
            quote(label)
        )),
        _ => Ok(()),
    }
}

/// Lists the plan tables of all kinds, for messages: `a [[transfer]], a [[file]] or a [[connect]] table`.
pub(crate) fn any_table() -> String {
    let tables: Vec<_> = KINDS
        .iter()
        .map(|kind| format!("a [[{}]]", kind.key))
        .collect();
    match tables.split_last() {
        Some((last, [])) => format!("{last} table"),
        Some((last, others)) => format!("{} or {last} table", others.join(", ")),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::SHIPPED;

    /// Returns, for each point of a plan with one table, whether the point is impossible.
    fn impossible(ranks: u32, table: &str) -> Vec<bool> {
        let text = format!("name = 'cells'\n[[{table}");
        let plan = Plan::from_toml(&text, "cells.toml").unwrap();
        let planned = plan.points(ranks, &SHIPPED).unwrap();
        let is_impossible = |planned: &Planned| planned.impossible.is_some();
        planned.iter().map(is_impossible).collect()
    }

    /// Each plan has one sweep. Each value is possible alone, but not every combination is.
    #[test]
    fn impossible_cells_are_kept_with_their_reason() {
        let transfer = "transfer]]\nengine = 'shm'\nsizes = ";
        let file = "file]]\npath = 't'\nblock = '1M'\n";
        let connect = "connect]]\nengine = 'shm'\n";
        for (table, expected) in [
            (
                format!("{transfer}['64', '8k']\nop = 'write'\nfootprint = '4k'"),
                &[false, true][..],
            ),
            (
                format!("{transfer}[8, 64]\nop = ['write', 'fetch-add']"),
                &[false, false, false, true],
            ),
            (
                "transfer]]\nengine = ['shm', 'null']\nop = 'write'\nsizes = 64\nverify = true"
                    .into(),
                &[false, true],
            ),
            (
                format!("{transfer}64\nop = ['write', 'send']\napi = 'poll'"),
                &[false, true],
            ),
            (format!("{file}transfer = ['4k', '3k']"), &[false, true]),
            (
                format!("{file}transfer = '4k'\nengine = ['uring', 'posix']\ndepth = [1, 8]"),
                &[false, false, false, true],
            ),
            (
                format!("{connect}threads = [1, 1024]\nregister = '2G'"),
                &[false, true],
            ),
            (
                "tune]]\nengine = ['shm', 'null']\nop = 'write'\nsizes = '64k'".into(),
                &[false, true],
            ),
            (
                "collective]]\nbackend = 'native:shm'\nop = 'all-gather'\nsizes = [8, 64]".into(),
                &[true, false],
            ),
            (
                "collective]]\nbackend = 'native:shm'\nop = ['all-reduce', 'broadcast']\nsizes = 64\n\
                 algorithm = ['ring', 'tree', 'halving-doubling']"
                    .into(),
                &[false, false, false, false, false, true],
            ),
        ] {
            let ranks = if table.starts_with("collective") { 3 } else { 2 };
            assert_eq!(impossible(ranks, &table), expected, "{table}");
        }
    }
}
