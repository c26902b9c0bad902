//! Checks of a command before a rank starts, in addition to the checks of the plan itself.

use std::path::Path;

use tonnage_bench::settings::{DeviceNames, Numa};
use tonnage_engines::LISTS;
use tonnage_machine::{CpuChoice, Topology, place_workers};
use tonnage_plan::kind::{AnyPoint, EngineFacts};
use tonnage_plan::{Planned, Point};
use tonnage_record::read::read_records;
use tonnage_record::writer::check_writable;
use tonnage_units::names::unknown_name_error;
use tonnage_units::number_list;
use tonnage_units::{Error, Nanos, Result};

use super::job::Job;
use crate::args::common::RankArgs;

/// Checks that records can be written to a file, and that the file contains nothing but records.
pub fn check_output(path: &Path, resume: bool) -> Result<()> {
    check_writable(path)?;
    match path.metadata() {
        // Appending to a file with other contents would corrupt it, and the records could not be read back.
        Ok(known) if known.is_file() => return read_records(path).map(|_| ()),
        Err(_) if resume => log::warn!(
            "{} does not exist, so the run begins with its first point",
            path.display()
        ),
        _ => {}
    }
    Ok(())
}

/// Refuses --control-interface if tonnage starts the ranks itself. They use the loopback interface, so the option would
/// have no effect.
pub fn check_interface(ranks: &RankArgs) -> Result<()> {
    match &ranks.control_interface {
        Some(name) => Err(Error::Usage(format!(
            "--control-interface {name} is for ranks that a launcher starts, and the ranks that tonnage starts itself meet on \
             127.0.0.1: leave --control-interface out"
        ))),
        None => Ok(()),
    }
}

/// Refuses devices, libraries and proofs that would have no effect on the engines of this run.
pub fn check_effects(job: &Job, points: &[Planned]) -> Result<()> {
    check_checkpoints(job, points)?;
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
    if let (Some((rank, names)), false) = (ranks.devices_of.first(), has_devices) {
        return without_effect(format!("--devices-of {rank}={}", names.join(",")));
    }
    if ranks.gpus.is_some() && !takes_gpu(points) {
        return without_gpu();
    }
    if ranks.link_speed.is_some() {
        check_link_speed(points)?;
    }
    for (name, path) in &ranks.libraries()? {
        let names: Vec<_> = LISTS.libraries().map(|library| library.name).collect();
        if !names.contains(&name.as_str()) {
            return Err(unknown_name_error("library", name, &names));
        }
        let of_engines = facts(points).flat_map(|facts| facts.libraries);
        let memories = points.iter().flat_map(memories_of);
        let entries = memories.filter_map(|memory| LISTS.memory(memory).ok());
        let mut libraries = of_engines.chain(entries.flat_map(|entry| entry.libraries));
        if !libraries.any(|library| library.name == name) {
            return without_effect(format!("--library {name}={}", path.display()));
        }
    }
    if job.require_path && !any(points, |point| point.crosses_devices()) {
        return Err(Error::Usage(
            "--require-path is about payload that crosses devices between ranks, and this run moves none: leave it out"
                .to_owned(),
        ));
    }
    Ok(())
}

/// Returns whether a rank has memory on a GPU that --gpus can choose.
fn takes_gpu(points: &[Planned]) -> bool {
    // torch allocates its tensors itself, so they are not in the list of memories.
    let is_nccl = |planned: &Planned| match &planned.point {
        Point::Collective(point) => point.backends.iter().any(|backend| backend == "torch:nccl"),
        _ => false,
    };
    points.iter().any(is_nccl)
        || points.iter().flat_map(memories_of).any(|name| {
            let (_, variant) = tonnage_engine::split_name(name);
            variant.is_empty() && LISTS.memory(name).is_ok_and(|entry| entry.takes_gpu)
        })
}

fn without_gpu() -> Result<()> {
    Err(Error::Usage(
        "--gpus chooses the GPU of each rank's memory, and no memory of this run leaves that open: leave it out, or use \
         --memory cuda or hip"
            .to_owned(),
    ))
}

