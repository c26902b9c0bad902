//! Engines that exist only by name, for tests of what is checked before any engine is opened.

use std::sync::Arc;

use tonnage_engine::calls::{FileDomain, FileEntry, OpenFiles};
use tonnage_engine::{Domain, EngineOption, Entry, OpenRequest, Variant, Verb};
use tonnage_units::{Error, Result};

const fn entry(
    name: &'static str,
    verbs: &'static [Verb],
    ordered_writes: bool,
    moves_bytes: bool,
) -> Entry {
    fn open(_: &OpenRequest<'_>) -> Result<Vec<Arc<dyn Domain>>> {
        Err(Error::Failed("tests of plans open no engine".to_owned()))
    }
    Entry {
        name,
        about: "",
        variant: None,
        options: &[],
        has_devices: false,
        libraries: &[],
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

/// What the plans that ship name.
pub(super) const SHIPPED: [Entry; 3] = [
    entry("null", &Verb::ALL, true, false),
    entry("shm", &Verb::ALL, true, true),
    Entry {
        variant: Some(Variant {
            what: "PROVIDER",
            everywhere: &["shm", "tcp"],
        }),
        ..entry("fabric", &Verb::ALL, true, true)
    },
];

const fn files(name: &'static str, queues: bool, collective: bool) -> FileEntry {
    fn open(_: &OpenFiles<'_>) -> Result<Arc<dyn FileDomain>> {
        Err(Error::Failed("tests of plans open no engine".to_owned()))
    }
    FileEntry {
        name,
        about: "",
        options: &[],
        queues,
        threads: !collective,
        collective,
        direct: !collective,
        libraries: &[],
        open,
    }
}

/// One transfer at a time, many of them, and all ranks together.
pub(super) const FILE_ENGINES: [FileEntry; 3] = [
    files("posix", false, false),
    FileEntry {
        options: &[EngineOption {
            name: "polling",
            values: &["off", "on"],
            variants: &[],
            about: "",
        }],
        ..files("uring", true, false)
    },
    files("mpiio", false, true),
];
