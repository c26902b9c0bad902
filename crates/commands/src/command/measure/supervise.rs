//! Starts the ranks of this host and supervises them.

use std::ffi::OsString;
use std::process::ExitCode;

use tonnage_ranks::spawn::local::start_local;
use tonnage_report::Format;
use tonnage_units::{Error, Result};

use crate::command::env;
use crate::command::job::Job;
use crate::command::leftovers::Leftovers;
use crate::command::output::show;
use crate::command::spare::Spare;

/// Starts the ranks with these arguments and returns the run's exit code. If rank 0 is lost before it has printed the
/// records of `shown`, this process prints them.
pub fn supervise(ranks: u32, arguments: &[OsString], shown: Option<&Job>) -> Result<ExitCode> {
    let program = std::env::current_exe()
        .map_err(|error| Error::io("cannot find this program's own file", error))?;
    // JSON lines need no backup, because each record is printed when it is measured.
    let shown = shown.filter(|job| job.format.is_some_and(|format| format != Format::Jsonl));
    let spare = shown.and_then(|_| Spare::new());
    let leftovers = Leftovers::new();
    let variables = spare.iter().map(Spare::variable);
    let variables: Vec<_> = variables.chain([leftovers.variable()]).collect();
    let supervisor = start_local(&env, ranks, &program, arguments, &variables)?;
    let pids = supervisor.pids();
    let code = supervisor.wait()?;
    if code != 0 {
        leftovers.remove(ranks, pids);
    }
    if let (Some(job), Some(spare)) = (shown, spare) {
        let records = spare.not_shown()?;
        if !records.is_empty() {
            log::warn!("rank 0 was lost before it printed the results; these are:");
            show(job, &records)?;
        }
    }
    Ok(ExitCode::from(code))
}