/// Returns the names of the memories of a point.
fn memories_of(planned: &Planned) -> Vec<&str> {
    match &planned.point {
        Point::Transfer(point) => {
            let initiators = std::iter::once(point.memories.memory.as_str());
            initiators
                .chain(point.memories.target_memory.as_deref())
                .collect()
        }
        Point::Connect(point) => vec![&point.memory],
        Point::Collective(point) => vec![&point.memory],
        Point::Tune(point) => vec![&point.memory],
        Point::Stress(point) => point.memories().collect(),
        Point::File(_) => Vec::new(),
    }
}

/// Refuses checkpoints without a file to write them to.
fn check_checkpoints(job: &Job, points: &[Planned]) -> Result<()> {
    let asked = points.iter().find_map(|planned| match &planned.point {
        Point::Transfer(point) => point.length.checkpoint_ns,
        _ => None,
    });
    // If an agent started this rank, the rank sends its checkpoints to the first process. That process has checked its
    // own file.
    match (asked, &job.output) {
        (Some(ns), None) if job.letter.is_none() => Err(Error::Usage(format!(
            "checkpoint {} is written to the file of records, and there is none: add -o FILE",
            Nanos(ns)
        ))),
        _ => Ok(()),
    }
}

/// Refuses --link-speed if no bandwidth is compared with it.
fn check_link_speed(points: &[Planned]) -> Result<()> {
    let on_devices = points.iter().filter(|planned| {
        let facts = planned.point.any().engine_facts(&LISTS);
        facts.is_ok_and(|facts| facts.iter().any(|facts| facts.has_devices))
    });
    let reasons: Option<Vec<&str>> = on_devices
        .map(|planned| planned.point.any().without_bound())
        .collect();
    // The option has an effect if at least one bandwidth is compared with a bound.
    let Some(reasons) = reasons else {
        return Ok(());
    };
    let why = reasons
        .first()
        .unwrap_or(&"the engines of this run: leave it out");
    Err(Error::Usage(format!(
        "--link-speed is the speed that bandwidth is compared with, and has no effect on {why}"
    )))
}

/// Refuses more devices than a host has threads to use them, if the number `here` of ranks on this host is known. Also
/// refuses devices of ranks that do not exist, and rails over a single device.
pub fn check_devices(
    named: &DeviceNames,
    points: &[Planned],
    (ranks, here): (u32, Option<u32>),
) -> Result<()> {
    if let Some((rank, _)) = named.of_ranks.range(ranks..).next() {
        return Err(Error::Usage(format!(
            "--devices-of names rank {rank}, and there are {ranks} ranks: the last is rank {}",
            ranks.saturating_sub(1)
        )));
    }
    check_rails(named, points, ranks)?;
    let devices = named.all_ranks.len();
    check_own(named, points)?;
    let Some(here) = here.filter(|_| named.of_ranks.is_empty()) else {
        return Ok(());
    };
    let takes_one = |planned: &&Planned| {
        let point = planned.point.any();
        let facts = point.engine_facts(&LISTS);
        let has_devices = facts.is_ok_and(|facts| facts.iter().any(|facts| facts.has_devices));
        !point.spans_devices() && has_devices
    };
    let threads = points.iter().filter(takes_one).map(|planned| {
        let threads = planned.point.any().threads();
        threads.saturating_mul(here) as usize
    });
    // If other points span all devices, a point with one device per thread may leave some devices unused.
    let spans = any(points, |point| point.spans_devices());
    match threads.min().filter(|_| !spans) {
        Some(fewest) if devices > fewest => Err(Error::Usage(format!(
            "--devices names {devices} devices, but this host has {fewest} threads: use --threads {}, --rails stripe, or \
             fewer devices",
            devices.div_ceil(here.max(1) as usize)
        ))),
        _ => Ok(()),
    }
}

/// Refuses more devices for one rank than it has threads to use them.
fn check_own(named: &DeviceNames, points: &[Planned]) -> Result<()> {
    let threads = points.iter().map(|planned| planned.point.any().threads());
    let lists = named
        .of_ranks
        .iter()
        .map(|(rank, names)| (names.len(), rank));
    match (lists.max_by_key(|(devices, _)| *devices), threads.min()) {
        (Some((devices, rank)), Some(threads))
            if devices > threads as usize && !any(points, |point| point.spans_devices()) =>
        {
            Err(Error::Usage(format!(
                "--devices-of names {devices} devices of rank {rank}, which has {threads} threads: use --threads {devices}, \
                 --rails stripe, or fewer devices"
            )))
        }
        _ => Ok(()),
    }
}

