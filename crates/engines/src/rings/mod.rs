//! Rings in shared memory by which two workers of one host tell each other what arrived and where sends may land: what
//! engines have in common whose initiator moves the bytes itself.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `mailbox` | the rings |
//! | `contacts` | making them for peers, and mapping those of peers |
//!
//! Bytes and whoever moves them are the engines': see [`crate::shm`] and [`crate::cuda_ipc`].

mod contacts;
mod mailbox;

pub(crate) use contacts::Contacts;
#[cfg(test)]
pub(crate) use mailbox::tests::pair;
pub(crate) use mailbox::{Arrival, ArrivalEntry, DEPTH, Outbox, PeerRings, take_arrivals};

use tonnage_engine::{Completion, Ending, Failure, LaneKind, Peer};
use tonnage_sys::mapping::OutOfRange;
use tonnage_units::Error;

/// The system's error number for a message that is longer than the receive it meets.
pub(crate) const MESSAGE_TOO_LONG: i32 = 90;

/// The system's error number for a send whose receive lies in another region than its lane says.
pub(crate) const OTHER_REGION: i32 = 22;

/// Meaning of [`OTHER_REGION`].
pub(crate) const IN_OTHER_REGION: (i32, &str, &str) = (
    OTHER_REGION,
    "receive in another region",
    "the lane names another region of the peer than its receives lie in",
);

/// Meaning of a failed completion, of an engine with one more code: the code, its name and its usual cause.
pub(crate) fn failure(
    engine: &str,
    done: &Completion,
    lane: Option<(LaneKind, Peer)>,
    (own_code, own_name, own_cause): (i32, &str, &str),
) -> Failure {
    let code = match done.ending {
        Ending::Failed(code) => code,
        Ending::Done | Ending::Arrived => 0,
    };
    let (name, usual_cause) = match code {
        MESSAGE_TOO_LONG => (
            "message too long",
            Some("the peer posted a receive that is shorter than the message"),
        ),
        code if code == own_code => (own_name, Some(own_cause)),
        _ => ("not a failure", None),
    };
    Failure {
        name: name.to_owned(),
        code,
        engine: engine.to_owned(),
        operation: lane.map(|(kind, _)| kind),
        peer: lane.map(|(_, peer)| peer),
        usual_cause: usual_cause.map(str::to_owned),
        ..Failure::default()
    }
}

/// An error of rings in which a word is missing.
pub(crate) fn torn(engine: &str, error: OutOfRange) -> Error {
    Error::Failed(format!("a ring of {engine} was torn: {error}"))
}
