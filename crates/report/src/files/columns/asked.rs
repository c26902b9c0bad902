//! Columns of what was asked for, and of what the files are on.

use tonnage_plan::files::{FileLayout, FileOrder, Fsync, ReadFrom};
use tonnage_record::files::Storage;

use super::super::row::Row;
use super::{FileColumn, InCsv, Style, Value};
use crate::engine;

const FROM_PLAN: &str =
    "As the plan or the command line asked for it; the record's file repeats it.";

/// Columns that are known before anything is measured.
pub const ASKED: &[FileColumn] = &[
    FileColumn {
        name: "Kind",
        field: "kind",
        meaning: "What the row is about: \"file\" for a file experiment, \"transfer\" for bytes between memories.",
        computed: "It follows from the record: one has the key file, the other the key point.",
        style: Style::Plain,
        in_csv: InCsv::Once,
        value: |_| "file".into(),
    },
    FileColumn {
        name: "Plan",
        field: "plan",
        meaning: "The plan that the point belongs to.",
        computed: "The plan's own name, or that of the command.",
        style: Style::Plain,
        in_csv: InCsv::Once,
        value: |row| row.record.plan.as_str().into(),
    },
    FileColumn {
        name: "Label",
        field: "label",
        meaning: "The heading under which the plan puts the point, if it gave one.",
        computed: FROM_PLAN,
        style: Style::Plain,
        in_csv: InCsv::Once,
        value: |row| row.record.body.point.label.as_deref().into(),
    },
    FileColumn {
        name: "Engine",
        field: "engine",
        meaning: "What moved the bytes; `tonnage devices` lists the engines.",
        computed: FROM_PLAN,
        style: Style::Plain,
        in_csv: InCsv::Once,
        value: |row| row.record.body.point.engine.as_str().into(),
    },
    FileColumn {
        name: "Engine options",
        field: "engine_options",
        meaning: "Options of the engine's own that differ from their defaults; `tonnage devices` lists all of them.",
        computed: FROM_PLAN,
        style: Style::Plain,
        in_csv: InCsv::Once,
        value: |row| pairs(row.record.body.point.engine_options.iter()),
    },
    FileColumn {
        name: "Library",
        field: "library",
        meaning: "The library that moved the bytes, with its version and the file that it was loaded from.",
        computed: "The engine's own word, ranks with the same answer together; absent where the engine uses none.",
        style: Style::Plain,
        in_csv: InCsv::Once,
        value: |row| {
            let library = engine::library(row.record.record);
            Some(library)
                .filter(|text| !text.is_empty())
                .as_deref()
                .into()
        },
    },
    FileColumn {
        name: "Hints",
        field: "hints",
        meaning: "Hints for the engine's library, such as those of MPI-IO.",
        computed: FROM_PLAN,
        style: Style::Plain,
        in_csv: InCsv::Once,
        value: |row| pairs(row.record.body.point.hints.iter()),
    },
    FileColumn {
        name: "Paths",
        field: "paths",
        meaning: "Where the files are, before the parts of their names that tell ranks and trials apart.",
        computed: FROM_PLAN,
        style: Style::Plain,
        in_csv: InCsv::Once,
        value: |row| row.record.body.point.paths.join(" ").as_str().into(),
    },
    FileColumn {
        name: "File system",
        field: "file_system",
        meaning: "What the files are on: the kind of file system, several where ranks differ.",
        computed: "From the system's table of mounts.",
        style: Style::Plain,
        in_csv: InCsv::Once,
        value: |row| storage(row, |storage| &storage.file_system),
    },
    FileColumn {
        name: "Source",
        field: "storage_source",
        meaning: "What is mounted there: a device, or a server's export.",
        computed: "From the system's table of mounts.",
        style: Style::Plain,
        in_csv: InCsv::Once,
        value: |row| storage(row, |storage| &storage.source),
    },
    FileColumn {
        name: "Ranks",
        field: "ranks",
        meaning: "Processes that take part.",
        computed: FROM_PLAN,
        style: Style::Plain,
        in_csv: InCsv::Once,
        value: |row| row.record.body.point.ranks.into(),
    },
    FileColumn {
        name: "Threads",
        field: "threads",
        meaning: "Threads of each rank that make transfers.",
        computed: FROM_PLAN,
        style: Style::Plain,
        in_csv: InCsv::Once,
        value: |row| row.record.body.point.threads.into(),
    },
    FileColumn {
        name: "Window",
        field: "window",
        meaning: "Transfers that each thread keeps in flight; 1 where each is awaited before the next.",
        computed: FROM_PLAN,
        style: Style::Plain,
        in_csv: InCsv::Once,
        value: |row| row.record.body.point.window.into(),
    },
    FileColumn {
        name: "Layout",
        field: "layout",
        meaning: "shared: one file, in each segment a block of every rank. per-process: a file for each rank.",
        computed: FROM_PLAN,
        style: Style::Plain,
        in_csv: InCsv::Once,
        value: |row| {
            match row.record.body.point.layout {
                FileLayout::Shared => "shared",
                FileLayout::PerProcess => "per-process",
            }
            .into()
        },
    },
    FileColumn {
        name: "Block (B)",
        field: "block_bytes",
        meaning: "Bytes that one rank has in one segment.",
        computed: FROM_PLAN,
        style: Style::Plain,
        in_csv: InCsv::Once,
        value: |row| row.record.body.point.block_bytes.into(),
    },
    FileColumn {
        name: "Transfer size (B)",
        field: "transfer_bytes",
        meaning: "Bytes of one read or write.",
        computed: FROM_PLAN,
        style: Style::Plain,
        in_csv: InCsv::Once,
        value: |row| row.record.body.point.transfer_bytes.into(),
    },
    FileColumn {
        name: "Segments",
        field: "segments",
        meaning: "How often the sequence of all ranks' blocks is repeated.",
        computed: FROM_PLAN,
        style: Style::Plain,
        in_csv: InCsv::Once,
        value: |row| row.record.body.point.segments.into(),
    },
    FileColumn {
        name: "Order",
        field: "order",
        meaning: "sequential: from the beginning to the end. shuffled: by a seeded permutation, every transfer once.",
        computed: FROM_PLAN,
        style: Style::Plain,
        in_csv: InCsv::Once,
        value: |row| {
            match row.record.body.point.order {
                FileOrder::Sequential => "sequential",
                FileOrder::Shuffled => "shuffled",
            }
            .into()
        },
    },
    FileColumn {
        name: "Read from",
        field: "read_from",
        meaning: "Whose data a rank reads: own, shift N (what the rank N behind it wrote), or shuffled.",
        computed: FROM_PLAN,
        style: Style::Plain,
        in_csv: InCsv::Once,
        value: |row| {
            match row.record.body.point.read_from {
                ReadFrom::Own => "own".to_owned(),
                ReadFrom::Shift { ranks } => format!("shift {ranks}"),
                ReadFrom::Shuffled { .. } => "shuffled".to_owned(),
            }
            .as_str()
            .into()
        },
    },
    FileColumn {
        name: "Reads asked (%)",
        field: "read_percent",
        meaning: "How many of 100 transfers of a mixed phase are reads.",
        computed: FROM_PLAN,
        style: Style::Plain,
        in_csv: InCsv::Once,
        value: |row| row.record.body.point.read_percent.into(),
    },
    FileColumn {
        name: "Fsync",
        field: "fsync",
        meaning: "When written data is forced to stable storage, inside the clock: end (of a phase), each (write), \
             none.",
        computed: FROM_PLAN,
        style: Style::Plain,
        in_csv: InCsv::Once,
        value: |row| {
            match row.record.body.point.fsync {
                Fsync::End => "end",
                Fsync::Each => "each",
                Fsync::None => "none",
            }
            .into()
        },
    },
    FileColumn {
        name: "Direct",
        field: "direct",
        meaning: "yes: transfers go past the page cache. no: they are buffered.",
        computed: FROM_PLAN,
        style: Style::Plain,
        in_csv: InCsv::Once,
        value: |row| yes(row.record.body.point.direct),
    },
    FileColumn {
        name: "Collective",
        field: "collective",
        meaning: "yes: all ranks make each transfer together.",
        computed: FROM_PLAN,
        style: Style::Plain,
        in_csv: InCsv::Once,
        value: |row| yes(row.record.body.point.collective),
    },
    FileColumn {
        name: "Barriers",
        field: "barriers",
        meaning: "yes: all ranks wait for each other between open, transfers and close.",
        computed: FROM_PLAN,
        style: Style::Plain,
        in_csv: InCsv::Once,
        value: |row| yes(row.record.body.point.barriers),
    },
    FileColumn {
        name: "Stonewall (s)",
        field: "stonewall_ns",
        meaning: "A phase makes no new transfers after this time.",
        computed: FROM_PLAN,
        style: Style::Scaled(1e-9),
        in_csv: InCsv::Once,
        value: |row| {
            row.record
                .body
                .point
                .stonewall
                .map(|stonewall| stonewall.after_ns)
                .into()
        },
    },
];

fn yes(holds: bool) -> Value {
    if holds { "yes" } else { "no" }.into()
}

/// NAME=VALUE, several with a space between them; unknown when there are none.
fn pairs<'a>(pairs: impl Iterator<Item = (&'a String, &'a String)>) -> Value {
    let texts: Vec<_> = pairs
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    some(texts)
}

/// Joins the answers of the ranks' storages, each answer once.
fn storage(row: &Row<'_>, of: fn(&Storage) -> &String) -> Value {
    let mut texts: Vec<String> = row
        .record
        .body
        .storage
        .iter()
        .map(|storage| of(storage).clone())
        .collect();
    texts.dedup();
    some(texts)
}

fn some(texts: Vec<String>) -> Value {
    if texts.is_empty() {
        return Value::Unknown;
    }
    Value::Text(texts.join(" "))
}
