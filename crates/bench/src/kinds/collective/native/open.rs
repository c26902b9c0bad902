//! The engine of native collectives, open on all ranks, with peers and memory for the points of a stretch.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::backend::Buffers;
use super::candidates::{Candidate, candidates};
use crate::deadlines::DEADLINES;
use crate::failure::all_or_none;
use crate::kinds::kind::Stage;
use crate::kinds::transfer::effective::effective;
use crate::opening::engine::{OpenEngine, OpeningNeeds};
use crate::opening::{CommunicatingPairs, Requirements, SizedBy};
use tonnage_collective::steps::algorithms;
use tonnage_collective::{Algorithm, Collective};
use tonnage_engine::backends::NATIVE;
use tonnage_engine::{Caps, Entry, Lane, LaneKind, LaneSpec, Peer, Verb};
use tonnage_loops::collective::layout::{MemoryLayout, MemoryNeeds};
use tonnage_plan::collective::{CollectivePoint, Groups};
use tonnage_plan::point::Traffic;
use tonnage_plan::roles::Roles;
use tonnage_ranks::Distinct;
use tonnage_record::Effective;
use tonnage_units::{Error, Result};

/// Number of bits of immediate data that messages need.
const IMMEDIATE_BITS: u32 = 32;

/// Messages in flight per lane. If an engine supports fewer, messages wait until earlier ones complete.
const DEPTH: u32 = 64;

/// Fill byte of messages without a payload.
const TOKEN: u8 = 0x5a;

/// Maximum length of a message over any engine.
const MESSAGE_BYTES_MAX: u64 = 1 << 30;

/// An engine that is open on all ranks for native collectives.
pub struct OpenNative {
    /// Name of the engine: the part of the backend's name after the colon.
    pub name: String,
    pub engine: OpenEngine,
    pub rank: u32,
    /// Ranks that this rank puts data to or gets data from, in ascending order.
    pub peers: Vec<Peer>,
    pub lanes: Vec<(Peer, Lane)>,
    /// Positions of input, output and other parts in each rank's memory.
    pub layout: MemoryLayout,
    /// The whole memory, before it is divided into the buffers of a point.
    pub whole: Buffers,
}

/// Returns the barrier that aligns the ranks of a point. All ranks take part, so that all groups call at the same time.
pub fn aligning_barrier(point: &CollectivePoint) -> CollectivePoint {
    CollectivePoint {
        op: Collective::Barrier,
        reduction: None,
        root: 0,
        groups: Groups::All,
        in_place: false,
        block_elements: 0,
        algorithm: None,
        chunk_bytes: None,
        ..point.clone()
    }
}

/// Returns the algorithm of the aligning barrier.
pub fn barrier_algorithm(barrier: &CollectivePoint) -> Candidate {
    let first = algorithms(barrier.op).first();
    Candidate {
        algorithm: first.copied().unwrap_or(Algorithm::Tree),
        chunk_bytes: barrier.dtype.bytes(),
    }
}

/// Returns the peers and the memory that one rank needs, for all candidates of all points.
fn peers_and_memory_needs(
    points: &[&CollectivePoint],
    rank: u32,
) -> Result<(BTreeSet<Peer>, MemoryNeeds)> {
    let (mut peers, mut needs) = (BTreeSet::new(), MemoryNeeds::default());
    for point in points {
        needs = needs.max(MemoryNeeds::for_shape(&point.shape(), point.in_place));
        let barrier = aligning_barrier(point);
        let own = candidates(point, MESSAGE_BYTES_MAX);
        let candidates = own.into_iter().map(|candidate| (*point, candidate));
        for (point, candidate) in candidates.chain([(&barrier, barrier_algorithm(&barrier))]) {
            let position = point.grouping().position(rank);
            let program = candidate.program(point, position.place)?;
            needs.scratch = needs.scratch.max(program.scratch_bytes);
            let all = [program.puts_to(), program.gets_from];
            peers.extend(all.into_iter().flatten().map(|place| position.rank(place)));
        }
    }
    Ok((peers, needs))
}

/// Rejects a device that cannot carry the messages of collectives.
fn check_caps(caps: &Caps, engine: &str) -> Result<()> {
    let lacks = |why: String| {
        Err(Error::Unavailable {
            what: format!("collectives over {engine}"),
            why,
            how: "Choose another --backend, such as native:shm".into(),
        })
    };
    if !caps.verbs.contains(&Verb::WriteImm) {
        return lacks("the device that was opened does not offer write-imm".into());
    }
    if caps.immediate_bits < IMMEDIATE_BITS {
        let bits = caps.immediate_bits;
        return lacks(format!(
            "it carries {bits} bits of immediate data; {IMMEDIATE_BITS} are needed"
        ));
    }
    Ok(())
}

