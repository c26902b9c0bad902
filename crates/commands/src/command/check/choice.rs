//! Chooses the points that a check measures: the requested entries for this kind of host that fit into the time
//! budget. The most significant entries come first.

use std::collections::{BTreeMap, BTreeSet};

use tonnage_engines::LISTS;
use tonnage_judge::baseline::host_kind::kind_facts;
use tonnage_judge::baseline::lost::{LostHardware, lost_hardware};
use tonnage_judge::baseline::order::{
    CheckStep, fit_budget, fit_budget_at_pace, most_informative_first, next_pace, shortest_s,
};
use tonnage_judge::baseline::{Baseline, BaselineEntry, HostKind};
use tonnage_judge::check::CheckVerdict;
use tonnage_judge::check::entry::judge_entry;
use tonnage_machine::{Environment, Topology};
use tonnage_record::Record;
use tonnage_units::{Error, Result};

use super::clock::BudgetClock;
use super::task::CheckTask;
use crate::args::check::CheckArgs;

/// Time to start ranks on one host, in seconds.
const START_S: f64 = 0.8;

/// Time to start ranks on other hosts, in seconds.
const START_REMOTE_S: f64 = 2.5;

/// Maximum number of names in a message.
const NAMED_MAX: usize = 5;

/// Finds the kind of this host in a baseline.
pub fn match_host_kind(baseline: &Baseline) -> Result<HostKindMatch<'_>> {
    let matched = baseline.matched.iter().map(String::as_str).collect();
    let machine = Environment::read(&LISTS.variables(), &Topology::read());
    let facts = kind_facts(&machine, &matched);
    let found = baseline.find_kind(&facts);
    found.map(HostKindMatch::Known).or_else(|error| {
        let lost = lost_hardware(baseline, &facts, &tonnage_sys::host::name());
        lost.map(HostKindMatch::Lost).ok_or(error)
    })
}

/// The kind of this host.
pub enum HostKindMatch<'a> {
    /// The baseline has this kind.
    Known(&'a HostKind),
    /// The kind that this host would have if its missing hardware were there.
    Lost(LostHardware<'a>),
}

/// The points that a check measures.
pub struct CheckChoice<'a> {
    /// Points to measure, in this order.
    pub steps: Vec<CheckStep<'a>>,
    /// Points that do not fit into the time budget, according to the durations in the baseline.
    pub left: Vec<CheckStep<'a>>,
    /// Time to start ranks, in seconds.
    start_s: f64,
    /// Expected duration of a point, divided by its duration in the baseline.
    pace: f64,
    /// Number of retests of a failure.
    pub retests: u32,
    /// Number of repetitions of all points in one start. Set if a launcher started the ranks, because they cannot be
    /// started again.
    pub runs: Option<u32>,
    /// True for a launcher's rank other than 0. It gets no records, because rank 0 judges.
    pub is_silent: bool,
}

impl<'a> CheckChoice<'a> {
    /// Chooses the points.
    pub fn new(task: &CheckTask, kind: &'a HostKind, clock: &BudgetClock) -> Result<Self> {
        let args = &task.args;
        let identity = task.identity.as_ref();
        if args.cache.is_some()
            && let Some(identity) = identity
        {
            return Err(Error::Usage(format!(
                "--cache cannot be used with ranks that {} started, because ranks with a recent verdict would not join the others: \
                 leave it out",
                identity.source
            )));
        }
        let is_silent = identity.is_some_and(|identity| identity.rank != 0);
        let (ranks, spans) = match identity {
            Some(identity) => (Some(identity.size), None),
            None => {
                let (ranks, spans) = args.shape()?;
                (ranks, Some(spans))
            }
        };
        let fits = |entry: &&BaselineEntry| {
            ranks.is_none_or(|ranks| entry.ranks == ranks)
                && spans.is_none_or(|spans| entry.spans == spans)
        };
        let of_shape: Vec<&BaselineEntry> = kind.entries.iter().filter(fits).collect();
        if of_shape.is_empty() {
            return Err(nothing_of_shape(&kind.entries, ranks, spans));
        }
        let asked = keep_named(args, keep_devices(args, of_shape)?)?;
        let asked = keep_planned(task, asked)?;
        let steps = most_informative_first(asked);
        let (retests, runs) = match identity {
            Some(_) => (args.retest, Some(args.retest + 1)),
            None => (args.retest, None),
        };
        let start_s = match spans {
            Some(1) => START_S,
            _ => START_REMOTE_S,
        };
        // The ranks of a launcher choose independently and must choose the same points.
        let time_s = match runs {
            Some(_) => clock.common().as_secs_f64(),
            None => clock.left().as_secs_f64(),
        };
        let shortest = shortest_s(&steps, start_s, retests).unwrap_or(0.0);
        let found = match runs {
            // A launcher's ranks repeat all points, and not only failures, so each repetition has a part of the time.
            Some(runs) => fit_budget(steps, time_s / f64::from(runs), start_s, 0),
            None => fit_budget(steps, time_s, start_s, retests),
        };
        if found.chosen.is_empty() {
            return Err(Error::Usage(format!(
                "--time-limit {} s is too short for any point of the baseline: the shortest needs {:.0} s, or fewer with a \
                 smaller --retest",
                clock.budget_s(),
                (shortest + BudgetClock::reserved_s() + clock.elapsed_s() + clock.taken_s()).ceil()
            )));
        }
        Ok(Self {
            left: found.left,
            steps: found.chosen,
            start_s,
            pace: 1.0,
            retests,
            runs,
            is_silent,
        })
    }

