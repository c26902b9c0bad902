//! An engine for tests that ends operations when it is told to, and keeps accounts of what it was asked.

use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tonnage_engine::memory::Memory;
use tonnage_engine::{
    Arm, Caps, Card, Completion, Descriptor, Ending, Engine, Failure, Flush, Lane, LaneSpec,
    LimitKind, Neighbor, Op, Peer, Region, RegionId, Verb,
};
use tonnage_units::{Error, Result};

use crate::card::{EndpointCard, RemoteMemory};
use crate::endpoint::{EndpointConfig, EngineParts, TransferEndpoint};
use crate::place::ProcessPlace;

/// Numbers of the endpoint and of its peers.
pub(crate) const ME: Peer = 0;
pub(crate) const PEERS: [Peer; 2] = [5, 6];

pub(crate) const BYTES: u64 = 4096;
pub(crate) const SOON: Duration = Duration::from_millis(20);

#[derive(Default)]
pub(crate) struct MockAccounts {
    /// Taken and not ended.
    pub(crate) taken: VecDeque<Op>,
    /// The most that are taken.
    pub(crate) room: usize,
    /// Completions for the next polls.
    pub(crate) done: VecDeque<Completion>,
    pub(crate) lanes: BTreeSet<u32>,
    pub(crate) regions: BTreeSet<u32>,
    /// Calls so far.
    pub(crate) lanes_asked: usize,
    pub(crate) regions_asked: usize,
    pub(crate) posts: usize,
    pub(crate) dead: bool,
    /// The next post is an error.
    pub(crate) post_fails: bool,
    pub(crate) connected: Vec<Peer>,
    /// Peers that cannot be reached.
    pub(crate) unreachable: Vec<Peer>,
    /// No peer comes to first contact.
    pub(crate) meets_nobody: bool,
    /// Ends what was taken when polled.
    pub(crate) ends_at_once: bool,
    /// Lanes and regions that were released while they were used.
    pub(crate) wrong: Vec<String>,
    specs: Vec<(u32, Verb, Peer, RegionId)>,
}

/// The test's end of the engine.
#[derive(Clone, Default)]
pub(crate) struct Remote(Arc<Mutex<MockAccounts>>);

impl Remote {
    pub(crate) fn lock(&self) -> MutexGuard<'_, MockAccounts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lanes and regions that were not given back.
    pub(crate) fn left(&self) -> (usize, usize) {
        let accounts = self.lock();
        (accounts.lanes.len(), accounts.regions.len())
    }

    /// Calls for lanes and for regions so far.
    pub(crate) fn asked(&self) -> (usize, usize) {
        let accounts = self.lock();
        (accounts.lanes_asked, accounts.regions_asked)
    }

    /// Ends the oldest operations.
    pub(crate) fn end(&self, count: usize, ending: Ending) {
        let mut accounts = self.lock();
        for _ in 0..count {
            let op = accounts.taken.pop_front().unwrap();
            accounts.done.push_back(Completion {
                tag: op.tag,
                lane: op.lane,
                len: op.len,
                imm: 0,
                ending,
            });
        }
    }

    pub(crate) fn arrive(&self, imm: u32) {
        let arrived = Completion {
            lane: Lane(PEERS[0]),
            imm,
            ending: Ending::Arrived,
            ..Completion::EMPTY
        };
        self.lock().done.push_back(arrived);
    }
}

struct MockEngine(Remote, File);

impl Engine for MockEngine {
    fn register(&mut self, memory: &Arc<dyn Memory>) -> Result<Region> {
        memory.mapped("mock")?;
        let mut accounts = self.0.lock();
        let id = accounts.regions_asked as u32;
        accounts.regions_asked += 1;
        accounts.regions.insert(id);
        Ok(Region {
            id: RegionId(id),
            descriptor: Descriptor(vec![id as u8]),
        })
    }

    fn deregister(&mut self, region: RegionId) -> Result<()> {
        let mut accounts = self.0.lock();
        let used = accounts
            .specs
            .iter()
            .any(|spec| spec.3 == region && accounts.lanes.contains(&spec.0));
        if used || !accounts.regions.remove(&region.0) {
            accounts.wrong.push(format!("deregistered {region:?}"));
        }
        Ok(())
    }

    fn cards(&mut self, peers: &[Peer]) -> Result<Vec<Card>> {
        Ok(vec![Card(Vec::new()); peers.len()])
    }

    fn connect(&mut self, peers: &[Neighbor]) -> Result<()> {
        let mut accounts = self.0.lock();
        for neighbor in peers {
            if accounts.unreachable.contains(&neighbor.peer) {
                return Err(Error::Failed("no way there".into()));
            }
            if accounts.connected.contains(&neighbor.peer) {
                accounts.wrong.push(format!("connected {neighbor:?}"));
            }
            accounts.connected.push(neighbor.peer);
        }
        Ok(())
    }

