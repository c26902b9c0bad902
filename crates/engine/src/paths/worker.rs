//! A worker's engine over several paths: one of the device's own for each, and what is in flight on all of them.

use std::ops::Range;
use std::sync::Arc;

use tonnage_units::{Error, Result};

use super::assembly::Assembly;
use super::division::{Division, Shares};
use super::lanes::{Flushing, LanePath, PathLane, never_resolved};
use super::messages::{join, split};
use super::nest::Nest;
use super::operations::PathOperations;
use super::path::Path;
use crate::memory::Memory;
use crate::{
    Arm, Caps, Card, Completion, Descriptor, Ending, Engine, Fact, Facts, Failure, Flush, Lane,
    LaneKind, LaneSpec, Neighbor, Op, Peer, RailLoad, Region, RegionId, WorkerConfig,
};

/// Parts of one lane that wait to be taken by the engines of its paths, beside those of one operation.
const STAGED_MAX: usize = 64;

/// A failed operation, as it was told, and as its path tells it.
struct Failed {
    told: (u32, Lane),
    path: usize,
    part: Completion,
}

pub(super) struct PathsWorker {
    pub(super) paths: Vec<Path>,
    rank: Peer,
    pub(super) division: Division,
    /// Parts that operations are cut into.
    shares: Shares,
    /// The most operations that are kept in flight on one lane.
    depth: u32,
    /// Operations that a path's engine takes on one lane.
    path_depth: u32,
    arrivals_named: bool,
    regions: Vec<Option<Vec<RegionId>>>,
    pub(super) lanes: Vec<Option<PathLane>>,
    pub(super) in_flight: PathOperations,
    assembly: Assembly,
    /// Parts that wait on all paths.
    pub(super) staged: usize,
    /// The most parts of one lane that wait.
    pub(super) staged_max: usize,
    /// The path that is polled next.
    next: usize,
    /// Failures of the last poll.
    failed: Vec<Failed>,
    /// Load of each rail since it was asked last.
    pub(super) rails: Vec<RailLoad>,
    nest: Nest,
}

impl PathsWorker {
    pub(super) fn new(
        engines: Vec<Box<dyn Engine + Send>>,
        division: Division,
        config: &WorkerConfig,
        caps: &Caps,
    ) -> Self {
        let queue_pairs = division.queue_pairs.max(1) as usize;
        let rails = engines.len() / queue_pairs;
        let shares = division.shares(rails);
        let staged_max = STAGED_MAX + shares.parts_max() as usize;
        let with_room = |(index, engine): (usize, _)| Path {
            engine,
            staged: Vec::with_capacity(staged_max),
            rail: index / queue_pairs,
            leads: false,
            in_flight: 0,
            bytes: 0,
        };
        Self {
            paths: engines.into_iter().enumerate().map(with_room).collect(),
            rank: config.rank,
            division,
            shares,
            depth: config.depth,
            path_depth: caps.depth,
            arrivals_named: caps.arrivals_named,
            regions: Vec::new(),
            lanes: Vec::new(),
            in_flight: PathOperations::default(),
            assembly: Assembly::default(),
            staged: 0,
            staged_max,
            next: 0,
            failed: Vec::new(),
            rails: vec![RailLoad::default(); rails],
            nest: Nest::default(),
        }
    }

    /// The paths that lead to a peer.
    fn paths_to(&self, peer: Peer) -> Range<usize> {
        let queue_pairs = self.division.queue_pairs as usize;
        let rails = self
            .division
            .rails
            .of_peer(self.rank, peer, self.rails.len());
        rails.start * queue_pairs..rails.end * queue_pairs
    }

    /// Completion of the whole operation whose part this is; `None` where more of it is to come.
    #[inline]
    fn whole(&mut self, path: usize, part: &Completion) -> Result<Option<Completion>> {
        if part.ending == Ending::Arrived && part.tag == 0 {
            return self.assembly.part(part);
        }
        let lane = self.in_flight.lane_of(part.tag);
        let ended = self.in_flight.end_part(part)?;
        let lane = lane.and_then(|lane| self.lanes.get(lane.0 as usize));
        if lane.is_some_and(|lane| lane.as_ref().is_some_and(|lane| lane.counts)) {
            let in_flight = &mut self.paths[path].in_flight;
            *in_flight = in_flight.saturating_sub(1);
        }
        let Some(whole) = ended else { return Ok(None) };
        Ok(Some(match part.ending {
            Ending::Done => whole,
            // A receive that was filled: peer and bytes are what came.
            Ending::Arrived => Completion {
                tag: whole.tag,
                ..*part
            },
            Ending::Failed(_) => {
                self.failed.push(Failed {
                    told: (whole.tag, whole.lane),
                    path,
                    part: *part,
                });
                whole
            }
        }))
    }

