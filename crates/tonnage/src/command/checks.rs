//! Checks of a command before a rank starts, beside what the plan itself says.

use std::path::Path;

use tonnage_engine::{Library, Lifecycle};
use tonnage_engines::LISTS;
use tonnage_machine::{Topology, place_workers};
use tonnage_plan::{Planned, Point};
use tonnage_record::read::read_records;
use tonnage_record::writer::check_writable;
use tonnage_units::names::unknown;
use tonnage_units::{Error, Result};

use super::measure::{Job, placement};
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
    let between_memories = points
        .iter()
        .any(|planned| planned.point.as_transfer().is_some());
    let has_devices = points.iter().any(|planned| {
        let engine = match &planned.point {
            Point::Transfer(point) => &point.engine,
            Point::Connect(point) => &point.engine,
            Point::File(_) => return false,
        };
        LISTS.engine(engine).is_ok_and(|entry| entry.has_devices)
    });
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
        let mut rows = rows(points);
        if !rows.any(|(libraries, _)| libraries.iter().any(|library| library.name == name)) {
            return without_effect(format!("--library {name}={}", path.display()));
        }
    }
    if job.require_path && !between_memories {
        return Err(Error::Usage(
            "--require-path is about bytes that cross devices between ranks, and files and connections have none: leave \
             it out"
                .to_owned(),
        ));
    }
    Ok(())
}

/// Returns the libraries and lifecycles of the points' engines.
pub fn rows(
    points: &[Planned],
) -> impl Iterator<Item = (&'static [Library], &'static Lifecycle)> + '_ {
    let row = |planned: &Planned| {
        let engine = |name: &str| {
            let entry = LISTS.engine(name).ok()?;
            Some((entry.libraries, &entry.lifecycle))
        };
        match &planned.point {
            Point::Transfer(point) => engine(&point.engine),
            Point::Connect(point) => engine(&point.engine),
            Point::File(point) => {
                let entry = LISTS.file_engine(&point.engine).ok()?;
                Some((entry.libraries, &entry.lifecycle))
            }
        }
    };
    points.iter().filter_map(row)
}

/// CPUs and NUMA nodes that this host lacks are refused here, before a rank starts; each rank looks at its own host.
///
/// # Errors
/// `Usage`, with those that there are.
pub fn check_placement(job: &Job, points: &[Planned]) -> Result<()> {
    let (topology, (cpus, numa)) = (Topology::read(), placement(job));
    let threads = points.iter().map(|planned| match &planned.point {
        Point::Transfer(point) => point.workers,
        Point::File(point) => point.threads,
        Point::Connect(point) => point.workers,
    });
    let most = threads.max().unwrap_or(1);
    place_workers(&topology, 0, 1, most, &cpus)?;
    numa.node(&topology, None).map(|_| ())
}
