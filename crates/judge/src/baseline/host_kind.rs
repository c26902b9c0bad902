//! Kinds of hosts: defined by CPU, GPUs and any additional facts that the user selects.

use std::collections::{BTreeMap, BTreeSet};

use tonnage_machine::Environment;
use tonnage_record::Record;
use tonnage_record::figures::Row;
use tonnage_record::wire_proof::DevicePath;
use tonnage_units::Result;

use crate::keys::KeyNames;
use crate::surroundings::facts_of_machine;

/// Key of the CPU model.
pub const CPU: &str = "cpu";

/// Key of the GPU models.
pub const GPU: &str = "gpu";

/// Facts that define a kind of host.
pub type KindFacts = BTreeMap<String, String>;

/// Facts that define a host's kind: CPU, GPUs, and facts selected by `matched`.
pub fn kind_facts(machine: &Environment, matched: &KeyNames) -> KindFacts {
    let cpu = &machine.cpu;
    let mut facts = BTreeMap::from([(
        CPU.to_owned(),
        format!("{} x {}, {} cores", cpu.sockets, cpu.model, cpu.cores),
    )]);
    if !machine.gpus.is_empty() {
        facts.insert(GPU.to_owned(), count_models(&machine.gpus));
    }
    let asked = facts_of_machine(machine).into_iter();
    facts.extend(asked.filter(|(key, _)| matched.matches(key)));
    facts
}

/// Combines the facts of all hosts of a record. If the hosts differ in a fact, the value lists each distinct value.
pub fn kind_of_record(record: &Record, matched: &KeyNames) -> KindFacts {
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for group in &record.environment {
        for (key, value) in kind_facts(&group.machine, matched) {
            all.entry(key).or_default().insert(value);
        }
    }
    let joined = all.into_iter().map(|(key, values)| {
        let values: Vec<String> = values.into_iter().collect();
        (key, values.join(OTHER_HOST))
    });
    joined.collect()
}

/// Checks the names of the facts that define kinds of hosts. Each must occur in the records.
///
/// # Errors
/// `Usage` for a name that matches no fact of any host.
pub fn matched_keys(names: &[String], records: &[&Record]) -> Result<KeyNames> {
    let machines = records.iter().flat_map(|record| &record.environment);
    let known: BTreeSet<String> = machines
        .flat_map(|group| facts_of_machine(&group.machine))
        .map(|(key, _)| key)
        .collect();
    KeyNames::checked("--match", names, known.iter().map(String::as_str))
}

/// Names of a record's hosts, joined by commas.
pub fn hosts_of(record: &Record) -> String {
    let groups = record.environment.iter();
    let mut names: Vec<&str> = groups
        .flat_map(|group| group.hosts.iter().map(|host| host.name.as_str()))
        .collect();
    names.sort_unstable();
    names.dedup();
    names.join(",")
}

/// Tolerance when comparing link speeds.
pub(crate) const LINK_TOLERANCE: f64 = 0.999;

/// Separates the device lists of hosts that name their devices differently.
pub(super) const OTHER_HOST: &str = " and ";

/// Returns the devices that carried a row's bytes, by kernel name, and the nominal speed of the links used. If hosts
/// name their devices differently, each distinct list appears once: "eth0 and ens3".
pub fn carriers(row: &Row<'_>) -> (Option<String>, Option<f64>) {
    let proof = row.record.wire_proof.iter();
    let mut of_hosts: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for device in proof.flat_map(|proof| &proof.devices) {
        let own = of_hosts.entry(device.host.as_str()).or_default();
        own.insert(&device.name);
    }
    let device_lists: BTreeSet<String> = of_hosts
        .into_values()
        .map(|names| names.into_iter().collect::<Vec<_>>().join(","))
        .collect();
    let device_lists: Vec<String> = device_lists.into_iter().collect();
    let links = row.record.bound.as_ref().and_then(|bound| bound.links);
    (
        (!device_lists.is_empty()).then(|| device_lists.join(OTHER_HOST)),
        links.map(|links| links.used_bytes_per_s),
    )
}

/// Returns the evidence that a row's bytes bypassed the device named by its engine. Without readable counters or a
/// named device, nothing is proven and the result is `None`.
pub fn off_path(row: &Row<'_>) -> Option<String> {
    let proof = row.record.wire_proof.as_ref()?;
    let counts =
        |device: &DevicePath| device.sent_bytes.is_some() && device.received_bytes.is_some();
    let is_disproved = |device: &&DevicePath| {
        // Ranks that share several devices may have used a device without counters, so every shared device must have
        // them.
        let mut sharing = proof
            .devices
            .iter()
            .filter(|other| other.host == device.host && other.ranks == device.ranks);
        !device.crossed && sharing.all(counts)
    };
    let device = proof.devices.iter().find(is_disproved)?;
    let title = device.title();
    let stated = proof.why.iter().find(|why| why.contains(&title));
    Some(stated.cloned().unwrap_or_else(|| {
        format!(
            "the counters of {title} of {} lack the payload",
            device.host
        )
    }))
}

/// Counts equal models: "2 x H100".
fn count_models(models: &[String]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for model in models {
        *counts.entry(model).or_default() += 1;
    }
    let counts: Vec<String> = counts
        .into_iter()
        .map(|(model, count)| format!("{count} x {model}"))
        .collect();
    counts.join(", ")
}
