//! Engines that exist only by name, for tests of what is checked before any engine is opened.

use std::sync::Arc;

use tonnage_engine::calls::{FileDomain, FileEntry, OpenFiles};
use tonnage_engine::{Domain, EngineOption, Entry, OpenRequest, Variant, Verb};
use tonnage_units::{Error, Result};

use crate::files::FilePoint;
use crate::transfer::TransferPoint;
use crate::{Plan, Point};

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

/// The points of one kind, for tests of plans that have no other.
pub(crate) trait Expand {
    fn transfer_points(&self, ranks: u32, engines: &[Entry]) -> Result<Vec<TransferPoint>>;
    fn file_points(&self, ranks: u32, engines: &[FileEntry]) -> Result<Vec<FilePoint>>;
}

impl Expand for Plan {
    fn transfer_points(&self, ranks: u32, engines: &[Entry]) -> Result<Vec<TransferPoint>> {
        let planned = self.points(ranks, engines, &FILE_ENGINES)?;
        let points = planned
            .into_iter()
            .filter_map(|planned| match planned.point {
                Point::Transfer(point) => Some(point),
                Point::File(_) | Point::Connect(_) => None,
            });
        Ok(points.collect())
    }

    fn file_points(&self, ranks: u32, engines: &[FileEntry]) -> Result<Vec<FilePoint>> {
        let planned = self.points(ranks, &SHIPPED, engines)?;
        let points = planned
            .into_iter()
            .filter_map(|planned| match planned.point {
                Point::File(point) => Some(point),
                Point::Transfer(_) | Point::Connect(_) => None,
            });
        Ok(points.collect())
    }
}
