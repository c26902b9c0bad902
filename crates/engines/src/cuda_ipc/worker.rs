//! A worker of `cuda-ipc`: registrations, peers, lanes, posting and polling.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tonnage_engine::memory::Memory;
use tonnage_engine::{
    Completion, Descriptor, Ending, EndpointAddress, Engine, Facts, Failure, Flush, Lane, LaneKind,
    LaneSpec, LaneTable, Op, Peer, PeerEndpoint, Region, RegionId, RegionTable, Verb, WorkerConfig,
    move_waiting, never_connected,
};
use tonnage_sys::cuda::{CudaContext, CudaFailure};
use tonnage_units::{Error, Result};

use super::closing::{CloseTimeout, close_and_wait};
use super::peer_memory::{IpcDriver, IpcMemories, IpcMemory, OwnBytes, describe, unknown_memory};
use super::peer_stream::PeerStream;
use crate::memory::cuda_region::DriverMemory;
use crate::rings::{Arrival, Contacts, IN_OTHER_REGION, PeerRings, ring_failure, take_arrivals};

/// Maximum number of failed sends that wait to be reported. They failed before a copy was posted.
const REFUSED_MAX: usize = 64;

struct LaneState {
    kind: LaneKind,
    /// Index of the peer in the worker's list of peers.
    peer: usize,
    local: RegionId,
    // Keeps the memory alive, with the code that fills and verifies it.
    _own: Arc<dyn Memory>,
    /// Index of the stream, and the memories at both ends; `None` for a receive.
    ends: Option<(usize, OwnBytes, Arc<IpcMemory>)>,
}

pub(super) struct CudaIpc {
    config: WorkerConfig,
    driver: IpcDriver,
    initiates: bool,
    contacts: Contacts,
    far: IpcMemories,
    regions: RegionTable<Arc<dyn Memory>>,
    /// Descriptors of `regions`. They are part of the endpoint addresses.
    described: Vec<(RegionId, Descriptor)>,
    peers: Vec<PeerRings>,
    /// One stream per peer and context.
    outlets: Vec<PeerStream>,
    lanes: LaneTable<LaneState>,
    /// Failed sends: the peer's receives were too short or in another region.
    refused: VecDeque<Completion>,
    patience: Arc<CloseTimeout>,
    /// Descriptions of the paths that the current lanes use.
    copied: BTreeSet<String>,
    /// Descriptions of how arrivals of the current lanes are reported.
    arrivals: BTreeSet<String>,
    /// The first failure of the driver. After it, the state of copies in flight is unknown.
    broken: Option<String>,
}

impl CudaIpc {
    pub(super) fn new(
        config: &WorkerConfig,
        (driver, initiates): (IpcDriver, bool),
        patience: Arc<CloseTimeout>,
    ) -> Self {
        Self {
            config: config.clone(),
            contacts: Contacts::new(driver.vendor.ipc, config.rank),
            driver,
            initiates,
            far: IpcMemories::default(),
            regions: RegionTable::default(),
            described: Vec::new(),
            peers: Vec::new(),
            outlets: Vec::new(),
            lanes: LaneTable::default(),
            refused: VecDeque::with_capacity(REFUSED_MAX),
            patience,
            copied: BTreeSet::new(),
            arrivals: BTreeSet::new(),
            broken: None,
        }
    }

    fn check(&self) -> Result<()> {
        match &self.broken {
            None => Ok(()),
            Some(why) => Err(Error::Failed(why.clone())),
        }
    }

    /// Returns the index of the stream between a context and a peer.
    fn outlet(&mut self, context: &Arc<CudaContext>, peer: usize) -> Result<usize> {
        let same =
            |outlet: &PeerStream| outlet.peer == peer && Arc::ptr_eq(outlet.context(), context);
        if let Some(index) = self.outlets.iter().position(same) {
            return Ok(index);
        }
        let rings = self.contacts.attach_rings(self.peers[peer].rank)?;
        let outlet = PeerStream::new(context, peer, rings, self.config.depth)?;
        self.outlets.push(outlet);
        Ok(self.outlets.len() - 1)
    }

