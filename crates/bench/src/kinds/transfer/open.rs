//! Opens an engine for transfer points: which points can share an engine, and their combined needs.

use super::background;
use super::caps::check_caps;
use super::point_engine::compares_each;
use crate::deadlines::DEADLINES;
use crate::failure::{StepFailure, agree};
use crate::kinds::kind::Stage;
use crate::opening::engine::{OpenEngine, OpeningNeeds};
use crate::opening::{CommunicatingPairs, Requirements};
use tonnage_engine::paths::Division;
use tonnage_engine::{Caps, EngineOptions, Entry, Peer, Verb};
use tonnage_plan::roles::Roles;
use tonnage_plan::transfer::{BackgroundPair, CqMode, TransferPoint};
use tonnage_units::{Error, PairPlace, Result};

/// Key of an open engine. Points with equal keys can share the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineKey {
    engine: String,
    engine_options: EngineOptions,
    /// Part of the key because an engine may open differently for each verb. A point's results must not depend on other
    /// points.
    op: Verb,
    memory: String,
    target_memory: Option<String>,
    memory_options: EngineOptions,
    workers: u32,
    roles: Roles,
    division: Division,
    rail_shift: u32,
    cq: CqMode,
    compares_each: bool,
    place: Option<PairPlace>,
    background: Option<(Verb, BackgroundPair, u32)>,
}

impl EngineKey {
    /// Returns the key of a point.
    pub fn new(point: &TransferPoint) -> Self {
        Self {
            engine: point.engine.clone(),
            engine_options: point.engine_options.clone(),
            op: point.op,
            memory: point.memories.memory.clone(),
            target_memory: point.memories.target_memory.clone(),
            memory_options: point.memories.memory_options.clone(),
            workers: point.threads,
            roles: point.roles,
            division: point.division,
            rail_shift: point.rail_shift,
            cq: point.cq,
            compares_each: compares_each(point),
            place: point.place,
            background: point
                .background
                .map(|load| (load.op, load.pair, load.threads)),
        }
    }
}

/// Opens the engine on all ranks for `points`, which have the same key. Its devices may not support some of these
/// points. Therefore each point must pass [`check`] before it is measured.
///
/// # Errors
/// [`Error::Unavailable`] on every rank if any rank lacks a requirement. Otherwise the failure, with the rank where it
/// happened.
pub fn open(points: &[&TransferPoint], stage: &mut Stage<'_>) -> Result<OpenEngine> {
    let none = || Error::Failed("no points to open an engine for".into());
    let first = points.first().ok_or_else(none)?;
    let entry = stage.settings.lists.engine(&first.engine)?;
    let need = opening_needs(points, first, entry, stage.rank.id());
    // Each point is checked separately later.
    let any = |_: &Caps, _| Ok(());
    OpenEngine::open(&need, &any, stage.rank, stage.settings, stage.host)
}

/// Opens the engine. The error shows whether only the point failed or the whole run.
pub fn open_or_fail(
    points: &[&TransferPoint],
    stage: &mut Stage<'_>,
) -> Result<OpenEngine, StepFailure> {
    let opened = open(points, stage);
    opened.map_err(|error| StepFailure::from_agreed(stage.rank, error))
}

/// Rejects a point on all ranks, if the devices of any rank don't support it. The error suggests an alternative.
pub fn check(
    open: &OpenEngine,
    point: &TransferPoint,
    stage: &mut Stage<'_>,
) -> Result<(), StepFailure> {
    let mut workers = open.workers.iter();
    let fits =
        workers.try_for_each(|it| check_caps(point, &it.caps, it.devices.len(), &point.engine));
    agree(
        stage.rank,
        "capabilities of the devices",
        fits,
        DEADLINES.step,
    )
}

/// Returns the combined needs of consecutive points that share an engine. `first` is the first of these points.
fn opening_needs<'a>(
    points: &[&'a TransferPoint],
    first: &'a TransferPoint,
    entry: &'a Entry,
    rank: u32,
) -> OpeningNeeds<'a> {
    let mut peers: Vec<Peer> = points
        .iter()
        .flat_map(|point| background::all_peers(point, rank))
        .collect();
    peers.sort_unstable();
    peers.dedup();
    let of_points = points.to_vec();
    let bytes_of = move |rank| {
        let bytes = of_points
            .iter()
            .map(|point| background::largest_memory_bytes(point, rank));
        bytes.max().unwrap_or(0)
    };
    let load = first.background.as_ref().map(|load| load.op);
    let requirements = Requirements {
        entry,
        engine: &first.engine,
        options: &first.engine_options,
        // All points with the same key have the same verbs.
        verbs: std::iter::once(first.op)
            .chain(load)
            .chain(compares_each(first).then_some(Verb::Write))
            .collect(),
        memory: first.memories.memory_of(rank, first.roles),
        memory_option: first.memories.memory_option(rank, first.roles),
        memories: std::iter::once(&*first.memories.memory)
            .chain(first.memories.target_memory.as_deref())
            .collect(),
        memory_options: Some(&first.memories.memory_options),
        memory_of: Box::new(|rank| first.memories.memory_of(rank, first.roles)),
        bytes: bytes_of(rank),
        bytes_of: Box::new(bytes_of),
        sized_by: background::sized_by(points),
        workers: first.threads,
        measuring: first.measuring_threads(),
        division: first.division,
        rail_shift: if first.roles.is_target_side(rank) {
            first.rail_shift
        } else {
            0
        },
        pairs: CommunicatingPairs {
            roles: first.roles,
            asked: first.place,
        },
        peers_max: peers.len() as u32,
        depth: points
            .iter()
            .map(|point| background::depth(point))
            .max()
            .unwrap_or(1),
        sleeps: first.cq == CqMode::Event,
        compares_each: compares_each(first),
    };
    OpeningNeeds {
        requirements,
        peers,
    }
}
