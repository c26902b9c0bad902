//! `shm`: direct memory access between two ranks of one host over a shared mapping. No other transfer on this host can
//! be faster: the initiator copies once, without system calls or libraries.
//!
//! Each registered memory is a memory file (memfd). A peer opens the file through `/proc/PID/fd`, which the kernel
//! permits only to the same user. The peer maps the file when a lane uses it. Nothing has a name in /dev/shm, so even a
//! killed rank leaves nothing there. Arrivals and posted receives are reported through rings in separate, small memory
//! files: see `crate::rings`. The fastest copy method depends on sizes and caches, so it is measured for each point:
//! see `tuner`.

use std::collections::VecDeque;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use lane_memories::LaneMemories;
use serde::{Deserialize, Serialize};
use tonnage_engine::memory::Memory;
use tonnage_engine::{
    BoundKind, Caps, Completion, Descriptor, Domain, Ending, EndpointAddress, Engine, EngineReport,
    Entry, Facts, Failure, Flush, Lane, LaneKind, LaneSpec, LaneTable, Op, Peer, PeerEndpoint,
    Region, RegionId, RegionTable, Verb, WorkerConfig, move_waiting, never_connected,
};
use tonnage_sys::copy::Method;
use tonnage_sys::mapping::{Arena, OutOfRange};
use tonnage_units::{Error, Result};
use tuner::Tuner;

use crate::rings::{Contacts, DEPTH, IN_OTHER_REGION, PeerRings, ring_failure, take_arrivals};

mod lane_memories;
mod tuner;

/// Approximate limit on the bytes that one call of `post` copies, so that the caller regains control between large
/// operations.
const POST_BYTES_MAX: u64 = 256 << 10;

static CAPS: Caps = Caps {
    immediate_bits: 32,
    delivered: true,
    delivery_on_request: true,
    arrivals_named: true,
    ordered_writes: true,
    sends_taken: true,
    shared_memory: true,
    bound: BoundKind::MemoryCopy,
    ..Caps::new(&Verb::ALL, DEPTH, u32::MAX as u64)
};

/// This engine's row in the list of engines.
pub const ENTRY: Entry = Entry {
    ordered_writes: true,
    ..Entry::new(
        "shm",
        "direct memory access between ranks of one host over a shared mapping: the best that this host can do",
        &Verb::ALL,
        |_| Ok(vec![Arc::new(ShmDomain)]),
    )
};

struct ShmDomain;

impl Domain for ShmDomain {
    fn caps(&self) -> &Caps {
        &CAPS
    }

    fn report(&self) -> EngineReport {
        EngineReport {
            name: "shm".to_owned(),
            facts: Facts::default()
                .with_fact("depth", DEPTH)
                .with_fact("completion", "delivered: the copy is done by the initiator")
                .with_fact(
                    "ordering",
                    "in order; the last byte of an ordered write is visible last",
                )
                .with_fact("post_bytes_max", POST_BYTES_MAX),
            ..EngineReport::default()
        }
    }

    fn worker(&self, config: &WorkerConfig) -> Result<Box<dyn Engine + Send>> {
        Ok(Box::new(Worker {
            config: config.clone(),
            tuner: Tuner::new(config.clock, Method::available()),
            verb: None,
            contacts: Contacts::new("shm", config.rank),
            far: MappedRegions::default(),
            regions: RegionTable::default(),
            peers: Vec::new(),
            lanes: LaneTable::default(),
            done: VecDeque::with_capacity(DEPTH as usize),
        }))
    }
}

struct LaneState {
    kind: LaneKind,
    /// Index of the peer in the list of peers.
    peer: usize,
    local: RegionId,
    own: Arc<Arena>,
    /// Number and memory of the peer's region; `None` for a receive.
    far: Option<(u32, Arc<Arena>)>,
    ordered: bool,
}

struct Worker {
    config: WorkerConfig,
    /// Copy method for the current point, which is the point for which lanes were last resolved.
    tuner: Tuner,
    verb: Option<Verb>,
    contacts: Contacts,
    far: MappedRegions,
    regions: RegionTable<Arc<Arena>>,
    peers: Vec<PeerRings>,
    lanes: LaneTable<LaneState>,
    done: VecDeque<Completion>,
}