    /// Chooses more points if there is time left. `pace` is the measured time of earlier points divided by their
    /// estimate. Returns `None` for a launcher's ranks, which choose all points before they start.
    pub fn next(&self, pace: f64, clock: &BudgetClock) -> Option<Self> {
        let left = match self.runs {
            None => self.left.clone(),
            Some(_) => Vec::new(),
        };
        let time_s = clock.left().as_secs_f64();
        let pace = next_pace(pace);
        let found = fit_budget_at_pace(left, time_s, self.start_s, self.retests, pace);
        (!found.chosen.is_empty()).then_some(Self {
            left: found.left,
            steps: found.chosen,
            pace,
            ..*self
        })
    }

    /// Returns the entries of all points.
    pub fn entries(&self) -> impl Iterator<Item = &'a BaselineEntry> {
        self.steps
            .iter()
            .flat_map(|step| step.entries.iter().copied())
    }

    /// Returns the time for these points and for starting their ranks, according to the durations in the baseline.
    pub fn estimated_s(&self, steps: &[&CheckStep<'_>]) -> f64 {
        let starts = groups(steps).len() as f64 * self.start_s;
        starts + steps.iter().map(|step| step.takes_s()).sum::<f64>()
    }
}

fn nothing_of_shape(entries: &[BaselineEntry], ranks: Option<u32>, spans: Option<u32>) -> Error {
    let shapes = entries.iter().map(|entry| (entry.ranks, entry.spans));
    let shapes: BTreeSet<(u32, u32)> = shapes.collect();
    let shapes = shapes.iter();
    let shapes = shapes.map(|(ranks, spans)| format!("{ranks} ranks on {spans} hosts"));
    let shapes: Vec<String> = shapes.collect();
    let asked = match (ranks, spans) {
        (Some(ranks), Some(spans)) => format!("{ranks} ranks on {spans} hosts"),
        (Some(ranks), None) => format!("{ranks} ranks"),
        (None, spans) => format!("{} hosts", spans.unwrap_or(1)),
    };
    Error::Usage(format!(
        "the baseline has no point of {asked} for this kind of host, only of {}: choose with --ranks and --hosts",
        shapes.join(", ")
    ))
}

/// Keeps entries for requested devices, and entries without devices.
fn keep_devices<'a>(
    args: &CheckArgs,
    entries: Vec<&'a BaselineEntry>,
) -> Result<Vec<&'a BaselineEntry>> {
    let names = args.ranks.device_names()?;
    if names.all_ranks.is_empty() || names.all_ranks == ["all"] {
        return Ok(entries);
    }
    let is_named = |entry: &&BaselineEntry| {
        let mut devices = entry.devices();
        devices.all(|device| names.all_ranks.iter().any(|name| name == device))
    };
    let devices: Vec<String> = entries
        .iter()
        .filter_map(|entry| entry.device.clone())
        .collect();
    let kept: Vec<&BaselineEntry> = entries.into_iter().filter(is_named).collect();
    if kept.iter().any(|entry| entry.device.is_some()) {
        Ok(kept)
    } else {
        Err(Error::Usage(format!(
            "the baseline has nothing over {}: its devices are {}",
            names.all_ranks.join(","),
            listed(devices.iter().map(String::as_str))
        )))
    }
}

