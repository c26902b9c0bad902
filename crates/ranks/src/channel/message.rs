//! Messages of ranks on the control channel, and their form as bytes.
//!
//! A message is a small head and behind it a payload of bytes. Heads travel as all values do (`super::pack`), except
//! for the introduction of a rank and the cause of an end, which are text inside of their heads: ranks of two versions
//! have to tell each other that they are. Payloads are opaque here; bounds on whole messages are kept by
//! [`super::frame`].

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::pack::{pack, unpack_first};
use crate::rank_set::RankSet;
use crate::{ClockOffset, RankInfo};
use tonnage_units::{Error, Result};

/// Bound on the head of one message.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Bound on a text inside a head, so that no error message can make a head too long.
const TEXT_BYTES_MAX: usize = 8 << 10;

/// Bound on a caller's name for an exchange or a phase.
const NAME_BYTES_MAX: usize = 256;

/// The head of a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Head {
    // First, so that the numbers of these two are the same in all versions.
    /// A rank introduces itself to rank 0.
    Hello(#[serde(with = "text")] Box<Hello>),
    /// The run is over because of this.
    Abort {
        /// The first cause.
        #[serde(with = "text")]
        cause: Cause,
    },
    /// Rank 0 answers when all ranks have come.
    Welcome(Box<Welcome>),
    /// A rank introduces itself to a parent other than rank 0.
    Attach {
        /// The sender.
        info: Box<RankInfo>,
    },
    /// All members at and below the sender have entered a collective; the payload is their contribution.
    Up(Terms),
    /// The result of a collective, from the root downwards.
    Down {
        /// Number of the collective.
        call: CallNumber,
    },
    /// A note of one rank to rank 0, which nobody waits for; the payload is the note.
    Note {
        /// The rank that wrote it.
        rank: u32,
    },
    /// The sender is alive.
    Beat,
    /// Asks the parent for its clock.
    ClockPing {
        /// The sender's clock, given back in the answer.
        sent_ns: u64,
    },
    /// The parent's clock.
    ClockPong {
        /// The sender's clock, as it came.
        sent_ns: u64,
        /// The answering rank's clock.
        at_ns: u64,
        /// The most by which the kernel slews the answering rank's clock, or another one on its path to rank 0.
        slew_ppb: u64,
    },
    /// The sender's own estimate against rank 0, so that the receiver can add its own.
    ClockBase(ClockBase),
    /// A rank waited too long in a collective; goes to the root.
    Overdue { terms: Terms, waited_ms: u64 },
    /// The root asks every rank whether it has entered a collective.
    Who {
        /// Number of the collective.
        call: CallNumber,
        /// The ranks that enter it; the others only say that they have heard.
        members: RankSet,
    },
    /// Answers of ranks at and below the sender; the payload is what they say. Goes to the root.
    Answer {
        /// Number of the collective.
        call: CallNumber,
    },
    /// The sender ends in order; its closing the connection is no failure.
    Goodbye,
}

/// A rank's introduction when it joins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    /// The rank itself.
    pub info: RankInfo,
    /// Number of ranks that it was told of.
    pub size: u32,
    /// Version of the program.
    pub version: String,
    /// Hash of the plan that it will run.
    pub plan_hash: String,
    /// Address for its children, if it will have any.
    pub listen: Option<SocketAddr>,
    /// CPUs that it may run on, such as "0-3,8".
    pub cpus: String,
}

/// Rank 0's answer to an introduction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Welcome {
    /// The receiver's parent in the tree.
    pub parent: RankInfo,
    /// The parent's address; `None` when it is rank 0, and this connection stays.
    pub address: Option<SocketAddr>,
    /// Name of rank 0's clock.
    pub root_clock: String,
    /// Number of ranks of the most crowded CPU of all hosts.
    pub ranks_per_cpu: u32,
}

/// What all who enter a collective must agree on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Terms {
    pub call: CallNumber,
    /// The ranks that enter it.
    pub members: RankSet,
    pub kind: CollectiveKind,
    /// The caller's name for it.
    pub what: String,
}

