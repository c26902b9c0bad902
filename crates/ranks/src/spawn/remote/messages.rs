//! The lines that pass through ssh: orders to agents, their reports, and the start messages of ranks.
//!
//! A line is a prefix, followed by JSON. The prefix distinguishes the line from output of a login shell. With JSON, an
//! agent of another version can still report its version.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::super::RankExit;
use crate::bootstrap::secret::Secret;
use tonnage_units::identity::{AddressSource, Identity, Meeting};
use tonnage_units::{Error, Result};

/// Limit on a rank's start message. It is large, because the message contains the records of a resumed file.
const LETTER_BYTES_MAX: u64 = 1 << 32;

/// Prefix of every line.
const MARK: &str = "@tonnage ";

/// First byte of a line with a record of rank 0 that is final.
pub const RECORD: u8 = b'R';
/// First byte of a line with a record that a later one will replace.
pub const CHECKPOINT: u8 = b'C';

/// Version and revision of a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramBuild {
    pub version: String,
    pub revision: String,
}

/// The text of a secret, which is never printed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SecretText(pub String);

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretText")
    }
}

/// An address of an interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostAddress {
    pub interface: String,
    pub ip: IpAddr,
}

/// The first report of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentHello {
    /// Build of the agent. Agents of all versions send it.
    pub build: ProgramBuild,
    /// Path of its program.
    #[serde(default)]
    pub program: String,
    /// The host's own name.
    #[serde(default)]
    pub name: String,
    /// The boot's identifier, as in [`crate::RankInfo`].
    #[serde(default)]
    pub boot_id: String,
    /// The network namespace, as in [`crate::RankInfo`].
    #[serde(default)]
    pub network_namespace: String,
    /// The PID namespace, as in [`crate::RankInfo`].
    #[serde(default)]
    pub pid_namespace: String,
    /// The address at which ssh connected.
    #[serde(default)]
    pub ssh_address: Option<IpAddr>,
    /// Addresses of interfaces that are up.
    #[serde(default)]
    pub addresses: Vec<HostAddress>,
}

/// An order to an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum AgentOrder {
    /// Listen on addresses at which rank 0 may be met, and answer trial connections.
    Listen {
        /// Addresses to listen on.
        addresses: Vec<IpAddr>,
        /// If set, use the addresses of this interface instead.
        interface: Option<String>,
        /// The port; 0 lets the system choose.
        port: u16,
        /// The answer to trial connections.
        token: String,
    },
    /// Connect to these addresses in a trial.
    Try {
        /// The addresses.
        addresses: Vec<SocketAddr>,
        /// The answer that the right host gives.
        token: String,
    },
    /// Describe the host.
    Describe,
    /// Report the time.
    Clock,
    /// Start the ranks of the host.
    Start(Box<StartOrder>),
    /// Send a signal to a rank.
    Signal {
        /// The rank.
        rank: u32,
        /// The signal.
        signal: i32,
    },
    /// Heartbeat.
    Alive,
}

/// Order to start ranks on a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartOrder {
    /// Number of the first rank to start.
    pub first: u32,
    /// Number of ranks to start.
    pub count: u32,
    /// Number of all ranks of the run.
    pub size: u32,
    /// The run's secret.
    pub secret: SecretText,
    /// The address of rank 0.
    pub meeting: SocketAddr,
    /// Directory to start the ranks in, if it exists.
    pub directory: String,
    /// Whether the directory must exist.
    pub needs_directory: bool,
    /// Variables for the ranks.
    pub variables: Vec<(String, String)>,
    /// The job, in the form that the command reads.
    pub job: String,
    /// Rank 0's own job, if rank 0 is among these ranks.
    pub root_job: Option<String>,
}

/// The start parameters of a rank, which it reads from its standard input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartLetter {
    /// The rank's number, 0 .. `size`.
    pub rank: u32,
    /// Number of all ranks.
    pub size: u32,
    /// Index among the ranks of the host.
    pub local_rank: u32,
    /// Number of ranks of the host.
    pub local_size: u32,
    /// PID of the agent.
    pub parent: u32,
    /// The run's secret.
    pub secret: SecretText,
    /// The address of rank 0.
    pub meeting: SocketAddr,
    /// For rank 0: the number of the open file that is its listening socket.
    pub listener: Option<i32>,
    /// For rank 0: the number of the open file to which it writes its records.
    pub records: Option<i32>,
    /// The job, in the form that the command reads.
    pub job: String,
}

impl StartLetter {
    /// Reads the start message from standard input. [`Error::Usage`] if standard input is something else.
    pub fn from_input() -> Result<Self> {
        let mut text = String::new();
        let input = std::io::stdin().lock().take(LETTER_BYTES_MAX);
        let taken = { input }.read_to_string(&mut text);
        taken.map_err(|error| Error::io("cannot read the letter to this rank", error))?;
        decode_line(&text)?.ok_or_else(|| {
            Error::Usage("this command is for ranks that `tonnage --hosts` starts: use --hosts, or --ranks N".into())
        })
    }

