//! Messages between ranks on the control channel, and their encoding.
//!
//! A message is a short head, followed by a payload of bytes. Heads use the common binary format (`super::pack`). Only
//! a rank's introduction and the cause of an end are text, because ranks of different versions must be able to report
//! the mismatch. Payloads are opaque here. [`super::frame`] limits the length of messages.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::pack::{pack, unpack_first};
use crate::rank_set::RankSet;
use crate::{ClockOffset, RankInfo};
use tonnage_units::{Error, Nanos, Result};

/// Limit on the head of one message.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Limit on a text inside a head, so that no error message can make a head too long.
const TEXT_BYTES_MAX: usize = 8 << 10;

/// Limit on the name of a collective or a phase.
const NAME_BYTES_MAX: usize = 256;

/// The head of a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum MessageHead {
    // A rank introduces itself to rank 0. This variant and the next must stay first, so that their numbers are the same
    // in all versions.
    Hello(#[serde(with = "text")] Box<Hello>),
    /// The run has ended.
    Abort {
        /// Why the run has ended: the first cause.
        #[serde(with = "text")]
        cause: EndCause,
    },
    /// Rank 0's answer once all ranks have arrived.
    Welcome(Box<Welcome>),
    /// A rank introduces itself to a parent other than rank 0.
    Attach {
        /// The sender.
        info: Box<RankInfo>,
    },
    /// All members at and below the sender have entered a collective. The payload is their combined contribution.
    Up(CollectiveTerms),
    /// The result of a collective, on its way down the tree.
    Down {
        /// Number of the collective.
        call: CallNumber,
    },
    /// A note from one rank to rank 0, which does not answer. The payload is the text of the note.
    Note {
        /// The rank that wrote it.
        rank: u32,
    },
    /// The sender is alive.
    Beat,
    /// Asks the parent for its clock.
    ClockPing {
        /// The sender's clock, echoed in the answer.
        sent_ns: u64,
    },
    /// The parent's clock.
    ClockPong {
        /// The asking rank's clock, echoed.
        sent_ns: u64,
        /// The answering rank's clock.
        at_ns: u64,
        /// Largest rate at which the kernel slews the answering rank's clock, or any other clock on its path to rank 0.
        slew_ppb: u64,
    },
    /// The sender's clock relative to rank 0's. The receiver adds its own offset from the sender.
    ClockBase(ClockBase),
    /// A rank has waited too long in a collective. The message is forwarded to the root.
    Overdue {
        terms: CollectiveTerms,
        waited_ms: u64,
    },
    /// The root asks every rank whether it has entered a collective.
    Who {
        /// Number of the collective.
        call: CallNumber,
        /// The ranks that must enter the collective. Other ranks only confirm that they received the question.
        members: RankSet,
    },
    /// Answers of the ranks at and below the sender, in the payload. They are forwarded to the root.
    Answer {
        /// Number of the collective.
        call: CallNumber,
    },
    /// The sender ends normally, so closing the connection afterwards is not a failure.
    Goodbye,
}

/// A rank's introduction when it joins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    /// The rank itself.
    pub info: RankInfo,
    /// Number of ranks that the rank expects.
    pub size: u32,
    /// Version of the program.
    pub version: String,
    /// Hash of the plan that the rank will run.
    pub plan_hash: String,
    /// Address on which the rank listens, if it may get children.
    pub listen: Option<SocketAddr>,
    /// CPUs that the rank may run on, such as "0-3,8".
    pub cpus: String,
}

/// Rank 0's answer to an introduction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Welcome {
    /// The receiver's parent in the tree.
    pub parent: RankInfo,
    /// The parent's address. `None` if the parent is rank 0, because this connection then stays in use.
    pub address: Option<SocketAddr>,
    /// Name of rank 0's clock (its boot and time namespace).
    pub root_clock: String,
    /// Number of ranks on the most crowded CPU of all hosts.
    pub ranks_per_cpu: u32,
}

/// Description of a collective that all its members must agree on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CollectiveTerms {
    pub call: CallNumber,
    /// The ranks that enter the collective.
    pub members: RankSet,
    pub kind: CollectiveKind,
    /// The caller's name for the collective, for messages.
    pub what: String,
}

/// An estimate of the offset from rank 0's clock, and the length of the path over which it was measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockBase {
    pub clock: ClockOffset,
    /// Sum of the round trips of all links to rank 0.
    pub path_rtt_ns: u64,
}

/// Number of a collective. A collective of a group is numbered between two collectives of all ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CallNumber {
    /// Number of earlier collectives of all ranks.
    pub seq: u64,
    /// 0 for a collective of all ranks; otherwise unique among the group collectives with the same `seq`.
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

/// How the contributions of a collective are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CollectiveKind {
    /// No data is exchanged.
    Barrier,
    /// Every rank gets every contribution.
    Gather,
    /// Every rank gets the messages addressed to it.
    Exchange,
    /// Every rank gets rank 0's contribution.
    Broadcast,
    /// Contributions are merged on the way up; every rank gets the result.
    Reduce,
    /// Like `Reduce`. In addition, all ranks get a start time on rank 0's clock, a little in the future.
    Start,
    /// Contributions are merged on the way up; only rank 0 gets the result.
    Collect,
}

/// The cause of a run's end in serializable form: an [`Error`] without the parts that only its own process can use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum EndCause {
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
    /// An [`Error::Rank`] that another rank reports, because the failed rank is gone or silent.
    Lost {
        rank: u32,
        host: String,
        message: String,
    },
    Interrupted {
        signal: i32,
        rank: Option<(u32, String)>,
    },
    TimeLimit {
        limit_ns: u64,
    },
}

