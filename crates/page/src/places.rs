//! Describes what ran where. Equal hosts are described once.

use std::collections::{BTreeMap, BTreeSet};

use maud::{Markup, html};
use tonnage_judge::keys::flattened;
use tonnage_record::{HostGroup, Outcome, Record};
use tonnage_units::quantity::human::{exact_duration, exact_size};

use crate::bidi;
use crate::tables;

/// Maximum number of hosts to name per group.
const HOSTS_NAMED_MAX: usize = 64;

/// Row of the overview.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct OverviewRow {
    plan: String,
    kind: &'static str,
    engine: String,
    device: String,
    ranks: u32,
    hosts: String,
    program: String,
}

#[derive(Default)]
struct PointCounts {
    runs: BTreeSet<String>,
    measured: usize,
    others: usize,
    last_ns: u64,
}

/// The overview: one row per plan, kind, engine and set of hosts.
pub(crate) fn overview(records: &[Record]) -> Markup {
    let mut places: BTreeMap<OverviewRow, PointCounts> = BTreeMap::new();
    for record in records {
        let counts = places.entry(overview_row(record)).or_default();
        counts.runs.insert(record.run_id.clone());
        match record.outcome {
            Outcome::Measured => counts.measured += 1,
            _ => counts.others += 1,
        }
        counts.last_ns = counts.last_ns.max(record.time_unix_ns);
    }
    let header = [
        "Plan",
        "Kind",
        "Engine",
        "Device",
        "Ranks",
        "Hosts",
        "Runs",
        "Measured",
        "Skipped or failed",
        "Ended",
        "Program",
    ];
    let lines = places.iter().map(|(place, counts)| {
        vec![
            place.plan.clone(),
            place.kind.to_owned(),
            place.engine.clone(),
            place.device.clone(),
            place.ranks.to_string(),
            place.hosts.clone(),
            counts.runs.len().to_string(),
            counts.measured.to_string(),
            counts.others.to_string(),
            date(counts.last_ns),
            place.program.clone(),
        ]
    });
    let header = header.map(str::to_owned).to_vec();
    let rows: Vec<_> = std::iter::once(header).chain(lines).collect();
    tables::rows(&rows, |at| matches!(at, 4 | 6..=8))
}

fn overview_row(record: &Record) -> OverviewRow {
    let hosts = record.environment.iter().flat_map(|group| &group.hosts);
    let hosts: BTreeSet<&str> = hosts.map(|host| host.name.as_str()).collect();
    let device = record.effective.iter().map(|it| {
        let engine = &it.engine;
        let words = [engine.provider.as_deref(), engine.device.as_deref()];
        words.into_iter().flatten().collect::<Vec<_>>().join(" ")
    });
    let devices: BTreeSet<String> = device.filter(|text| !text.is_empty()).collect();
    let body = record.body.any();
    OverviewRow {
        plan: record.plan.clone(),
        kind: record.body.kind(),
        engine: body.options().engine.to_owned(),
        device: Vec::from_iter(devices).join(", "),
        ranks: body.options().ranks,
        hosts: listed(&hosts),
        program: format!(
            "{} ({})",
            record.tonnage.version, record.tonnage.git_revision
        ),
    }
}

fn listed(hosts: &BTreeSet<&str>) -> String {
    let named: Vec<&str> = hosts.iter().copied().take(HOSTS_NAMED_MAX).collect();
    match hosts.len() - named.len() {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

fn date(unix_ns: u64) -> String {
    let time = jiff::Timestamp::from_nanosecond(i128::from(unix_ns));
    time.map_or_else(
        |_| "-".to_owned(),
        |time| time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
    )
}

/// Hosts with equal facts.
struct EqualHosts {
    facts: Vec<(String, String)>,
    hosts: BTreeSet<String>,
    launchers: BTreeSet<String>,
    uncertainty_ns_max: u64,
}

/// Groups of equal hosts with all known facts, then the engines and memories that were actually used.
pub(crate) fn environment(records: &[Record]) -> Markup {
    let mut kinds: Vec<EqualHosts> = Vec::new();
    let mut before = None;
    for record in records {
        if before == Some(&record.environment) {
            continue;
        }
        before = Some(&record.environment);
        for group in &record.environment {
            let facts = machine_facts(group);
            let at = kinds.iter().position(|known| known.facts == facts);
            let at = at.unwrap_or_else(|| {
                kinds.push(EqualHosts {
                    facts,
                    hosts: BTreeSet::new(),
                    launchers: BTreeSet::new(),
                    uncertainty_ns_max: 0,
                });
                kinds.len() - 1
            });
            let known = &mut kinds[at];
            known.launchers.insert(group.launcher.clone());
            for host in &group.hosts {
                known.hosts.insert(host.name.clone());
                known.uncertainty_ns_max = known.uncertainty_ns_max.max(host.clock_uncertainty_ns);
            }
        }
    }
    html! {
        @if kinds.is_empty() { p { "No record names a host." } }
        @for kind in &kinds { (describe_hosts(kind)) }
        (effective(records))
    }
}

fn describe_hosts(kind: &EqualHosts) -> Markup {
    let hosts: BTreeSet<&str> = kind.hosts.iter().map(String::as_str).collect();
    let launchers = kind.launchers.iter().map(String::as_str);
    html! {
        h3 { (kind.hosts.len()) @if kind.hosts.len() == 1 { " host" } @else { " identical hosts" } }
        p {
            (bidi::listed(hosts.iter().copied().take(HOSTS_NAMED_MAX)))
            @if hosts.len() > HOSTS_NAMED_MAX { " and " (hosts.len() - HOSTS_NAMED_MAX) " more" }
            "; started by " (bidi::listed(launchers))
            @if kind.uncertainty_ns_max > 0 {
                "; clocks known within " (exact_duration(kind.uncertainty_ns_max))
            }
        }
        (tables::facts(&kind.facts))
    }
}

/// Facts about a machine, without the number of free huge pages, which changes constantly.
fn machine_facts(group: &HostGroup) -> Vec<(String, String)> {
    let mut machine = group.machine.clone();
    let pools = std::mem::take(&mut machine.memory.huge_pools);
    let mut facts = flattened(&machine);
    facts.retain(|(name, _)| name != "memory.huge-pools");
    facts.extend(pools.iter().map(|pool| {
        (
            format!("huge pages of {}", exact_size(pool.page_bytes)),
            pool.total.to_string(),
        )
    }));
    facts
}

/// Engines and memories that were actually used: each distinct set of facts, with its number of points.
fn effective(records: &[Record]) -> Markup {
    let mut answers: Vec<(Vec<(String, String)>, usize)> = Vec::new();
    let mut before = None;
    let mut last: Vec<usize> = Vec::new();
    for record in records {
        if before != Some(&record.effective) {
            before = Some(&record.effective);
            last.clear();
            for rank in &record.effective {
                let mut facts = flattened(&rank.engine);
                facts.extend(
                    flattened(&rank.memory)
                        .into_iter()
                        .map(|(name, value)| (format!("memory.{name}"), value)),
                );
                let at = answers.iter().position(|(known, _)| *known == facts);
                last.push(at.unwrap_or_else(|| {
                    answers.push((facts, 0));
                    answers.len() - 1
                }));
            }
            last.sort_unstable();
            last.dedup();
        }
        last.iter().for_each(|&at| answers[at].1 += 1);
    }
    html! {
        @for (facts, points) in &answers {
            h3 {
                "Engine and memory of " (points) @if *points == 1 { " point" } @else { " points" }
                ", as they really were"
            }
            (tables::facts(facts))
        }
    }
}