    /// Returns the rank's identity.
    pub fn identity(&self) -> Identity {
        Identity {
            rank: self.rank,
            size: self.size,
            local_rank: self.local_rank,
            local_size: Some(self.local_size),
            source: "tonnage --hosts".to_owned(),
            meeting: match self.size {
                1 => Meeting::Alone,
                _ => Meeting::Master {
                    host: self.meeting.ip().to_string(),
                    port: self.meeting.port(),
                    source: AddressSource::Launcher,
                },
            },
        }
    }

    /// Returns the run's secret.
    pub fn secret(&self) -> Result<Secret> {
        Secret::from_text(&self.secret.0)
    }

    /// Returns the listening socket, if this is rank 0.
    pub fn listener(&self) -> Result<Option<std::net::TcpListener>> {
        let file = self.listener.map(inherited_descriptor).transpose()?;
        Ok(file.map(Into::into))
    }

    /// Returns the file for records, if this is rank 0.
    pub fn records(&self) -> Result<Option<std::fs::File>> {
        let file = self.records.map(inherited_descriptor).transpose()?;
        Ok(file.map(Into::into))
    }
}

/// Duplicates an open file that this process inherited from the agent.
fn inherited_descriptor(number: i32) -> Result<OwnedFd> {
    tonnage_sys::descriptor::duplicate(number)
        .map_err(|error| Error::io(format!("open file {number} of the agent"), error))
}

/// A report of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum AgentReport {
    /// The agent is ready.
    Hello(Box<AgentHello>),
    /// The agent listens for connections.
    Listening {
        /// The addresses.
        addresses: Vec<SocketAddr>,
    },
    /// Outcome of a trial.
    Tried {
        /// For each address, the reason why it was not reached; `None` if it was.
        failures: Vec<Option<String>>,
    },
    /// The agent's time.
    Clock {
        /// Nanoseconds since 1970.
        unix_ns: u64,
    },
    /// The host's description.
    Described {
        /// The description, as the command formats it.
        text: String,
    },
    /// A rank was started.
    Started {
        /// The rank.
        rank: u32,
        /// PID of the rank's process.
        pid: u32,
    },
    /// A rank has printed a line.
    Line {
        /// The rank.
        rank: u32,
        /// True for standard error.
        is_error: bool,
        /// The line.
        text: String,
    },
    /// Rank 0 has written a record.
    Record {
        /// True if a later record will replace this one.
        is_checkpoint: bool,
        /// The record as a line.
        text: String,
    },
    /// A rank was stopped or resumed.
    Stopped {
        /// The rank.
        rank: u32,
        /// The signal that stopped it; `None` if it was resumed.
        by: Option<i32>,
    },
    /// A rank has ended.
    Ended {
        /// The rank.
        rank: u32,
        /// How the rank ended.
        exit: RankExit,
    },
    /// An order failed.
    Failed {
        /// The reason.
        message: String,
        /// Whether the failure is [`Error::Usage`]: the request itself is wrong.
        is_usage: bool,
    },
    /// Heartbeat.
    Alive,
}

/// Encodes a message as a line.
pub fn encode_line<T: Serialize>(message: &T) -> Result<String> {
    let text = serde_json::to_string(message)
        .map_err(|error| Error::Failed(format!("a message cannot be written: {error}")))?;
    Ok(format!("{MARK}{text}\n"))
}

/// Writes a message and flushes it.
pub fn write_line<T: Serialize>(to: &mut impl Write, message: &T) -> Result<()> {
    let text = encode_line(message)?;
    let sent = to.write_all(text.as_bytes()).and_then(|()| to.flush());
    sent.map_err(|error: io::Error| Error::io("cannot write to the other end of ssh", error))
}

/// Decodes a line; `None` if the line does not have the prefix.
pub fn decode_line<T: DeserializeOwned>(line: &str) -> Result<Option<T>> {
    let Some(text) = line.trim_end().strip_prefix(MARK) else {
        return Ok(None);
    };
    let read = serde_json::from_str(text);
    read.map(Some).map_err(|error| {
        Error::Failed(format!(
            "cannot decode a line from the other end of ssh: {error}"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_round_trip_and_other_lines_are_ignored() {
        let ended = AgentReport::Ended {
            rank: 3,
            exit: RankExit::Signal(9),
        };
        let text = encode_line(&ended).unwrap();
        assert_eq!(text.matches('\n').count(), 1);
        assert_eq!(decode_line::<AgentReport>(&text).unwrap(), Some(ended));
        assert_eq!(decode_line::<AgentReport>("Welcome to h1").unwrap(), None);
        assert!(decode_line::<AgentReport>("@tonnage {").is_err());
    }

    #[test]
    fn an_agent_of_another_version_is_understood() {
        let text =
            "@tonnage {\"Hello\":{\"build\":{\"version\":\"9\",\"revision\":\"x\"},\"new\":1}}";
        let Some(AgentReport::Hello(hello)) = decode_line(text).unwrap() else {
            panic!("no hello")
        };
        assert_eq!(hello.build.version, "9");
    }
}
