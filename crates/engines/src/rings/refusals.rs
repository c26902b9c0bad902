//! Reasons why a send does not land in the receive that it meets, and other words for what goes wrong with rings.

use tonnage_engine::{Completion, Ending, Failure, LaneKind, Peer};
use tonnage_sys::mapping::OutOfRange;
use tonnage_units::Error;

/// The system's error number for a message that is longer than the receive it meets.
pub(crate) const MESSAGE_TOO_LONG: i32 = 90;

/// The system's error number for a send whose receive lies in another region than its lane says.
pub(crate) const OTHER_REGION: i32 = 22;

/// Meaning of a failed completion of an engine with rings.
pub(crate) fn failure(
    engine: &str,
    done: &Completion,
    lane: Option<(LaneKind, Option<Peer>)>,
) -> Failure {
    let (name, usual_cause) = match done.ending {
        Ending::Failed(MESSAGE_TOO_LONG) => (
            "message too long",
            Some("the peer posted a receive that is shorter than the message"),
        ),
        Ending::Failed(OTHER_REGION) => (
            "receive in another region",
            Some("the lane names another region of the peer than its receives lie in"),
        ),
        _ => ("not a failure", None),
    };
    let of = (lane.map(|(kind, _)| kind), lane.and_then(|(_, peer)| peer));
    described(engine, done, of, (name, usual_cause))
}

/// A failed completion of an engine that has names and causes of its own.
pub(crate) fn described(
    engine: &str,
    done: &Completion,
    (operation, peer): (Option<LaneKind>, Option<Peer>),
    (name, usual_cause): (&str, Option<&str>),
) -> Failure {
    Failure {
        name: name.to_owned(),
        code: match done.ending {
            Ending::Failed(code) => code,
            Ending::Done | Ending::Arrived => 0,
        },
        engine: engine.to_owned(),
        operation,
        peer,
        usual_cause: usual_cause.map(str::to_owned),
        ..Failure::default()
    }
}

/// An error of rings in which a word is missing.
pub(crate) fn torn(engine: &str, error: OutOfRange) -> Error {
    Error::Failed(format!("a ring of {engine} was torn: {error}"))
}
