//! A plan, and changes to a plan as a whole: its scale, its ranks, the location of its files.

use std::collections::BTreeMap;

use crate::given::GivenPoint;
use crate::kind::Scale;
use crate::kinds::{Experiment, KINDS};
use crate::refuse::usage_error;
use tonnage_units::names::quote;
use tonnage_units::{Error, Result};

/// Everything that one run has to measure.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Plan {
    /// Short name, repeated in every record.
    pub name: String,
    /// One line for the head of a report.
    pub title: Option<String>,
    /// Number of ranks that the plan is written for. The command line may request another number.
    pub ranks: Option<u32>,
    /// Experiments to measure, in order.
    pub experiments: Vec<Experiment>,
    /// Points copied from records, measured after the experiments.
    pub given: Vec<GivenPoint>,
    /// Where it was written.
    pub origin: Origin,
}

/// Where a plan was written: messages name its options as they are written there. All origins are equal, because the
/// same request is the same plan wherever it was written.
#[derive(Debug, Clone, Copy, Default)]
pub enum Origin {
    /// Options such as `--depth 8`.
    #[default]
    CommandLine,
    /// Keys such as `depth = 8`.
    File,
}

impl PartialEq for Origin {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Origin {
    /// Names options in an error about the request as they were written.
    pub(crate) fn named<T>(self, outcome: Result<T>) -> Result<T> {
        outcome.map_err(|error| match error {
            Error::Usage(message) => Error::Usage(self.renamed(&message)),
            other => other,
        })
    }

    /// Takes a message that names options as on a command line, and names them as they were written. Command lines in
    /// backquotes stay.
    pub(crate) fn renamed(self, message: &str) -> String {
        match self {
            Self::CommandLine => message.to_owned(),
            Self::File => {
                let parts = message.split('`').enumerate();
                let parts = parts.map(|(index, part)| match index % 2 {
                    0 => with_keys(part),
                    _ => part.to_owned(),
                });
                parts.collect::<Vec<_>>().join("`")
            }
        }
    }
}

/// Replaces the options of experiments in a text by their keys: `--depth` by `depth`. Other options stay.
fn with_keys(text: &str) -> String {
    let mut parts = text.split("--");
    let mut keys = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let is_name = |c: char| c.is_ascii_lowercase() || c == '-';
        let end = part.find(|c| !is_name(c)).unwrap_or(part.len());
        let (option, rest) = part.split_at(end);
        let all = KINDS.iter().flat_map(|kind| (kind.keys)());
        let found = all
            .into_iter()
            .find(|key| *key == option || key.strip_suffix('s') == Some(option));
        match found {
            Some(key) => keys += key,
            None => keys = keys + "--" + option,
        }
        keys += rest;
    }
    keys
}

impl Plan {
    /// Scales the length of all measurements.
    ///
    /// Between memories, that is time: trial time, duration, iterations and the limit of `until-ci`. Each trial keeps
    /// at least one iteration or one millisecond. The number of trials and the warm-up stay as they are.
    ///
    /// With files, it is bytes: the total of all planned ranks, times the factor, is divided among the `ranks` of the
    /// run. Stonewalls stay as they are.
    pub fn scale(&mut self, factor: f64, ranks: u32) -> Result<()> {
        if !(1e-9..=1e5).contains(&factor) {
            return usage_error(format!(
                "--scale {factor} makes no sense: use a factor from 0.000000001 to 100000, such as 0.1 or 10"
            ));
        }
        self.refuse_given("--scale")?;
        let planned = self.ranks.unwrap_or(ranks).max(1);
        let scale = Scale {
            time: factor,
            share_of_rank: factor * f64::from(planned) / f64::from(ranks.max(1)),
        };
        for experiment in &mut self.experiments {
            experiment.any_mut().scale(scale);
        }
        Ok(())
    }

    /// Refuses an option that would change points copied from records.
    pub fn refuse_given(&self, option: &str) -> Result<()> {
        if self.given.is_empty() {
            return Ok(());
        }
        usage_error(format!(
            "{option} cannot change a [[point]], which is measured as its record has it: leave it out"
        ))
    }

    /// Makes every experiment use these engines instead of its own. Removes experiments that apply to none of them, and
    /// returns their names: kind, position in the plan and label.
    pub fn use_engines(&mut self, engines: &[String]) -> Result<Vec<String>> {
        let had_some = !self.experiments.is_empty();
        let (mut place, mut left_out) = (0, Vec::new());
        self.experiments.retain_mut(|experiment| {
            place += 1;
            let is_about_some = experiment.any_mut().use_engines(engines);
            if !is_about_some {
                left_out.push(name_experiment(experiment, place));
            }
            is_about_some
        });
        if had_some && self.experiments.is_empty() {
            return usage_error(format!(
                "no experiment of the plan uses {}: leave --engine out, or name one that it uses",
                engines.join(", ")
            ));
        }
        Ok(left_out)
    }

