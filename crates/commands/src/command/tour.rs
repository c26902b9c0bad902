//! `tonnage tour`: this host's hardware, its upper bounds, and how close transfers between two ranks come to them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use tonnage_engines::{LISTS, memory};
use tonnage_machine::devices::{Inventory, gpu_makers_here};
use tonnage_machine::kernel_files::Tree;
use tonnage_machine::{Environment, Topology};
use tonnage_plan::{Experiment, Plan};
use tonnage_record::read::read_records;
use tonnage_record::writer::check_writable;
use tonnage_units::identity::Meeting;
use tonnage_units::message::print_message;
use tonnage_units::{Error, PairPlace, Result};

use super::bounds;
use super::job::Job;
use super::measure::start;
use super::measure::supervise::supervise;
use super::{env, print};
use crate::args::common::RankArgs;
use crate::args::run::TourArgs;
use tonnage_report::tour;

/// Runs the tour. In a process that is one of its ranks, runs that rank.
pub fn tour(args: &TourArgs) -> Result<ExitCode> {
    let output = args.output.clone().map_or_else(default_output, Ok)?;
    let mut plan = args.to_plan()?;
    let identity = tonnage_ranks::detect(&env, None)?;
    // The ranks of a launcher may have different hosts and CPUs, but must all have the same plan.
    let is_of_one_host = identity
        .as_ref()
        .is_none_or(|identity| matches!(identity.meeting, Meeting::Local { .. }));
    let topology = Topology::read();
    let has_both_places = is_of_one_host && topology.has_near_and_far();
    if has_both_places {
        at_both_places(&mut plan);
    }
    // On other hosts, GPUs may be of another vendor.
    let makers = if is_of_one_host {
        gpu_makers_here(&Tree::host())
    } else {
        BTreeSet::new()
    };
    with_gpus_of(&makers, &mut plan);
    let job = Job {
        output: Some((output.clone(), false)),
        ..Job::new(plan, RankArgs::default())
    };
    // A rank, and `--print-plan`, work as with any plan. Only a tour that the user starts directly prints the page.
    if args.print_plan || identity.is_some() {
        return start(&job, args.print_plan);
    }
    check_writable(&output)?;
    let time = if has_both_places {
        "a minute"
    } else {
        "half a minute"
    };
    print_message(&format!(
        "Looking at this machine, then measuring it for about {time} …"
    ));
    let environment = Environment::read(&LISTS.variables(), &topology);
    let inventory = Inventory::read();
    let bounds = bounds::measure(&environment, &topology)?;
    let before = if output.exists() {
        read_records(&output)?.records.len()
    } else {
        0
    };
    let code = supervise(
        job.plan.ranks.unwrap_or(2),
        &rank_arguments(args, &output),
        None,
    )?;
    let records = read_records(&output)?.records.split_off(before);
    let program = std::env::args()
        .next()
        .unwrap_or_else(|| "tonnage".to_owned());
    print(&tour::page(&tour::Tour {
        inventory: &inventory,
        bounds: &bounds,
        records: &records,
        output: &output,
        program: &program,
    }))?;
    Ok(code)
}

/// Makes experiments run twice, on one socket and across two sockets, if one of their engines moves bytes.
fn at_both_places(plan: &mut Plan) {
    let moves_bytes = |engine: &String| LISTS.engine(engine).is_ok_and(|entry| entry.moves_bytes);
    for experiment in &mut plan.experiments {
        if let Experiment::Transfer(transfer) = experiment
            && let Some(engines) = &transfer.what.engine
            && engines.values().iter().any(moves_bytes)
        {
            transfer.what.place = Some(PairPlace::ALL.to_vec().into());
        }
    }
}

/// Removes experiments with GPUs of vendors that are not found here. If no GPU is found, or the GPUs of the hosts are
/// unknown, the first vendor's experiments stay. The page then reports the missing driver.
fn with_gpus_of(found: &BTreeSet<String>, plan: &mut Plan) {
    let is_here = |maker: &str| found.contains(maker);
    let mut makers = memory::known_gpu_makers();
    makers.sort_by_key(|(maker, _)| !is_here(maker));
    let others = makers.into_iter().skip(1);
    let left_out = others.filter(|(maker, _)| !is_here(maker));
    let left_out: Vec<&str> = left_out.map(|(_, memory)| memory).collect();
    let is_left_out = |engine: &String| {
        let entry = LISTS.engine(engine).ok();
        entry
            .and_then(|entry| entry.device_memory)
            .is_some_and(|memory| left_out.contains(&memory))
    };
    plan.experiments.retain(|experiment| match experiment {
        Experiment::Transfer(transfer) => {
            let engines = transfer.what.engine.as_ref();
            !engines.is_some_and(|engines| engines.values().iter().any(is_left_out))
        }
        _ => true,
    });
}

