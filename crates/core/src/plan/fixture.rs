//! Engines that exist only by name, for tests of what is checked before any engine is opened.

use crate::Error;
use crate::engine::{Entry, Verb};

const fn entry(
    name: &'static str,
    verbs: &'static [Verb],
    ordered_writes: bool,
    moves_bytes: bool,
) -> Entry {
    let open = || Err(Error::Failed("tests of plans open no engine".to_owned()));
    Entry {
        name,
        about: "",
        verbs,
        ordered_writes,
        moves_bytes,
        open,
    }
}

/// One of each kind: nothing moves, everything works, and one-sided without order.
pub(super) const ENGINES: [Entry; 3] = [
    entry("null", &Verb::ALL, true, false),
    entry("shm", &Verb::ALL, true, true),
    entry(
        "loose",
        &[Verb::Write, Verb::WriteImm, Verb::Read],
        false,
        true,
    ),
];