    /// Opens a peer's registered memories for every GPU that would copy between them and this rank's memories. So
    /// unreachable memory is refused before the measurement. A rank that initiates nothing opens nothing.
    fn check_can_open(&mut self, peer: Peer, described: &[Descriptor]) -> Result<()> {
        if !self.initiates {
            return Ok(());
        }
        for (_, own) in self.regions.iter() {
            let Some(bytes) = DriverMemory::from_vendor_memory(self.driver.vendor, &**own) else {
                continue;
            };
            for far in described {
                let context = self.driver.context(&bytes, (&self.contacts, peer), far)?;
                self.far
                    .find_or_open((&self.contacts, &context), peer, far)?;
            }
        }
        Ok(())
    }

    /// Records a lane's path, and how its arrivals are reported.
    fn record_lane(&mut self, verb: Verb, outlet: usize, way: String) {
        if self.lanes.iter().next().is_none() {
            self.copied.clear();
            self.arrivals.clear();
        }
        self.copied.insert(way);
        if verb.notifies_target() {
            self.arrivals.insert(self.outlets[outlet].arrivals());
        }
    }

    /// Posts one operation. Returns `false` if there is no room until the next poll.
    #[inline]
    fn post_one(&mut self, op: &Op) -> Result<bool> {
        let name = self.driver.vendor.ipc;
        let lane = self.lanes.get(op.lane)?;
        let peer = &mut self.peers[lane.peer];
        let (LaneKind::Initiate(verb), Some((outlet, own, far))) = (lane.kind, &lane.ends) else {
            let posted = peer
                .inbox
                .post_receive(op.local, op.len, op.tag, lane.local.0);
            return posted.map_err(|error| ring_failure(name, error));
        };
        let outlet = &mut self.outlets[*outlet];
        let notifies = verb.notifies_target();
        if !outlet.has_room()
            || (notifies
                && !peer
                    .outbox
                    .has_room()
                    .map_err(|error| ring_failure(name, error))?)
        {
            return Ok(false);
        }
        let mut done = Completion::new(op, Ending::Done);
        let (mut remote, mut tag) = (op.remote, 0);
        if verb == Verb::Send {
            let receive = peer.outbox.next_receive();
            let Some(receive) = receive.map_err(|error| ring_failure(name, error))? else {
                return Ok(false);
            };
            if let Some(code) = receive.refuses(op.len, far.region) {
                if self.refused.len() == REFUSED_MAX {
                    return Ok(false);
                }
                done.ending = Ending::Failed(code);
                self.refused.push_back(done);
                return Ok(true);
            }
            (remote, tag) = (receive.offset, receive.tag);
        }
        let len = u64::from(op.len);
        let parts = (own.part(op.local, len), far.bytes.part(remote, len));
        let outside = |failure: CudaFailure| {
            Error::Failed(format!("an operation with rank {}: {failure}", peer.rank))
        };
        let (own, far) = (parts.0.map_err(outside)?, parts.1.map_err(outside)?);
        if verb == Verb::Send {
            let taken = peer.outbox.take_receive();
            taken.map_err(|error| ring_failure(name, error))?;
        }
        let (len, imm) = (op.len, op.imm);
        let entry = notifies.then(|| peer.outbox.reserve_entry(Arrival { tag, len, imm }));
        let way = if verb.returns_bytes() {
            (far, own)
        } else {
            (own, far)
        };
        let handed = outlet.hand_over(way, done, entry);
        if let Err(failure) = handed {
            // The operation may have reserved a receive and a ring entry, which nothing will fill now.
            let error = outlet.failed(&failure);
            self.broken = Some(error.to_string());
            return Err(error);
        }
        Ok(true)
    }
}