/// Refuses rails if only one device is named.
fn check_rails(named: &DeviceNames, points: &[Planned], ranks: u32) -> Result<()> {
    // If every rank has its own list, the common list is not used.
    let common = (named.of_ranks.len() < ranks as usize).then_some(&named.all_ranks);
    if common.is_none() && !named.all_ranks.is_empty() {
        return Err(Error::Usage(format!(
            "--devices {} has no effect, because --devices-of names the devices of every rank: leave it out",
            named.all_ranks.join(",")
        )));
    }
    // Optional points may be skipped with this reason, so they are not refused.
    let needed = || points.iter().filter(|planned| !planned.reading.optional);
    let any = |of: fn(&dyn AnyPoint) -> bool| needed().any(|planned| of(planned.point.any()));
    let lists: Vec<&Vec<String>> = named.of_ranks.values().chain(common).collect();
    let alone = |list: &&&Vec<String>| list.len() == 1 && list[0] != DeviceNames::ALL;
    let Some([name]) = lists.iter().find(alone).map(|list| list.as_slice()) else {
        return check_lists(&lists, points);
    };
    let option = match (
        any(|point| point.spans_devices()),
        any(|point| point.rail_shift() > 0),
    ) {
        (true, _) => "--rails",
        (false, true) => "--rail-shift",
        (false, false) => return check_lists(&lists, points),
    };
    Err(Error::Usage(format!(
        "{option} is about several devices, and only {name} is named: name another, use --devices all, or name it twice \
         to try it out ({name},{name})"
    )))
}

/// Refuses lists of different lengths, and a rail shift that rotates all the way back to the start.
fn check_lists(lists: &[&Vec<String>], points: &[Planned]) -> Result<()> {
    // Only the ranks can know which devices `all` finds.
    let known = |list: &&&Vec<String>| !list.is_empty() && list[0] != DeviceNames::ALL;
    let lengths = || lists.iter().filter(known).map(|list| list.len());
    let (Some(fewest), Some(most)) = (lengths().min(), lengths().max()) else {
        return Ok(());
    };
    if any(points, |point| point.spans_devices()) && fewest < most {
        return Err(Error::Usage(format!(
            "--rails joins the n-th devices of all ranks, and {fewest} are named for some ranks and {most} for others: name \
             as many for each"
        )));
    }
    let shifts = points
        .iter()
        .map(|planned| planned.point.any().rail_shift());
    match shifts.max() {
        Some(shift) if shift > 0 && (shift as usize).is_multiple_of(most) => {
            Err(Error::Usage(format!(
                "--rail-shift {shift} turns a list of {most} devices all the way round: the largest useful value is \
             --rail-shift {}",
                most - 1
            )))
        }
        _ => Ok(()),
    }
}

/// Returns whether the predicate holds for any point.
fn any(points: &[Planned], is_so: impl Fn(&dyn AnyPoint) -> bool) -> bool {
    points.iter().any(|planned| is_so(planned.point.any()))
}

/// Returns facts about the engines of the points.
pub fn facts(points: &[Planned]) -> impl Iterator<Item = EngineFacts> + '_ {
    let all = points.iter();
    all.filter_map(|planned| planned.point.any().engine_facts(&LISTS).ok())
        .flatten()
}

/// Refuses a socket placement together with options that choose CPUs or the memory's node. Otherwise one of these would
/// have no effect, or the bytes would not take the requested path.
pub fn check_places(job: &Job, points: &[Planned]) -> Result<()> {
    let mut places = points
        .iter()
        .filter_map(|planned| planned.point.any().socket_placement());
    let Some(place) = places.next() else {
        return Ok(());
    };
    match job.placement() {
        (CpuChoice::List(cpus), _) => Err(Error::Usage(format!(
            "--cpus {} and --place {place} are mutually exclusive, because both choose the threads' CPUs: leave one of them out",
            number_list::format(&cpus)
        ))),
        (CpuChoice::None, _) => Err(Error::Usage(format!(
            "--cpus none and --place {place} are mutually exclusive, because threads that are not pinned are on no socket: \
             leave one of them out"
        ))),
        (CpuChoice::Auto, Numa::Node(node)) => Err(Error::Usage(format!(
            "--numa {node} and --place {place} are mutually exclusive, because a place includes the threads' \
             memory, and all of it would be on node {node}: leave one of them out"
        ))),
        (CpuChoice::Auto, Numa::Auto | Numa::None) => Ok(()),
    }
}

