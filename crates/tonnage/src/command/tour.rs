//! `tonnage tour`: what this host has, what it can do at most, and how close the bytes between two ranks come to it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use tonnage_engines::LISTS;
use tonnage_machine::Environment;
use tonnage_machine::devices::Inventory;
use tonnage_record::read::read_records;
use tonnage_record::writer::check_writable;
use tonnage_units::message::say;
use tonnage_units::{Error, Result};

use super::job::Job;
use super::limits;
use super::measure::{start, supervise};
use super::{env, print};
use crate::args::common::RankArgs;
use crate::args::run::TourArgs;
use tonnage_report::tour;

/// Makes the tour, or is one of its ranks.
///
/// # Errors
/// A wrong request, or what ended the run.
pub fn tour(args: &TourArgs) -> Result<ExitCode> {
    let output = args.output.clone().map_or_else(default_output, Ok)?;
    let job = Job {
        plan: args.to_plan()?,
        ranks: RankArgs::default(),
        output: Some((output.clone(), false)),
        format: None,
        require_path: false,
        block: None,
    };
    // Printing the plan and being a rank are the same as for any plan; only a person's own start makes a page.
    if args.print_plan || tonnage_ranks::detect(&env, None)?.is_some() {
        return start(&job, args.print_plan);
    }
    check_writable(&output)?;
    say("Looking at this machine, then measuring it for about half a minute …");
    let environment = Environment::read(&LISTS.variables());
    let inventory = Inventory::read();
    let limits = limits::measure(&environment)?;
    let before = if output.exists() {
        read_records(&output)?.records.len()
    } else {
        0
    };
    let code = supervise(
        job.plan.ranks.unwrap_or(2),
        &rank_arguments(args, &output),
        None,
    )?;
    let records = read_records(&output)?.records.split_off(before);
    let program = std::env::args()
        .next()
        .unwrap_or_else(|| "tonnage".to_owned());
    print(&tour::page(&tour::Tour {
        inventory: &inventory,
        limits: &limits,
        records: &records,
        output: &output,
        program: &program,
    }))?;
    Ok(code)
}

/// The ranks are told the file's name, since each would make up one of its own.
fn rank_arguments(args: &TourArgs, output: &Path) -> Vec<std::ffi::OsString> {
    let mut arguments = vec!["tour".into(), "--output".into(), output.into()];
    if let Some(scale) = args.scale {
        arguments.extend(["--scale".into(), scale.to_string().into()]);
    }
    arguments
}

/// A name that sorts by time and is not there yet.
fn default_output() -> Result<PathBuf> {
    let seconds = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_err(|_| {
            Error::Failed(
                "this host's clock stands before 1970: set it, or name a file with -o".into(),
            )
        })?
        .as_secs();
    Ok(PathBuf::from(format!("tonnage-tour-{seconds}.jsonl")))
}
