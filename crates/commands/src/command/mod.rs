//! The commands.
//!
//! | file | command |
//! | --- | --- |
//! | [`measure`] | the commands of kinds, `run`, `layers` and `verify`: a plan, ranks, records, a table |
//! | `job` | a plan with everything that a command needs to run it |
//! | `rank_count` | the number of ranks, and advice about it |
//! | `observer` | handles records as they arrive |
//! | `output` | the records file, and printing results |
//! | [`screen`] | messages above the rows of a run |
//! | `spare` | a backup of the records, in case rank 0 is lost |
//! | `leftovers` | leftovers of killed ranks, and their removal |
//! | `memory_file` | files in memory that a supervisor shares with its ranks |
//! | `checks` | checks before a rank starts |
//! | `dry_run` | the points and the expected time of a run |
//! | [`ior`] | `ior`: converts a command line of IOR to a plan |
//! | `block` | IOR's result block |
//! | [`tour`] | `tour`: upper bounds of this host, then a plan, then one page |
//! | [`bounds`] | upper bounds of this host, for the tour |
//! | [`ab`] | `ab`: measures two sides alternately |
//! | [`compare`] | `compare`: verdicts on the records of two sides |
//! | [`baseline`] | `baseline`: figures and thresholds of kinds of hosts |
//! | [`check`] | `check`: a host against a baseline, within a time budget |
//! | [`history`] | `history`: a metric over runs |
//! | [`export`] | `export`: records in the formats of other programs |
//! | [`report`] | `report`: a page of records |
//! | `record_files`, [`atomic_file`] | reading record files; writing files atomically |
//! | [`show`] | `show`, `explain`, `devices`, `engines` |
//! | [`plans`] | `plans`: the plans inside this program |
//! | `remote` | the supervisor of ranks on other hosts |
//! | `letter` | start messages of ranks on other hosts |
//! | [`remote_rank`] | a rank that the agent of a host has started |
//! | [`host_agent`] | the agent of a host |
//! | [`hosts`] | `hosts` |
//! | [`manual`] | `completions`, `man` |

pub mod ab;
pub mod atomic_file;
pub mod baseline;
mod block;
pub mod bounds;
pub mod check;
pub mod checks;
pub mod compare;
mod dry_run;
mod each_call;
pub mod export;
pub mod history;
pub mod host_agent;
pub mod hosts;
mod intervals;
pub mod ior;
mod job;
mod leftovers;
mod letter;
pub mod manual;
pub mod measure;
mod memory_file;
mod observer;
mod output;
pub mod plans;
mod rank_count;
mod record_files;
mod remote;
pub mod remote_rank;
pub mod report;
pub mod screen;
pub mod show;
mod spare;
mod time_left;
pub mod tour;

use std::io::Write;
use std::process::ExitCode;

use tonnage_record::Program;
use tonnage_units::message::print_message;
use tonnage_units::{Error, Result};

/// Reads an environment variable; `None` if it is unset or not Unicode.
pub fn env(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Prints why a command failed. Prints nothing if the cause is that standard output was closed.
pub fn say_error(error: &Error) {
    if !error.is_output_closed() {
        print_message(&format!("error: {error}"));
    }
}

/// Prints the parser's answer: help or the version.
pub fn answer(answer: &clap::Error) -> ExitCode {
    match answer.print().and_then(|()| std::io::stdout().flush()) {
        Err(error) => {
            let error = unwritten(error);
            say_error(&error);
            error.exit_code().into()
        }
        Ok(()) => ExitCode::SUCCESS,
    }
}

/// Prints to standard output and flushes it.
pub fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(unwritten)
}

/// Converts the error of a failed write to standard output.
fn unwritten(error: std::io::Error) -> Error {
    match error.kind() {
        std::io::ErrorKind::BrokenPipe => Error::output_closed(),
        _ => Error::io("cannot write to standard output", error),
    }
}

/// Returns this program's version, for records.
pub fn program() -> Program {
    Program {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        git_revision: crate::build().revision.to_owned(),
    }
}
