//! Sides in one process over the embedded library, and the steps in which ranks take part together.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::memory::HOST;
use tonnage_engine::memory::{Memory, Request};
use tonnage_engine::{
    Completion, Descriptor, Domain, Ending, EndpointAddress, Engine, EngineOptions, Lane, LaneKind,
    LaneSpec, Libraries, Op, OpenRequest, PeerEndpoint, Region, Verb, WorkerConfig,
};
use tonnage_sys::clock::Clock;

use super::super::open;
use super::super::options::LIBRARY;

pub(super) const BYTES: u64 = 1 << 20;

/// Selects the embedded library, which has the same release on every machine.
pub(super) const EMBEDDED: &str = "embedded";

pub(super) fn request<'a>(provider: &'a str, options: &'a EngineOptions) -> OpenRequest<'a> {
    OpenRequest {
        variant: provider,
        options,
        libraries: libraries(EMBEDDED),
        ..OpenRequest::default()
    }
}

/// Names the library to load. The value is leaked, so that it lives as long as the tests.
pub(super) fn libraries(path: &str) -> &'static Libraries {
    Box::leak(Box::new(Libraries::from([(
        LIBRARY.to_owned(),
        path.into(),
    )])))
}

/// A request for plain writes only.
pub(super) fn plain_writes<'a>(provider: &'a str, options: &'a EngineOptions) -> OpenRequest<'a> {
    OpenRequest {
        verbs: &[Verb::Write],
        ..request(provider, options)
    }
}

pub(super) fn option(name: &str, value: &str) -> EngineOptions {
    EngineOptions::from([(name.to_owned(), value.to_owned())])
}

pub(super) fn refused(request: &OpenRequest<'_>) -> String {
    open(request).err().expect("must be refused").to_string()
}

pub(super) struct Side {
    pub(super) rank: u32,
    pub(super) peers: Vec<u32>,
    pub(super) memory: Arc<dyn Memory>,
    pub(super) engine: Box<dyn Engine + Send>,
    pub(super) region: Region,
    /// The peers' regions.
    pub(super) far: Vec<(u32, Descriptor)>,
}

impl Side {
    pub(super) fn address_for(&mut self, peer: u32) -> EndpointAddress {
        self.engine.endpoint_addresses(&[peer]).unwrap().remove(0)
    }

    pub(super) fn far(&self, peer: u32) -> &Descriptor {
        &self.far.iter().find(|(rank, _)| *rank == peer).unwrap().1
    }
}

pub(super) fn side(provider: &str, options: &EngineOptions, rank: u32, peers: &[u32]) -> Side {
    side_of(&request(provider, options), rank, peers)
}

pub(super) fn side_of(request: &OpenRequest<'_>, rank: u32, peers: &[u32]) -> Side {
    side_that(request, rank, peers, false)
}

/// A side with these peers. If `sleeps`, it can sleep until completions arrive; otherwise it only polls.
pub(super) fn side_that(request: &OpenRequest<'_>, rank: u32, peers: &[u32], sleeps: bool) -> Side {
    let domains = open(request).unwrap();
    side_in(&*domains[0], rank, peers, sleeps)
}

/// A side of a domain.
pub(super) fn side_in(domain: &dyn Domain, rank: u32, peers: &[u32], sleeps: bool) -> Side {
    let request_memory = Request {
        bytes: BYTES,
        shared: false,
        ..Request::default()
    };
    let memory = (HOST.allocate)(&request_memory).unwrap();
    let config = WorkerConfig {
        rank,
        worker: 0,
        peers_max: peers.len() as u32,
        queue_pairs: 1,
        sleeps,
        depth: 64,
        clock: Clock::new(),
    };
    let mut engine = domain.worker(&config).unwrap();
    let region = engine.register(&memory).unwrap();
    Side {
        rank,
        peers: peers.to_vec(),
        memory,
        engine,
        region,
        far: Vec::new(),
    }
}

/// Exchanges endpoint addresses and regions. Returns each side's neighbours.
pub(super) fn introduced(sides: &mut [Side]) -> Vec<Vec<PeerEndpoint>> {
    let ranks: Vec<u32> = sides.iter().map(|side| side.rank).collect();
    let place = |rank: u32| ranks.iter().position(|&known| known == rank).unwrap();
    let mut all = Vec::new();
    for index in 0..sides.len() {
        let (rank, peers) = (sides[index].rank, sides[index].peers.clone());
        let mut addresses = Vec::new();
        for peer in peers {
            let descriptor = sides[place(peer)].region.descriptor.clone();
            sides[index].far.push((peer, descriptor));
            // Requests all endpoint addresses of a side at once, as a run does.
            let wanted = sides[place(peer)].peers.clone();
            let made = sides[place(peer)]
                .engine
                .endpoint_addresses(&wanted)
                .unwrap();
            let mut made = wanted.into_iter().zip(made);
            let (_, address) = made.find(|(for_rank, _)| *for_rank == rank).unwrap();
            addresses.push(PeerEndpoint::same_container(peer, address));
        }
        all.push(addresses);
    }
    all
}

/// Connects the sides, each on its own thread, because all must take part in first contact at the same time.
pub(super) fn meet(sides: &mut [Side]) {
    let all = introduced(sides);
    std::thread::scope(|scope| {
        for (side, peers) in sides.iter_mut().zip(all) {
            scope.spawn(move || {
                side.engine.connect(&peers).unwrap();
                side.engine.meet(&|| false).unwrap();
            });
        }
    });
}

pub(super) fn pair(provider: &str, options: &EngineOptions) -> [Side; 2] {
    let mut sides = [
        side(provider, options, 0, &[1]),
        side(provider, options, 1, &[0]),
    ];
    meet(&mut sides);
    sides
}

pub(super) fn lane(side: &mut Side, kind: LaneKind, peer: u32, delivered: bool) -> Lane {
    let far = side.far(peer).clone();
    let spec = LaneSpec {
        kind,
        peer,
        local: side.region.id,
        remote: &far,
        ordered: false,
        in_order: false,
        delivered,
    };
    let lane = side.engine.lane(&spec).unwrap();
    assert_eq!(
        side.engine.lane(&spec).unwrap(),
        lane,
        "resolving the lane again returned another lane"
    );
    lane
}

/// Polls all sides until side `wanted` has a completion with this ending.
pub(super) fn await_one(sides: &mut [Side], wanted: usize, ending: Ending) -> Completion {
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut found = None;
    while found.is_none() {
        assert!(Instant::now() < deadline, "no {ending:?} at side {wanted}");
        for (index, side) in sides.iter_mut().enumerate() {
            let mut done = [Completion::EMPTY; 4];
            let count = side.engine.poll(&mut done).unwrap();
            let mut fitting = done[..count]
                .iter()
                .filter(|one| index == wanted && one.ending == ending);
            found = found.or(fitting.next().copied());
        }
    }
    found.unwrap()
}

pub(super) fn post(side: &mut Side, op: Op) {
    assert_eq!(side.engine.post(&[op]).unwrap(), 1);
}

pub(super) fn bytes_at(side: &Side, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    side.memory.read(offset, &mut bytes).unwrap();
    bytes
}

pub(super) fn op(lane: Lane, local: u64, remote: u64, len: u32) -> Op {
    Op {
        lane,
        tag: 7,
        local,
        remote,
        len,
        imm: 0xfeed_beef,
    }
}