impl Worker {
    /// Executes one operation. Returns false if there is no room; the caller polls and retries.
    #[inline]
    fn carry_out(&mut self, op: &Op) -> Result<bool> {
        let lane = self.lanes.get(op.lane)?;
        let (peer, tuner) = (&mut self.peers[lane.peer], &mut self.tuner);
        let mut ending = Ending::Done;
        let taken = match (lane.kind, &lane.far) {
            (LaneKind::Initiate(verb), Some((region, far))) => {
                let memories = LaneMemories {
                    own: &lane.own,
                    far,
                };
                match verb {
                    Verb::Write => memories
                        .write(op, lane.ordered, tuner)
                        .map(|()| true)
                        .map_err(text),
                    Verb::Read => memories.read(op, tuner).map(|()| true).map_err(text),
                    Verb::WriteImm => memories.write_imm(op, peer, tuner).map_err(text),
                    Verb::Send => memories
                        .send(op, peer, *region, tuner, &mut ending)
                        .map_err(text),
                    Verb::FetchAdd => memories.fetch_add(op).map(|()| true).map_err(text),
                    Verb::CompareSwap => memories.compare_swap(op).map(|()| true).map_err(text),
                }
            }
            _ => {
                let inbox = &mut peer.inbox;
                let posted = inbox.post_receive(op.local, op.len, op.tag, lane.local.0);
                return posted.map_err(ring);
            }
        };
        let rank = peer.rank;
        let taken = taken
            .map_err(|error| Error::Failed(format!("an operation with rank {rank}: {error}")))?;
        if taken {
            self.done.push_back(Completion::new(op, ending));
        }
        Ok(taken)
    }
}

impl Engine for Worker {
    fn register(&mut self, memory: &Arc<dyn Memory>) -> Result<Region> {
        let arena = memory.mapped("shm")?;
        let Some(file) = arena.file() else {
            return Err(Error::Unavailable {
                what: format!("memory {} with engine shm", memory.report().kind),
                why: "shm peers map each other's memory, but this memory is private to one process"
                    .to_owned(),
                how: "Allocate it shared, or choose another engine".to_owned(),
            });
        };
        let region = FarRegion {
            pid: std::process::id(),
            region: self.regions.next().0,
            fd: file.as_raw_fd(),
            bytes: arena.len() as u64,
        };
        Ok(Region {
            id: self.regions.put(Arc::clone(arena)),
            descriptor: Descriptor::encode(&region),
        })
    }

    fn deregister(&mut self, region: RegionId) -> Result<()> {
        self.lanes.check_unused(region, |lane| lane.local)?;
        self.regions.take(region).map(|_| ())
    }

    fn endpoint_addresses(&mut self, peers: &[Peer]) -> Result<Vec<EndpointAddress>> {
        self.contacts.make_rings(peers)?;
        peers
            .iter()
            .map(|&peer| self.contacts.address_for(peer))
            .collect()
    }

    fn connect(&mut self, peers: &[PeerEndpoint]) -> Result<()> {
        for neighbor in peers {
            let peer = self.contacts.connect_one(neighbor)?;
            self.peers.push(peer);
        }
        Ok(())
    }

    fn lane(&mut self, spec: &LaneSpec<'_>) -> Result<Lane> {
        let peer = self.peers.iter().position(|peer| peer.rank == spec.peer);
        let peer = peer.ok_or_else(|| never_connected(self.config.rank, spec.peer))?;
        let own = Arc::clone(self.regions.get(spec.local)?);
        // Lanes are resolved at the beginning of a point, for which another copy method may be the fastest.
        let far = match spec.kind {
            LaneKind::Initiate(verb) => {
                self.verb = Some(verb);
                self.tuner.restart(own.len() as u64);
                Some(self.far.resolve(&self.contacts, spec.peer, spec.remote)?)
            }
            LaneKind::Receive => None,
        };
        let region = |far: &Option<(u32, Arc<Arena>)>| far.as_ref().map(|(region, _)| *region);
        let known = self.lanes.find(|lane| {
            (lane.kind, lane.peer, lane.local) == (spec.kind, peer, spec.local)
                && lane.ordered == spec.ordered
                && region(&lane.far) == region(&far)
        });
        let state = LaneState {
            kind: spec.kind,
            peer,
            local: spec.local,
            own,
            far,
            ordered: spec.ordered,
        };
        Ok(known.unwrap_or_else(|| self.lanes.put(state)))
    }

