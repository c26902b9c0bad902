//! Expands an experiment with connections to its points. Every mistake that can be found before a rank starts is
//! refused here, in one sentence that names the nearest valid choice.

use super::options::{
    Connect, ConnectLength, DURATION_DEFAULT, REGISTER_BYTES_DEFAULT, THREADS_DEFAULT,
    TRAFFIC_DEFAULT, TRAFFICS, TRIALS_DEFAULT,
};
use super::point::ConnectPoint;
use crate::bounds::{MEMORY_BYTES_MAX, RANKS_MAX, THREADS_MAX};
use crate::cells::{Cell, Cells, check_total, cross_product};
use crate::engine_choice::{choose, chosen};
use crate::gpu_options::check_gpu_options;
use crate::kind::{AnyExperiment, Kind, Scale};
use crate::place::places;
use crate::point::{PointNotes, Traffic};
use crate::refuse::{check_one_process, time_within, usage_error, value_within};
use crate::roles::Roles;
use crate::skipping;
use crate::sweep::Sweep;
use tonnage_engine::{EngineOptions, Lists};
use tonnage_units::{Bytes, Count, Nanos, Result};

const TRIALS_MAX: u64 = 100_000;

/// In a shorter trial, most engines cannot make even one connection.
const TRIAL_NS_MIN: u64 = 10_000_000;
const TRIAL_NS_MAX: u64 = 24 * 3_600_000_000_000;

impl Kind for Connect {
    type Point = ConnectPoint;

    const ABOUT: &'static str = "Time each step of setting connections up and taking them down";
    const AFTER_HELP: &'static str = "Threads and register take sweeps: one value (4), a doubling range (1..16), a range with a factor \
    (4k..1G*16), or several of these joined by commas. Several sweeps multiply. k, M and G are powers of two.\n\n\
    Examples:\n  \
    tonnage connect --engine shm,fabric:tcp --ranks 2 --threads 1..8\n  \
    tonnage connect --engine fabric:tcp --ranks 8 --traffic fan-in --register 4k..1G*16 --memory small,huge";

    /// Returns the cells of one experiment: one for each combination of engine, memory, place, threads and bytes to
    /// register. The last of these varies fastest.
    fn cells(
        &self,
        ranks: u32,
        lists: &Lists,
        points_max: usize,
    ) -> Result<Vec<Cell<ConnectPoint>>> {
        let what = &self.what;
        let traffic = traffic(what.traffic.unwrap_or(TRAFFIC_DEFAULT), ranks)?;
        let (trials, trial_ns) = length(&self.length)?;
        let engines = chosen(&what.engine, &what.engine_options, lists)?;
        for engine in &engines {
            check_one_process(engine.entry, "connections")?;
        }
        let threads = Sweep::values_or(&what.threads, THREADS_DEFAULT).into_iter();
        let threads =
            threads.map(|threads| value_within("threads", threads, 1..=THREADS_MAX.into()));
        let threads: Vec<u64> = threads.collect::<Result<_>>()?;
        let register = Sweep::values_or(&what.register, REGISTER_BYTES_DEFAULT);
        let default = [lists.default_memory().to_owned()];
        let memories = skipping::memories(lists, "memory", &what.memory, &self.skipping)?;
        let memories = memories.unwrap_or(&default);
        let places = places(&what.place, &[Roles::new(traffic, ranks)])?;
        let counts = [
            engines.len(),
            memories.len(),
            places.len(),
            threads.len(),
            register.len(),
        ];
        check_total(&counts, points_max, "experiment")?;
        let common = ConnectPoint {
            label: what.label.clone(),
            engine: String::new(),
            engine_options: EngineOptions::new(),
            traffic,
            ranks,
            threads: 1,
            place: None,
            register_bytes: 0,
            memory: String::new(),
            trials,
            trial_ns,
        };
        let points = cross_product(vec![common], &engines, |point, engine| {
            point.engine = engine.name.to_owned();
            point.engine_options = engine.options.clone();
        });
        let points = cross_product(points, memories, |point, memory| {
            point.memory.clone_from(memory)
        });
        let points = cross_product(points, &places, |point, &place| point.place = place);
        // Fits: the values were checked against `THREADS_MAX`.
        let points = cross_product(points, &threads, |point, &threads| {
            point.threads = threads as u32
        });
        let points = cross_product(points, &register, |point, &bytes| {
            point.register_bytes = bytes
        });
        let mut cells = Cells::new();
        for point in points {
            let entry = lists.engine(&point.engine)?;
            let checked = check_gpu_options(entry, &point.engine_options, &[&point.memory], lists);
            let checked = checked.and_then(|()| check_register(&point));
            cells.add(point, checked)?;
        }
        cells.all()
    }

