//! The two ranks of a point as threads. Their engines, memories, lanes and receives are created as in the program.

#[cfg(test)]
#[path = "../../../sys/tests/cuda/double.rs"]
mod double;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use double::Double;
use tonnage_bench::kinds::transfer::layout::{SliceLayout, answers};
use tonnage_bench::loop_parameters::{flow_slots, posting};
use tonnage_engine::memory::{Memory, Request};
use tonnage_engine::paths::divide;
use tonnage_engine::{
    Caps, Descriptor, DeviceRequest, EndpointAddress, Engine, Lane, LaneKind, LaneSpec, Libraries,
    OpenRequest, PeerEndpoint, PlannedMemory, Region, Verb, WorkerConfig, find, split_name,
};
use tonnage_engines::memory::HOST;
use tonnage_engines::{ENGINES, LISTS};
use tonnage_loops::collective::executor::WorkerView;
use tonnage_loops::collective::layout::MemoryLayout;
use tonnage_loops::flow::{Flow, Receives};
use tonnage_loops::library::{AdoptedEngine, BatchCapacity, LibraryCalls, LibraryEngine};
use tonnage_loops::ping_pong::{LastByteSignal, PingPongEnd};
use tonnage_plan::transfer::{Pacing, TransferPoint};
use tonnage_sys::clock::Clock;
use tonnage_units::{Error, Result};

/// One of the two ranks.
pub struct Side {
    /// Number of the rank.
    pub rank: u32,
    memory: Arc<dyn Memory>,
    engine: Option<Box<dyn Engine + Send>>,
    region: Region,
    /// The other side's memory region.
    far: Descriptor,
    caps: Caps,
}

pub fn sides(point: &TransferPoint) -> Result<[Side; 2]> {
    let mut sides = [side(point, 0)?, side(point, 1)?];
    let mut addresses = Vec::new();
    for (peer, side) in [1u32, 0].into_iter().zip(&mut sides) {
        addresses.extend(side.engine()?.endpoint_addresses(&[peer])?);
    }
    let far = [0, 1].map(|side: usize| sides[1 - side].region.descriptor.clone());
    for (side, far) in sides.iter_mut().zip(far) {
        side.far = far;
    }
    let [zero, one] = &mut sides;
    // Both sides connect simultaneously, as ranks do: a transport may need the other side to connect.
    std::thread::scope(|scope| {
        let other = scope.spawn(|| connect(one, (0, &addresses[0])));
        let own = connect(zero, (1, &addresses[1]));
        let dead = |_| Error::Failed("the connecting thread died".into());
        other.join().map_err(dead)?.and(own)
    })?;
    Ok(sides)
}

fn connect(side: &mut Side, (peer, address): (u32, &EndpointAddress)) -> Result<()> {
    let neighbor = PeerEndpoint::same_container(peer, address.clone());
    let engine = side.engine()?;
    engine.connect(&[neighbor])?;
    engine.meet(&|| false)
}

impl Side {
    fn engine(&mut self) -> Result<&mut Box<dyn Engine + Send>> {
        let taken = || Error::Failed("the engine was taken".into());
        self.engine.as_mut().ok_or_else(taken)
    }

    fn spec(&self, kind: LaneKind, peer: u32) -> LaneSpec<'_> {
        LaneSpec::new(kind, peer, self.region.id, &self.far)
    }

    /// Returns the engine that drives a point: this side's own engine, or the library over it.
    pub fn driven(&mut self, point: &TransferPoint) -> Result<Box<dyn Engine>> {
        let taken = || Error::Failed("the engine was taken before".into());
        let engine = self.engine.take().ok_or_else(taken)?;
        let Some(session) = point.session else {
            return Ok(engine);
        };
        let peer = 1 - self.rank;
        let taken = AdoptedEngine {
            engine,
            caps: self.caps,
            name: &point.engine,
            rank: self.rank,
            memory: (&self.memory, self.region.id),
            peers: &[(peer, SliceLayout::new(point, peer).bytes())],
            depth: point.depth(),
        };
        let calls = LibraryCalls {
            posting: posting(point.api, session),
            gathers: matches!(point.pacing, Pacing::Batch { .. }).then(|| BatchCapacity {
                batches: point.batching.in_flight,
                operations: point.batch_share_max(),
            }),
        };
        Ok(Box::new(LibraryEngine::adopt(taken, calls)))
    }
}

/// The parts of a side that collectives need.
impl Side {
    /// Returns a lane on which this side initiates towards the other one.
    pub fn lane_to_the_other(&self, engine: &mut dyn Engine, verb: Verb) -> Result<Lane> {
        engine.lane(&self.spec(LaneKind::Initiate(verb), 1 - self.rank))
    }

    /// Returns this side in the form that the steps of collectives need.
    pub fn view(&self, engine: &str, layout: MemoryLayout) -> Result<WorkerView> {
        Ok(WorkerView {
            arena: Arc::clone(self.memory.mapped(engine)?),
            layout,
            clock: Clock::new(),
            yielding: true,
            arrives_by_polling: self.caps.arrives_by_polling,
        })
    }
}