impl Engine for CudaIpc {
    fn register(&mut self, memory: &Arc<dyn Memory>) -> Result<Region> {
        let vendor = self.driver.vendor;
        let bytes = DriverMemory::from_vendor_memory(vendor, &**memory);
        let bytes = bytes.ok_or_else(|| unknown_memory(vendor, &**memory))?;
        let described = describe(vendor, self.regions.next().0, &**memory, &bytes)?;
        let (id, descriptor) = (
            self.regions.put(Arc::clone(memory)),
            Descriptor::encode(&described),
        );
        self.described.push((id, descriptor.clone()));
        Ok(Region { id, descriptor })
    }

    fn deregister(&mut self, region: RegionId) -> Result<()> {
        self.lanes.check_unused(region, |lane| lane.local)?;
        self.described.retain(|(id, _)| *id != region);
        self.regions.take(region).map(|_| ())
    }

    fn endpoint_addresses(&mut self, peers: &[Peer]) -> Result<Vec<EndpointAddress>> {
        self.contacts.make_rings(peers)?;
        let address =
            |&peer: &Peer| encode_address(self.contacts.address_for(peer)?, &self.described);
        peers.iter().map(address).collect()
    }

    fn connect(&mut self, peers: &[PeerEndpoint]) -> Result<()> {
        for neighbor in peers {
            let (rings, described) = decode_address(&self.contacts, neighbor)?;
            let rings = self.contacts.connect_one(&rings)?;
            if self.contacts.process_of(rings.rank) == Some(std::process::id()) {
                let why = "both ranks are in this process, but the driver opens only memory of other processes";
                return Err(self.contacts.unusable(rings.rank, why.to_owned()));
            }
            let rank = rings.rank;
            // The peer may have opened this rank's memory, so it must be notified on close. It is therefore added
            // before the check, which fails if the peer's memory cannot be opened here.
            self.peers.push(rings);
            self.check_can_open(rank, &described)?;
        }
        Ok(())
    }

    fn lane(&mut self, spec: &LaneSpec<'_>) -> Result<Lane> {
        let peer = self.peers.iter().position(|peer| peer.rank == spec.peer);
        let peer = peer.ok_or_else(|| never_connected(self.config.rank, spec.peer))?;
        let own = Arc::clone(self.regions.get(spec.local)?);
        let ends = match spec.kind {
            LaneKind::Initiate(verb) => {
                let vendor = self.driver.vendor;
                let bytes = DriverMemory::from_vendor_memory(vendor, &*own);
                let bytes = bytes.ok_or_else(|| unknown_memory(vendor, &*own))?;
                let by = (&self.contacts, spec.peer);
                let context = self.driver.context(&bytes, by, spec.remote)?;
                let outlet = self.outlet(&context, peer)?;
                let by = (&self.contacts, &context);
                let far = self.far.find_or_open(by, spec.peer, spec.remote)?;
                let own = OwnBytes::new(bytes, &context);
                self.record_lane(verb, outlet, far.way_from(&own));
                Some((outlet, own, far))
            }
            LaneKind::Receive => None,
        };
        let region = |ends: &Option<(usize, OwnBytes, Arc<IpcMemory>)>| {
            ends.as_ref().map(|ends| ends.2.region)
        };
        let known = self.lanes.find(|lane| {
            (lane.kind, lane.peer, lane.local) == (spec.kind, peer, spec.local)
                && region(&lane.ends) == region(&ends)
        });
        let state = LaneState {
            kind: spec.kind,
            peer,
            local: spec.local,
            _own: own,
            ends,
        };
        Ok(known.unwrap_or_else(|| self.lanes.put(state)))
    }

    fn release_lane(&mut self, lane: Lane) {
        self.lanes.release(lane);
    }

    fn post(&mut self, ops: &[Op]) -> Result<usize> {
        self.check()?;
        for (taken, op) in ops.iter().enumerate() {
            match self.post_one(op) {
                Ok(true) => {}
                Err(error) if taken == 0 => return Err(error),
                Ok(false) | Err(_) => return Ok(taken),
            }
        }
        Ok(ops.len())
    }

