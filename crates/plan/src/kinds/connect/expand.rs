//! The points of an experiment with connections. Everything that can be known to be wrong is refused here, before a
//! rank starts, in one sentence that names the nearest valid choice.

use super::options::{
    Connect, DURATION_DEFAULT, Length, REGISTER_BYTES_DEFAULT, TRAFFIC_DEFAULT, TRAFFICS,
    TRIALS_DEFAULT, WORKERS_DEFAULT, What,
};
use super::point::ConnectPoint;
use crate::bounds::{MEMORY_BYTES_MAX, POINTS_MAX, RANKS_MAX, WORKERS_MAX};
use crate::cells::{Cell, Cells};
use crate::gpu_options::check_gpu_options;
use crate::options::{Many, pairs};
use crate::place::places;
use crate::point::Traffic;
use crate::refuse::{one_process, usage};
use crate::roles::Roles;
use crate::skipping::{self, SkippingOptions};
use crate::sweep::Sweep;
use tonnage_engine::{EngineOptions, Lists};
use tonnage_units::{Bytes, Count, Nanos, Result};

const TRIALS_MAX: u64 = 100_000;

/// Below this a trial has no time for a connection of most engines.
const TRIAL_NS_MIN: u64 = 10_000_000;
const TRIAL_NS_MAX: u64 = 24 * 3_600_000_000_000;

/// The cells of one experiment, in each engine, memory, place, workers and bytes to register, the last varying
/// fastest; at most `points_max`.
///
/// # Errors
/// `Usage` for everything that can be found wrong without starting a rank, unless only some cells are.
pub(super) fn expand(
    connect: &Connect,
    ranks: u32,
    lists: &Lists,
    points_max: usize,
) -> Result<Vec<Cell<ConnectPoint>>> {
    let what = &connect.what;
    let traffic = traffic(what.traffic.unwrap_or(TRAFFIC_DEFAULT), ranks)?;
    let (trials, trial_ns) = length(&connect.length)?;
    let named = engines_of(what, lists)?;
    let workers = workers(&values(&what.workers, WORKERS_DEFAULT))?;
    let register = values(&what.register, REGISTER_BYTES_DEFAULT);
    let memories = memories(what, &connect.skipping, lists)?;
    let places = places(&what.place, &[Roles::new(traffic, ranks)])?;
    let counts = [
        named.len(),
        memories.len(),
        places.len(),
        workers.len(),
        register.len(),
    ];
    let total = counts.into_iter().fold(1, usize::saturating_mul);
    if total > points_max {
        return usage(format!(
            "the plan has more than {POINTS_MAX} points, and this experiment alone has {total}: use coarser sweeps, or \
             several plans"
        ));
    }
    let mut cells = Cells::new();
    for (engine, options) in &named {
        let entry = lists.engine(engine)?;
        for memory in &memories {
            let places = places.iter();
            let places =
                places.flat_map(|&place| workers.iter().map(move |&workers| (place, workers)));
            for (place, workers) in places {
                for &register_bytes in &register {
                    let checked = check_gpu_options(entry, options, &[memory], lists)
                        .and_then(|()| check_register(register_bytes, workers));
                    let point = ConnectPoint {
                        label: what.label.clone(),
                        engine: engine.clone(),
                        engine_options: options.clone(),
                        traffic,
                        ranks,
                        workers,
                        place,
                        register_bytes,
                        memory: memory.clone(),
                        trials,
                        trial_ns,
                    };
                    cells.add(point, checked)?;
                }
            }
        }
    }
    cells.all()
}

fn traffic(traffic: Traffic, ranks: u32) -> Result<Traffic> {
    if !(2..=RANKS_MAX).contains(&ranks) {
        return usage(format!(
            "connections are between ranks, and there are {ranks}: use --ranks 2 to --ranks {RANKS_MAX}"
        ));
    }
    match traffic {
        Traffic::Pair if ranks.is_multiple_of(2) => Ok(traffic),
        Traffic::Pair => usage(format!(
            "pair traffic needs an even number of ranks and there are {ranks}: use --ranks {}, or traffic fan-in",
            ranks + 1
        )),
        other if TRAFFICS.contains(&other) => Ok(other),
        other => usage(format!(
            "connections are set up in pairs or towards one rank, and traffic {} is neither: use traffic {}",
            other.name(),
            TRAFFICS.map(Traffic::name).join(" or ")
        )),
    }
}

