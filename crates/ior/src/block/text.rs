//! The result block in the format of IOR 4. Widths, precisions and blanks match IOR's, because scripts cut the block by
//! column.

use std::fmt::Write;

use tonnage_plan::files::FilePoint;
use tonnage_record::FileRecord;

use super::date::date;
use super::figures::{BlockFigures, MB, MIB, Pass, SummaryRow};
use super::{RunFacts, json};
use crate::options::IorOptions;

const HEAD: &str = "\
access    bw(MiB/s)  IOPS       Latency(s)  block(KiB) xfer(KiB)  open(s)    wr/rd(s)   close(s)   total(s)   iter
------    ---------  ----       ----------  ---------- ---------  --------   --------   --------   --------   ----
";

/// Returns the whole block.
pub fn render(
    options: &IorOptions,
    run: &RunFacts,
    record: FileRecord<'_>,
    figures: &BlockFigures,
) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write(&mut out, options, run, record, figures);
    out
}

fn write(
    out: &mut String,
    options: &IorOptions,
    run: &RunFacts,
    record: FileRecord<'_>,
    figures: &BlockFigures,
) -> std::fmt::Result {
    writeln!(
        out,
        "IOR-{}: MPI Coordinated Test of Parallel I/O (IOR's result block, {} {})",
        json::VERSION,
        json::MEASURED_BY,
        run.version
    )?;
    pair(out, "Began", &date(run.began_unix_ns))?;
    pair(out, "Command line", &run.command.join(" "))?;
    pair(out, "Machine", &json::machine(record))?;
    pair(out, "TestID", "0")?;
    pair(out, "StartTime", &date(run.began_unix_ns))?;
    pair(out, "Path", options.paths().first().unwrap_or(&""))?;
    if options.verbose > 0 {
        pair(
            out,
            "Participating tasks",
            &record.body.point.ranks.to_string(),
        )?;
    }
    writeln!(out, "\nOptions: ")?;
    for (name, value) in json::asked(options, record, figures) {
        let value = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        pair(out, name, &value)?;
    }
    writeln!(out, "\nResults: \n")?;
    if options.show_hints {
        hints(out, record)?;
    }
    out.push_str(HEAD);
    rows(out, options, &record.body.point, figures)?;
    for (access, title) in [("write", "Max Write:"), ("read", "Max Read: ")] {
        if let Some(summary) = figures.summary(access) {
            let most = summary.bandwidth.max;
            writeln!(
                out,
                "{title} {:.2} MiB/sec ({:.2} MB/sec)",
                most / MIB,
                most / MB
            )?;
        }
    }
    writeln!(out, "\nSummary of all tests:")?;
    writeln!(out, "{}", summary_head())?;
    for summary in &figures.summaries {
        summary_row(out, options, &record.body.point, figures, summary)?;
    }
    pair(out, "Finished", &date(record.time_unix_ns))
}

fn pair(out: &mut String, name: &str, value: &str) -> std::fmt::Result {
    writeln!(out, "{name:<20}: {value}")
}

/// Prints the hints in IOR's form.
fn hints(out: &mut String, record: FileRecord<'_>) -> std::fmt::Result {
    writeln!(out, "hints passed to MPI_File_open() {{")?;
    for (name, value) in &record.body.point.hints {
        writeln!(out, "\t{name} = {value}")?;
    }
    writeln!(out, "}}\n\nhints returned from opened file {{")?;
    let taken = json::hints_taken(record).into_iter();
    for (name, value) in taken.flat_map(|hints| &hints.0) {
        writeln!(out, "\t{name} = {}", value.text().unwrap_or_default())?;
    }
    writeln!(out, "}}\n")
}