    /// Resolves the lane of each path that a lane takes, into `ways`.
    fn resolve(
        &mut self,
        spec: &LaneSpec<'_>,
        locals: &[RegionId],
        remotes: Vec<Vec<u8>>,
        ways: &mut Vec<LanePath>,
    ) -> Result<()> {
        let all = self.paths_to(spec.peer);
        // Of lanes that keep to one path each takes another.
        let only = all.start + spec.peer as usize % all.len();
        for (path, (&local, remote)) in locals.iter().zip(remotes).enumerate() {
            if !all.contains(&path) || spec.in_order && only != path {
                continue;
            }
            let remote = &Descriptor(remote);
            let engine = &mut self.paths[path].engine;
            let lane = engine.lane(&LaneSpec {
                local,
                remote,
                ..*spec
            })?;
            ways.push(LanePath {
                path,
                lane,
                used: false,
            });
        }
        Ok(())
    }

    fn flush_ways(&mut self, index: Lane, tag: u32) -> Result<Flush> {
        let lane = match self.lanes.get_mut(index.0 as usize) {
            Some(Some(lane)) => lane,
            _ => return Err(never_resolved(index)),
        };
        let flushing = match lane.flushing.take() {
            Some(flushing) => flushing,
            // One part more than there are ways, so that it does not end before all have been asked.
            None => match self.in_flight.begin((index, tag), 0, 0, 1) {
                Some(tag) => Flushing { next: 0, tag },
                None => return Ok(Flush::Again),
            },
        };
        for at in flushing.next..lane.ways.len() {
            let LanePath {
                path,
                lane: way,
                used,
            } = lane.ways[at];
            if !used {
                continue;
            }
            match self.paths[path].engine.flush(way, flushing.tag)? {
                Flush::Delivered => {}
                Flush::Posted => {
                    self.paths[path].in_flight += u64::from(lane.counts);
                    self.in_flight.add_part(flushing.tag);
                }
                Flush::Again => {
                    lane.flushing = Some(Flushing {
                        next: at,
                        ..flushing
                    });
                    return Ok(Flush::Again);
                }
            }
            lane.ways[at].used = false;
        }
        let asked = Completion {
            tag: flushing.tag,
            ..Completion::EMPTY
        };
        Ok(match self.in_flight.end_part(&asked)? {
            Some(_) => Flush::Delivered,
            None => Flush::Posted,
        })
    }
}

impl Engine for PathsWorker {
    fn register(&mut self, memory: &Arc<dyn Memory>) -> Result<Region> {
        let (mut ids, mut descriptors) = (Vec::new(), Vec::new());
        for path in &mut self.paths {
            let Region { id, descriptor } = path.engine.register(memory)?;
            ids.push(id);
            descriptors.push(descriptor.0);
        }
        let descriptor = Descriptor(join(&descriptors)?);
        let id = RegionId(put(&mut self.regions, ids));
        Ok(Region { id, descriptor })
    }

    fn deregister(&mut self, region: RegionId) -> Result<()> {
        let known = self
            .regions
            .get_mut(region.0 as usize)
            .and_then(Option::take);
        let ids = known
            .ok_or_else(|| Error::Failed(format!("region {} was never registered", region.0)))?;
        let mut of_paths = self.paths.iter_mut().zip(ids);
        of_paths.try_for_each(|(path, id)| path.engine.deregister(id))
    }

    fn cards(&mut self, peers: &[Peer]) -> Result<Vec<Card>> {
        let mut of_peers = vec![vec![Vec::new(); self.paths.len()]; peers.len()];
        for path in 0..self.paths.len() {
            let leads = |peer: &Peer| self.paths_to(*peer).contains(&path);
            let reached: Vec<Peer> = peers.iter().copied().filter(leads).collect();
            if reached.is_empty() {
                continue;
            }
            let mut cards = self.paths[path].engine.cards(&reached)?.into_iter();
            for (peer, of_peer) in peers.iter().zip(&mut of_peers) {
                if self.paths_to(*peer).contains(&path) {
                    of_peer[path] = cards.next().map_or_else(Vec::new, |card| card.0);
                }
            }
        }
        of_peers
            .iter()
            .map(|cards| Ok(Card(join(cards)?)))
            .collect()
    }

