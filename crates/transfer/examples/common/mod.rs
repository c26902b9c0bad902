//! Connects two processes. The first starts the second; they exchange their addresses by pipes, one line each.

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tonnage_transfer::{
    EndpointConfig, LocalMemory, PeerAddress, RemoteMemory, TransferEndpoint, Transport,
    TransportOptions,
};

/// Timeout of every wait.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// Size of each memory.
pub const BYTES: usize = 1 << 20;

/// Command-line argument that makes this process the second one.
const SECOND: &str = "--second";

/// One of the two processes, connected to the other.
pub struct Side {
    /// The process's endpoint: number 0 in the first process, 1 in the second.
    pub endpoint: TransferEndpoint,
    /// The process's memory.
    pub memory: LocalMemory,
    /// The other process's memory.
    pub remote: RemoteMemory,
    /// The engine's name.
    pub engine: String,
    /// The second process, if this process is the first.
    pub second: Option<Child>,
}

impl Side {
    /// Opens the engine named on the command line, `shm` by default, and connects to the other process.
    pub fn open() -> Result<Self, Box<dyn Error>> {
        let mut arguments = std::env::args().skip(1);
        let engine = arguments.next().unwrap_or_else(|| "shm".to_owned());
        let is_second = arguments.next().as_deref() == Some(SECOND);
        let options = TransportOptions {
            one_host: true,
            ..TransportOptions::default()
        };
        let transport = Transport::open(&engine, &options)?;
        let (id, peer) = if is_second { (1, 0) } else { (0, 1) };
        let endpoint = transport.endpoint(&EndpointConfig::new(id))?;
        let memory = endpoint.allocate("host", BYTES as u64)?;
        let told = [
            endpoint.address_for(peer)?.encode(),
            memory.remote().encode(),
        ];

        let mut second = None;
        let [address, remote] = if is_second {
            told.iter().for_each(|line| println!("{line}"));
            two_lines(std::io::stdin().lock())?
        } else {
            let mut child = Command::new(std::env::current_exe()?)
                .args([&engine, SECOND])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()?;
            let mut input = child.stdin.take().ok_or("no pipe")?;
            told.iter().try_for_each(|line| writeln!(input, "{line}"))?;
            let output = child.stdout.take().ok_or("no pipe")?;
            second = Some(child);
            two_lines(BufReader::new(output))?
        };
        endpoint.connect(&[PeerAddress::decode(&address)?], TIMEOUT)?;
        Ok(Self {
            endpoint,
            memory,
            remote: RemoteMemory::decode(&remote)?,
            engine,
            second,
        })
    }

    /// Waits for the second process to end, and prints the result.
    pub fn close(self, what: &str) -> Result<(), Box<dyn Error>> {
        if let Some(mut second) = self.second {
            let status = second.wait()?;
            if !status.success() {
                return Err(format!("the second process ended with {status}").into());
            }
            println!(
                "{}: {what}, between two processes: every byte is correct",
                self.engine
            );
        }
        Ok(())
    }

    /// Waits for each of these arrivals, and then checks this side's memory. Waiting also polls the engine, because the
    /// other side's reads may need this side's polls.
    pub fn check_at_arrivals(&self, imms: [u32; 2], bytes: &[u8]) -> Result<(), Box<dyn Error>> {
        for expected in imms {
            let arrived = self.endpoint.wait_arrival(TIMEOUT)?;
            if arrived.imm != expected {
                return Err(format!("{} arrived, not {expected}", arrived.imm).into());
            }
            self.check(bytes)?;
        }
        Ok(())
    }

    /// Compares this side's memory with the expected bytes.
    pub fn check(&self, expected: &[u8]) -> Result<(), Box<dyn Error>> {
        let mut bytes = vec![0; expected.len()];
        self.memory.read(0, &mut bytes)?;
        match bytes
            .iter()
            .zip(expected)
            .position(|(found, wanted)| found != wanted)
        {
            None => Ok(()),
            Some(at) => Err(format!("byte {at} is {}, not {}", bytes[at], expected[at]).into()),
        }
    }
}

/// Returns bytes that differ between seeds and offsets.
pub fn pattern(seed: u8) -> Vec<u8> {
    (0..BYTES)
        .map(|at| (at as u32 * 31 + (at as u32 >> 9)) as u8 ^ seed)
        .collect()
}

fn two_lines(input: impl BufRead) -> Result<[String; 2], Box<dyn Error>> {
    let mut lines = input.lines();
    let mut next = || lines.next().ok_or("the other process sent no line");
    Ok([next()??, next()??])
}