    fn notes(&self) -> Result<PointNotes> {
        Ok(PointNotes {
            optional: self.skipping.optional,
            ..PointNotes::default()
        })
    }
}

impl AnyExperiment for Connect {
    fn label(&self) -> Option<&str> {
        self.what.label.as_deref()
    }

    fn use_engines(&mut self, engines: &[String]) -> bool {
        let (own, options) = (&mut self.what.engine, &self.what.engine_options);
        choose(own, engines.to_vec(), options, self.skipping.optional)
    }

    /// Multiplies the measured time, and keeps it within its bounds.
    fn scale(&mut self, scale: Scale) {
        self.length.duration = scale_duration(&self.length, scale.time);
    }
}

fn traffic(traffic: Traffic, ranks: u32) -> Result<Traffic> {
    if !(2..=RANKS_MAX).contains(&ranks) {
        return usage_error(format!(
            "connections are between ranks, and there are {ranks}: use --ranks 2 to --ranks {RANKS_MAX}"
        ));
    }
    match traffic {
        Traffic::Pair if ranks.is_multiple_of(2) => Ok(traffic),
        Traffic::Pair => usage_error(format!(
            "--traffic pair needs an even number of ranks and there are {ranks}: use --ranks {}, or --traffic fan-in",
            ranks + 1
        )),
        other if TRAFFICS.contains(&other) => Ok(other),
        other => usage_error(format!(
            "connections are set up in pairs or towards one rank, and --traffic {} is neither: use --traffic {}",
            other.name(),
            TRAFFICS.map(Traffic::name).join(" or ")
        )),
    }
}

/// Refuses more memory than one rank can have, because all its threads register at the same time.
fn check_register(point: &ConnectPoint) -> Result<()> {
    let (bytes, most) = (
        point.register_bytes,
        MEMORY_BYTES_MAX / u64::from(point.threads),
    );
    match bytes {
        0 => usage_error("--register 0 would register nothing: the smallest is --register 1"),
        _ if bytes <= most => Ok(()),
        _ => usage_error(format!(
            "--register {} is more than the memory of a rank may be: the most is --register {}",
            Bytes(bytes),
            Bytes(most)
        )),
    }
}

/// Returns the measured time times `factor`, within the bounds that [`length`] checks. An invalid time stays as it is.
fn scale_duration(given: &ConnectLength, factor: f64) -> Option<Nanos> {
    let Ok((trials, trial_ns)) = length(given) else {
        return given.duration;
    };
    // `f64` is precise enough below 2^53, and casts of floats saturate.
    let scaled = (trial_ns as f64 * factor).round() as u64;
    let trial_ns = scaled.clamp(TRIAL_NS_MIN, TRIAL_NS_MAX);
    Some(Nanos(trial_ns * u64::from(trials)))
}

/// Returns the number of trials, and the time of each.
fn length(length: &ConnectLength) -> Result<(u32, u64)> {
    let Count(trials) = length.trials.unwrap_or(TRIALS_DEFAULT);
    let trials = value_within("trials", trials, 1..=TRIALS_MAX)?;
    let Nanos(duration) = length.duration.unwrap_or(DURATION_DEFAULT);
    let over = format!(" over {trials} trials");
    let bounds = TRIAL_NS_MIN * trials..=TRIAL_NS_MAX * trials;
    let duration = time_within("duration", &over, duration, "", bounds)?;
    // Fits: at most `TRIALS_MAX`.
    Ok((trials as u32, duration / trials))
}

#[cfg(test)]
mod tests;
