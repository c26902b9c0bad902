//! Checks of a command before a rank starts, beside what the plan itself says.

use std::path::Path;

use tonnage_bench::settings::Numa;
use tonnage_engines::LISTS;
use tonnage_machine::{CpuChoice, Topology, place_workers};
use tonnage_plan::Planned;
use tonnage_plan::kind::EngineFacts;
use tonnage_record::read::read_records;
use tonnage_record::writer::check_writable;
use tonnage_units::names::unknown;
use tonnage_units::number_list;
use tonnage_units::{Error, Result};

use super::job::Job;
use crate::args::common::RankArgs;

/// Checks that records can be written to a file, and that the file holds nothing else.
///
/// # Errors
/// When it cannot be written, or holds something else.
pub fn check_output(path: &Path, resume: bool) -> Result<()> {
    check_writable(path)?;
    match path.metadata() {
        // Appending to something else would spoil it, and nobody could read the records back.
        Ok(known) if known.is_file() => read_records(path).map(|_| ()),
        Ok(_) => Ok(()),
        Err(_) => {
            if resume {
                log::warn!(
                    "{} is not there, so that the run begins with its first point",
                    path.display()
                );
            }
            Ok(())
        }
    }
}

/// Ranks that are started here talk over loopback, so an interface would be an option without effect.
///
/// # Errors
/// `Usage` when there is one.
pub fn check_interface(ranks: &RankArgs) -> Result<()> {
    match &ranks.interface {
        Some(name) => Err(Error::Usage(format!(
            "--interface {name} is for ranks that a launcher starts, and the ranks that tonnage starts itself meet on \
             127.0.0.1: leave --interface out"
        ))),
        None => Ok(()),
    }
}

/// Devices, libraries and proofs for engines that have none would be options without effect.
///
/// # Errors
/// `Usage` for the first of them.
pub fn check_effects(job: &Job, points: &[Planned]) -> Result<()> {
    let crosses_devices = points
        .iter()
        .any(|planned| planned.point.any().crosses_devices());
    let has_devices = facts(points).any(|facts| facts.has_devices);
    let ranks = &job.ranks;
    let without_effect = |option: String| {
        Err(Error::Usage(format!(
            "{option} has no effect on the engines of this run: leave it out"
        )))
    };
    if !ranks.devices.is_empty() && !has_devices {
        return without_effect(format!("--devices {}", ranks.devices.join(",")));
    }
    for (name, path) in &ranks.libraries()? {
        let names: Vec<_> = LISTS.libraries().map(|library| library.name).collect();
        if !names.contains(&name.as_str()) {
            return Err(unknown("library", name, &names));
        }
        let mut libraries = facts(points).flat_map(|facts| facts.libraries);
        if !libraries.any(|library| library.name == name) {
            return without_effect(format!("--library {name}={}", path.display()));
        }
    }
    if job.require_path && !crosses_devices {
        return Err(Error::Usage(
            "--require-path is about payload that crosses devices between ranks, and this run moves none: leave it out"
                .to_owned(),
        ));
    }
    Ok(())
}

/// Refuses more devices than a host has workers to take them, for the first point of which that is known: of `ranks`
/// ranks on this host, where it is known how many they are.
///
/// # Errors
/// `Usage`, with the number of workers that fits.
pub fn check_devices(devices: usize, points: &[Planned], ranks: Option<u32>) -> Result<()> {
    let Some(ranks) = ranks else {
        return Ok(());
    };
    let takes_devices = |planned: &&Planned| {
        let facts = planned.point.any().engine_facts(&LISTS);
        facts.is_ok_and(|facts| facts.has_devices)
    };
    let workers = points.iter().filter(takes_devices).map(|planned| {
        let workers = planned.point.any().workers();
        workers.saturating_mul(ranks) as usize
    });
    match workers.min() {
        Some(fewest) if devices > fewest => Err(Error::Usage(format!(
            "--devices names {devices} devices, but this host has {fewest} workers: use --workers {}, or fewer devices",
            devices.div_ceil(ranks.max(1) as usize)
        ))),
        _ => Ok(()),
    }
}

/// Facts about the engines of the points.
pub fn facts(points: &[Planned]) -> impl Iterator<Item = EngineFacts> + '_ {
    let all = points.iter();
    all.filter_map(|planned| planned.point.any().engine_facts(&LISTS).ok())
}

/// Refuses a place of pairs beside options that choose CPUs or the memory's node themselves: one of the two would be
/// without effect, or what the place says of the bytes would be wrong.
///
/// # Errors
/// `Usage` with the two options.
pub fn check_places(job: &Job, points: &[Planned]) -> Result<()> {
    let mut places = points
        .iter()
        .filter_map(|planned| planned.point.any().place());
    let Some(place) = places.next() else {
        return Ok(());
    };
    match job.placement() {
        (CpuChoice::List(cpus), _) => Err(Error::Usage(format!(
            "--cpus {} and place {place} contradict each other, for both choose the workers' CPUs: leave one of them out",
            number_list::format(&cpus)
        ))),
        (CpuChoice::None, _) => Err(Error::Usage(format!(
            "--cpus none and place {place} contradict each other, for workers that are not pinned are on no socket: \
             leave one of them out"
        ))),
        (CpuChoice::Auto, Numa::Node(node)) => Err(Error::Usage(format!(
            "--numa {node} and place {place} contradict each other, for a place is that of the workers with their \
             memory, and all of it would be on node {node}: leave one of them out"
        ))),
        (CpuChoice::Auto, Numa::Auto | Numa::None) => Ok(()),
    }
}

/// CPUs and NUMA nodes that this host lacks are refused here, before a rank starts; each rank looks at its own host.
///
/// # Errors
/// `Usage`, with those that there are.
pub fn check_placement(job: &Job, points: &[Planned]) -> Result<()> {
    let (topology, (cpus, numa)) = (Topology::read(), job.placement());
    let workers = points.iter().map(|planned| planned.point.any().workers());
    let most = workers.max().unwrap_or(1);
    place_workers(&topology, 0, 1, most, &cpus)?;
    numa.node(&topology, None).map(|_| ())
}

#[cfg(test)]
mod tests {
    use tonnage_plan::Plan;

    use super::*;

    #[test]
    fn every_device_has_a_worker() {
        let points = |kind: &str, engine: &str, more: &str| {
            let text = format!("name = 'p'\n[[{kind}]]\nengine = '{engine}'\nworkers = 2\n{more}");
            let plan = Plan::from_toml(&text, "p").unwrap();
            plan.points(4, &LISTS).unwrap()
        };
        let transfer = points("transfer", "fabric:tcp", "op = 'write'\nsizes = 8");
        let connect = points("connect", "fabric:tcp", "");
        for points in [transfer, connect] {
            assert!(check_devices(8, &points, Some(4)).is_ok());
            let message = check_devices(9, &points, Some(4)).unwrap_err().to_string();
            assert!(
                message.contains("names 9 devices, but this host has 8 workers: use --workers 3"),
                "{message}"
            );
            // Where a launcher does not say how many ranks this host has, the ranks find out.
            assert!(check_devices(9, &points, None).is_ok());
        }
        let without = points("connect", "shm", "");
        assert!(check_devices(9, &without, Some(1)).is_ok());
    }
}
