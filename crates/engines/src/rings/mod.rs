//! Rings in shared memory, through which two workers of one host report arrivals and posted receives to each other.
//! They are for engines in which the initiator itself moves the bytes.
//!
//! | file | contents |
//! | --- | --- |
//! | `mailbox` | the rings |
//! | `contacts` | creating rings for peers, and mapping those of peers |
//!
//! The engines move the bytes: see [`crate::shm`] and [`crate::cuda_ipc`].

mod contacts;
mod mailbox;

pub(crate) use contacts::Contacts;
#[cfg(test)]
pub(crate) use mailbox::tests::pair;
pub(crate) use mailbox::{Arrival, ArrivalEntry, DEPTH, Outbox, PeerRings, take_arrivals};

use tonnage_engine::{Completion, Ending, Failure, LaneKind, Peer};
use tonnage_sys::mapping::OutOfRange;
use tonnage_units::Error;

/// Error number (EMSGSIZE) for a message that is longer than its receive.
pub(crate) const MESSAGE_TOO_LONG: i32 = 90;

/// Error number (EINVAL) for a send if its receive is in another region than the lane specifies.
pub(crate) const OTHER_REGION: i32 = 22;

/// Code, name and usual cause of [`OTHER_REGION`].
pub(crate) const IN_OTHER_REGION: (i32, &str, &str) = (
    OTHER_REGION,
    "receive in another region",
    "the lane names another region of the peer than the one that contains its receives",
);

/// Describes a failed completion. The last argument is the engine's own code, with its name and usual cause.
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

/// Returns the error for rings that are shorter than expected.
pub(crate) fn ring_failure(engine: &str, error: OutOfRange) -> Error {
    Error::Failed(format!("a ring of {engine} is too short: {error}"))
}