/// Returns the arguments of the ranks. They contain the file's name, because otherwise each rank would generate its
/// own.
fn rank_arguments(args: &TourArgs, output: &Path) -> Vec<std::ffi::OsString> {
    let mut arguments = vec!["tour".into(), "--output".into(), output.into()];
    if let Some(scale) = args.scale {
        arguments.extend(["--scale".into(), scale.to_string().into()]);
    }
    arguments
}

/// Returns a new file in this user's folder for program states, and creates the folder. Names sort by time.
fn default_output() -> Result<PathBuf> {
    let seconds = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_err(|_| {
            Error::Failed(
                "this host's clock stands before 1970: set it, or name a file with -o".into(),
            )
        })?
        .as_secs();
    let folder = state_folder(&env).ok_or_else(|| {
        Error::Usage(
            "HOME is not set, so there is no place for results: name a file with -o".into(),
        )
    })?;
    std::fs::create_dir_all(&folder).map_err(|error| {
        let what = format!(
            "{} cannot be created; name a file for the results with -o",
            folder.display()
        );
        Error::io(what, error)
    })?;
    Ok(folder.join(format!("tour-{seconds}.jsonl")))
}

/// Returns `$XDG_STATE_HOME/tonnage`, or `~/.local/state/tonnage`. The XDG standard requires that relative paths are
/// ignored.
fn state_folder(env: &dyn Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let state = env("XDG_STATE_HOME").filter(|path| path.starts_with('/'));
    let home = || env("HOME").filter(|home| !home.is_empty());
    let state = state.map(PathBuf::from);
    let state = state.or_else(|| Some(Path::new(&home()?).join(".local/state")));
    Some(state?.join("tonnage"))
}

#[cfg(test)]
mod tests {
    use tonnage_plan::Point;

    use super::*;

    #[test]
    fn results_go_to_the_folder_of_states() {
        for (state, home, expected) in [
            (Some("/s"), Some("/h"), Some("/s/tonnage")),
            (Some("s"), Some("/h"), Some("/h/.local/state/tonnage")),
            (None, Some("/h"), Some("/h/.local/state/tonnage")),
            (None, Some(""), None),
            (None, None, None),
        ] {
            let env = |name: &str| {
                let value = match name {
                    "XDG_STATE_HOME" => state,
                    _ => home,
                };
                value.map(str::to_owned)
            };
            assert_eq!(state_folder(&env).as_deref(), expected.map(Path::new));
        }
    }

    /// On a host with AMD GPUs, the page must not suggest installing NVIDIA's driver.
    #[test]
    fn gpus_are_measured_of_the_makers_that_are_here() {
        const NVIDIA: &str = "0x10de";
        const AMD: &str = "0x1002";
        for (cards, expected) in [
            (&[][..], &["cuda"][..]),
            (&[NVIDIA], &["cuda"]),
            (&[AMD, AMD], &["hip"]),
            (&[AMD, NVIDIA], &["cuda", "hip"]),
        ] {
            let machine = tempfile::tempdir().unwrap();
            for (slot, vendor) in cards.iter().enumerate() {
                let card = format!("sys/bus/pci/devices/0000:{slot:02x}:00.0");
                let card = machine.path().join(card);
                std::fs::create_dir_all(&card).unwrap();
                for (file, text) in [("class", "0x030200"), ("vendor", vendor)] {
                    std::fs::write(card.join(file), text).unwrap();
                }
            }
            let makers = gpu_makers_here(&Tree::at(machine.path()));
            let mut plan = TourArgs::default().to_plan().unwrap();
            with_gpus_of(&makers, &mut plan);
            let points = plan.points(2, &LISTS).unwrap();
            let engines = points.iter().filter_map(|planned| match &planned.point {
                Point::Transfer(point) => Some(point.engine.as_str()),
                _ => None,
            });
            let engines: BTreeSet<&str> = engines.collect();
            let found = ["cuda", "hip"].map(|engine| engines.contains(engine));
            let wanted = ["cuda", "hip"].map(|engine| expected.contains(&engine));
            assert_eq!(
                (found, engines.contains("shm")),
                (wanted, true),
                "{makers:?}"
            );
        }
    }

    #[test]
    fn bytes_that_move_are_measured_near_and_far() {
        let mut plan = TourArgs::default().to_plan().unwrap();
        let before = plan.points(2, &LISTS).unwrap();
        at_both_places(&mut plan);
        let after = plan.points(2, &LISTS).unwrap();
        let of = |place| {
            let all = after
                .iter()
                .map(|planned| planned.point.any().socket_placement());
            all.filter(|this| *this == place).count()
        };
        // The null engine measures only tonnage's own cost, so it has no placement.
        assert_eq!(of(None), 1);
        for place in PairPlace::ALL {
            assert_eq!(of(Some(place)), before.len() - 1);
        }
    }
}