    fn connect(&mut self, peers: &[Neighbor]) -> Result<()> {
        let mut of_paths = vec![Vec::with_capacity(peers.len()); self.paths.len()];
        for neighbor in peers {
            let reached = self.paths_to(neighbor.peer);
            let cards = split(
                &neighbor.card.0,
                of_paths.len(),
                self.division.queue_pairs,
                neighbor.peer,
            )?;
            for (path, card) in cards.into_iter().enumerate() {
                if reached.contains(&path) {
                    of_paths[path].push(Neighbor {
                        card: Card(card),
                        ..neighbor.clone()
                    });
                }
            }
            for path in reached.step_by(self.division.queue_pairs as usize) {
                self.rails[self.paths[path].rail].peers += 1;
            }
        }
        for (path, peers) in self.paths.iter_mut().zip(of_paths) {
            if !peers.is_empty() {
                path.leads = true;
                path.engine.connect(&peers)?;
            }
        }
        Ok(())
    }

    fn meet(&mut self, stopped: &dyn Fn() -> bool) -> Result<()> {
        // Both ends do so in this order.
        let mut paths = self.paths.iter_mut().filter(|path| path.leads);
        paths.try_for_each(|path| path.engine.meet(stopped))
    }

    fn lane(&mut self, spec: &LaneSpec<'_>) -> Result<Lane> {
        let known = self.regions.get(spec.local.0 as usize);
        let never = || Error::Failed(format!("region {} was never registered", spec.local.0));
        let locals = known.and_then(Option::as_ref).ok_or_else(never)?;
        let remotes = match spec.kind {
            LaneKind::Receive if spec.remote.0.is_empty() => vec![Vec::new(); self.paths.len()],
            _ => split(
                &spec.remote.0,
                self.paths.len(),
                self.division.queue_pairs,
                spec.peer,
            )?,
        };
        let locals = locals.clone();
        let mut ways = Vec::with_capacity(self.paths.len());
        if let Err(error) = self.resolve(spec, &locals, remotes, &mut ways) {
            for LanePath { path, lane, .. } in ways {
                self.paths[path].engine.release(lane);
            }
            return Err(error);
        }
        let shares = if spec.in_order {
            Shares::WHOLE
        } else {
            self.shares
        };
        let counts = matches!(spec.kind, LaneKind::Initiate(_)) && !spec.in_order;
        let way = |way: &LanePath| (way.path, way.lane);
        let alike = |lane: &PathLane| {
            lane.shares == shares
                && lane.counts == counts
                && lane.ways.iter().map(way).eq(ways.iter().map(way))
        };
        let same = |lane: &Option<PathLane>| lane.as_ref().is_some_and(alike);
        if let Some(known) = self.lanes.iter().position(same) {
            return Ok(Lane(known as u32));
        }
        let lane = Lane(put(&mut self.lanes, PathLane::new(ways, shares, counts)));
        let lanes = self.lanes.iter().flatten().count();
        // A flush takes a place too.
        self.in_flight
            .grow_to(lanes * (self.path_depth as usize + 1));
        for path in &mut self.paths {
            path.staged.reserve(lanes * self.staged_max);
        }
        Ok(lane)
    }

    fn release(&mut self, lane: Lane) {
        let known = self.lanes.get_mut(lane.0 as usize).and_then(Option::take);
        for way in known.into_iter().flat_map(|lane| lane.ways) {
            self.paths[way.path].engine.release(way.lane);
        }
    }

    fn expect(&mut self, peer: Peer, bytes: Option<u32>) -> Result<()> {
        let Some(bytes) = bytes else {
            return self.assembly.end(peer);
        };
        let parts = self.shares.parts(bytes);
        let others = self.assembly.peers().any(|other| other != peer);
        if parts > 1 && others && !self.arrivals_named {
            return Err(Error::Unavailable {
                what: "write-imm in parts from several ranks".into(),
                why: "the device does not say which rank a part came from".into(),
                how:
                    "Leave --chunk and --rails stripe out, or choose one initiator for each target"
                        .into(),
            });
        }
        self.assembly.begin(peer, bytes, parts, self.depth as usize);
        Ok(())
    }