    /// Adapts the plan to this number of ranks, if the plan names a number. With fewer ranks than planned, there are
    /// fewer initiators, and a read shift that is too large becomes the largest possible one.
    pub fn fit_ranks(&mut self, ranks: u32) {
        if self.ranks.is_some_and(|planned| planned > ranks) {
            for experiment in &mut self.experiments {
                experiment.any_mut().fit_ranks(ranks);
            }
        }
        self.ranks = self.ranks.map(|_| ranks);
    }

    /// Moves the files of all experiments to `place`. If `place` is an existing directory or ends with a slash, files
    /// keep their names in it. Otherwise `place` and a dash are put before each name.
    pub fn move_files(&mut self, place: &str) -> Result<()> {
        let all = self.experiments.iter_mut();
        let mut files: Vec<&mut Vec<String>> = all
            .filter_map(|experiment| experiment.any_mut().paths())
            .collect();
        if files.is_empty() {
            return usage_error(format!(
                "--path {place} has no effect on a plan without files: leave it out"
            ));
        }
        if place.is_empty() || place.contains('\0') {
            return usage_error(format!(
                "--path {} cannot be the place of files: use a directory, or a prefix for the files' names",
                quote(place)
            ));
        }
        let is_directory = std::path::Path::new(place).is_dir();
        let mut places = BTreeMap::new();
        for path in files.iter_mut().flat_map(|paths| paths.iter_mut()) {
            let new = move_under(place, is_directory, path);
            let old = std::mem::replace(path, new.clone());
            let before = places.entry(new.clone()).or_insert_with(|| old.clone());
            if *before != old {
                return usage_error(format!(
                    "--path {place} would make {new} of {before} and of {old}: give them different names in the plan"
                ));
            }
        }
        Ok(())
    }

    /// Whether any option in the plan is counted in nodes. If so, [`Plan::resolve_nodes`] must be called as soon as the
    /// hosts of all ranks are known.
    pub fn counts_nodes(&self) -> bool {
        let mut all = self.experiments.iter();
        all.any(|experiment| experiment.any().counts_nodes())
    }

    /// Converts options counted in nodes to ranks; `hosts` has the host of each rank.
    pub fn resolve_nodes<H: PartialEq>(&mut self, hosts: &[H]) -> Result<()> {
        let ranks_of_node = ranks_of_node(hosts);
        let ranks = u32::try_from(hosts.len()).unwrap_or(u32::MAX);
        let mut all = self.experiments.iter_mut();
        let resolved =
            all.try_for_each(|experiment| experiment.any_mut().resolve_nodes(ranks_of_node, ranks));
        self.origin.named(resolved)
    }

    /// Returns the text by which ranks of a run check that they have the same plan and the same version of tonnage.
    pub fn hash_text(&self) -> Result<String> {
        let version = env!("CARGO_PKG_VERSION");
        Ok(format!("tonnage {version}\n{}", self.to_toml()?))
    }
}

/// Returns the name of an experiment for messages: kind, position in the plan and label.
fn name_experiment(experiment: &Experiment, place: usize) -> String {
    let label = experiment.any().label();
    let label = label.map_or(String::new(), |label| format!(" ({label})"));
    format!("{} {place}{label}", experiment.kind())
}

/// Returns a path in the directory `place`, or with `place` as prefix of its name.
fn move_under(place: &str, is_directory: bool, path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    match (place.strip_suffix('/'), is_directory) {
        (Some(directory), _) => format!("{directory}/{name}"),
        (None, true) => format!("{place}/{name}"),
        (None, false) => format!("{place}-{name}"),
    }
}

/// Returns the assumed number of ranks per node. As in IOR, it is the number of ranks on rank 0's host if rank 1 is
/// there too, else 1. If all ranks are on one host, it is also 1: a shift by all ranks would make each rank read its
/// own data.
fn ranks_of_node<H: PartialEq>(hosts: &[H]) -> u32 {
    let Some(first) = hosts.first() else {
        return 1;
    };
    let on_first = hosts.iter().filter(|host| *host == first).count();
    if on_first == hosts.len() || hosts.get(1) != Some(first) {
        return 1;
    }
    u32::try_from(on_first).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_named_as_they_were_written() {
        let message = "--depth 8 and --batch are out: leave --engine-option out, use --ranks 4 or `tonnage x --op write`";
        assert_eq!(Origin::CommandLine.renamed(message), message);
        assert_eq!(
            Origin::File.renamed(message),
            "depth 8 and batch are out: leave engine-options out, use --ranks 4 or `tonnage x --op write`"
        );
    }

    #[test]
    fn a_node_has_the_number_of_ranks_that_ior_assumes() {
        for (hosts, expected) in [
            ("", 1),
            ("a", 1),
            ("aaaa", 1),
            ("aabb", 2),
            // If hosts have different numbers of ranks, the number on rank 0's host applies to all ranks.
            ("aaab", 3),
            ("abbb", 1),
            // Ranks are distributed to the hosts in turn.
            ("abab", 1),
        ] {
            let hosts: Vec<char> = hosts.chars().collect();
            assert_eq!(ranks_of_node(&hosts), expected, "{hosts:?}");
        }
    }
}
