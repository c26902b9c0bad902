//! Figures of options, and of the storage that holds the files.

use tonnage_plan::files::{FilePoint, ReadFrom};

use crate::figures::{Figure, Row, Style, Value, format_pairs};
use crate::files::Storage;

/// Figures that are known before the experiment is measured.
pub const FILES: &[Figure] = &[
    Figure::of_option(
        "Hints",
        "hints",
        "Hints for the engine's library, such as those of MPI-IO.",
        |row| point(row, |point| format_pairs(&point.hints)),
    ),
    Figure::of_option(
        "Paths",
        "paths",
        "Places of the files, before the parts of their names that tell ranks and trials apart.",
        |row| point(row, |point| point.paths.join(" ")),
    ),
    Figure {
        name: "File system",
        field: "file_system",
        meaning: "Kind of file system that the files are on; several if ranks differ.",
        computed: "From the system's table of mounts.",
        value: |row| storage(row, |storage| &storage.file_system),
        ..Figure::PLAIN
    },
    Figure {
        name: "Source",
        field: "storage_source",
        meaning: "Source of the mount: a device, or a server's export.",
        computed: "From the system's table of mounts.",
        value: |row| storage(row, |storage| &storage.source),
        ..Figure::PLAIN
    },
    Figure::of_option(
        "Threads",
        "threads",
        "Threads of each rank that move bytes, each with its own engine.",
        |row| point(row, |point| point.threads),
    ),
    Figure::of_option(
        "Layout",
        "layout",
        "shared: one file, in each segment a block of every rank. per-process: a file for each rank.",
        |row| point(row, |point| point.layout.name()),
    ),
    Figure::of_option(
        "Block (B)",
        "block_bytes",
        "Bytes that one rank has in one segment.",
        |row| point(row, |point| point.block_bytes),
    ),
    Figure::of_option(
        "Transfer size (B)",
        "transfer_bytes",
        "Bytes of one read or write.",
        |row| point(row, |point| point.transfer_bytes),
    ),
    Figure::of_option(
        "Segments",
        "segments",
        "Number of times that the sequence of all ranks' blocks is repeated.",
        |row| point(row, |point| point.segments),
    ),
    Figure::of_option(
        "Order",
        "order",
        "sequential: from the beginning to the end. shuffled: by a seeded permutation, every transfer once.",
        |row| point(row, |point| point.order.name()),
    ),
    Figure::of_option(
        "Read from",
        "read_from",
        "Data that a rank reads: own, shift N (written by the rank N behind it), or shuffled.",
        |row| point(row, read_from),
    ),
    Figure::of_option(
        "Reads asked (%)",
        "read_percent",
        "Reads among 100 transfers of a mixed phase.",
        |row| point(row, |point| point.read_percent),
    ),
    Figure::of_option(
        "Fsync",
        "fsync",
        "Times at which written data is forced to stable storage, inside the clock: end (of a phase), each (write), \
             none.",
        |row| point(row, |point| point.fsync.name()),
    ),
    Figure::of_option(
        "Direct",
        "direct",
        "yes: transfers go past the page cache. no: they are buffered.",
        |row| point(row, |point| point.direct),
    ),
    Figure::of_option(
        "Collective",
        "collective",
        "yes: all ranks make each transfer together.",
        |row| point(row, |point| point.collective),
    ),
    Figure::of_option(
        "Barriers",
        "barriers",
        "yes: all ranks wait for each other between open, transfers and close.",
        |row| point(row, |point| point.barriers),
    ),
    Figure {
        style: Style::Scaled(1e-9),
        ..Figure::of_option(
            "Stonewall (s)",
            "stonewall_ns",
            "Time after which a phase makes no new transfers.",
            |row| {
                point(row, |point| {
                    point.stonewall.map(|stonewall| stonewall.after_ns)
                })
            },
        )
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

/// Joins the distinct values of all ranks' storages.
fn storage(row: &Row<'_>, of: fn(&Storage) -> &String) -> Value {
    let storages = row.record.file().into_iter().flat_map(|body| &body.storage);
    let mut texts: Vec<&str> = storages.map(|storage| of(storage).as_str()).collect();
    texts.dedup();
    texts.join(" ").into()
}
