//! The commands.
//!
//! | file | command |
//! | --- | --- |
//! | [`measure`] | the commands of kinds, `run`, `layers` and `verify`: a plan, ranks, records, a table |
//! | `job` | a plan with everything that a command needs to run it |
//! | `rank_count` | the number of ranks, and advice about it |
//! | `observer` | records as they come |
//! | `output` | the file of records, and showing what was measured |
//! | [`screen`] | messages above the rows of a run |
//! | `spare` | a copy of them, for the case that rank 0 is lost |
//! | `leftovers` | what killed ranks have left, and its removal |
//! | `memory_file` | files in memory that a supervisor shares with its ranks |
//! | `checks` | checks before a rank starts |
//! | [`ior`] | `ior`: a command line of IOR becomes a plan |
//! | `block` | IOR's result block |
//! | [`tour`] | `tour`: limits of this host, then a plan, then one page |
//! | [`limits`] | upper bounds of this host, for the tour |
//! | [`ab`] | `ab`: two sides measured by turns |
//! | [`compare`] | `compare`: verdicts on the records of two sides |
//! | [`baseline`] | `baseline`: figures and thresholds of kinds of hosts |
//! | [`check`] | `check`: a host beside a baseline, within a time |
//! | [`history`] | `history`: a metric over runs |
//! | [`export`] | `export`: records as other programs read them |
//! | [`report`] | `report`: a page of records |
//! | `readable`, [`whole_file`] | files of records that some commands read; files that are written whole |
//! | [`show`] | `show`, `explain`, `devices` |
//! | `remote` | the supervisor of ranks on other hosts |
//! | `letter` | letters to ranks on other hosts |
//! | [`remote_rank`] | a rank that the agent of a host has started |
//! | [`there`] | the agent of a host |
//! | [`hosts`] | `hosts` |
//! | [`manual`] | `completions`, `man` |

pub mod ab;
pub mod baseline;
mod block;
pub mod check;
pub mod checks;
pub mod compare;
mod each_call;
pub mod export;
pub mod history;
pub mod hosts;
mod intervals;
pub mod ior;
mod job;
mod leftovers;
mod letter;
pub mod limits;
pub mod manual;
pub mod measure;
mod memory_file;
mod observer;
mod output;
mod rank_count;
mod readable;
mod remote;
pub mod remote_rank;
pub mod report;
pub mod screen;
pub mod show;
mod spare;
pub mod there;
pub mod tour;
pub mod whole_file;

use std::io::Write;
use std::process::ExitCode;

use tonnage_record::Program;
use tonnage_units::message::{bounded, say};
use tonnage_units::{Error, Result};

/// Reads the environment; a value that is not Unicode is as good as none.
pub fn env(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Prints why a command failed; nothing where nobody reads its standard output any more.
pub fn say_error(error: &Error) {
    if !error.is_output_closed() {
        say(&format!("error: {error}"));
    }
}

/// Writes the parser's answer: help or the version, or why the command line is wrong.
pub fn answer(answer: &clap::Error) -> ExitCode {
    let text = answer.to_string();
    // The parser's own way of printing knows colours, and repeats arguments however long they are.
    let printed = match bounded(&text) {
        cut if answer.use_stderr() && cut != text.as_str() => {
            say(cut.trim_end());
            Ok(())
        }
        _ => answer.print().and_then(|()| std::io::stdout().flush()),
    };
    match printed {
        // A message that cannot be written is lost, and the exit code is left.
        Err(error) if !answer.use_stderr() => {
            let error = unwritten(error);
            say_error(&error);
            error.exit_code().into()
        }
        _ => u8::try_from(answer.exit_code()).unwrap_or(1).into(),
    }
}

/// Writes to standard output.
pub fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(unwritten)
}

/// The error of standard output that cannot be written.
fn unwritten(error: std::io::Error) -> Error {
    match error.kind() {
        std::io::ErrorKind::BrokenPipe => Error::output_closed(),
        _ => Error::io("cannot write to standard output", error),
    }
}

/// This program, for the records.
pub fn program() -> Program {
    Program {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        git_revision: crate::build().revision.to_owned(),
    }
}
