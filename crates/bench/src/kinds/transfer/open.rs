//! An open engine for points of transfers: which of them share one, and what they need of it together.

use super::background;
use super::caps::check_caps;
use super::driven::compares_each;
use crate::deadlines::DEADLINES;
use crate::failure::{StepFailure, agree};
use crate::kinds::kind::Stage;
use crate::opening::engine::{Need, OpenEngine};
use crate::opening::{Pairs, Requirements};
use tonnage_engine::paths::Division;
use tonnage_engine::{Caps, EngineOptions, Entry, Peer, Verb};
use tonnage_plan::roles::Roles;
use tonnage_plan::transfer::{BackgroundPair, CqMode, TransferPoint};
use tonnage_units::{Error, PairPlace, Result};

/// Points that one open engine can serve have the same key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineKey {
    engine: String,
    engine_options: EngineOptions,
    /// An engine may open itself in another way for each, and what a point gets must not depend on its neighbours.
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
    /// The key of a point.
    pub fn of(point: &TransferPoint) -> Self {
        Self {
            engine: point.engine.clone(),
            engine_options: point.engine_options.clone(),
            op: point.op,
            memory: point.memory.clone(),
            target_memory: point.target_memory.clone(),
            memory_options: point.memory_options.clone(),
            workers: point.workers,
            roles: point.roles,
            division: point.division,
            rail_shift: point.rail_shift,
            cq: point.cq,
            compares_each: compares_each(point),
            place: point.place,
            background: point
                .background
                .map(|load| (load.op, load.pair, load.workers)),
        }
    }
}

/// Opens the engine on all ranks for `points`, which share a key. Its devices may not be able to do some of them: each has
/// to pass [`check`] before it is measured.
///
/// # Errors
/// [`Error::Unavailable`] on every rank when some rank lacks what is needed; what failed and where otherwise.
pub fn open(points: &[&TransferPoint], stage: &mut Stage<'_>) -> Result<OpenEngine> {
    let none = || Error::Failed("no points to open an engine for".into());
    let first = points.first().ok_or_else(none)?;
    let entry = stage.settings.lists.engine(&first.engine)?;
    let need = need(points, first, entry, stage.rank.id());
    // Which points its devices cannot do is asked for each of them.
    let any = |_: &Caps, _| Ok(());
    OpenEngine::open(&need, &any, stage.rank, stage.settings, stage.host)
}

/// Opens it; an error says whether it ends the point or the run.
pub fn open_or_fail(
    points: &[&TransferPoint],
    stage: &mut Stage<'_>,
) -> Result<OpenEngine, StepFailure> {
    let opened = open(points, stage);
    opened.map_err(|error| StepFailure::known_to_all(stage.rank, error))
}

/// Refuses a point that the devices of a rank cannot do, on all ranks alike, with what to choose instead.
pub fn check(
    open: &OpenEngine,
    point: &TransferPoint,
    stage: &mut Stage<'_>,
) -> Result<(), StepFailure> {
    let mut workers = open.workers.iter();
    let fits =
        workers.try_for_each(|it| check_caps(point, &it.caps, it.devices.len(), &point.engine));
    agree(stage.rank, "what the devices can do", fits, DEADLINES.step)
}

/// Needs of a stretch of points together, the first of which is `first`.
fn need<'a>(
    points: &[&'a TransferPoint],
    first: &'a TransferPoint,
    entry: &'a Entry,
    rank: u32,
) -> Need<'a> {
    let mut peers: Vec<Peer> = points
        .iter()
        .flat_map(|point| background::peers(point, rank))
        .collect();
    peers.sort_unstable();
    peers.dedup();
    let of_points = points.to_vec();
    let bytes_of = move |rank| {
        let bytes = of_points.iter().map(|point| background::bytes(point, rank));
        bytes.max().unwrap_or(0)
    };
    let load = first.background.as_ref().map(|load| load.op);
    let requirements = Requirements {
        entry,
        engine: &first.engine,
        options: &first.engine_options,
        // Points of one key have the same.
        verbs: std::iter::once(first.op)
            .chain(load)
            .chain(compares_each(first).then_some(Verb::Write))
            .collect(),
        memory: first.memory_of(rank),
        memory_option: first.memory_option(rank),
        memories: std::iter::once(&*first.memory)
            .chain(first.target_memory.as_deref())
            .collect(),
        memory_options: Some(&first.memory_options),
        memory_of: Box::new(|rank| first.memory_of(rank)),
        bytes: bytes_of(rank),
        bytes_of: Box::new(bytes_of),
        sized_by: background::sized_by(points),
        workers: first.workers,
        measuring: first.measuring_workers(),
        division: first.division,
        rail_shift: if first.roles.is_behind(rank) {
            first.rail_shift
        } else {
            0
        },
        pairs: Pairs {
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
    Need {
        requirements,
        peers,
    }
}