/// Keeps entries if their name contains one of the texts of `--only`.
fn keep_named<'a>(
    args: &CheckArgs,
    entries: Vec<&'a BaselineEntry>,
) -> Result<Vec<&'a BaselineEntry>> {
    if args.only.is_empty() {
        return Ok(entries);
    }
    let is_named = |entry: &&&BaselineEntry| args.only.iter().any(|text| entry.name.contains(text));
    let kept: Vec<&BaselineEntry> = entries.iter().filter(is_named).copied().collect();
    if kept.is_empty() {
        Err(Error::Usage(format!(
            "--only {}: no point of the baseline has this in its name; its points are {}",
            args.only.join(","),
            listed(entries.iter().map(|entry| entry.name.as_str()))
        )))
    } else {
        Ok(kept)
    }
}

/// Keeps entries if their point is also in the requested plan.
fn keep_planned<'a>(
    task: &CheckTask,
    entries: Vec<&'a BaselineEntry>,
) -> Result<Vec<&'a BaselineEntry>> {
    let Some((name, plan)) = &task.plan else {
        return Ok(entries);
    };
    let mut points = Vec::new();
    for ranks in BTreeSet::from_iter(entries.iter().map(|entry| entry.ranks)) {
        let of_ranks = plan.points(ranks, &LISTS)?;
        points.extend(of_ranks.into_iter().map(|planned| planned.point));
    }
    let mut kept = Vec::new();
    for entry in entries {
        if points.contains(&entry.given_point().point()?) {
            kept.push(entry);
        }
    }
    if kept.is_empty() {
        Err(Error::Usage(format!(
            "the baseline has no point of {name}: it was created from another plan, or with another --scale"
        )))
    } else {
        Ok(kept)
    }
}

fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names = BTreeSet::from_iter(names);
    let some: Vec<&str> = names.iter().copied().take(NAMED_MAX).collect();
    match names.len() - some.len() {
        0 => some.join("; "),
        more => format!("{}; and {more} more", some.join("; ")),
    }
}

/// Groups points that one start of ranks can measure. The points keep their order.
pub fn groups<'s, 'a>(steps: &[&'s CheckStep<'a>]) -> Vec<Vec<&'s CheckStep<'a>>> {
    let mut groups: Vec<Vec<&CheckStep<'a>>> = Vec::new();
    for step in steps {
        let mut known = groups.iter_mut();
        match known.find(|group| group[0].shape() == step.shape()) {
            Some(group) => group.push(step),
            None => groups.push(vec![step]),
        }
    }
    groups
}

/// Returns the points to measure again: those that failed or warned so far and fit into the time left, worst first.
pub fn again<'s, 'a>(
    choice: &CheckChoice<'_>,
    steps: &[&'s CheckStep<'a>],
    records: &BTreeMap<&'a str, Vec<Record>>,
    clock: &BudgetClock,
) -> Vec<&'s CheckStep<'a>> {
    let mut failing: Vec<(f64, &CheckStep<'a>)> = Vec::new();
    for step in steps {
        let own: Vec<&Record> = records.get(step.point).into_iter().flatten().collect();
        let entries = step.entries.iter();
        let verdicts = entries.map(|entry| judge_entry(entry, &step.entries, &own, 1));
        // A warning is measured again too, because it may not recur.
        let is_beyond = |verdict| matches!(verdict, CheckVerdict::Fail | CheckVerdict::Warn);
        let failed = verdicts.filter(|verdict| is_beyond(verdict.verdict));
        if let Some(worst) = failed.map(|verdict| verdict.ratio()).min_by(f64::total_cmp) {
            failing.push((worst, step));
        }
    }
    failing.sort_by(|left, right| left.0.total_cmp(&right.0));
    let mut left_s = clock.left().as_secs_f64();
    let mut shapes = Vec::new();
    let mut chosen = Vec::new();
    for (_, step) in failing {
        let start_s = match (shapes.contains(&step.shape()), step.shape().1) {
            (true, _) => 0.0,
            (false, 1) => START_S,
            (false, _) => START_REMOTE_S,
        };
        let takes_s = start_s + choice.pace * step.takes_s();
        if takes_s <= left_s {
            left_s -= takes_s;
            shapes.push(step.shape());
            chosen.push(step);
        }
    }
    chosen
}
