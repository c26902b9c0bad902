//! Builds layers from records: each layer's rate per round and the layer below it.

use std::collections::BTreeSet;

use tonnage_collective::Collective;
use tonnage_engine::Verb;
use tonnage_engine::backends::NATIVE;
use tonnage_record::collective::{BackendResult, CollectiveSummary};
use tonnage_record::spread::median;
use tonnage_record::{CollectiveBody, Outcome, Record, Spread, TransferBody};
use tonnage_units::quantity::human::exact_size;

use crate::layout;
use crate::text::distinct;

/// A layer that was measured in at least one round.
#[derive(Debug, Clone, PartialEq)]
pub struct Layer {
    /// Description of a bound, or name of an engine or backend.
    pub who: String,
    /// Level of the layer.
    pub level: Level,
    /// Engine below this layer; `None` for a library.
    engine: Option<String>,
    /// For each round, its label and the bytes per second that each rank sent.
    rates: Vec<(String, f64)>,
    /// Algorithms that the layer's calls used, if known.
    pub algorithms: Vec<String>,
}

/// Level of a layer above the hardware.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Upper bound; nothing is below.
    Bound,
    /// Writes of an engine.
    Writes,
    /// Pairwise send-recv of a backend.
    SendRecv,
    /// All-reduce of a backend.
    AllReduce,
}

/// The layers for one size.
#[derive(Default)]
pub struct Stack {
    /// Number of ranks in the run.
    pub ranks: u32,
    layers: Vec<Layer>,
}

/// Size of each operation in a record of this plan; `None` for a kind that is not a layer.
pub fn size(record: &Record) -> Option<u64> {
    match (record.transfer(), record.collective()) {
        (Some(body), _) => Some(body.point.slots.size_bytes.into()),
        (_, Some(body)) => Some(body.point.size_bytes),
        _ => None,
    }
}

/// Splits records into runs. A new run starts if a layer occurs again with the same round and size, or if the number of
/// ranks changes.
pub fn runs(records: &[Record]) -> Vec<&[Record]> {
    let mut runs = Vec::new();
    let mut seen = BTreeSet::new();
    let (mut begin, mut ranks) = (0, None);
    for (at, record) in records.iter().enumerate() {
        let (own_ranks, layer) = round_key(record);
        if ranks.is_some_and(|ranks| ranks != own_ranks) || seen.contains(&layer) {
            runs.push(&records[begin..at]);
            begin = at;
            seen.clear();
        }
        ranks = Some(own_ranks);
        seen.insert(layer);
    }
    runs.push(&records[begin..]);
    runs
}

/// Number of ranks of a record, and its layer, size and round.
fn round_key(record: &Record) -> (u32, (String, u64, Option<String>)) {
    let size = size(record).unwrap_or(0);
    match (record.transfer(), record.collective()) {
        (Some(body), _) => {
            let layer = body.point.engine.clone();
            (
                body.point.roles.ranks,
                (layer, size, body.point.label.clone()),
            )
        }
        (_, Some(body)) => {
            let layer = body.point.op.name().to_owned();
            (body.point.ranks, (layer, size, body.point.label.clone()))
        }
        _ => (0, (String::new(), size, None)),
    }
}

/// Reasons for layers of a record that were not measured.
pub fn unmeasured(record: &Record) -> Vec<String> {
    let reason = |who: &str, outcome: &Outcome| layout::not_measured(who, outcome, "skipped");
    if let Some(body) = record.transfer() {
        let who = format!("{} {}", body.point.engine, body.point.op);
        return reason(&who, &record.outcome).into_iter().collect();
    }
    let Some(body) = record.collective() else {
        return Vec::new();
    };
    let op = body.point.op;
    let each = body.backends.iter();
    let mut lines: Vec<_> = each
        .filter_map(|it| reason(&format!("{} {op}", it.backend), &it.backend_outcome))
        .collect();
    if body.backends.is_empty() {
        lines.extend(reason(op.name(), &record.outcome));
    }
    lines
}