/// An estimate against rank 0's clock, and the path that it was made over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockBase {
    pub clock: ClockOffset,
    /// Round trips of all links to rank 0, added up.
    pub path_rtt_ns: u64,
}

/// Number of a collective. Ranks that meet without the others count their meetings for themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CallNumber {
    /// Collectives of all ranks that were before it.
    pub seq: u64,
    /// 0 for one of all ranks; else a number that no other has between two of them.
    pub turn: u64,
}

impl std::fmt::Display for CallNumber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.turn {
            0 => write!(f, "call {}", self.seq),
            turn => write!(f, "call {}, turn {turn}", self.seq),
        }
    }
}

/// Way to combine the contributions of a collective.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CollectiveKind {
    /// Nothing is exchanged.
    Barrier,
    /// Every rank gets every contribution.
    Gather,
    /// Every rank gets what others have sent to it.
    Exchange,
    /// Every rank gets rank 0's contribution.
    Broadcast,
    /// Contributions are merged on the way.
    Reduce,
    /// Contributions are merged on the way, and an instant of rank 0's clock a little in the future is before them.
    Start,
    /// Contributions are merged on the way to rank 0, which alone gets them.
    Collect,
}

/// The cause of a run's end, in a form that travels: [`Error`] without what only its own process understands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cause {
    Usage(String),
    Unavailable {
        what: String,
        why: String,
        how: String,
    },
    Rank {
        rank: u32,
        host: String,
        message: String,
    },
    /// [`Error::Rank`], of a rank that is gone or silent and cannot say it.
    Lost {
        rank: u32,
        host: String,
        message: String,
    },
    Interrupted {
        signal: i32,
        rank: Option<(u32, String)>,
    },
}

impl Cause {
    /// The cause that this error of the given rank is for the others.
    pub fn of(error: &Error, rank: u32, host: &str) -> Self {
        match error {
            Error::Usage(text) => Self::Usage(clip(text)),
            Error::Unavailable { what, why, how } => Self::Unavailable {
                what: clip(what),
                why: clip(why),
                how: clip(how),
            },
            Error::Rank {
                rank,
                host,
                message,
            } => Self::rank(*rank, host, message),
            Error::Interrupted { signal, rank: None } => Self::interrupted(*signal, rank, host),
            Error::Interrupted {
                signal,
                rank: Some((rank, host)),
            } => Self::interrupted(*signal, *rank, host),
            Error::Io { .. } | Error::Failed(_) => Self::rank(rank, host, &error.to_string()),
        }
    }

    /// A signal that one rank got.
    pub fn interrupted(signal: i32, rank: u32, host: &str) -> Self {
        Self::Interrupted {
            signal,
            rank: Some((rank, clip(host))),
        }
    }

    /// The loss of one rank, as another sees it.
    pub fn lost(rank: u32, host: &str, message: &str) -> Self {
        Self::Lost {
            rank,
            host: clip(host),
            message: clip(message),
        }
    }

    /// A failure of one rank.
    pub fn rank(rank: u32, host: &str, message: &str) -> Self {
        Self::Rank {
            rank,
            host: clip(host),
            message: clip(message),
        }
    }
}

impl From<&Cause> for Error {
    fn from(cause: &Cause) -> Self {
        match cause.clone() {
            Cause::Usage(text) => Self::Usage(text),
            Cause::Unavailable { what, why, how } => Self::Unavailable { what, why, how },
            Cause::Rank {
                rank,
                host,
                message,
            }
            | Cause::Lost {
                rank,
                host,
                message,
            } => Self::Rank {
                rank,
                host,
                message,
            },
            Cause::Interrupted { signal, rank } => Self::Interrupted { signal, rank },
        }
    }
}

/// The text, cut at a bound that keeps every head below its own.
pub(crate) fn clip(text: &str) -> String {
    if text.len() <= TEXT_BYTES_MAX {
        return text.to_owned();
    }
    let end = (0..=TEXT_BYTES_MAX)
        .rev()
        .find(|&end| text.is_char_boundary(end))
        .unwrap_or(0);
    format!("{}…", text.get(..end).unwrap_or_default())
}

