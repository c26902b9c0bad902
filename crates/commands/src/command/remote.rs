//! Ranks on other hosts, from the view of the process that the user started. This process starts the ranks by ssh,
//! stores and prints the records of rank 0, and passes on the ranks' output.

use std::cell::RefCell;
use std::path::Path;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tonnage_machine::variables::names_a_secret;
use tonnage_plan::{Planned, Point};
use tonnage_ranks::bootstrap::secret::content_hash;
use tonnage_ranks::spawn::local::TURN_PARENT;
use tonnage_ranks::spawn::remote::command::{Push, split_words};
use tonnage_ranks::spawn::remote::hosts::{RemoteHosts, SshSettings};
use tonnage_ranks::spawn::remote::list::{HostPlacement, HostSlots};
use tonnage_ranks::spawn::remote::ranks::{OutputReceiver, RemoteRanks, RemoteStart};
use tonnage_record::read::read_records_of;
use tonnage_units::message::print_message;
use tonnage_units::{Error, Result};

use super::host_agent::{build, own_file};
use super::job::Job;
use super::letter::JobLetter;
use super::observer::Keeper;
use super::output::{in_order_of_plan, open_output, show};
use super::{env, print};
use crate::args::hosts::{HostArgs, SshArgs};
use crate::args::passed_on;
use tonnage_bench::observer::Observer;

/// Prefixes of variables that affect libraries or this program.
const PASSED_ON: [&str; 6] = ["FI_", "UCX_", "NCCL_", "GLOO_", "OMPI_", "TONNAGE_"];

/// Variables that are never passed on. They hold the secret, the rank and the meeting place of the run that this
/// process may itself belong to; the new run has its own.
const KEPT: [&str; 9] = [
    "TONNAGE_SECRET",
    "TONNAGE_RANK",
    "TONNAGE_SIZE",
    "TONNAGE_CONTROL",
    "TONNAGE_PARENT",
    TURN_PARENT,
    "TONNAGE_SPARE",
    "TONNAGE_PORT",
    "OMPI_COMM_WORLD_",
];

/// Starts the agents of the hosts.
pub fn gather(hosts: &[HostSlots], ssh: &SshArgs) -> Result<RemoteHosts> {
    RemoteHosts::connect_all(settings(ssh, None)?, hosts)
}

/// Returns the ssh settings. If `answer_within` is set, hosts that do not answer in this time are given up.
pub fn settings(ssh: &SshArgs, answer_within: Option<Duration>) -> Result<SshSettings> {
    let program = own_file()?;
    let push = ssh.push.then(|| push(&program)).transpose()?;
    Ok(SshSettings {
        words: split_words(ssh.command())?,
        parallel: ssh.parallel(),
        program,
        build: build(),
        push,
        answer_within,
    })
}

fn push(program: &Path) -> Result<Push> {
    let (build, bytes) = content_hash(program)?;
    let c_library = tonnage_sys::library::libc_version();
    Ok(Push {
        build,
        bytes,
        architecture: rustix::system::uname()
            .machine()
            .to_string_lossy()
            .into_owned(),
        c_library: c_library.unwrap_or_else(|| "unknown".to_owned()),
    })
}

/// Starts the ranks of a job on other hosts, supervises them, and returns the run's exit code.
pub fn supervise(job: &Job, points: &[Planned], placement: &HostPlacement) -> Result<ExitCode> {
    for host in &placement.repeated {
        log::warn!("{host} is listed more than once: it has the ranks of all its entries");
    }
    let hosts = &job.ranks.hosts;
    let variables = variables(hosts, std::env::vars_os())?;
    // The file is opened first, so that errors with it are reported before any host is contacted.
    let (before, writer) = open_output(job)?;
    let since = Instant::now();
    let mut party = gather(&placement.hosts, &hosts.ssh)?;
    log::info!(
        "all hosts have answered or failed after {:.2?}",
        since.elapsed()
    );
    party.check_all_connected()?;
    let meeting = party.find_meeting_address(&env, job.ranks.control_interface.as_deref())?;
    let directory =
        std::env::current_dir().map_err(|error| Error::io("the working directory", error))?;
    log::info!(
        "ranks meet at {meeting}, found after {:.2?}",
        since.elapsed()
    );
    let start = RemoteStart {
        meeting,
        directory: directory.to_string_lossy().into_owned(),
        needs_directory: points
            .iter()
            .any(|planned| matches!(planned.point, Point::File(_))),
        variables,
        jobs: jobs(job)?,
    };
    let keeper = Keeper::new(
        before,
        writer,
        None,
        job.format.unwrap_or_default(),
        job.view.clone(),
    );
    let keeper = Rc::new(RefCell::new(keeper));
    let audience = TerminalAudience {
        keeper: Rc::clone(&keeper),
    };
    let code = RemoteRanks::supervise(&env, party, placement, &start, audience)?.wait()?;
    let mut keeper = keeper.borrow_mut();
    let stored = keeper.finish();
    show(job, &in_order_of_plan(job, points, &keeper.records))?;
    stored?;
    Ok(match (code, keeper.lost_output()) {
        (0, true) => ExitCode::FAILURE,
        (code, _) => code.into(),
    })
}

