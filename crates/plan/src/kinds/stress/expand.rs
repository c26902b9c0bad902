//! Expands one stress to its point. Every mistake that can be found before a rank starts is refused here, in one
//! sentence that names the nearest valid choice.

use super::options::{
    DURATION_DEFAULT, DrawOptions, MAX_SIZE_DEFAULT, SEED_DEFAULT, Stress, StressLength,
    THREADS_DEFAULT,
};
use super::point::StressPoint;
use crate::bounds::{POINTS_MAX, RANKS_MAX, SIZE_BYTES_MAX, THREADS_MAX};
use crate::cells::Cell;
use crate::engine_choice::{ChosenEngine, choose, chosen};
use crate::gpu_options::check_gpu_options;
use crate::kind::{AnyExperiment, Kind, Scale};
use crate::options::several;
use crate::refuse::{check_one_process, time_within, usage_error, value_within};
use crate::skipping::{self, SkippingOptions};
use crate::sweep::Sweep;
use tonnage_engine::{EngineOptions, Lists, Verb};
use tonnage_units::{Bytes, Nanos, Result};

/// In a shorter time, not even one transfer can run.
const DURATION_NS_MIN: u64 = 1_000_000;
const DURATION_NS_MAX: u64 = 7 * 24 * 3_600_000_000_000;

impl Kind for Stress {
    type Point = StressPoint;

    const ABOUT: &'static str = "Random transfers for a given time, with verified data";
    const AFTER_HELP: &'static str = "Operation, size, depth or batch, session, queue pairs, traffic, offsets and memory of each \
    transfer are drawn from the seed. A wrong byte ends its draw and not the run; the command line that repeats the \
    first one is printed at once and again at the end, and the exit code is 1.\n\n\
    Examples:\n  \
    tonnage stress --engine shm --ranks 2 --duration 1m\n  \
    tonnage stress --engine fabric:shm,fabric:tcp --ranks 3 --duration 8h --seed 7 --max-size 64M -o stress.jsonl";

    fn cells(
        &self,
        ranks: u32,
        lists: &Lists,
        points_max: usize,
    ) -> Result<Vec<Cell<StressPoint>>> {
        if points_max == 0 {
            return usage_error(format!("the plan has more than {POINTS_MAX} points"));
        }
        Ok(vec![point(self, ranks, lists)?.into()])
    }
}

impl AnyExperiment for Stress {
    fn label(&self) -> Option<&str> {
        self.what.label.as_deref()
    }

    fn use_engines(&mut self, engines: &[String]) -> bool {
        let (own, options) = (&mut self.what.engine, &self.what.engine_options);
        choose(own, engines.to_vec(), options, false)
    }

    /// Multiplies the time, and keeps it within its bounds.
    fn scale(&mut self, scale: Scale) {
        self.length.duration = scale_duration(&self.length, scale.time);
    }
}

/// Returns the only point of an experiment.
fn point(stress: &Stress, ranks: u32, lists: &Lists) -> Result<StressPoint> {
    let what = &stress.what;
    if !(2..=RANKS_MAX).contains(&ranks) {
        return usage_error(format!(
            "a stress moves bytes between ranks, and there are {ranks}: use --ranks 2 to --ranks {RANKS_MAX}"
        ));
    }
    let engines = engines(what, lists)?;
    let names: Vec<&str> = engines.iter().map(|engine| engine.name).collect();
    let mut engine_options = EngineOptions::new();
    for engine in &engines {
        engine_options.extend(engine.options.clone());
    }
    let point = StressPoint {
        label: what.label.clone(),
        engine: names.join(","),
        engine_options,
        ranks,
        ops: ops(what, &engines)?,
        size_bytes_max: max_size(what)?,
        threads: threads(what)?,
        memory: memories(what, lists)?,
        seed: what.seed.unwrap_or(SEED_DEFAULT).0,
        duration_ns: duration(&stress.length)?,
    };
    // One GPU memory is enough for GPU options, because some random transfers use that memory.
    let memories: Vec<&str> = point.memory.split(',').collect();
    for engine in &engines {
        check_gpu_options(engine.entry, &point.engine_options, &memories, lists)?;
    }
    // Draws the first group of each engine, so that an error in the common options is found before a rank starts.
    for engine in point.engines() {
        point.draw_group(engine, 0, lists)?;
    }
    Ok(point)
}