impl OpenNative {
    /// Opens an engine on all ranks, for consecutive points that share it.
    ///
    /// # Errors
    /// [`Error::Unavailable`] on every rank if any rank lacks a requirement. Otherwise the failure, with the rank where
    /// it happened.
    pub fn open(engine: &str, points: &[&CollectivePoint], stage: &mut Stage<'_>) -> Result<Self> {
        let none = || Error::Failed("no points to open an engine for".into());
        let first = *points.first().ok_or_else(none)?;
        let entry = stage.settings.lists.engine(engine)?;
        let rank = stage.rank.id();
        let mine = peers_and_memory_needs(points, rank);
        let (peers, needs) = all_or_none(stage.rank, "find peers", mine)?;
        let most = stage
            .rank
            .reduce("memory of collectives", needs, DEADLINES.step)?;
        let layout = MemoryLayout::new(most);
        let peers: Vec<Peer> = peers.into_iter().collect();
        let need = OpeningNeeds {
            requirements: requirements(first, (engine, entry), layout.bytes, peers.len() as u32),
            peers: peers.clone(),
        };
        let check = |caps: &Caps, _| check_caps(caps, engine);
        let mut open = OpenEngine::open(&need, &check, stage.rank, stage.settings, stage.host)?;
        let lanes = lanes(&mut open, &peers);
        let lanes = all_or_none(stage.rank, "resolve lanes", lanes)?;
        let arena = open.workers[0].memory.mapped("native collectives")?;
        // The token is not zeros, because links compress zeros and some memories skip them.
        let token = layout.token();
        let written = arena.write(token.local, &vec![TOKEN; token.len as usize]);
        written.map_err(|error| Error::Failed(error.to_string()))?;
        let whole = Buffers {
            arena: Arc::clone(arena),
            input: layout.input,
            output: layout.output,
        };
        Ok(Self {
            name: engine.to_owned(),
            engine: open,
            rank,
            peers,
            lanes,
            layout,
            whole,
        })
    }

    /// Returns the maximum length of a message on this rank's device.
    pub fn message_bytes_max(&self) -> u64 {
        let worker = self.engine.workers.first();
        worker.map_or(MESSAGE_BYTES_MAX, |worker| {
            worker.caps.message_bytes_max.min(MESSAGE_BYTES_MAX)
        })
    }

    /// Returns the configuration that the engine chose on all ranks. It has the backend's name, because several
    /// backends can use the same engine.
    pub fn effective(&self) -> Vec<Effective> {
        let mut all = effective(&self.engine, &Distinct::default());
        for one in &mut all {
            one.engine.name = format!("{}:{}", NATIVE.name, self.name);
        }
        all
    }
}

fn requirements<'a>(
    point: &'a CollectivePoint,
    (engine, entry): (&'a str, &'a Entry),
    bytes: u64,
    peers_max: u32,
) -> Requirements<'a> {
    let sized_by = SizedBy {
        option: "--sizes",
        bytes: point.size_bytes,
    };
    let pairs = CommunicatingPairs {
        roles: Roles::new(Traffic::AllToAll, point.ranks),
        asked: point.place,
    };
    let engine = (entry, engine, &point.engine_options);
    Requirements {
        verbs: vec![Verb::WriteImm],
        peers_max,
        depth: DEPTH,
        ..Requirements::same_for_all_ranks(engine, &point.memory, (bytes, sized_by), pairs)
    }
}

fn lanes(open: &mut OpenEngine, peers: &[Peer]) -> Result<Vec<(Peer, Lane)>> {
    let worker = &mut open.workers[0];
    let lane = |&peer: &Peer| {
        let remote = worker.remote_of(peer)?.clone();
        let engine = worker.engine.as_mut();
        let driven = || Error::Failed("a point drives this thread's engine".into());
        let kind = LaneKind::Initiate(Verb::WriteImm);
        let spec = LaneSpec::new(kind, peer, worker.region, &remote);
        Ok((peer, engine.ok_or_else(driven)?.lane(&spec)?))
    };
    peers.iter().map(lane).collect()
}
