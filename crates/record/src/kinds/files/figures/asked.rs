//! Figures of what was asked for, and of what the files are on.

use tonnage_plan::files::{FilePoint, ReadFrom};

use crate::figures::common::FROM_PLAN;
use crate::figures::{Figure, Row, Style, Value, pairs};
use crate::files::Storage;

/// Figures that are known before anything is measured.
pub const FILES: &[Figure] = &[
    Figure {
        name: "Hints",
        field: "hints",
        meaning: "Hints for the engine's library, such as those of MPI-IO.",
        computed: FROM_PLAN,
        style: Style::Plain,
        better: None,
        value: |row| point(row, |point| pairs(&point.hints)),
        trials: None,
    },
    Figure {
        name: "Paths",
        field: "paths",
        meaning: "Places of the files, before the parts of their names that tell ranks and trials apart.",
        computed: FROM_PLAN,
        style: Style::Plain,
        better: None,
        value: |row| point(row, |point| point.paths.join(" ")),
        trials: None,
    },
    Figure {
        name: "File system",
        field: "file_system",
        meaning: "Kind of file system that the files are on, several where ranks differ.",
        computed: "From the system's table of mounts.",
        style: Style::Plain,
        better: None,
        value: |row| storage(row, |storage| &storage.file_system),
        trials: None,
    },
    Figure {
        name: "Source",
        field: "storage_source",
        meaning: "Source of what is mounted there: a device, or a server's export.",
        computed: "From the system's table of mounts.",
        style: Style::Plain,
        better: None,
        value: |row| storage(row, |storage| &storage.source),
        trials: None,
    },
    Figure {
        name: "Threads",
        field: "threads",
        meaning: "Threads of each rank that make transfers.",
        computed: FROM_PLAN,
        style: Style::Plain,
        better: None,
        value: |row| point(row, |point| point.threads),
        trials: None,
    },
    Figure {
        name: "Layout",
        field: "layout",
        meaning: "shared: one file, in each segment a block of every rank. per-process: a file for each rank.",
        computed: FROM_PLAN,
        style: Style::Plain,
        better: None,
        value: |row| point(row, |point| point.layout.name()),
        trials: None,
    },
    Figure {
        name: "Block (B)",
        field: "block_bytes",
        meaning: "Bytes that one rank has in one segment.",
        computed: FROM_PLAN,
        style: Style::Plain,
        better: None,
        value: |row| point(row, |point| point.block_bytes),
        trials: None,
    },
    Figure {
        name: "Transfer size (B)",
        field: "transfer_bytes",
        meaning: "Bytes of one read or write.",
        computed: FROM_PLAN,
        style: Style::Plain,
        better: None,
        value: |row| point(row, |point| point.transfer_bytes),
        trials: None,
    },
    Figure {
        name: "Segments",
        field: "segments",
        meaning: "Number of times that the sequence of all ranks' blocks is repeated.",
        computed: FROM_PLAN,
        style: Style::Plain,
        better: None,
        value: |row| point(row, |point| point.segments),
        trials: None,
    },
    Figure {
        name: "Order",
        field: "order",
        meaning: "sequential: from the beginning to the end. shuffled: by a seeded permutation, every transfer once.",
        computed: FROM_PLAN,
        style: Style::Plain,
        better: None,
        value: |row| point(row, |point| point.order.name()),
        trials: None,
    },
    Figure {
        name: "Read from",
        field: "read_from",
        meaning: "Data that a rank reads: own, shift N (written by the rank N behind it), or shuffled.",
        computed: FROM_PLAN,
        style: Style::Plain,
        better: None,
        value: |row| point(row, read_from),
        trials: None,
    },
    Figure {
        name: "Reads asked (%)",
        field: "read_percent",
        meaning: "Reads among 100 transfers of a mixed phase.",
        computed: FROM_PLAN,
        style: Style::Plain,
        better: None,
        value: |row| point(row, |point| point.read_percent),
        trials: None,
    },
    Figure {
        name: "Fsync",
        field: "fsync",
        meaning: "Times at which written data is forced to stable storage, inside the clock: end (of a phase), each (write), \
             none.",
        computed: FROM_PLAN,
        style: Style::Plain,
        better: None,
        value: |row| point(row, |point| point.fsync.name()),
        trials: None,
    },
    Figure {
        name: "Direct",
        field: "direct",
        meaning: "yes: transfers go past the page cache. no: they are buffered.",
        computed: FROM_PLAN,
        style: Style::Plain,
        better: None,
        value: |row| point(row, |point| point.direct),
        trials: None,
    },
    Figure {
        name: "Collective",
        field: "collective",
        meaning: "yes: all ranks make each transfer together.",
        computed: FROM_PLAN,
        style: Style::Plain,
        better: None,
        value: |row| point(row, |point| point.collective),
        trials: None,
    },
    Figure {
        name: "Barriers",
        field: "barriers",
        meaning: "yes: all ranks wait for each other between open, transfers and close.",
        computed: FROM_PLAN,
        style: Style::Plain,
        better: None,
        value: |row| point(row, |point| point.barriers),
        trials: None,
    },
    Figure {
        name: "Stonewall (s)",
        field: "stonewall_ns",
        meaning: "Time after which a phase makes no new transfers.",
        computed: FROM_PLAN,
        style: Style::Scaled(1e-9),
        better: None,
        value: |row| {
            point(row, |point| {
                point.stonewall.map(|stonewall| stonewall.after_ns)
            })
        },
        trials: None,
    },
];

fn point<T: Into<Value>>(row: &Row<'_>, of: fn(&FilePoint) -> T) -> Value {
    row.record.file().map(|body| of(&body.point)).into()
}

fn read_from(point: &FilePoint) -> String {
    match point.read_from {
        ReadFrom::Own => "own".to_owned(),
        ReadFrom::Shift { ranks } => format!("shift {ranks}"),
        ReadFrom::Shuffled { .. } => "shuffled".to_owned(),
    }
}

/// Joins the answers of the ranks' storages, each answer once.
fn storage(row: &Row<'_>, of: fn(&Storage) -> &String) -> Value {
    let storages = row.record.file().into_iter().flat_map(|body| &body.storage);
    let mut texts: Vec<&str> = storages.map(|storage| of(storage).as_str()).collect();
    texts.dedup();
    texts.join(" ").into()
}