fn engines_of(what: &What, lists: &Lists) -> Result<Vec<(String, EngineOptions)>> {
    let names = what.engine.as_ref().map_or(&[][..], |names| names.values());
    if names.is_empty() {
        return Err(lists.no_engine());
    }
    let asked = pairs::map(&what.engine_options);
    let named = |name: &String| {
        let entry = lists.engine(name)?;
        one_process(entry, "connections")?;
        let variant = tonnage_engine::split_name(name).1;
        Ok((name.clone(), entry.check_options(&asked, variant)?))
    };
    names.iter().map(named).collect()
}

fn memories(what: &What, skipping: &SkippingOptions, lists: &Lists) -> Result<Vec<String>> {
    let memories = match what.memory.as_ref().map(Many::values) {
        Some([]) => {
            return usage("memory is empty: leave it out, or write memory host".to_owned());
        }
        Some(memories) => memories.to_vec(),
        None => vec![lists.default_memory().to_owned()],
    };
    for memory in &memories {
        skipping::memory(lists, memory, skipping)?;
    }
    Ok(memories)
}

fn values(sweep: &Option<Sweep>, default: u64) -> Vec<u64> {
    sweep
        .as_ref()
        .map_or_else(|| vec![default], |sweep| sweep.values().to_vec())
}

fn workers(asked: &[u64]) -> Result<Vec<u32>> {
    let checked = |&workers: &u64| match u32::try_from(workers) {
        Ok(narrow) if (1..=WORKERS_MAX).contains(&narrow) => Ok(narrow),
        _ => usage(format!(
            "workers {workers} is not possible: write workers 1 to workers {WORKERS_MAX}"
        )),
    };
    asked.iter().map(checked).collect()
}

/// All workers of a rank register at the same time.
fn check_register(bytes: u64, workers: u32) -> Result<()> {
    let most = MEMORY_BYTES_MAX / u64::from(workers);
    match bytes {
        0 => usage("register 0 would register nothing: the smallest is register 1".to_owned()),
        _ if bytes <= most => Ok(()),
        _ => usage(format!(
            "register {} is more than a rank can have: the most is register {}",
            Bytes(bytes),
            Bytes(most)
        )),
    }
}

/// The measured time, multiplied within the bounds that [`length`] checks; a wrong one is left alone.
pub(super) fn scaled(given: &Length, factor: f64) -> Option<Nanos> {
    let Ok((trials, trial_ns)) = length(given) else {
        return given.duration;
    };
    // Precise enough below 2^53, and casts of floats saturate.
    let scaled = (trial_ns as f64 * factor).round() as u64;
    let trial_ns = scaled.clamp(TRIAL_NS_MIN, TRIAL_NS_MAX);
    Some(Nanos(trial_ns * u64::from(trials)))
}

/// Trials, and the time of each.
fn length(length: &Length) -> Result<(u32, u64)> {
    let Count(trials) = length.trials.unwrap_or(TRIALS_DEFAULT);
    if !(1..=TRIALS_MAX).contains(&trials) {
        return usage(format!(
            "trials {trials} is not possible: write trials 1 to trials {TRIALS_MAX}"
        ));
    }
    let Nanos(duration) = length.duration.unwrap_or(DURATION_DEFAULT);
    let (shortest, longest) = (TRIAL_NS_MIN * trials, TRIAL_NS_MAX * trials);
    if duration < shortest {
        return usage(format!(
            "duration {} over {trials} trials is too short: the shortest is duration {}",
            Nanos(duration),
            Nanos(shortest)
        ));
    }
    if duration > longest {
        return usage(format!(
            "duration {} over {trials} trials is too long: the longest is duration {}",
            Nanos(duration),
            Nanos(longest)
        ));
    }
    // Trials are below their bound, which fits.
    Ok((u32::try_from(trials).unwrap_or(u32::MAX), duration / trials))
}

#[cfg(test)]
mod tests;
