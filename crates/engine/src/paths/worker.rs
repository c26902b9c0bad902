//! A worker's engine over several paths: one of the device's own for each, and what is in flight on all of them.

use std::sync::Arc;

use tonnage_units::{Error, Result};

use super::assembly::Assembly;
use super::division::Division;
use super::lanes::{Flushing, LanePath, PathLane};
use super::operations::PathOperations;
use super::path::Path;
use crate::memory::Memory;
use crate::{
    Caps, Card, Completion, Descriptor, Ending, Engine, Fact, Facts, Failure, Flush, Lane,
    LaneKind, LaneSpec, Neighbor, Op, Peer, Region, RegionId, WorkerConfig,
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
    paths: Vec<Path>,
    division: Division,
    /// The most operations that are kept in flight on one lane.
    depth: u32,
    /// Operations that a path's engine takes on one lane.
    path_depth: u32,
    arrivals_named: bool,
    regions: Vec<Option<Vec<RegionId>>>,
    lanes: Vec<Option<PathLane>>,
    in_flight: PathOperations,
    assembly: Assembly,
    /// Parts that wait on all paths.
    staged: usize,
    /// The most parts of one lane that wait.
    staged_max: usize,
    /// The path that is polled next.
    next: usize,
    /// Failures of the last poll.
    failed: Vec<Failed>,
}

impl PathsWorker {
    pub(super) fn new(
        engines: Vec<Box<dyn Engine>>,
        division: Division,
        config: &WorkerConfig,
        caps: &Caps,
    ) -> Self {
        let parts_max = division.cut.map_or(1, |cut| cut.chunks_max.max(1)) as usize;
        let staged_max = STAGED_MAX + parts_max;
        let with_room = |engine| Path {
            engine,
            staged: Vec::with_capacity(staged_max),
        };
        Self {
            paths: engines.into_iter().map(with_room).collect(),
            division,
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
        }
    }

    /// Cuts an operation and stages its parts; returns whether there was room.
    #[inline]
    fn stage(&mut self, op: &Op) -> Result<bool> {
        let lane = match self.lanes.get_mut(op.lane.0 as usize) {
            Some(Some(lane)) => lane,
            _ => return Err(never_resolved(op.lane)),
        };
        let (parts, bytes) = match lane.cuts {
            true => self.division.parts(op.len),
            false => (1, op.len),
        };
        if lane.staged + parts as usize > self.staged_max {
            return Ok(false);
        }
        let Some(tag) = self
            .in_flight
            .begin((op.lane, op.tag), op.len, op.imm, parts)
        else {
            return Ok(false);
        };
        if parts == 1 {
            let LanePath { path, lane, .. } = lane.next_way();
            self.paths[path].staged.push(Op { lane, tag, ..*op });
        } else {
            let mut offset = 0;
            for _ in 0..parts {
                let LanePath { path, lane, .. } = lane.next_way();
                let len = bytes.min(op.len - offset);
                self.paths[path].staged.push(Op {
                    lane,
                    tag,
                    local: op.local + u64::from(offset),
                    remote: op.remote + u64::from(offset),
                    len,
                    imm: op.imm,
                });
                offset += len;
            }
        }
        lane.staged += parts as usize;
        self.staged += parts as usize;
        Ok(true)
    }

    /// Hands over what waits, as far as there is room.
    #[inline]
    fn hand_over(&mut self) -> Result<()> {
        if self.staged > 0 {
            let (lanes, in_flight, staged) = (&mut self.lanes, &self.in_flight, &mut self.staged);
            for path in &mut self.paths {
                path.hand_over(|tag| {
                    *staged -= 1;
                    let lane = in_flight
                        .lane_of(tag)
                        .and_then(|lane| lanes.get_mut(lane.0 as usize));
                    if let Some(Some(lane)) = lane {
                        lane.staged -= 1;
                    }
                })?;
            }
        }
        Ok(())
    }