fn side(point: &TransferPoint, rank: u32) -> Result<Side> {
    let entry = find(ENGINES, &point.engine)?;
    // Debian's libfabric 1.17 can crash if an endpoint closes while messages are waiting, so the embedded one is used.
    let mut libraries = Libraries::from([("libfabric".to_owned(), "embedded".into())]);
    libraries.extend(doubles_of_drivers());
    let memory = entry.device_memory.unwrap_or(HOST.name);
    let own = PlannedMemory {
        name: memory,
        gpu: None,
        device: None,
    };
    // If there are several devices, each side uses a different one.
    let devices = match entry.has_devices && entry.names_everywhere().is_empty() {
        true => DeviceRequest::All,
        false => DeviceRequest::Own,
    };
    let domains = (entry.open)(&OpenRequest {
        variant: split_name(&point.engine).1,
        devices,
        libraries: &libraries,
        memories: (own, &[own]),
        ..OpenRequest::default()
    })?;
    let domains = divide(domains, point.division);
    let domain = &domains[rank as usize % domains.len()];
    let bytes = SliceLayout::new(point, rank).bytes();
    let allocator = LISTS.memory(memory)?;
    let memory = (allocator.allocate)(&Request {
        bytes,
        shared: domain.caps().shared_memory,
        libraries: Some(&libraries),
        ..Request::default()
    })?;
    let config = WorkerConfig {
        rank,
        worker: 0,
        peers_max: 1,
        queue_pairs: 1,
        sleeps: false,
        depth: point.depth(),
        clock: Clock::new(),
    };
    let mut engine = domain.worker(&config)?;
    Ok(Side {
        rank,
        region: engine.register(&memory)?,
        far: Descriptor::default(),
        engine: Some(engine),
        memory,
        caps: *domain.caps(),
    })
}

/// Returns the paths of the simulated GPU drivers. Without a C compiler, it prints a skip and returns an empty list.
/// The files stay until the next run in the same folder, because loaded libraries are never unloaded.
pub fn doubles_of_drivers() -> Vec<(String, PathBuf)> {
    static DOUBLES: OnceLock<Vec<(String, PathBuf)>> = OnceLock::new();
    let file = |(name, double): (&str, Option<Double>)| match kept(&double?.path()) {
        Ok(path) => Some((name.to_owned(), path)),
        Err(error) => {
            println!("skip: no double of {name}: {error}");
            None
        }
    };
    let made = || {
        let doubles = [
            ("libcuda", Double::with("gpus 2")),
            ("libamdhip64", Double::hip("gpus 2")),
        ];
        doubles.into_iter().filter_map(file).collect()
    };
    DOUBLES.get_or_init(made).clone()
}

/// Copies a library and its settings to the folder of the tests.
fn kept(library: &Path) -> std::io::Result<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("doubles");
    fs::create_dir_all(&folder)?;
    let copy = |from: &Path| {
        let to = folder.join(from.file_name().unwrap_or_default());
        // Another run may have the file open, so it is removed rather than overwritten.
        let _ = fs::remove_file(&to);
        fs::copy(from, &to).map(|_| to)
    };
    let mut settings = library.as_os_str().to_owned();
    settings.push(".conf");
    copy(Path::new(&settings))?;
    copy(library)
}

/// Returns the flows of one side for a point, created as in the program.
pub fn flows(point: &TransferPoint, side: &Side, engine: &mut dyn Engine) -> Result<Vec<Flow>> {
    let layout = SliceLayout::new(point, side.rank);
    let mut flows = Vec::new();
    for (index, &peer) in layout.out.iter().enumerate() {
        let lane = engine.lane(&LaneSpec {
            ordered: answers(point) && point.op == Verb::Write,
            ..side.spec(LaneKind::Initiate(point.op), peer)
        })?;
        let remote = SliceLayout::new(point, peer).into_origin_of(side.rank);
        let remote = remote.ok_or_else(|| Error::Failed("no place at the peer".into()))?;
        let local = layout.out_origin(index);
        flows.push(Flow::new(
            &flow_slots(point),
            side.rank,
            peer,
            lane,
            local,
            remote,
        ));
    }
    Ok(flows)
}

pub fn table(point: &TransferPoint, side: &Side, engine: &mut dyn Engine) -> Result<PingPongEnd> {
    let layout = SliceLayout::new(point, side.rank);
    let peer = 1 - side.rank;
    let mut signals = Vec::new();
    if point.op == Verb::Write {
        signals.push(LastByteSignal::new(
            &flow_slots(point),
            side.rank,
            peer,
            Arc::clone(side.memory.mapped(&point.engine)?),
            layout.out_origin(0),
            layout.into_origin(0),
        ));
    }
    let table = PingPongEnd::new(
        flows(point, side, engine)?,
        signals,
        side.rank == 1,
        &side.caps,
    );
    table.reset_incoming()?;
    Ok(table)
}

pub fn receives(
    point: &TransferPoint,
    side: &Side,
    engine: &mut dyn Engine,
) -> Result<Vec<Receives>> {
    let layout = SliceLayout::new(point, side.rank);
    let mut receives = Vec::new();
    if point.op == Verb::Send && side.caps.moves_bytes {
        for (index, &peer) in layout.into.iter().enumerate() {
            let lane = engine.lane(&side.spec(LaneKind::Receive, peer))?;
            let origin = layout.into_origin(index);
            receives.push(Receives::new(
                &flow_slots(point),
                peer,
                side.rank,
                lane,
                origin,
            ));
        }
    }
    Ok(receives)
}