    fn post(&mut self, ops: &[Op]) -> Result<usize> {
        let mut taken = 0;
        for op in ops {
            match self.stage(op) {
                Ok(true) => taken += 1,
                // What is before it has been taken; the next call begins with this one.
                Err(error) if taken == 0 => return Err(error),
                Ok(false) | Err(_) => break,
            }
        }
        self.hand_over()?;
        Ok(taken)
    }

    fn flush(&mut self, lane: Lane, tag: u32) -> Result<Flush> {
        self.flush_ways(lane, tag)
    }

    fn poll(&mut self, done: &mut [Completion]) -> Result<usize> {
        self.failed.clear();
        if self.rails.len() > 1 {
            self.count_busy();
        }
        let mut kept = 0;
        for _ in 0..self.paths.len() {
            let path = self.next;
            let count = match self.paths[path].leads {
                true => self.paths[path].engine.poll(&mut done[kept..])?,
                false => 0,
            };
            let polled = kept..kept + count;
            for at in polled {
                if let Some(whole) = self.whole(path, &done[at])? {
                    done[kept] = whole;
                    kept += 1;
                }
            }
            // Also where there is no more room: the next poll begins with another path.
            self.next = if path + 1 == self.paths.len() {
                0
            } else {
                path + 1
            };
            if kept == done.len() {
                break;
            }
        }
        self.hand_over()?;
        Ok(kept)
    }

    fn failure(&self, done: &Completion) -> Failure {
        let told = (done.tag, done.lane);
        let Some(failed) = self.failed.iter().find(|failed| failed.told == told) else {
            return Failure::default();
        };
        let mut failure = self.paths[failed.path].engine.failure(&failed.part);
        if self.division.queue_pairs > 1 {
            let queue_pair = failed.path as u32 % self.division.queue_pairs;
            failure.queue_pair.get_or_insert(queue_pair);
        }
        failure
    }

    fn arm(&mut self) -> Result<Arm<'_>> {
        // What waits for room is taken when something completes, which the paths' descriptors tell.
        let leading = self.paths.iter_mut().enumerate();
        for (index, path) in leading.filter(|(_, path)| path.leads) {
            match path.engine.arm()? {
                Arm::Ready => return Ok(Arm::Ready),
                Arm::Sleep(descriptor) => self.nest.add(index, descriptor)?,
                Arm::Unsupported => return Ok(Arm::Unsupported),
            }
        }
        Ok(self.nest.descriptor().map_or(Arm::Unsupported, Arm::Sleep))
    }

    fn settle(&mut self, trying: bool) -> bool {
        // All are told, whatever the first ones say.
        let settled = self.paths.iter_mut().map(|path| path.engine.settle(trying));
        settled.fold(true, |all, one| all & one)
    }

    fn flush_incoming(&mut self) -> Result<bool> {
        (self.paths.iter_mut()).try_fold(false, |any, path| Ok(path.engine.flush_incoming()? | any))
    }

    fn take_rail_loads(&mut self) -> Vec<RailLoad> {
        if self.rails.len() == 1 {
            return Vec::new();
        }
        let mut taken = self.rails.clone();
        for path in &mut self.paths {
            let rail = &mut taken[path.rail];
            rail.bytes += std::mem::take(&mut path.bytes);
            rail.in_flight += path.in_flight;
        }
        for rail in &mut self.rails {
            (rail.busy_polls, rail.polls) = (0, 0);
        }
        taken
    }

    fn chosen(&self) -> Facts {
        let mut of_paths: Vec<Facts> = self.paths.iter().map(|path| path.engine.chosen()).collect();
        of_paths.dedup();
        if of_paths.len() == 1 {
            return of_paths.remove(0);
        }
        let all: Vec<_> = of_paths.into_iter().map(Fact::from).collect();
        Facts::default().with("paths", all)
    }
}

/// Puts something into the first free place of a list.
fn put<T>(list: &mut Vec<Option<T>>, one: T) -> u32 {
    let at = (list.iter().position(Option::is_none)).unwrap_or(list.len());
    list.resize_with(list.len().max(at + 1), || None);
    list[at] = Some(one);
    at as u32
}