    /// Completion of the whole operation whose part this is; `None` where more of it is to come.
    #[inline]
    fn whole(&mut self, path: usize, part: &Completion) -> Result<Option<Completion>> {
        if part.ending == Ending::Arrived && part.tag == 0 {
            return self.assembly.part(part);
        }
        let Some(whole) = self.in_flight.end_part(part)? else {
            return Ok(None);
        };
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
        // Of lanes that keep to one path each takes another.
        let only = spec
            .in_order
            .then_some(spec.peer as usize % self.paths.len());
        for (path, (&local, remote)) in locals.iter().zip(remotes).enumerate() {
            if only.is_some_and(|only| only != path) {
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
                Flush::Posted => self.in_flight.add_part(flushing.tag),
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
        let mut of_peers = vec![Vec::new(); peers.len()];
        for path in &mut self.paths {
            for (of_peer, card) in of_peers.iter_mut().zip(path.engine.cards(peers)?) {
                of_peer.push(card.0);
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
            let cards = split(&neighbor.card.0, of_paths.len(), neighbor.peer)?;
            for (of_path, card) in of_paths.iter_mut().zip(cards) {
                of_path.push(Neighbor {
                    card: Card(card),
                    ..neighbor.clone()
                });
            }
        }
        let mut paths = self.paths.iter_mut().zip(of_paths);
        paths.try_for_each(|(path, peers)| path.engine.connect(&peers))
    }

    fn meet(&mut self, stopped: &dyn Fn() -> bool) -> Result<()> {
        // Both ends do so in this order.
        let mut paths = self.paths.iter_mut();
        paths.try_for_each(|path| path.engine.meet(stopped))
    }

    fn lane(&mut self, spec: &LaneSpec<'_>) -> Result<Lane> {
        let known = self.regions.get(spec.local.0 as usize);
        let never = || Error::Failed(format!("region {} was never registered", spec.local.0));
        let locals = known.and_then(Option::as_ref).ok_or_else(never)?;
        let remotes = match spec.kind {
            LaneKind::Receive if spec.remote.0.is_empty() => vec![Vec::new(); self.paths.len()],
            _ => split(&spec.remote.0, self.paths.len(), spec.peer)?,
        };
        let locals = locals.clone();
        let mut ways = Vec::with_capacity(self.paths.len());
        if let Err(error) = self.resolve(spec, &locals, remotes, &mut ways) {
            for LanePath { path, lane, .. } in ways {
                self.paths[path].engine.release(lane);
            }
            return Err(error);
        }
        let cuts = self.division.cut.is_some() && !spec.in_order;
        let way = |way: &LanePath| (way.path, way.lane);
        let alike = |lane: &PathLane| {
            lane.cuts == cuts && lane.ways.iter().map(way).eq(ways.iter().map(way))
        };
        let same = |lane: &Option<PathLane>| lane.as_ref().is_some_and(alike);
        if let Some(known) = self.lanes.iter().position(same) {
            return Ok(Lane(known as u32));
        }
        let lane = Lane(put(&mut self.lanes, PathLane::new(ways, cuts)));
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
        let (parts, _) = self.division.parts(bytes);
        let others = self.assembly.peers().any(|other| other != peer);
        if parts > 1 && others && !self.arrivals_named {
            return Err(Error::Unavailable {
                what: "write-imm in parts from several ranks".into(),
                why: "the device does not say which rank a part came from".into(),
                how: "Leave --chunk out, or choose one initiator for each target".into(),
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
        let mut kept = 0;
        for _ in 0..self.paths.len() {
            let path = self.next;
            let count = self.paths[path].engine.poll(&mut done[kept..])?;
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
        if self.paths.len() > 1 {
            failure.queue_pair.get_or_insert(failed.path as u32);
        }
        failure
    }

    fn settle(&mut self, trying: bool) -> bool {
        // All are told, whatever the first ones say.
        let settled = self.paths.iter_mut().map(|path| path.engine.settle(trying));
        settled.fold(true, |all, one| all & one)
    }

    fn chosen(&self) -> Facts {
        let mut of_paths: Vec<Facts> = self.paths.iter().map(|path| path.engine.chosen()).collect();
        of_paths.dedup();
        match of_paths.len() {
            1 => of_paths.remove(0),
            _ => Facts::default().with(
                "paths",
                of_paths.into_iter().map(Fact::from).collect::<Vec<_>>(),
            ),
        }
    }
}

/// Puts something into the first free place of a list.
fn put<T>(list: &mut Vec<Option<T>>, one: T) -> u32 {
    let free = list.iter().position(Option::is_none);
    let at = free.unwrap_or(list.len());
    match list.get_mut(at) {
        Some(place) => *place = Some(one),
        None => list.push(Some(one)),
    }
    at as u32
}

/// One message of those of all paths.
fn join(of_paths: &[Vec<u8>]) -> Result<Vec<u8>> {
    postcard::to_allocvec(of_paths)
        .map_err(|error| Error::Failed(format!("paths cannot be described: {error}")))
}

/// The messages of all paths of a peer.
fn split(message: &[u8], paths: usize, peer: Peer) -> Result<Vec<Vec<u8>>> {
    let unreadable =
        |error| Error::Failed(format!("the paths of rank {peer} cannot be read: {error}"));
    let of_paths: Vec<Vec<u8>> = postcard::from_bytes(message).map_err(unreadable)?;
    if of_paths.len() == paths {
        return Ok(of_paths);
    }
    Err(Error::Failed(format!(
        "rank {peer} has {} paths and this rank has {paths}: start all ranks with the same --qps and devices",
        of_paths.len()
    )))
}

#[cold]
fn never_resolved(lane: Lane) -> Error {
    Error::Failed(format!("lane {} was never resolved", lane.0))
}