/// Returns the job for rank 0 and the job for all other ranks.
fn jobs(job: &Job) -> Result<(String, String)> {
    let before = match &job.output {
        Some((path, true)) if path.exists() => std::fs::read_to_string(path)
            .map_err(|error| Error::io(format!("cannot read {}", path.display()), error))?,
        _ => String::new(),
    };
    let mut letter = JobLetter {
        ranks: passed_on::words(std::env::args_os())?,
        plan: job.plan.to_toml()?,
        require_path: job.require_path,
        runs: job.runs,
        time_limit_ns: job.time_limit.map(|limit| limit.0),
        before,
    };
    let text = |letter: &JobLetter| {
        serde_json::to_string(letter)
            .map_err(|error| Error::Failed(format!("the job cannot be written: {error}")))
    };
    let root = text(&letter)?;
    letter.before.clear();
    Ok((root, text(&letter)?))
}

/// Returns the variables that ranks on other hosts get.
pub fn variables(
    hosts: &HostArgs,
    own: impl Iterator<Item = (std::ffi::OsString, std::ffi::OsString)>,
) -> Result<Vec<(String, String)>> {
    let is_kept = |name: &str| KEPT.iter().any(|kept| name.starts_with(kept));
    let own: Vec<(String, String)> = own
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let goes_along = |name: &str| {
        PASSED_ON.iter().any(|opening| name.starts_with(opening))
            && !is_kept(name)
            && !names_a_secret(name)
    };
    let along = own
        .iter()
        .filter(|(name, _)| !hosts.no_env && goes_along(name));
    let mut passed: Vec<_> = along.cloned().collect();
    for (name, value) in &hosts.env {
        if is_kept(name) {
            return Err(Error::Usage(format!(
                "--env {name} is not passed on: each run of --hosts makes its own secret, ranks and meeting place"
            )));
        }
        let mut here = own.iter().filter(|(known, _)| known == name);
        let value = value
            .as_ref()
            .or_else(|| here.next().map(|(_, value)| value));
        let value = value.cloned().ok_or_else(|| {
            Error::Usage(format!(
                "--env {name} is not set here: use --env {name}=VALUE"
            ))
        })?;
        passed.retain(|(known, _)| known != name);
        passed.push((name.clone(), value));
    }
    Ok(passed)
}

/// Receives the ranks' output: prints it to this process's standard output and standard error, and stores records.
struct TerminalAudience {
    keeper: Rc<RefCell<Keeper>>,
}

impl OutputReceiver for TerminalAudience {
    fn line(&mut self, host: Option<&str>, is_error: bool, text: &str) -> Result<()> {
        let named = host.map_or_else(|| text.to_owned(), |host| format!("{host}: {text}"));
        if !is_error {
            return print(&format!("{named}\n"));
        }
        // The terminal may show a progress bar.
        super::screen::with_bar_cleared(|| print_message(&named));
        Ok(())
    }

    fn record(&mut self, is_checkpoint: bool, text: &str) -> Result<()> {
        let read = read_records_of(text.as_bytes(), Path::new("a record of rank 0"))?;
        let mut keeper = self.keeper.borrow_mut();
        for record in read.records {
            if is_checkpoint {
                keeper.checkpoint(&record)
            } else {
                keeper.record(record)?
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(hosts: &HostArgs) -> Result<String> {
        let own = [
            ("FI_PROVIDER", "tcp"),
            ("TONNAGE_SECRET", "s"),
            ("TONNAGE_SECRET_FILE", "f"),
            ("TONNAGE_RANK", "3"),
            ("TONNAGE_JOIN_TIMEOUT", "9"),
            ("UCX_SOME_TOKEN", "t"),
            ("OMPI_MCA_sec_key", "k"),
            ("OMPI_COMM_WORLD_SIZE", "2"),
            ("OMPI_MCA_btl", "tcp"),
            ("HOME", "/h"),
        ];
        let passed = variables(
            hosts,
            own.iter().map(|(name, value)| (name.into(), value.into())),
        )?;
        let words: Vec<_> = passed
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        Ok(words.join(" "))
    }

    #[test]
    fn variables_go_along_but_for_secrets_and_places() {
        let mut hosts = HostArgs::default();
        assert_eq!(
            passed(&hosts).unwrap(),
            "FI_PROVIDER=tcp TONNAGE_JOIN_TIMEOUT=9 OMPI_MCA_btl=tcp"
        );
        hosts.no_env = true;
        hosts.env = vec![("HOME".into(), None), ("X".into(), Some("a=b".into()))];
        assert_eq!(passed(&hosts).unwrap(), "HOME=/h X=a=b");
        hosts.no_env = false;
        hosts.env = vec![("FI_PROVIDER".into(), Some("shm".into()))];
        assert_eq!(
            passed(&hosts).unwrap(),
            "TONNAGE_JOIN_TIMEOUT=9 OMPI_MCA_btl=tcp FI_PROVIDER=shm"
        );
        for (name, part) in [
            ("NOT_THERE", "not set here"),
            ("TONNAGE_SECRET", "its own secret"),
        ] {
            hosts.env = vec![(name.into(), None)];
            let error = passed(&hosts).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
