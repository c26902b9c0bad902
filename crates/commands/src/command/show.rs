//! `tonnage show`, `explain`, `devices` and `engines`: commands that measure nothing.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use tonnage_engines::{LISTS, uring};
use tonnage_machine::devices::Inventory;
use tonnage_page::embed::{PAGE_BEGIN, records_of_page};
use tonnage_record::read::read_records;
use tonnage_units::{Error, Result};

use super::print;
use crate::args::{ExplainArgs, ShowArgs};
use tonnage_report::view::View;
use tonnage_report::{Format, devices};

/// Prints the tables of a record file again.
pub fn show(args: &ShowArgs) -> Result<ExitCode> {
    let view = args.view.view(args.format)?;
    if begins_as_page(&args.file) {
        return show_page(args, &view);
    }
    let file = read_records(&args.file)?;
    print(&tonnage_report::render_for(
        args.format,
        &file.records,
        &view,
    )?)?;
    if file.truncated_tail {
        log::warn!(
            "the last line of {} is not whole and was left out",
            args.file.display()
        );
    }
    if file.records.is_empty() {
        return Err(Error::Failed(format!(
            "{} holds no records",
            args.file.display()
        )));
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns whether a file begins like a page of `tonnage report`. Returns false if it cannot be read.
fn begins_as_page(path: &Path) -> bool {
    // Reading the beginning of a pipe would consume these bytes.
    if !path.is_file() {
        return false;
    }
    let mut begin = [0; PAGE_BEGIN.len()];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut begin));
    read.is_ok() && begin == *PAGE_BEGIN.as_bytes()
}

/// Prints the records in a page, as `show` prints the original files.
fn show_page(args: &ShowArgs, view: &View) -> Result<ExitCode> {
    let shown = args.file.display();
    let text =
        fs::read(&args.file).map_err(|error| Error::io(format!("cannot read {shown}"), error))?;
    let text = String::from_utf8(text).map_err(|_| {
        Error::Usage(format!(
            "{shown} is not a page of tonnage: it is not UTF-8 text"
        ))
    })?;
    let files = records_of_page(&text, &args.file)?;
    let drawn = match (args.format, files.as_slice()) {
        (_, [file]) => tonnage_report::render_for(args.format, &file.records, view)?,
        (Format::Table, files) => {
            let each = files.iter().map(|file| {
                let drawn = tonnage_report::render_for(args.format, &file.records, view)?;
                Ok(format!("{}\n\n{drawn}", file.name))
            });
            each.collect::<Result<Vec<_>>>()?.join("\n")
        }
        (_, files) => {
            let all = files.iter().flat_map(|file| &file.records).cloned();
            tonnage_report::render(args.format, &all.collect::<Vec<_>>())?
        }
    };
    print(&drawn)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the meaning of a column or a term.
pub fn explain(args: &ExplainArgs) -> Result<ExitCode> {
    print(&tonnage_report::explain::explain(args.column.as_deref())?)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns why this host lacks a file engine. Only engines that can be probed without side effects are checked.
fn missing(engine: &str) -> Option<String> {
    (engine == uring::ENTRY.name)
        .then(uring::why_missing)
        .flatten()
}

/// Lists this host's devices.
pub fn devices(json: bool) -> Result<ExitCode> {
    let found = Inventory::read().ask_drivers();
    let text = if json {
        devices::json(&found)? + "\n"
    } else {
        devices::text(&found)
    };
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Lists the engines, memories and backends of this program, or prints the options of one of them.
pub fn engines(name: Option<&str>) -> Result<ExitCode> {
    let text = match name {
        Some(name) => devices::engines::options(&LISTS, name, missing)?,
        None => devices::engines::list(&LISTS, missing),
    };
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}
