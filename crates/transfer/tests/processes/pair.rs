//! Two connected processes, which exchange lines of text over a Unix socket.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tonnage_transfer::{
    EndpointConfig, LocalMemory, PeerAddress, RemoteMemory, Session, Ticket, TransferEndpoint,
    TransferResult, Transport, TransportOptions,
};

/// Engines that work on every machine.
const EVERYWHERE: [&str; 2] = ["shm", "fabric:tcp"];
/// Environment variable that names the engines to use instead, separated by commas.
const CHOSEN: &str = "TONNAGE_TEST_ENGINES";
pub const TIMEOUT: Duration = Duration::from_secs(30);
pub const BYTES: u64 = 1 << 20;

/// Environment variables of the second process: its role, its engine, and the socket.
pub const SECOND: &str = "TONNAGE_TEST_SECOND";
const ENGINE: &str = "TONNAGE_TEST_ENGINE";
const SOCKET: &str = "TONNAGE_TEST_SOCKET";

/// One of the two processes, connected to the other.
pub struct Side {
    pub memory: LocalMemory,
    pub remote: RemoteMemory,
    pub endpoint: TransferEndpoint,
}

impl Side {
    pub fn session(&self) -> Session {
        self.endpoint.session(&self.memory, &self.remote).unwrap()
    }
}

/// Waits for a posted operation.
pub fn done(posted: TransferResult<Ticket>) {
    posted.unwrap().wait(TIMEOUT).unwrap();
}

/// The second process, killed when it is dropped.
pub struct Second(Child);

impl Second {
    /// Kills the process without an orderly exit.
    pub fn kill(&mut self) {
        self.0.kill().unwrap();
    }

    /// Waits for an orderly exit of the process.
    pub fn finish(mut self) {
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Second {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn open(engine: &str, id: u32) -> TransferEndpoint {
    let mut options = TransportOptions {
        one_host: true,
        ..TransportOptions::default()
    };
    // The embedded libfabric, so that all machines test the same version.
    options
        .libraries
        .insert("libfabric".into(), "embedded".into());
    let transport = Transport::open(engine, &options).unwrap();
    transport.endpoint(&EndpointConfig::new(id)).unwrap()
}

fn connected(engine: &str, id: u32, socket: UnixStream) -> Side {
    let endpoint = open(engine, id);
    let memory = endpoint.allocate("host", BYTES).unwrap();
    let mut writer = socket.try_clone().unwrap();
    let address = endpoint.address_for(1 - id).unwrap().encode();
    writeln!(writer, "{address}\n{}", memory.remote().encode()).unwrap();
    let mut lines = BufReader::new(socket).lines();
    let mut next = || lines.next().unwrap().unwrap();
    let address = PeerAddress::decode(&next()).unwrap();
    let remote = RemoteMemory::decode(&next()).unwrap();
    endpoint.connect(&[address], TIMEOUT).unwrap();
    Side {
        memory,
        remote,
        endpoint,
    }
}

/// Starts the second process in this role, and connects to it.
pub fn first(engine: &str, role: &str) -> (Side, Second) {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("tonnage-transfer-{}-{number}", std::process::id());
    let path: PathBuf = std::env::temp_dir().join(name);
    let listener = UnixListener::bind(&path).unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "second_process", "--nocapture"])
        .env(SECOND, role)
        .env(ENGINE, engine)
        .env(SOCKET, &path)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let second = Second(child);
    let (socket, _) = listener.accept().unwrap();
    std::fs::remove_file(&path).unwrap();
    (connected(engine, 0, socket), second)
}

/// Connects to the first process; called in the second.
pub fn second() -> Side {
    let variable = |name| std::env::var(name).unwrap();
    let socket = UnixStream::connect(variable(SOCKET)).unwrap();
    connected(&variable(ENGINE), 1, socket)
}

pub fn bytes(memory: &LocalMemory, offset: u64, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    memory.read(offset, &mut bytes).unwrap();
    bytes
}

/// Returns the names of the engines to test.
pub fn engines() -> Vec<String> {
    let chosen = std::env::var(CHOSEN).unwrap_or_else(|_| EVERYWHERE.join(","));
    chosen.split(',').map(str::to_owned).collect()
}

/// Runs a test over each engine.
pub fn for_each_engine(test: impl Fn(&str)) {
    for engine in engines() {
        println!("engine {engine}");
        test(&engine);
    }
}