impl Stack {
    /// Builds the layers from records of one size.
    pub fn new<'a>(records: impl Iterator<Item = &'a Record>) -> Self {
        let mut stack = Self::default();
        for record in records {
            if let Some(body) = record.transfer() {
                stack.ranks = body.point.roles.ranks;
                stack.add_writes(record, body);
            } else if let Some(body) = record.collective() {
                stack.ranks = body.point.ranks;
                stack.add_calls(body);
            }
        }
        stack.sort();
        stack
    }

    /// Sorts layers: grouped by engine, libraries last, each group from the bottom up.
    fn sort(&mut self) {
        let order = distinct(self.layers.iter().map(Layer::sort_group));
        let place = |layer: &Layer| order.iter().position(|it| *it == layer.sort_group());
        self.layers
            .sort_by_key(|layer| (layer.engine.is_none(), place(layer), layer.level));
    }

    /// The layers, grouped by engine, libraries last.
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// Number of rounds with measurements.
    pub fn rounds(&self) -> usize {
        let each = self.layers.iter().map(|layer| layer.rates.len());
        each.max().unwrap_or(0)
    }

    /// The layer to compare with: the next lower layer on the same engine. For a library, the fastest native backend
    /// with the same operation.
    pub fn below(&self, layer: &Layer) -> Option<&Layer> {
        let all = self.layers.iter();
        match &layer.engine {
            Some(_) => all
                .filter(|it| it.engine == layer.engine && it.level < layer.level)
                .max_by_key(|it| it.level),
            None => all
                .filter(|it| it.engine.is_some() && it.level == layer.level)
                .max_by(|one, other| one.median().total_cmp(&other.median())),
        }
    }

    fn add_writes(&mut self, record: &Record, body: &TransferBody) {
        let Some(summary) = body
            .summary
            .as_ref()
            .filter(|_| record.outcome == Outcome::Measured)
        else {
            return;
        };
        let engine = body.point.engine.clone();
        let round = body.point.label.clone().unwrap_or_default();
        // Rates of collectives are per rank, so rates of transfers are divided by the number of senders.
        let senders = f64::from(body.point.roles.initiating_at_once().max(1));
        if let Some(bound) = &record.bound {
            let rate = bound.bytes_per_s / senders;
            self.add(&bound.what, Some(&engine), Level::Bound, (&round, rate));
        }
        let rate = summary.bandwidth_bytes_per_s.mean / senders;
        self.add(&engine, Some(&engine), Level::Writes, (&round, rate));
    }

    fn add_calls(&mut self, body: &CollectiveBody) {
        let op = body.point.op;
        let round = body.point.label.clone().unwrap_or_default();
        let (level, rate): (_, fn(&CollectiveSummary) -> Option<Spread>) = match op {
            Collective::SendRecvPairs => (Level::SendRecv, |summary| summary.algbw_bytes_per_s),
            _ => (Level::AllReduce, |summary| summary.busbw_bytes_per_s),
        };
        for backend in &body.backends {
            let who = &backend.backend;
            if let Some(rate) = backend.summary.as_ref().and_then(rate) {
                self.add(who, engine_of(who), level, (&round, rate.mean));
                self.add_algorithm(backend, level);
            }
        }
    }

    fn add(&mut self, who: &str, engine: Option<&str>, level: Level, (round, rate): (&str, f64)) {
        // The description of a bound names the fastest method, which may change between rounds, so it is ignored here.
        let is_same = |layer: &&mut Layer| {
            layer.level == level
                && layer.engine.as_deref() == engine
                && (engine.is_some() || layer.who == who)
        };
        let rate = (round.to_owned(), rate);
        match self.layers.iter_mut().find(is_same) {
            Some(layer) => layer.rates.push(rate),
            None => self.layers.push(Layer {
                who: who.to_owned(),
                level,
                engine: engine.map(str::to_owned),
                rates: vec![rate],
                algorithms: Vec::new(),
            }),
        }
    }

    /// Records the algorithm of a backend's calls, once for all rounds.
    fn add_algorithm(&mut self, backend: &BackendResult, level: Level) {
        let algorithms = backend.chosen_algorithm.zip(backend.chosen_chunk_bytes);
        let algorithm = algorithms
            .map(|(algorithm, bytes)| format!("{algorithm} in messages of {}", exact_size(bytes)));
        let mut layers = self.layers.iter_mut();
        let own = layers.find(|it| it.who == backend.backend && it.level == level);
        if let Some((layer, algorithm)) = own.zip(algorithm)
            && !layer.algorithms.contains(&algorithm)
        {
            layer.algorithms.push(algorithm);
        }
    }
}

impl Layer {
    /// Sort key that keeps layers of one engine together, and puts libraries last.
    fn sort_group(&self) -> (bool, String) {
        let name = self.engine.as_ref().unwrap_or(&self.who);
        (self.engine.is_none(), name.clone())
    }

    /// The engine below this layer; empty for a library.
    pub fn engine(&self) -> &str {
        self.engine.as_deref().unwrap_or_default()
    }

    /// Name of the operation that moves the data.
    pub fn operation(&self) -> &'static str {
        match self.level {
            Level::Bound => "",
            Level::Writes => Verb::Write.name(),
            Level::SendRecv => Collective::SendRecvPairs.name(),
            Level::AllReduce => Collective::AllReduce.name(),
        }
    }

    /// Median rate over the rounds.
    pub fn median(&self) -> f64 {
        let rates: Vec<f64> = self.rates.iter().map(|(_, rate)| *rate).collect();
        median(&rates).unwrap_or(0.0)
    }

    /// Ratios to another layer, over the rounds in which both were measured.
    pub fn ratios(&self, of: &Self) -> Vec<f64> {
        let beside = |(round, rate): &(String, f64)| {
            let (_, other) = of.rates.iter().find(|(other, _)| other == round)?;
            Some(rate / other)
        };
        self.rates.iter().filter_map(beside).collect()
    }
}

/// Engine of a native backend; `None` for a library.
fn engine_of(backend: &str) -> Option<&str> {
    backend.strip_prefix(NATIVE.name)?.strip_prefix(':')
}