/// Prints the rows of all repetitions. As in IOR with `-v`, a `remove` row follows each repetition that removed its
/// files. The row has dashes instead of times, because the removal is not measured.
fn rows(
    out: &mut String,
    options: &IorOptions,
    point: &FilePoint,
    figures: &BlockFigures,
) -> std::fmt::Result {
    let removed = options.verbose > 0 && options.writes() && !options.keep;
    for (at, pass) in figures.passes.iter().enumerate() {
        row(out, point, pass)?;
        let next = figures.passes.get(at + 1);
        if removed && next.is_none_or(|next| next.repetition != pass.repetition) {
            write!(out, "{:<10}", "remove")?;
            for behind in [" ", " ", "  ", " ", " ", " ", " ", " ", " "] {
                write!(out, "{:<10}{behind}", "-")?;
            }
            writeln!(out, "{:<4}", pass.repetition)?;
        }
    }
    Ok(())
}

fn row(out: &mut String, point: &FilePoint, pass: &Pass) -> std::fmt::Result {
    write!(out, "{:<10}", pass.access)?;
    for (value, behind) in [
        (pass.bandwidth_mib_per_s, " "),
        (pass.operations_per_s, " "),
        (pass.latency_s, "  "),
        (point.block_bytes as f64 / 1024.0, " "),
        (point.transfer_bytes as f64 / 1024.0, " "),
        (pass.open_s, " "),
        (pass.transfer_s, " "),
        (pass.close_s, " "),
        (pass.total_s, " "),
    ] {
        write!(out, "{:<10}{behind}", short(value))?;
    }
    writeln!(out, "{:<4}", pass.repetition)
}

/// Formats a figure with as many digits as IOR prints for its size.
fn short(value: f64) -> String {
    match value {
        value if value < 1.0 => format!("{value:.6}"),
        value if value < 3600.0 => format!("{value:.2}"),
        value => format!("{value:.0}"),
    }
}

fn summary_head() -> String {
    let names = "Max(MiB) Min(MiB) Mean(MiB) StdDev Max(OPs) Min(OPs) Mean(OPs) StdDev Mean(s) Stonewall(s)";
    let mut head = format!("{:<9}", "Operation");
    for name in names.split(' ') {
        head.push_str(&format!(" {name:>10}"));
    }
    head + " Stonewall(MiB) Test# #Tasks tPN reps fPP reord reordoff reordrand seed segcnt "
        + &format!(
            "{:>8} {:>8} {:>9} {:>5} RefNum",
            " blksiz", "xsize", "aggs(MiB)", "API"
        )
}

fn summary_row(
    out: &mut String,
    options: &IorOptions,
    point: &FilePoint,
    figures: &BlockFigures,
    summary: &SummaryRow,
) -> std::fmt::Result {
    let (bandwidth, operations) = (&summary.bandwidth, &summary.operations);
    write!(out, "{:<9} ", summary.access)?;
    for (spread, unit) in [(bandwidth, MIB), (operations, 1.0)] {
        for value in [spread.max, spread.min, spread.mean, spread.stddev] {
            write!(out, "{:>10.2} ", value / unit)?;
        }
    }
    write!(out, "{:>10.5} ", summary.total_s_mean)?;
    match summary.stonewall {
        Some((after_s, bandwidth)) => {
            write!(out, "{after_s:>10.2} {:>13.2} ", bandwidth / MIB)?;
        }
        None => write!(out, "{:>10} {:>13} ", "NA", "NA")?,
    }
    write!(out, "{:>5} {:>6} ", 0, point.ranks)?;
    write!(out, "{:>3} {:>4} ", figures.tasks_on_node_0, point.trials)?;
    write!(out, "{:>3} ", u8::from(options.file_per_process))?;
    write!(out, "{:>5} ", u8::from(options.reorder))?;
    write!(out, "{:>8} ", options.nodes_behind())?;
    write!(out, "{:>9} ", options.reorder_random)?;
    write!(out, "{:>4} {:>6} ", options.reorder_seed, point.segments)?;
    write!(out, "{:>8} ", point.block_bytes)?;
    write!(out, "{:>8} ", point.transfer_bytes)?;
    write!(out, "{:>9.1} ", summary.bytes as f64 / MIB)?;
    writeln!(out, "{:>3} {:>6}", options.api.name(), 0)
}