impl EndCause {
    /// Converts an error that occurred on the given rank.
    pub fn from_error(error: &Error, rank: u32, host: &str) -> Self {
        match error {
            Error::Usage(text) => Self::Usage(clip_text(text)),
            Error::Unavailable { what, why, how } => Self::Unavailable {
                what: clip_text(what),
                why: clip_text(why),
                how: clip_text(how),
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
            Error::TimeLimit(limit) => Self::TimeLimit { limit_ns: limit.0 },
            Error::Io { .. } | Error::Failed(_) => Self::rank(rank, host, &error.to_string()),
        }
    }

    /// Returns the cause for a signal that one rank received.
    pub fn interrupted(signal: i32, rank: u32, host: &str) -> Self {
        Self::Interrupted {
            signal,
            rank: Some((rank, clip_text(host))),
        }
    }

    /// Returns the cause for a rank that is gone or silent.
    pub fn lost(rank: u32, host: &str, message: &str) -> Self {
        Self::Lost {
            rank,
            host: clip_text(host),
            message: clip_text(message),
        }
    }

    /// Returns the cause for a failure of one rank.
    pub fn rank(rank: u32, host: &str, message: &str) -> Self {
        Self::Rank {
            rank,
            host: clip_text(host),
            message: clip_text(message),
        }
    }
}

impl From<&EndCause> for Error {
    fn from(cause: &EndCause) -> Self {
        match cause.clone() {
            EndCause::Usage(text) => Self::Usage(text),
            EndCause::Unavailable { what, why, how } => Self::Unavailable { what, why, how },
            EndCause::Rank {
                rank,
                host,
                message,
            }
            | EndCause::Lost {
                rank,
                host,
                message,
            } => Self::Rank {
                rank,
                host,
                message,
            },
            EndCause::Interrupted { signal, rank } => Self::Interrupted { signal, rank },
            EndCause::TimeLimit { limit_ns } => Self::TimeLimit(Nanos(limit_ns)),
        }
    }
}

/// Cuts a text to [`TEXT_BYTES_MAX`] bytes, so that every head stays below [`HEAD_BYTES_MAX`].
pub(crate) fn clip_text(text: &str) -> String {
    if text.len() <= TEXT_BYTES_MAX {
        return text.to_owned();
    }
    let end = (0..=TEXT_BYTES_MAX)
        .rev()
        .find(|&end| text.is_char_boundary(end))
        .unwrap_or(0);
    format!("{}…", text.get(..end).unwrap_or_default())
}

/// Serde functions that store a value as JSON text inside a head.
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

/// Cuts a caller's name to fit into a message.
pub(crate) fn clip_name(text: &str) -> String {
    if text.len() <= NAME_BYTES_MAX {
        return text.to_owned();
    }
    text.chars().take(64).collect()
}

/// A message: head and payload.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// The head.
    pub head: MessageHead,
    /// The bytes that follow the head.
    pub payload: Vec<u8>,
}

impl Message {
    /// Encodes a message, without the frame around it.
    pub fn encode(head: &MessageHead, payload: &[u8]) -> Result<Vec<u8>> {
        let mut bytes = pack(head)?;
        if bytes.len() > HEAD_BYTES_MAX {
            return Err(Error::Failed(format!(
                "the head of a control message has {} bytes, more than the bound",
                bytes.len()
            )));
        }
        bytes.extend_from_slice(payload);
        Ok(bytes)
    }

    /// Decodes a message from the bytes of one frame.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let (head, payload) = unpack_first(bytes)
            .map_err(|error| Error::Failed(format!("cannot decode a control message: {error}")))?;
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
    fn messages_round_trip() {
        let hello = Hello {
            info: rank_info(1, "h"),
            size: 2,
            version: "1".into(),
            plan_hash: "x".into(),
            listen: None,
            cpus: "0-3,8".into(),
        };
        let heads = [
            MessageHead::Hello(Box::new(hello)),
            MessageHead::Up(CollectiveTerms {
                call: CallNumber {
                    seq: u64::MAX,
                    turn: 3,
                },
                members: RankSet::from_ranks([1, 2, 7]),
                kind: CollectiveKind::Reduce,
                what: "trial 1".into(),
            }),
            MessageHead::Abort {
                cause: EndCause::rank(3, "h", "gone"),
            },
            MessageHead::ClockBase(ClockBase {
                clock: ClockOffset {
                    offset_ns: i64::MIN,
                    uncertainty_ns: u64::MAX,
                },
                path_rtt_ns: 1,
            }),
            MessageHead::Note { rank: 3 },
            MessageHead::Goodbye,
        ];
        for head in heads {
            let decoded = Message::decode(&Message::encode(&head, b"payload").unwrap()).unwrap();
            assert_eq!(decoded.head, head);
            assert_eq!(decoded.payload, b"payload");
        }
    }

    #[test]
    fn long_texts_are_cut_and_still_travel() {
        let head = MessageHead::Abort {
            cause: EndCause::from_error(&Error::Failed("ü".repeat(1 << 20)), 1, "h"),
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
            Error::TimeLimit(Nanos(5_000_000_000)),
        ] {
            let travelled = Error::from(&EndCause::from_error(&error, 9, "x"));
            assert_eq!(travelled.to_string(), error.to_string());
        }
        let wrapped = Error::from(&EndCause::from_error(&Error::Failed("m".into()), 9, "x"));
        assert_eq!(wrapped.to_string(), "rank 9 on x: m");
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Message::decode(&bytes);
        }
    }
}