    fn flush(&mut self, lane: Lane, _tag: u32) -> Result<Flush> {
        // The event that follows a completed operation has completed too, so all processes see its bytes.
        self.lanes.get(lane).map(|_| Flush::Delivered)
    }

    fn poll(&mut self, done: &mut [Completion]) -> Result<usize> {
        self.check()?;
        // Arrivals are taken first, because a rank may be waiting for them. They get only half of the room, so that
        // completions of this rank's operations do not starve.
        let share = done.len().div_ceil(2);
        let arrived = take_arrivals(&mut self.peers, &mut done[..share]);
        let mut count = arrived.map_err(|error| ring_failure(self.driver.vendor.ipc, error))?;
        count += move_waiting(&mut self.refused, &mut done[count..]);
        for outlet in &mut self.outlets {
            let outbox = &self.peers[outlet.peer].outbox;
            while count < done.len()
                && let Some(completion) = outlet.take_done(outbox)?
            {
                done[count] = completion;
                count += 1;
            }
        }
        Ok(count)
    }

    fn flush_incoming(&mut self) -> Result<bool> {
        Ok(false)
    }

    fn failure(&self, done: &Completion) -> Failure {
        let lane = self.lanes.get(done.lane).ok();
        let lane = lane.map(|lane| (lane.kind, self.peers[lane.peer].rank));
        crate::rings::failure(self.driver.vendor.ipc, done, lane, IN_OTHER_REGION)
    }

    fn chosen(&self) -> Facts {
        let said = |words: &BTreeSet<String>| {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            (!words.is_empty()).then(|| words.join("; "))
        };
        Facts::default()
            .with_optional_fact("copied", said(&self.copied))
            .with_optional_fact("arrivals", said(&self.arrivals))
    }
}

impl Drop for CudaIpc {
    fn drop(&mut self) {
        // Dropping the lanes and streams waits for their operations. After that, this worker uses no memory of its
        // peers.
        self.lanes.clear();
        self.outlets.clear();
        self.far = IpcMemories::default();
        let process = |peer: PeerRings| {
            let process = self.contacts.process_of(peer.rank);
            (peer, process)
        };
        let peers: Vec<_> = self.peers.drain(..).map(process).collect();
        close_and_wait(&peers, &self.patience);
    }
}

/// Maximum number of operations in flight on a stream. With more, posting could block: a driver's queue has about a
/// thousand entries. Each operation takes up to four: the copy, two words and the event.
pub(super) const IN_FLIGHT_MAX: u32 = 128;

#[derive(Serialize, Deserialize)]
struct IpcAddress {
    rings: EndpointAddress,
    regions: Vec<Descriptor>,
}

/// Returns the endpoint address, which contains the address of the rings and the regions.
///
/// # Errors
/// If there are more regions than an endpoint address has room for.
pub(super) fn encode_address(
    rings: EndpointAddress,
    described: &[(RegionId, Descriptor)],
) -> Result<EndpointAddress> {
    let regions = described.iter().map(|(_, region)| region.clone()).collect();
    let address = EndpointAddress::encode(&IpcAddress { rings, regions });
    if address.0.len() <= EndpointAddress::BYTES_MAX {
        return Ok(address);
    }
    Err(Error::Failed(format!(
        "cannot share {} memories with a peer: they do not fit into an endpoint address; register fewer before \
         connecting",
        described.len()
    )))
}

/// Decodes a peer's endpoint address. Returns the peer with the address of its rings, and the peer's regions.
pub(super) fn decode_address(
    contacts: &Contacts,
    neighbor: &PeerEndpoint,
) -> Result<(PeerEndpoint, Vec<Descriptor>)> {
    let address: IpcAddress = serde_json::from_slice(&neighbor.address.0).map_err(|error| {
        let why = format!("cannot decode the peer's address ({error})");
        contacts.unusable(neighbor.peer, why)
    })?;
    let rings = PeerEndpoint {
        address: address.rings,
        ..neighbor.clone()
    };
    Ok((rings, address.regions))
}
