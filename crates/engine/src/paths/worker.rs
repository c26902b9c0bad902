//! A worker's engine over several paths. Each path has its own engine; the operations in flight are tracked for all
//! paths together.

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::epoll;
use tonnage_units::{Error, Result};

use super::assembly::PartAssembly;
use super::division::{Division, RailShares};
use super::operations::PathOperations;
use crate::memory::Memory;
use crate::{
    ArmOutcome, Caps, Completion, Descriptor, Ending, EndpointAddress, Engine, Fact, Facts,
    Failure, Flush, Lane, LaneKind, LaneSpec, LaneTable, Op, Peer, PeerEndpoint, RailLoad, Region,
    RegionId, RegionTable, WorkerConfig,
};

/// Parts of a lane that may wait for room in the engines of its paths, in addition to the parts of one operation.
const STAGED_MAX: usize = 64;

/// A failed operation: its tag and lane, and the failure that its path reported.
struct FailedPart {
    reported: (u32, Lane),
    path: usize,
    part: Completion,
}

pub(super) struct PathsWorker {
    pub(super) paths: Vec<Path>,
    rank: Peer,
    pub(super) division: Division,
    /// How operations are cut.
    shares: RailShares,
    /// Limit on the operations in flight on one lane.
    depth: u32,
    /// Limit on the operations in flight on one lane of a path's engine.
    path_depth: u32,
    arrivals_named: bool,
    regions: RegionTable<Vec<RegionId>>,
    lanes: LaneTable<PathLane>,
    pub(super) in_flight: PathOperations,
    assembly: PartAssembly,
    /// Number of parts that wait on all paths together.
    pub(super) staged: usize,
    /// Limit on the waiting parts of one lane.
    pub(super) staged_max: usize,
    /// Index of the path to poll next.
    next: usize,
    /// Failures that the last poll returned.
    failed: Vec<FailedPart>,
    /// Load of each rail since the last call of `take_rail_loads`.
    pub(super) rails: Vec<RailLoad>,
    epoll: PathEpoll,
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
            connected: false,
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
            regions: RegionTable::default(),
            lanes: LaneTable::default(),
            in_flight: PathOperations::default(),
            assembly: PartAssembly::default(),
            staged: 0,
            staged_max,
            next: 0,
            failed: Vec::new(),
            rails: vec![RailLoad::default(); rails],
            epoll: PathEpoll::default(),
        }
    }

    /// The paths that reach a peer.
    fn paths_to(&self, peer: Peer) -> Range<usize> {
        let queue_pairs = self.division.queue_pairs as usize;
        let rails = self
            .division
            .rails
            .for_peer(self.rank, peer, self.rails.len());
        rails.start * queue_pairs..rails.end * queue_pairs
    }

    /// Returns the completion to report for a part; `None` if more parts of its operation are still in flight.
    #[inline]
    fn complete_part(&mut self, path: usize, part: &Completion) -> Result<Option<Completion>> {
        if part.ending == Ending::Arrived && part.tag == 0 {
            return self.assembly.add_part(part);
        }
        let lane = self.in_flight.lane_of(part.tag);
        let ended = self.in_flight.end_part(part)?;
        if lane.is_some_and(|lane| self.lanes.peek(lane).is_some_and(|lane| lane.counts_load)) {
            let in_flight = &mut self.paths[path].in_flight;
            *in_flight = in_flight.saturating_sub(1);
        }
        let Some(whole) = ended else { return Ok(None) };
        Ok(Some(match part.ending {
            Ending::Done => whole,
            // A receive was filled: its completion has the arrival's peer and length.
            Ending::Arrived => Completion {
                tag: whole.tag,
                ..*part
            },
            Ending::Failed(_) => {
                self.failed.push(FailedPart {
                    reported: (whole.tag, whole.lane),
                    path,
                    part: *part,
                });
                whole
            }
        }))
    }

    /// Resolves a lane on each path that the lane uses, and adds the results to `lane_paths`.
    fn resolve(
        &mut self,
        spec: &LaneSpec<'_>,
        locals: &[RegionId],
        remotes: Vec<Vec<u8>>,
        lane_paths: &mut Vec<LanePath>,
    ) -> Result<()> {
        let all = self.paths_to(spec.peer);
        // A lane that keeps its writes in order uses only one path. The peer's number selects the path, so that such
        // lanes are spread over all paths.
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
            lane_paths.push(LanePath {
                path,
                lane,
                used: false,
            });
        }
        Ok(())
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
        let descriptor = Descriptor(encode_paths(&descriptors)?);
        let id = self.regions.put(ids);
        Ok(Region { id, descriptor })
    }

    fn deregister(&mut self, region: RegionId) -> Result<()> {
        let mut of_paths = self.paths.iter_mut().zip(self.regions.take(region)?);
        of_paths.try_for_each(|(path, id)| path.engine.deregister(id))
    }

    fn endpoint_addresses(&mut self, peers: &[Peer]) -> Result<Vec<EndpointAddress>> {
        let mut of_peers = vec![vec![Vec::new(); self.paths.len()]; peers.len()];
        for path in 0..self.paths.len() {
            let reaches = |peer: &Peer| self.paths_to(*peer).contains(&path);
            let reached: Vec<Peer> = peers.iter().copied().filter(reaches).collect();
            if reached.is_empty() {
                continue;
            }
            let mut addresses = self.paths[path]
                .engine
                .endpoint_addresses(&reached)?
                .into_iter();
            for (peer, of_peer) in peers.iter().zip(&mut of_peers) {
                if self.paths_to(*peer).contains(&path) {
                    of_peer[path] = addresses.next().map_or_else(Vec::new, |address| address.0);
                }
            }
        }
        of_peers
            .iter()
            .map(|addresses| Ok(EndpointAddress(encode_paths(addresses)?)))
            .collect()
    }

    fn connect(&mut self, peers: &[PeerEndpoint]) -> Result<()> {
        let mut of_paths = vec![Vec::with_capacity(peers.len()); self.paths.len()];
        for neighbor in peers {
            let reached = self.paths_to(neighbor.peer);
            let addresses = self.decode_paths(&neighbor.address.0, neighbor.peer)?;
            for (path, address) in addresses.into_iter().enumerate() {
                if reached.contains(&path) {
                    of_paths[path].push(PeerEndpoint {
                        address: EndpointAddress(address),
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
                path.connected = true;
                path.engine.connect(&peers)?;
            }
        }
        Ok(())
    }

    fn meet(&mut self, stopped: &dyn Fn() -> bool) -> Result<()> {
        // Both ends meet on their paths in this order.
        let mut paths = self.paths.iter_mut().filter(|path| path.connected);
        paths.try_for_each(|path| path.engine.meet(stopped))
    }

    fn lane(&mut self, spec: &LaneSpec<'_>) -> Result<Lane> {
        let locals = self.regions.get(spec.local)?.clone();
        let remotes = match spec.kind {
            LaneKind::Receive if spec.remote.0.is_empty() => vec![Vec::new(); self.paths.len()],
            _ => self.decode_paths(&spec.remote.0, spec.peer)?,
        };
        let mut lane_paths = Vec::with_capacity(self.paths.len());
        if let Err(error) = self.resolve(spec, &locals, remotes, &mut lane_paths) {
            for LanePath { path, lane, .. } in lane_paths {
                self.paths[path].engine.release_lane(lane);
            }
            return Err(error);
        }
        let shares = if spec.in_order {
            RailShares::WHOLE
        } else {
            self.shares
        };
        let counts_load = matches!(spec.kind, LaneKind::Initiate(_)) && !spec.in_order;
        let target = |of: &LanePath| (of.path, of.lane);
        let same = |lane: &PathLane| {
            lane.shares == shares
                && lane.counts_load == counts_load
                && lane
                    .paths
                    .iter()
                    .map(target)
                    .eq(lane_paths.iter().map(target))
        };
        if let Some(known) = self.lanes.find(same) {
            return Ok(known);
        }
        let lane = self.lanes.put(PathLane {
            paths: lane_paths,
            flushing: None,
            shares,
            counts_load,
            staged: 0,
            turns: vec![0; shares.rails as usize],
        });
        let lanes = self.lanes.iter().count();
        // Each lane needs one more entry, for a flush.
        self.in_flight
            .grow_to(lanes * (self.path_depth as usize + 1));
        for path in &mut self.paths {
            path.staged.reserve(lanes * self.staged_max);
        }
        Ok(lane)
    }

    fn release_lane(&mut self, lane: Lane) {
        for path in self
            .lanes
            .release(lane)
            .into_iter()
            .flat_map(|lane| lane.paths)
        {
            self.paths[path.path].engine.release_lane(path.lane);
        }
    }

    fn expect(&mut self, peer: Peer, bytes: Option<u32>) -> Result<()> {
        let Some(bytes) = bytes else {
            return self.assembly.finish(peer);
        };
        let parts = self.shares.parts(bytes);
        let others = self.assembly.peers().any(|other| other != peer);
        if parts > 1 && others && !self.arrivals_named {
            return Err(Error::Unavailable {
                what: "write-imm in parts from several ranks".into(),
                why: "the device does not report which rank a part came from".into(),
                how:
                    "Leave out --chunk and --rails stripe, or choose one initiator for each target"
                        .into(),
            });
        }
        self.assembly
            .expect(peer, bytes, parts, self.depth as usize);
        Ok(())
    }

    fn post(&mut self, ops: &[Op]) -> Result<usize> {
        let mut taken = 0;
        for op in ops {
            match self.stage(op) {
                Ok(true) => taken += 1,
                // The operations before this one were taken. The next call starts with this one and returns the error.
                Err(error) if taken == 0 => return Err(error),
                Ok(false) | Err(_) => break,
            }
        }
        self.post_staged()?;
        Ok(taken)
    }

    fn flush(&mut self, index: Lane, tag: u32) -> Result<Flush> {
        let lane = self.lanes.get_mut(index)?;
        let flushing = match lane.flushing.take() {
            Some(flushing) => flushing,
            // Starts with one extra part, which ends after all paths have been asked. Otherwise the flush could
            // complete too early.
            None => match self.in_flight.begin((index, tag), 0, 0, 1) {
                Some(tag) => PathFlush { next: 0, tag },
                None => return Ok(Flush::Again),
            },
        };
        for at in flushing.next..lane.paths.len() {
            let LanePath {
                path,
                lane: path_lane,
                used,
            } = lane.paths[at];
            if !used {
                continue;
            }
            match self.paths[path].engine.flush(path_lane, flushing.tag)? {
                Flush::Delivered => {}
                Flush::Posted => {
                    self.paths[path].in_flight += u64::from(lane.counts_load);
                    self.in_flight.add_part(flushing.tag);
                }
                Flush::Again => {
                    lane.flushing = Some(PathFlush {
                        next: at,
                        ..flushing
                    });
                    return Ok(Flush::Again);
                }
            }
            lane.paths[at].used = false;
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

    fn poll(&mut self, done: &mut [Completion]) -> Result<usize> {
        self.failed.clear();
        if self.rails.len() > 1 {
            self.count_busy();
        }
        let mut kept = 0;
        for _ in 0..self.paths.len() {
            let path = self.next;
            let count = match self.paths[path].connected {
                true => self.paths[path].engine.poll(&mut done[kept..])?,
                false => 0,
            };
            let polled = kept..kept + count;
            for at in polled {
                if let Some(whole) = self.complete_part(path, &done[at])? {
                    done[kept] = whole;
                    kept += 1;
                }
            }
            // `next` advances even if the buffer is full, so that the next poll starts with another path.
            self.next = if path + 1 == self.paths.len() {
                0
            } else {
                path + 1
            };
            if kept == done.len() {
                break;
            }
        }
        self.post_staged()?;
        Ok(kept)
    }

    fn failure(&self, done: &Completion) -> Failure {
        let is_reported = |failed: &&FailedPart| failed.reported == (done.tag, done.lane);
        let Some(failed) = self.failed.iter().find(is_reported) else {
            return Failure::default();
        };
        let mut failure = self.paths[failed.path].engine.failure(&failed.part);
        if self.division.queue_pairs > 1 {
            let queue_pair = failed.path as u32 % self.division.queue_pairs;
            failure.queue_pair.get_or_insert(queue_pair);
        }
        failure
    }

    fn arm(&mut self) -> Result<ArmOutcome<'_>> {
        // Parts that wait for room need no descriptor of their own. Room appears when an operation completes, and the
        // completion makes the path's descriptor readable.
        let leading = self.paths.iter_mut().enumerate();
        for (index, path) in leading.filter(|(_, path)| path.connected) {
            match path.engine.arm()? {
                ArmOutcome::Ready => return Ok(ArmOutcome::Ready),
                ArmOutcome::Sleep(descriptor) => self.epoll.add(index, descriptor)?,
                ArmOutcome::Unsupported => return Ok(ArmOutcome::Unsupported),
            }
        }
        Ok(self
            .epoll
            .descriptor()
            .map_or(ArmOutcome::Unsupported, ArmOutcome::Sleep))
    }

    fn settle(&mut self, trying: bool) -> bool {
        // Informs every path, even after one has returned false.
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

    fn take_device_events(&mut self) -> Vec<String> {
        let paths = self.paths.iter_mut();
        paths
            .flat_map(|path| path.engine.take_device_events())
            .collect()
    }

    fn chosen(&self) -> Facts {
        let mut of_paths: Vec<Facts> = self.paths.iter().map(|path| path.engine.chosen()).collect();
        of_paths.dedup();
        if of_paths.len() == 1 {
            return of_paths.remove(0);
        }
        let all: Vec<_> = of_paths.into_iter().map(Fact::from).collect();
        Facts::default().with_fact("paths", all)
    }
}

impl PathsWorker {
    /// Cuts an operation and queues its parts; returns false if there is no room for all of them.
    #[inline]
    pub(super) fn stage(&mut self, op: &Op) -> Result<bool> {
        let lane = self.lanes.get_mut(op.lane)?;
        let parts = lane.shares.parts(op.len);
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
            let LanePath { path, lane, .. } = lane.next_path(0);
            self.paths[path].staged.push(Op { lane, tag, ..*op });
        } else {
            stage_parts(&mut self.paths, lane, &Op { tag, ..*op });
        }
        lane.staged += parts as usize;
        self.staged += parts as usize;
        Ok(true)
    }

    /// Counts this poll for each rail with parts in flight. The counts measure busy time without reading a clock.
    #[inline]
    pub(super) fn count_busy(&mut self) {
        let (mut any, queue_pairs) = (false, self.division.queue_pairs as usize);
        for (rail, paths) in self.rails.iter_mut().zip(self.paths.chunks(queue_pairs)) {
            let busy = paths.iter().any(|path| path.in_flight > 0);
            rail.busy_polls += u64::from(busy);
            any |= busy;
        }
        for rail in &mut self.rails {
            rail.polls += u64::from(any);
        }
    }

    /// Posts waiting parts, as long as the engines have room.
    #[inline]
    pub(super) fn post_staged(&mut self) -> Result<()> {
        if self.staged > 0 {
            let (lanes, in_flight, staged) = (&mut self.lanes, &self.in_flight, &mut self.staged);
            for path in &mut self.paths {
                path.post_staged(|tag| {
                    *staged -= 1;
                    let lane = in_flight.lane_of(tag);
                    let Some(lane) = lane.and_then(|lane| lanes.peek_mut(lane)) else {
                        return false;
                    };
                    lane.staged -= 1;
                    lane.counts_load
                })?;
            }
        }
        Ok(())
    }
}

/// Queues the parts of an operation, share by share. Each share has its own rail.
fn stage_parts(paths: &mut [Path], lane: &mut PathLane, op: &Op) {
    let shares = lane.shares;
    let share_bytes = shares.share_bytes(op.len);
    let (mut rail, mut offset) = (0, 0);
    while offset < op.len {
        let end = offset + share_bytes.min(op.len - offset);
        let (_, bytes) = shares.parts_of_share(end - offset);
        while offset < end {
            let next = lane.next_path(rail);
            let len = bytes.min(end - offset);
            paths[next.path].staged.push(Op {
                lane: next.lane,
                local: op.local + u64::from(offset),
                remote: op.remote + u64::from(offset),
                len,
                ..*op
            });
            offset += len;
        }
        rail += 1;
    }
}

/// One path of a worker.
pub(super) struct Path {
    pub(super) engine: Box<dyn Engine + Send>,
    /// Parts that the path's engine has not taken yet, in order.
    pub(super) staged: Vec<Op>,
    /// Index of the path's rail.
    pub(super) rail: usize,
    /// True if the path reaches some peer; other paths need not be polled.
    pub(super) connected: bool,
    /// Parts and flushes that the path's engine has taken and that have not completed.
    pub(super) in_flight: u64,
    /// Bytes of the parts posted since the last call of `take_rail_loads`.
    pub(super) bytes: u64,
}

impl Path {
    /// Posts as many parts as the path's engine has room for. Calls `on_taken` with the tag of each part taken.
    /// `on_taken` returns whether the part's operation counts towards the load.
    #[inline]
    pub(super) fn post_staged(&mut self, mut on_taken: impl FnMut(u32) -> bool) -> Result<()> {
        if self.staged.is_empty() {
            return Ok(());
        }
        let taken = self.engine.post(&self.staged)?;
        for part in self.staged.drain(..taken) {
            if on_taken(part.tag) {
                self.in_flight += 1;
                self.bytes += u64::from(part.len);
            }
        }
        match self.staged.is_empty() {
            true => Ok(()),
            false => self.post_other_lanes(on_taken),
        }
    }

    /// Posts parts of other lanes if the first part's lane has no room, because a slow peer must not block the others.
    fn post_other_lanes(&mut self, mut on_taken: impl FnMut(u32) -> bool) -> Result<()> {
        let mut at = 1;
        while at < self.staged.len() {
            let part = self.staged[at];
            let waits = self.staged[..at]
                .iter()
                .any(|before| before.lane == part.lane);
            if !waits && self.engine.post(&[part])? == 1 {
                if on_taken(part.tag) {
                    self.in_flight += 1;
                    self.bytes += u64::from(part.len);
                }
                self.staged.remove(at);
            } else {
                at += 1;
            }
        }
        Ok(())
    }
}

/// One path of a lane.
#[derive(Debug, Clone, Copy)]
pub(super) struct LanePath {
    /// Index of the path.
    pub(super) path: usize,
    /// The lane in the path's own engine.
    pub(super) lane: Lane,
    /// True if the path has carried anything for this lane since the last flush.
    pub(super) used: bool,
}

/// A flush that has not yet been passed on to all paths.
#[derive(Debug, Clone, Copy)]
pub(super) struct PathFlush {
    /// The path to ask next.
    pub(super) next: usize,
    /// Tag of the flush's parts.
    pub(super) tag: u32,
}

/// A lane over several paths.
#[derive(Debug)]
pub(super) struct PathLane {
    /// Paths of the lane, grouped by rail. Each rail has the same number of paths.
    pub(super) paths: Vec<LanePath>,
    pub(super) flushing: Option<PathFlush>,
    /// How the lane's operations are cut.
    pub(super) shares: RailShares,
    /// True if operations of this lane count towards the load. False for receives and for the messages of flow control.
    pub(super) counts_load: bool,
    /// Parts that no path has taken yet.
    pub(super) staged: usize,
    /// Index of the next path on each rail.
    turns: Vec<usize>,
}

impl PathLane {
    /// Returns the path for the next part on a rail. Operations that are not striped use rail 0.
    #[inline]
    pub(super) fn next_path(&mut self, rail: usize) -> LanePath {
        let of_rail = self.paths.len() / self.turns.len();
        let turn = &mut self.turns[rail];
        let path = &mut self.paths[rail * of_rail + *turn];
        path.used = true;
        let path = *path;
        *turn += 1;
        if *turn == of_rail {
            *turn = 0;
        }
        path
    }
}

/// The descriptors of all paths in one epoll instance.
#[derive(Debug, Default)]
pub(super) struct PathEpoll {
    /// Created when the first descriptor is added.
    epoll: Option<OwnedFd>,
    /// Paths that have their descriptors in it. A path's descriptor never changes.
    known: Vec<usize>,
}

impl PathEpoll {
    /// Adds the descriptor of a path, unless it was added before.
    ///
    /// # Errors
    /// If the process has no descriptor left, or if epoll does not accept this one.
    pub(super) fn add(&mut self, path: usize, descriptor: BorrowedFd<'_>) -> Result<()> {
        if self.known.contains(&path) {
            return Ok(());
        }
        let failed = |error| Error::io("cannot wait for the descriptors of several paths", error);
        let epoll = match self.epoll.take() {
            Some(epoll) => epoll,
            None => epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?,
        };
        let data = epoll::EventData::new_u64(path as u64);
        let added = epoll::add(&epoll, descriptor, data, epoll::EventFlags::IN);
        self.epoll = Some(epoll);
        added.map_err(failed)?;
        self.known.push(path);
        Ok(())
    }

    /// A descriptor that is readable when the descriptor of any path is; `None` if no descriptor was added.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.epoll.as_ref().map(AsFd::as_fd)
    }
}

/// Encodes the messages of all paths as one.
pub(super) fn encode_paths(of_paths: &[Vec<u8>]) -> Result<Vec<u8>> {
    postcard::to_allocvec(of_paths)
        .map_err(|error| Error::Failed(format!("cannot encode the paths: {error}")))
}

impl PathsWorker {
    fn decode_paths(&self, message: &[u8], peer: Peer) -> Result<Vec<Vec<u8>>> {
        decode_paths(message, self.paths.len(), self.division.queue_pairs, peer)
    }
}

/// Decodes the messages of all of a peer's paths: `queue_pairs` for each device.
fn decode_paths(
    message: &[u8],
    paths: usize,
    queue_pairs: u32,
    peer: Peer,
) -> Result<Vec<Vec<u8>>> {
    let unreadable =
        |error| Error::Failed(format!("cannot decode the paths of rank {peer}: {error}"));
    let of_paths: Vec<Vec<u8>> = postcard::from_bytes(message).map_err(unreadable)?;
    if of_paths.len() == paths {
        return Ok(of_paths);
    }
    let (theirs, queue_pairs) = (of_paths.len(), queue_pairs.max(1) as usize);
    let devices = |paths: usize| match paths / queue_pairs {
        1 => "1 device".to_owned(),
        several => format!("{several} devices"),
    };
    Err(Error::Failed(match theirs.is_multiple_of(queue_pairs) {
        true => format!(
            "rank {peer} has {} and this rank has {}, and --rails pairs the n-th device of both: name the same number \
             for each rank with --devices or --devices-of (`all` leaves out devices that cannot reach other hosts: see \
             devices_left_out in the record)",
            devices(theirs),
            devices(paths)
        ),
        false => format!(
            "rank {peer} has {theirs} paths and this rank has {paths}: start all ranks with the same --queue-pairs"
        ),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mismatch_of_devices_and_one_of_queue_pairs_have_different_messages() {
        let message = encode_paths(&vec![vec![1, 2]; 6]).unwrap();
        assert_eq!(decode_paths(&message, 6, 2, 1).unwrap().len(), 6);
        let refused = |paths, queue_pairs| {
            let refused = decode_paths(&message, paths, queue_pairs, 1).unwrap_err();
            refused.to_string()
        };
        assert_eq!(
            refused(2, 2),
            "rank 1 has 3 devices and this rank has 1 device, and --rails pairs the n-th device of both: name the same \
             number for each rank with --devices or --devices-of (`all` leaves out devices that cannot reach other hosts: \
             see devices_left_out in the record)"
        );
        assert_eq!(
            refused(4, 4),
            "rank 1 has 6 paths and this rank has 4: start all ranks with the same --queue-pairs"
        );
    }
}
