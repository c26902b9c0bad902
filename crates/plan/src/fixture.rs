//! Engines and memories that exist only by name. Plan tests need no more, because expanding a plan opens no engine.

use std::sync::Arc;

use tonnage_engine::calls::{FileDomain, FileEntry, OpenFiles};
use tonnage_engine::memory::MemoryEntry;
use tonnage_engine::{
    Domain, EngineOption, Entry, Lifecycle, Lists, NameVariant, OpenRequest, OptionKind, Verb,
};
use tonnage_units::{Error, Result};

use crate::files::FilePoint;
use crate::options::Group;
use crate::transfer::TransferPoint;
use crate::{Plan, Point};

pub(crate) const fn entry(
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
        lifecycle: Lifecycle::NONE,
        device_memory: None,
        one_process: false,
        verbs,
        ordered_writes,
        moves_bytes,
        open,
    }
}

/// Memories that the CPU can address, and some that it cannot.
const MEMORIES: [MemoryEntry; 5] = [
    memory("host", true),
    memory("cuda-pinned", true),
    of_gpu("cuda"),
    memory("huge", true),
    memory("far", false),
];

/// Memories that the shipped plans name.
const SHIPPED_MEMORIES: [MemoryEntry; 5] = [
    memory("host", true),
    memory("cuda-pinned", true),
    of_gpu("cuda"),
    memory("hip-pinned", true),
    of_gpu("hip"),
];

/// Options of memories that the CPU cannot address.
const MEMORY_OPTIONS: [EngineOption; 1] = [EngineOption {
    name: "alloc",
    kind: OptionKind::Choice(&["whole", "parts"]),
    variants: &[],
    about: "",
}];

const fn of_gpu(name: &'static str) -> MemoryEntry {
    MemoryEntry {
        takes_gpu: true,
        ..memory(name, false)
    }
}

const fn memory(name: &'static str, host_addressable: bool) -> MemoryEntry {
    MemoryEntry {
        name,
        about: "",
        variant: None,
        host_addressable,
        takes_gpu: false,
        options: if host_addressable {
            &[]
        } else {
            &MEMORY_OPTIONS
        },
        allocate: |_| Err(Error::Failed("tests of plans allocate nothing".to_owned())),
        available: |_| None,
        device: |_| None,
        libraries: &[],
    }
}

/// Engines and memories for plans in tests.
pub(super) static LISTS: Lists = Lists {
    engines: &ENGINES,
    file_engines: &FILE_ENGINES,
    memories: &MEMORIES,
    backends: &[
        tonnage_engine::backends::NATIVE,
        tonnage_engine::backends::TORCH,
    ],
};

/// Engines that the shipped plans name.
pub(super) static SHIPPED: Lists = Lists {
    engines: &SHIPPED_ENGINES,
    memories: &SHIPPED_MEMORIES,
    ..LISTS
};

/// One engine that moves nothing, one that supports every operation, and one that has no messages and does not keep
/// writes in order.
const ENGINES: [Entry; 3] = [
    entry("null", &Verb::ALL, true, false),
    entry("shm", &Verb::ALL, true, true),
    entry(
        "loose",
        &[Verb::Write, Verb::WriteImm, Verb::Read],
        false,
        true,
    ),
];

/// An engine that copies with the GPUs of one vendor.
const fn copies(name: &'static str) -> Entry {
    Entry {
        options: &[EngineOption {
            name: "by",
            kind: OptionKind::Choice(&["ce", "sm"]),
            variants: &[],
            about: "",
        }],
        device_memory: Some(name),
        one_process: true,
        ..entry(name, &[Verb::Write, Verb::Read], false, true)
    }
}

const SHIPPED_ENGINES: [Entry; 6] = [
    copies("cuda"),
    copies("hip"),
    entry("null", &Verb::ALL, true, false),
    entry("shm", &Verb::ALL, true, true),
    Entry {
        variant: Some(NameVariant {
            what: "PROVIDER",
            everywhere: &["shm", "tcp"],
            with_device: &[],
            one_sided: &[],
            required: true,
        }),
        has_devices: true,
        ..entry("fabric", &Verb::COPYING, true, true)
    },
    Entry {
        variant: Some(NameVariant {
            what: "TRANSPORT",
            everywhere: &[],
            with_device: &["rc", "dc", "kernel"],
            one_sided: &["dc", "kernel"],
            required: true,
        }),
        has_devices: true,
        options: &[EngineOption {
            name: "signalling",
            kind: OptionKind::Choice(&["each", "first"]),
            variants: &["kernel"],
            about: "",
        }],
        ..entry("verbs", &Verb::ALL, true, true)
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
        lifecycle: Lifecycle::NONE,
        open,
    }
}

/// One engine that runs one transfer at a time, one that queues many, and one that all ranks call together.
const FILE_ENGINES: [FileEntry; 3] = [
    files("posix", false, false),
    FileEntry {
        options: &[EngineOption {
            name: "polling",
            kind: OptionKind::Choice(&["off", "on"]),
            variants: &[],
            about: "",
        }],
        ..files("uring", true, false)
    },
    files("mpiio", false, true),
];

/// Expands plans with experiments of one kind only.
pub(crate) trait Expand {
    fn transfer_points(&self, ranks: u32) -> Result<Vec<TransferPoint>>;
    fn file_points(&self, ranks: u32) -> Result<Vec<FilePoint>>;
}

impl Expand for Plan {
    fn transfer_points(&self, ranks: u32) -> Result<Vec<TransferPoint>> {
        let planned = self.points(ranks, &LISTS)?;
        let points = planned
            .into_iter()
            .filter_map(|planned| match planned.point {
                Point::Transfer(point) => Some(point),
                _ => None,
            });
        Ok(points.collect())
    }

    fn file_points(&self, ranks: u32) -> Result<Vec<FilePoint>> {
        let planned = self.points(ranks, &SHIPPED)?;
        let points = planned
            .into_iter()
            .filter_map(|planned| match planned.point {
                Point::File(point) => Some(point),
                _ => None,
            });
        Ok(points.collect())
    }
}

/// Returns the points of a plan with a single table, a `[[transfer]]` with these lines.
pub(crate) fn transfers(lines: &str, ranks: u32) -> Result<Vec<TransferPoint>> {
    let text = format!("name = 'test'\n[[transfer]]\n{lines}");
    Plan::from_toml(&text, "test.toml")?.transfer_points(ranks)
}

/// Reads one group of options from lines of a plan.
pub(crate) fn options<T: Group>(lines: &str) -> T {
    toml::from_str(lines).unwrap_or_else(|error| panic!("{lines}: {error}"))
}

/// Assertions on messages that show the message if they fail.
pub(crate) trait Holds {
    fn holds(&self, part: &str);
}

impl Holds for str {
    #[track_caller]
    fn holds(&self, part: &str) {
        assert!(self.contains(part), "{part:?} is not in {self:?}");
    }
}

pub(crate) trait Refused {
    fn refused(self, part: &str);
}

impl<T: std::fmt::Debug> Refused for Result<T> {
    #[track_caller]
    fn refused(self, part: &str) {
        let error = self.unwrap_err();
        assert_eq!(error.exit_code(), 2, "{error}");
        error.to_string().holds(part);
    }
}

/// Splits cases of the form `line; line => expected` into the lines of a plan and the expected text.
pub(crate) fn cases<const N: usize>(
    table: [&'static str; N],
) -> impl Iterator<Item = (&'static str, &'static str)> {
    table.into_iter().map(|case| {
        let (lines, expected) = case.split_once(" => ").unwrap();
        (&*lines.replace("; ", "\n").leak(), expected)
    })
}