/// Refuses CPUs and NUMA nodes that this host lacks, before a rank starts. Each rank later checks its own host again.
pub fn check_placement(job: &Job, points: &[Planned]) -> Result<()> {
    let (topology, (cpus, numa)) = (Topology::read(), job.placement());
    let threads = points.iter().map(|planned| planned.point.any().threads());
    let most = threads.max().unwrap_or(1);
    place_workers(&topology, 0, 1, most, &cpus)?;
    numa.node(&topology, None).map(|_| ())
}

#[cfg(test)]
mod tests {
    use tonnage_plan::Plan;

    use super::*;

    fn named(count: usize) -> DeviceNames {
        DeviceNames {
            all_ranks: (0..count).map(|index| format!("eth{index}")).collect(),
            ..DeviceNames::default()
        }
    }

    #[test]
    fn rails_are_several_devices_of_ranks_that_there_are() {
        let points = |more: &str| {
            let text = format!(
                "name = 'p'\n[[transfer]]\nengine = 'fabric:tcp'\nop = 'write'\nsizes = 8\n{more}"
            );
            let plan = Plan::from_toml(&text, "p").unwrap();
            plan.points(4, &LISTS).unwrap()
        };
        let (single, stripe) = (points(""), points("rails = ['single', 'stripe']"));
        let shifted = points("rail-shift = 1");
        let said = |named: &DeviceNames, points: &[Planned]| {
            let checked = check_devices(named, points, (4, Some(4)));
            checked.map_err(|error| error.to_string()).err()
        };
        assert_eq!(said(&named(1), &single), None);
        for (points, option) in [
            (&stripe, "--rails is about"),
            (&shifted, "--rail-shift is about"),
        ] {
            let why = said(&named(1), points).unwrap();
            assert!(
                why.starts_with(option) && why.contains("(eth0,eth0)"),
                "{why}"
            );
            assert_eq!(said(&named(2), points), None);
            let all = DeviceNames {
                all_ranks: vec![DeviceNames::ALL.to_owned()],
                ..DeviceNames::default()
            };
            assert_eq!(said(&all, points), None);
        }
        // More devices than threads is an error only if each thread uses a single device.
        assert_eq!(said(&named(9), &stripe), None);
        let mut of_rank = named(2);
        of_rank
            .of_ranks
            .insert(4, vec!["eth7".to_owned(), "eth8".to_owned()]);
        let why = said(&of_rank, &single).unwrap();
        assert!(
            why.contains("rank 4") && why.contains("the last is rank 3"),
            "{why}"
        );
    }

    #[test]
    fn every_device_has_a_worker() {
        let points = |kind: &str, engine: &str, more: &str| {
            let text = format!("name = 'p'\n[[{kind}]]\nengine = '{engine}'\nthreads = 2\n{more}");
            let plan = Plan::from_toml(&text, "p").unwrap();
            plan.points(4, &LISTS).unwrap()
        };
        let transfer = points("transfer", "fabric:tcp", "op = 'write'\nsizes = 8");
        let connect = points("connect", "fabric:tcp", "");
        for points in [transfer, connect] {
            assert!(check_devices(&named(8), &points, (16, Some(4))).is_ok());
            let message = check_devices(&named(9), &points, (16, Some(4)))
                .unwrap_err()
                .to_string();
            assert!(
                message.contains("names 9 devices, but this host has 8 threads: use --threads 3"),
                "{message}"
            );
            // If a launcher does not report the number of ranks on this host, the ranks check this themselves.
            assert!(check_devices(&named(9), &points, (16, None)).is_ok());
        }
        let without = points("connect", "shm", "");
        assert!(check_devices(&named(9), &without, (16, Some(1))).is_ok());
    }
}