    fn meet(&mut self, stopped: &dyn Fn() -> bool) -> Result<()> {
        while self.0.lock().meets_nobody {
            if stopped() {
                return Err(Error::Failed("stopped".into()));
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    fn lane(&mut self, spec: &LaneSpec<'_>) -> Result<Lane> {
        let tonnage_engine::LaneKind::Initiate(verb) = spec.kind else {
            return Err(Error::Failed("no receives".into()));
        };
        let mut accounts = self.0.lock();
        accounts.lanes_asked += 1;
        let wanted = (verb, spec.peer, spec.local);
        let known = accounts
            .specs
            .iter()
            .find(|known| (known.1, known.2, known.3) == wanted);
        let number = match known {
            Some(known) => known.0,
            None => {
                let number = accounts.specs.len() as u32;
                accounts.specs.push((number, verb, spec.peer, spec.local));
                number
            }
        };
        accounts.lanes.insert(number);
        Ok(Lane(number))
    }

    fn release(&mut self, lane: Lane) {
        let mut accounts = self.0.lock();
        let in_flight = accounts.taken.iter().any(|op| op.lane == lane);
        if in_flight || !accounts.lanes.remove(&lane.0) {
            accounts.wrong.push(format!("released {lane:?}"));
        }
    }

    fn arm(&mut self) -> Result<Arm<'_>> {
        let accounts = self.0.lock();
        Ok(match accounts.done.is_empty() {
            _ if accounts.dead => return Err(Error::Failed("the device is gone".into())),
            false => Arm::Ready,
            true => Arm::Sleep(self.1.as_fd()),
        })
    }

    fn post(&mut self, ops: &[Op]) -> Result<usize> {
        let mut accounts = self.0.lock();
        accounts.posts += 1;
        if std::mem::take(&mut accounts.post_fails) || accounts.dead {
            return Err(Error::Failed("the device is gone".into()));
        }
        let mut count = 0;
        for op in ops {
            if accounts.taken.len() >= accounts.room {
                break;
            }
            if !accounts.lanes.contains(&op.lane.0) {
                accounts.wrong.push(format!("posted on {:?}", op.lane));
            }
            accounts.taken.push_back(*op);
            count += 1;
        }
        Ok(count)
    }

    fn flush(&mut self, lane: Lane, tag: u32) -> Result<Flush> {
        let op = Op {
            lane,
            tag,
            local: 0,
            remote: 0,
            len: 0,
            imm: 0,
        };
        self.post(&[op]).map(|count| match count {
            0 => Flush::Again,
            _ => Flush::Posted,
        })
    }

    fn poll(&mut self, done: &mut [Completion]) -> Result<usize> {
        if self.0.lock().dead {
            return Err(Error::Failed("the device is gone".into()));
        }
        let taken = self.0.lock().taken.len();
        if self.0.lock().ends_at_once {
            self.0.end(taken, Ending::Done);
        }
        let mut accounts = self.0.lock();
        let count = accounts.done.len().min(done.len());
        for (place, completion) in done.iter_mut().zip(accounts.done.drain(..count)) {
            *place = completion;
        }
        Ok(count)
    }

    fn flush_incoming(&mut self) -> Result<bool> {
        Ok(false)
    }

    fn failure(&self, done: &Completion) -> Failure {
        Failure {
            name: "RETRY_EXC".into(),
            code: match done.ending {
                Ending::Failed(code) => code,
                _ => 0,
            },
            ..Failure::default()
        }
    }
}

pub(crate) static CAPS: Caps = Caps {
    verbs: &[Verb::Write, Verb::WriteImm, Verb::Read],
    immediate_bits: 32,
    depth: 64,
    message_bytes_max: 1 << 20,
    moves_bytes: true,
    delivered: false,
    delivery_on_request: false,
    sends_taken: false,
    passive_target: false,
    arrivals_named: true,
    arrives_by_polling: false,
    ordered_writes: false,
    shared_memory: false,
    carried: false,
    limit: LimitKind::None,
};

/// An endpoint over a mock, connected to its peers; and the test's end of the mock.
pub(crate) fn endpoint(operations_max: u32) -> (TransferEndpoint, Remote) {
    let remote = Remote::default();
    remote.lock().room = usize::MAX;
    let parts = EngineParts {
        engine: Box::new(MockEngine(remote.clone(), File::open("/dev/null").unwrap())),
        domain: None,
        caps: CAPS,
        name: "mock".into(),
        device: Some("card0".into()),
        clean_up: |_| (),
    };
    let config = EndpointConfig {
        peers_max: 2,
        operations_max,
        arrivals_max: 4,
        ..EndpointConfig::new(ME)
    };
    let endpoint = TransferEndpoint::over(parts, &config);
    endpoint.connect(&PEERS.map(card_from), SOON).unwrap();
    (endpoint, remote)
}

pub(crate) fn card_from(peer: Peer) -> EndpointCard {
    EndpointCard {
        engine: "mock".into(),
        from: peer,
        to: ME,
        place: ProcessPlace::own(),
        card: Card(Vec::new()),
    }
}

pub(crate) fn memory_of(peer: Peer) -> RemoteMemory {
    RemoteMemory {
        owner: peer,
        id: 3,
        bytes: BYTES,
        descriptor: Descriptor(vec![9]),
    }
}