/// A value as text inside of a head.
mod text {
    use serde::de::{DeserializeOwned, Error as _};
    use serde::ser::Error as _;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<T: Serialize, S: Serializer>(
        value: &T,
        into: S,
    ) -> Result<S::Ok, S::Error> {
        let text = serde_json::to_string(value).map_err(S::Error::custom)?;
        into.serialize_str(&text)
    }

    pub(super) fn deserialize<'de, T: DeserializeOwned, D: Deserializer<'de>>(
        from: D,
    ) -> Result<T, D::Error> {
        let text = String::deserialize(from)?;
        serde_json::from_str(&text).map_err(D::Error::custom)
    }
}

/// A caller's name for something, cut so that it fits into a message.
pub(crate) fn short(text: &str) -> String {
    if text.len() <= NAME_BYTES_MAX {
        return text.to_owned();
    }
    text.chars().take(64).collect()
}

/// Head and payload.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// The head.
    pub head: Head,
    /// The bytes that it carries.
    pub payload: Vec<u8>,
}

impl Message {
    /// The bytes of a message, without the frame around it.
    pub fn encode(head: &Head, payload: &[u8]) -> Result<Vec<u8>> {
        let mut bytes = pack(head)?;
        if bytes.len() > HEAD_BYTES_MAX {
            return Err(Error::Failed(format!(
                "a control message has a head of {} bytes",
                bytes.len()
            )));
        }
        bytes.extend_from_slice(payload);
        Ok(bytes)
    }

    /// Reads a message from the bytes of one frame.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let (head, payload) = unpack_first(bytes)
            .map_err(|error| Error::Failed(format!("a control message cannot be read: {error}")))?;
        Ok(Self {
            head,
            payload: payload.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::rank_info;
    use proptest::prelude::*;

    #[test]
    fn messages_come_back_as_they_went() {
        let hello = Hello {
            info: rank_info(1, "h"),
            size: 2,
            version: "1".into(),
            plan_hash: "x".into(),
            listen: None,
            cpus: "0-3,8".into(),
        };
        let heads = [
            Head::Hello(Box::new(hello)),
            Head::Up(Terms {
                call: CallNumber {
                    seq: u64::MAX,
                    turn: 3,
                },
                members: RankSet::of([1, 2, 7]),
                kind: CollectiveKind::Reduce,
                what: "trial 1".into(),
            }),
            Head::Abort {
                cause: Cause::rank(3, "h", "gone"),
            },
            Head::ClockBase(ClockBase {
                clock: ClockOffset {
                    offset_ns: i64::MIN,
                    uncertainty_ns: u64::MAX,
                },
                path_rtt_ns: 1,
            }),
            Head::Note { rank: 3 },
            Head::Goodbye,
        ];
        for head in heads {
            let decoded = Message::decode(&Message::encode(&head, b"payload").unwrap()).unwrap();
            assert_eq!(decoded.head, head);
            assert_eq!(decoded.payload, b"payload");
        }
    }

    #[test]
    fn long_texts_are_cut_and_still_travel() {
        let head = Head::Abort {
            cause: Cause::of(&Error::Failed("ü".repeat(1 << 20)), 1, "h"),
        };
        Message::decode(&Message::encode(&head, &[]).unwrap()).unwrap();
    }

    #[test]
    fn causes_keep_their_kind() {
        for error in [
            Error::Usage("a".into()),
            Error::Interrupted {
                signal: 2,
                rank: Some((3, "h".into())),
            },
            Error::Unavailable {
                what: "a".into(),
                why: "b".into(),
                how: "c".into(),
            },
            Error::Rank {
                rank: 1,
                host: "h".into(),
                message: "m".into(),
            },
        ] {
            let travelled = Error::from(&Cause::of(&error, 9, "x"));
            assert_eq!(travelled.to_string(), error.to_string());
        }
        let wrapped = Error::from(&Cause::of(&Error::Failed("m".into()), 9, "x"));
        assert_eq!(wrapped.to_string(), "rank 9 on x: m");
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Message::decode(&bytes);
        }
    }
}