    fn release_lane(&mut self, lane: Lane) {
        self.lanes.release(lane);
    }

    fn post(&mut self, ops: &[Op]) -> Result<usize> {
        let (mut taken, mut bytes) = (0, 0);
        for op in ops {
            if bytes >= POST_BYTES_MAX || self.done.len() == DEPTH as usize {
                break;
            }
            match self.carry_out(op) {
                Ok(true) => {}
                Err(error) if taken == 0 => return Err(error),
                Ok(false) | Err(_) => break,
            }
            taken += 1;
            bytes += u64::from(op.len);
        }
        Ok(taken)
    }

    fn flush(&mut self, lane: Lane, _tag: u32) -> Result<Flush> {
        self.lanes.get(lane).map(|_| Flush::Delivered)
    }

    fn poll(&mut self, done: &mut [Completion]) -> Result<usize> {
        // Arrivals are taken first, because a receiver may be waiting for them. They get only half of the room, so that
        // completions of this rank's operations do not starve.
        let share = done.len().div_ceil(2);
        let count = take_arrivals(&mut self.peers, &mut done[..share]).map_err(ring)?;
        Ok(count + move_waiting(&mut self.done, &mut done[count..]))
    }

    fn flush_incoming(&mut self) -> Result<bool> {
        Ok(false)
    }

    fn failure(&self, done: &Completion) -> Failure {
        let lane = self.lanes.get(done.lane).ok();
        let lane = lane.map(|lane| (lane.kind, self.peers[lane.peer].rank));
        crate::rings::failure("shm", done, lane, IN_OTHER_REGION)
    }

    fn settle(&mut self, trying: bool) -> bool {
        self.tuner.settle(trying)
    }

    fn chosen(&self) -> Facts {
        // A rank that is only a target copies nothing, so it has no copy method to record.
        let method = self
            .verb
            .map(|_| self.tuner.choice().unwrap_or(Method::Memcpy).name());
        Facts::default().with_optional_fact("copy_method", method)
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn ring(error: OutOfRange) -> Error {
    ring_failure("shm", error)
}

#[cfg(test)]
mod tests;

/// Descriptor of a registered memory. A peer maps the memory by it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FarRegion {
    pub(super) pid: u32,
    /// Number of the region. It is never reused, unlike a file descriptor.
    pub(super) region: u32,
    pub(super) fd: i32,
    pub(super) bytes: u64,
}

/// A peer's memory that is mapped here. It stays mapped while a lane uses it, and afterwards until another memory of
/// this peer is mapped.
struct Mapped {
    peer: Peer,
    region: FarRegion,
    memory: Arc<Arena>,
}

/// Mapped memories of peers.
#[derive(Default)]
pub(super) struct MappedRegions {
    mapped: Vec<Mapped>,
}

impl MappedRegions {
    /// Returns the region number and memory for a peer's descriptor. Maps the memory if necessary.
    pub(super) fn resolve(
        &mut self,
        contacts: &Contacts,
        peer: Peer,
        descriptor: &Descriptor,
    ) -> Result<(u32, Arc<Arena>)> {
        let region: FarRegion = serde_json::from_slice(&descriptor.0).map_err(|error| {
            contacts.unusable(peer, format!("cannot decode the peer's region ({error})"))
        })?;
        let known = |mapped: &&Mapped| mapped.peer == peer && mapped.region == region;
        if let Some(mapped) = self.mapped.iter().find(known) {
            return Ok((region.region, Arc::clone(&mapped.memory)));
        }
        let memory = contacts.attach(peer, (region.pid, region.fd), region.bytes)?;
        self.mapped
            .retain(|old| old.peer != peer || Arc::strong_count(&old.memory) > 1);
        let number = region.region;
        self.mapped.push(Mapped {
            peer,
            region,
            memory: Arc::clone(&memory),
        });
        Ok((number, memory))
    }
}