/// Returns the engines. Each must move bytes between processes.
fn engines<'a>(what: &'a DrawOptions, lists: &Lists) -> Result<Vec<ChosenEngine<'a>>> {
    let engines = chosen(&what.engine, &what.engine_options, lists)?;
    for (index, ChosenEngine { entry, name, .. }) in engines.iter().enumerate() {
        check_one_process(entry, "a stress")?;
        if !entry.moves_bytes {
            let other = lists.engines.iter().find(|entry| entry.moves_bytes);
            let instead = other.map(|other| format!(", such as {}", other.name));
            return usage_error(format!(
                "--engine {name} moves no bytes, so there is nothing to verify: use one that does{}",
                instead.unwrap_or_default()
            ));
        }
        if engines[..index].iter().any(|before| before.name == *name) {
            return usage_error(format!(
                "--engine {name} is named twice: leave one of them out"
            ));
        }
    }
    Ok(engines)
}

/// Returns the operations to draw from. Every engine must support each requested operation. By default, these are all
/// operations that at least one engine supports.
fn ops(what: &DrawOptions, engines: &[ChosenEngine<'_>]) -> Result<Vec<Verb>> {
    let Some(asked) = several("op", &what.op, "write")? else {
        let can = |verb: &Verb| engines.iter().any(|it| it.entry.verbs.contains(verb));
        return Ok(Verb::COPYING.into_iter().filter(can).collect());
    };
    let mut ops = Vec::new();
    for &op in asked {
        if op.is_atomic() {
            return usage_error(format!(
                "--op {op} is not drawn, because draws vary sizes and its size is fixed: use --op write, or \
                 `tonnage transfer --op {op} --verify`"
            ));
        }
        let lacking = engines.iter().find(|it| !it.entry.verbs.contains(&op));
        if let Some(ChosenEngine { entry, .. }) = lacking {
            let verbs: Vec<_> = entry.verbs.iter().map(|verb| verb.name()).collect();
            return usage_error(format!(
                "--engine {} cannot do --op {op}: use one of {}",
                entry.name,
                verbs.join(", ")
            ));
        }
        if !ops.contains(&op) {
            ops.push(op);
        }
    }
    Ok(ops)
}

fn max_size(what: &DrawOptions) -> Result<u32> {
    let Bytes(asked) = what.max_size.unwrap_or(MAX_SIZE_DEFAULT);
    match u32::try_from(asked) {
        Ok(0) => usage_error("--max-size 0 would move nothing: the smallest is --max-size 1"),
        Ok(narrow) if narrow <= SIZE_BYTES_MAX => Ok(narrow),
        _ => usage_error(format!(
            "--max-size {} is too large for one operation: the largest is --max-size {}",
            Bytes(asked),
            Bytes(SIZE_BYTES_MAX.into())
        )),
    }
}

fn threads(what: &DrawOptions) -> Result<Vec<u32>> {
    let asked = Sweep::values_or(&what.threads, THREADS_DEFAULT).into_iter();
    // Fits: at most `THREADS_MAX`.
    let checked =
        |threads| value_within("threads", threads, 1..=THREADS_MAX.into()).map(|it| it as u32);
    asked.map(checked).collect()
}

fn memories(what: &DrawOptions, lists: &Lists) -> Result<String> {
    let asked = skipping::memories(lists, "memory", &what.memory, &SkippingOptions::default())?;
    Ok(asked.map_or_else(
        || lists.default_memory().to_owned(),
        |names| names.join(","),
    ))
}

fn duration(length: &StressLength) -> Result<u64> {
    let Nanos(duration_ns) = length.duration.unwrap_or(DURATION_DEFAULT);
    time_within(
        "duration",
        "",
        duration_ns,
        " for a draw",
        DURATION_NS_MIN..=DURATION_NS_MAX,
    )
}

/// Returns the time times `factor`, within the bounds that [`duration`] checks. An invalid time stays as it is.
fn scale_duration(length: &StressLength, factor: f64) -> Option<Nanos> {
    let Ok(duration_ns) = duration(length) else {
        return length.duration;
    };
    // `f64` is precise enough below 2^53, and casts of floats saturate.
    let scaled = (duration_ns as f64 * factor).round() as u64;
    Some(Nanos(scaled.clamp(DURATION_NS_MIN, DURATION_NS_MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{LISTS, Refused, cases};
    use crate::{Plan, Point};

    fn points(options: &str, ranks: u32) -> Result<Vec<StressPoint>> {
        let text = format!("name = 's'\n[[stress]]\n{options}");
        let planned = Plan::from_toml(&text, "s.toml")?.points(ranks, &LISTS)?;
        let points = planned
            .into_iter()
            .filter_map(|planned| match planned.point {
                Point::Stress(point) => Some(point),
                _ => None,
            });
        Ok(points.collect())
    }

    #[test]
    fn defaults_are_filled_in() {
        let point = points("engine = 'shm'", 3).unwrap().remove(0);
        let expected = StressPoint {
            label: None,
            engine: "shm".to_owned(),
            engine_options: EngineOptions::default(),
            ranks: 3,
            ops: Verb::COPYING.to_vec(),
            size_bytes_max: 1 << 20,
            threads: vec![1],
            memory: "host".to_owned(),
            seed: 1,
            duration_ns: 10_000_000_000,
        };
        assert_eq!(point, expected);
        let loose = points("engine = 'loose'", 2).unwrap().remove(0);
        assert_eq!(loose.ops, [Verb::Write, Verb::WriteImm, Verb::Read]);
    }

    #[test]
    fn impossible_draws_are_refused_with_a_valid_choice() {
        for (lines, part) in cases([
            "engine = 'shn' => did you mean \"shm\"?",
            "engine = 'null' => use one that does, such as shm",
            "engine = 'shm,loose,shm' => engine shm is named twice",
            "engine = 'shm,loose'; op = 'send' => engine loose cannot do op send: use one of write, write-imm, read",
            "engine = 'shm'; op = [] => use op write",
            "engine = 'shm'; memory = [] => use memory host",
            "engine = 'shm'; memory = 'hots' => did you mean",
            "engine = 'shm'; max-size = 0 => the smallest is max-size 1",
            "engine = 'shm'; max-size = '2G' => the largest is max-size 1G",
            "engine = 'shm'; threads = 0 => use threads 1 to",
            "engine = 'shm'; duration = '1us' => the shortest is duration 1ms",
            "engine = 'shm'; duration = '8000h' => the longest is duration 168h",
        ]) {
            points(lines, 2).refused(part);
        }
        points("engine = 'shm'", 1).refused("use --ranks 2 to --ranks 65536");
    }

    #[test]
    fn its_time_is_scaled_within_bounds() {
        let length = |ns| StressLength {
            duration: Some(Nanos(ns)),
        };
        let twice = scale_duration(&length(1_000_000_000), 2.0);
        assert_eq!(twice, Some(Nanos(2_000_000_000)));
        assert_eq!(
            scale_duration(&length(1_000_000_000), 1e-9),
            Some(Nanos(DURATION_NS_MIN))
        );
        // An invalid time stays invalid.
        assert_eq!(scale_duration(&length(5), 2.0), Some(Nanos(5)));
    }
}
