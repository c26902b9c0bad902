//! Values that compete in a search, the cheapest first. Of equally good values, the first in the list wins.

use super::options::Tune;
use super::point::{Goal, TuneDimension};
use crate::options::Many;
use crate::sweep::Sweep;
use tonnage_engine::paths::Rails;
use tonnage_engine::{Entry, OptionKind, split_name};

/// Default depth of a transfer. The ladder of searched depths contains it.
const DEPTH_START: u64 = 64;
const LADDER_MAX_LOG2: u32 = 10;
/// Maximum bytes in flight of a searched depth, unless the search begins with more. Bytes in flight are filled before
/// each trial and checked after it.
const IN_FLIGHT_BYTES_MAX: u64 = 16 << 20;
const QUEUE_PAIRS: [u64; 4] = [1, 2, 4, 8];
const CHUNKS: [u64; 6] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];

/// Returns the dimensions of a search, in search order.
pub(super) fn dimensions(
    tune: &Tune,
    size_bytes: u64,
    goal: Goal,
    entry: &Entry,
) -> Vec<TuneDimension> {
    let mut all = vec![pacing_dimension(tune, size_bytes, goal)];
    let issuing = &tune.issuing;
    all.push(number_dimension(
        "queue-pairs",
        issuing.queue_pairs.as_ref(),
        &QUEUE_PAIRS,
    ));
    all.push(match &issuing.chunk {
        Some(chunk) => {
            // Longer parts are cheaper, because an operation then has fewer of them.
            let mut asked = number_dimension("chunk", Some(chunk), &[]);
            asked.values.reverse();
            asked
        }
        None => {
            let smaller = CHUNKS.iter().rev().filter(|&&chunk| chunk < size_bytes);
            let mut values = vec![Vec::new()];
            values.extend(smaller.map(|chunk| option_arguments("chunk", chunk.to_string())));
            dimension("chunk", values, 0)
        }
    });
    all.push(rails_dimension(tune, entry));
    all.extend(engine_option_dimensions(tune, entry));
    all.retain(|dimension| !dimension.values.is_empty());
    all
}

fn option_arguments(name: &str, value: String) -> Vec<String> {
    vec![format!("--{name}"), value]
}

fn dimension(name: &str, values: Vec<Vec<String>>, start: u32) -> TuneDimension {
    let name = name.to_owned();
    TuneDimension {
        name,
        values,
        start,
    }
}

fn number_dimension(name: &str, asked: Option<&Sweep>, otherwise: &[u64]) -> TuneDimension {
    let mut values = asked.map_or(otherwise, Sweep::values).to_vec();
    values.sort_unstable();
    values.dedup();
    let words = values
        .iter()
        .map(|value| option_arguments(name, value.to_string()));
    dimension(name, words.collect(), 0)
}

/// Returns the depths and batches, which compete with each other. A search for the lowest latency keeps one operation
/// in flight. With a rate, the depth limits the operations in flight.
fn pacing_dimension(tune: &Tune, size_bytes: u64, goal: Goal) -> TuneDimension {
    let asked = &tune.pacing;
    if asked.ping_pong {
        return dimension("pacing", vec![vec!["--ping-pong".to_owned()]], 0);
    }
    let ladder: Vec<u64> = (0..=LADDER_MAX_LOG2)
        .map(|log2| 1 << log2)
        .filter(|depth: &u64| {
            depth.saturating_mul(size_bytes)
                <= IN_FLIGHT_BYTES_MAX.max(DEPTH_START.saturating_mul(size_bytes))
        })
        .collect();
    let values = |asked: &Option<Sweep>| asked.as_ref().map(|sweep| sweep.values().to_vec());
    let (depths, batches) = match (values(&asked.depth), values(&asked.batch)) {
        (None, None) if tune.paced.rate.is_some() => (ladder, Vec::new()),
        (None, None) if goal == Goal::Latency => (vec![1], Vec::new()),
        (None, None) => (
            ladder.clone(),
            ladder.into_iter().skip(2).step_by(2).collect(),
        ),
        (depths, batches) => (depths.unwrap_or_default(), batches.unwrap_or_default()),
    };
    let depths = depths.into_iter().map(|depth| (depth, "depth"));
    let batches = batches.into_iter().map(|depth| (depth, "batch"));
    let mut all: Vec<_> = depths.chain(batches).collect();
    all.sort_by_key(|&(depth, name)| (depth, name == "batch"));
    all.dedup();
    let start = all.iter().position(|it| *it == (DEPTH_START, "depth"));
    let words = all
        .iter()
        .map(|(depth, name)| option_arguments(name, depth.to_string()));
    dimension("pacing", words.collect(), start.unwrap_or(0) as u32)
}

fn rails_dimension(tune: &Tune, entry: &Entry) -> TuneDimension {
    let asked = tune.issuing.rails.as_ref().map(Many::values);
    let values = match asked {
        Some(asked) => asked.iter().map(ToString::to_string).collect(),
        None if entry.has_devices => Rails::ALL.iter().map(ToString::to_string).collect(),
        None => Vec::new(),
    };
    let words = values
        .into_iter()
        .map(|value| option_arguments("rails", value));
    dimension("rails", words.collect(), 0)
}

/// Returns those of the engine's own options that have a fixed set of values, with the default first. Options that
/// change the meaning of a latency can be recognised only when the engine is open.
fn engine_option_dimensions(tune: &Tune, entry: &Entry) -> Vec<TuneDimension> {
    let names = Many::all(&tune.what.engine);
    let is_of = |variants: &[&str]| {
        let mut variants_asked = names.iter().map(|name| split_name(name).1);
        variants.is_empty() || variants_asked.any(|asked| variants.contains(&asked))
    };
    let fixed = |name: &str| tune.what.engine_options.iter().any(|(it, _)| it == name);
    let free = entry.options.iter();
    let free = free.filter(|it| is_of(it.variants) && !fixed(it.name));
    let one = |it: &tonnage_engine::EngineOption| match it.kind {
        OptionKind::Choice(choices) => {
            let others = choices.iter().skip(1);
            let words = |choice| option_arguments("engine-option", format!("{}={choice}", it.name));
            let values = std::iter::once(Vec::new()).chain(others.map(words));
            Some(dimension(it.name, values.collect(), 0))
        }
        _ => None,
    };
    free.filter_map(one).collect()
}
