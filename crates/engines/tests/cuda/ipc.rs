//! Engine `cuda-ipc` between two processes over the simulated driver, and on a GPU if run by `make test-gpu`. This test
//! program starts itself again as the target.
//!
//! It checks that arrivals are reported after their data, even if there are more arrivals than a ring has entries. It
//! also checks that neither side allocates memory per operation. End-to-end tests check the results of whole runs.

use std::io::{BufRead, BufReader, Lines, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tonnage_engine::memory::{Memory, Request};
use tonnage_engine::{
    Completion, Descriptor, Ending, EndpointAddress, Engine, Lane, LaneKind, LaneSpec, Libraries,
    Op, OpenRequest, PeerEndpoint, PlannedMemory, Region, Verb, WorkerConfig,
};
use tonnage_engines::cuda_ipc;
use tonnage_engines::memory::CUDA;
use tonnage_sys::counting_alloc::counts;
use tonnage_sys::cuda::Libcuda;

use super::Double;

/// Environment variables of the second process: the path of the simulated driver (empty on a real GPU), the process's
/// GPU, and the socket.
const DOUBLE: &str = "TONNAGE_TEST_DOUBLE";
const GPU: &str = "TONNAGE_TEST_GPU";
const SOCKET: &str = "TONNAGE_TEST_SOCKET";

/// Number of operations. It is larger than a ring, and not a multiple of the ring's size.
const COUNT: u32 = 2500;

const DEPTH: u32 = 64;

/// Each operation moves one word of this size.
const WORD: u32 = 8;
const BYTES: u64 = (COUNT * WORD) as u64;

/// One of the two processes, connected to the other.
struct IpcSide {
    rank: u32,
    memory: Arc<dyn Memory>,
    engine: Box<dyn Engine + Send>,
    region: Region,
    remote: Descriptor,
    socket: UnixStream,
    lines: Lines<BufReader<UnixStream>>,
    /// Time by which the other side must have answered.
    deadline: Instant,
}

fn connected(rank: u32, (library, gpu): (PathBuf, &str), socket: UnixStream) -> IpcSide {
    let mut libraries = Libraries::new();
    if !library.as_os_str().is_empty() {
        libraries.insert("libcuda".to_owned(), library);
    }
    let memory = (CUDA.allocate)(&Request {
        variant: gpu,
        bytes: BYTES,
        libraries: Some(&libraries),
        ..Request::default()
    });
    let memory = memory.unwrap();
    let domains = (cuda_ipc::ENTRY.open)(&OpenRequest {
        libraries: &libraries,
        initiates: rank == 0,
        memories: (
            PlannedMemory {
                name: "cuda",
                gpu: None,
                device: None,
            },
            &[],
        ),
        ..OpenRequest::default()
    });
    let mut engine = domains.unwrap()[0]
        .worker(&WorkerConfig::polling(rank, 1, DEPTH))
        .unwrap();
    let region = engine.register(&memory).unwrap();
    let peer = 1 - rank;
    let address = engine.endpoint_addresses(&[peer]).unwrap().remove(0);
    let mut lines = BufReader::new(socket.try_clone().unwrap()).lines();
    let told = serde_json::to_string(&(address.0, region.descriptor.0.clone())).unwrap();
    writeln!(&socket, "{told}").unwrap();
    let told = lines.next().unwrap().unwrap();
    let (address, remote): (Vec<u8>, Vec<u8>) = serde_json::from_str(&told).unwrap();
    let neighbor = PeerEndpoint::same_container(peer, EndpointAddress(address));
    engine.connect(&[neighbor]).unwrap();
    engine.meet(&|| false).unwrap();
    IpcSide {
        rank,
        memory,
        engine,
        region,
        remote: Descriptor(remote),
        socket,
        lines,
        deadline: Instant::now() + Duration::from_secs(60),
    }
}

/// Returns the word that the initiator writes into the slot of an operation.
fn word(number: u32) -> [u8; WORD as usize] {
    (u64::from(number) + 1).to_ne_bytes()
}

impl IpcSide {
    fn lane(&mut self, kind: LaneKind) -> Lane {
        let spec = LaneSpec::new(kind, 1 - self.rank, self.region.id, &self.remote);
        self.engine.lane(&spec).unwrap()
    }

    fn op(lane: Lane, number: u32) -> Op {
        let at = u64::from(number * WORD);
        Op {
            lane,
            tag: number,
            local: at,
            remote: at,
            len: WORD,
            imm: number,
        }
    }

    /// Posts all operations of a lane. They complete in the order in which they were posted.
    fn carry_out(&mut self, lane: Lane) {
        let (mut posted, mut ended) = (0, 0);
        let mut done = [Completion::EMPTY; 16];
        let before = counts();
        while ended < COUNT {
            self.check_time();
            if posted < COUNT && posted - ended < DEPTH {
                let taken = self.engine.post(&[Self::op(lane, posted)]).unwrap();
                posted += taken as u32;
            }
            let count = self.engine.poll(&mut done).unwrap();
            for completion in &done[..count] {
                assert_eq!((completion.tag, completion.ending), (ended, Ending::Done));
                ended += 1;
            }
        }
        assert_eq!(counts().since(before), Default::default());
    }

    /// Checks the data of each arrival when the arrival is reported. If operations need receives, posts the next one.
    fn take_arrivals(&mut self, receives: Option<Lane>) {
        let mut done = [Completion::EMPTY; 16];
        let (mut arrived, mut posted) = (0, DEPTH);
        let before = counts();
        while arrived < COUNT {
            self.check_time();
            let count = self.engine.poll(&mut done).unwrap();
            for completion in &done[..count] {
                let mut bytes = [0; WORD as usize];
                let at = u64::from(arrived * WORD);
                self.memory.read(at, &mut bytes).unwrap();
                assert_eq!(
                    bytes,
                    word(arrived),
                    "reported before its data: {completion:?}"
                );
                match receives {
                    None => assert_eq!(completion.imm, arrived),
                    Some(_) => assert_eq!(completion.tag, arrived),
                }
                arrived += 1;
            }
            while let Some(lane) = receives.filter(|_| posted < COUNT.min(arrived + DEPTH)) {
                posted += self.engine.post(&[Self::op(lane, posted)]).unwrap() as u32;
            }
        }
        assert_eq!(counts().since(before), Default::default());
    }

    fn check_time(&self) {
        assert!(
            Instant::now() < self.deadline,
            "the other side makes no progress"
        );
    }

    fn say(&mut self, word: &str) {
        writeln!(&self.socket, "{word}").unwrap();
    }

    fn hear(&mut self, word: &str) {
        assert_eq!(self.lines.next().unwrap().unwrap(), word);
    }
}

/// Runs the second process.
#[test]
fn second_process() {
    let Some(double) = std::env::var_os(DOUBLE) else {
        return;
    };
    let socket = UnixStream::connect(std::env::var_os(SOCKET).unwrap()).unwrap();
    let gpu = std::env::var(GPU).unwrap();
    let mut side = connected(1, (double.into(), &gpu), socket);
    let zeros = vec![0; BYTES as usize];
    side.memory.write(0, &zeros).unwrap();
    side.say("ready for write-imm");
    side.take_arrivals(None);
    side.memory.write(0, &zeros).unwrap();
    let lane = side.lane(LaneKind::Receive);
    for number in 0..DEPTH {
        assert_eq!(side.engine.post(&[IpcSide::op(lane, number)]).unwrap(), 1);
    }
    side.say("ready for send");
    side.take_arrivals(Some(lane));
    side.say("all arrived");
    side.hear("end");
}

/// Returns the second process's connection. Fails if that process ends before it has connected.
fn accepted(listener: &UnixListener, second: &mut Child) -> UnixStream {
    listener.set_nonblocking(true).unwrap();
    loop {
        if let Ok((socket, _)) = listener.accept() {
            socket.set_nonblocking(false).unwrap();
            return socket;
        }
        let ended = second.try_wait().unwrap();
        assert!(ended.is_none(), "the second process ended: {ended:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The simulated driver executes one operation of a stream at a time. So an arrival that is reported before its data is
/// noticed.
#[test]
fn arrivals_are_reported_after_their_data_and_nothing_is_allocated() {
    if let Some(double) = Double::with("gpus 2\nslow 1") {
        arrivals_are_told(&double.path(), "1");
    }
    if std::env::var_os("TONNAGE_GPU_FIGURES").is_none() {
        println!("skip: cuda-ipc on a GPU, which `make test-gpu` runs");
        return;
    }
    match Libcuda::load(None).and_then(|library| library.devices()) {
        Ok(devices) if devices.len() > 1 => arrivals_are_told(Path::new(""), "1"),
        Ok(devices) if devices.len() == 1 => arrivals_are_told(Path::new(""), "0"),
        other => println!("skip: no GPU of NVIDIA: {:?}", other.err()),
    }
}

/// The first GPU writes to memory of GPU `gpu`, which the second process owns. Checks that these writes are reported as
/// arrivals.
fn arrivals_are_told(library: &Path, gpu: &str) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let mut second = start_second((library, gpu), &path);
    let socket = accepted(&listener, &mut second);
    let mut side = connected(0, (library.to_owned(), "0"), socket);
    for number in 0..COUNT {
        let at = u64::from(number * WORD);
        side.memory.write(at, &word(number)).unwrap();
    }
    for (verb, ready) in [
        (Verb::WriteImm, Some("ready for write-imm")),
        (Verb::Send, Some("ready for send")),
        (Verb::Write, Some("all arrived")),
        (Verb::Read, None),
    ] {
        if let Some(ready) = ready {
            side.hear(ready);
        }
        let lane = side.lane(LaneKind::Initiate(verb));
        side.carry_out(lane);
        side.engine.release_lane(lane);
    }
    side.say("end");
    drop(side);
    assert!(second.wait().unwrap().success());
}

fn start_second((double, gpu): (&Path, &str), socket: &Path) -> std::process::Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "ipc::second_process", "--nocapture"])
        .env(DOUBLE, double)
        .env(GPU, gpu)
        .env(SOCKET, socket)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}
