//! The batch scripts of contrib/slurm, run unmodified by a real Slurm on hosts of this machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::tempdir;
use tonnage_record::Outcome;
use tonnage_testbed::{Error, Hosts, Slurm};

use super::files::names;
use super::hosts::hosts;
use super::support::{BRIEF, records, wait_until};

/// A script, options that shorten it, its MPI setting, and the launcher that its records must name.
struct Case {
    script: &'static str,
    options: String,
    mpi: &'static str,
    launcher: &'static str,
}

fn cases() -> [Case; 3] {
    [
        Case {
            script: "pair",
            options: format!("--sizes 4k --depth 4 {BRIEF}"),
            mpi: "none",
            launcher: "SLURM_PROCID, SLURM_STEP_NODELIST",
        },
        Case {
            script: "matrix",
            options: format!("--sizes 4k --depth 4 {BRIEF}"),
            mpi: "pmi2",
            launcher: "SLURM_PROCID, PMI-1",
        },
        Case {
            script: "collectives",
            options: "--sizes 8 --trials 2 --trial-time 5ms --warmup 1ms --verify".into(),
            mpi: "pmix",
            launcher: "SLURM_PROCID, PMIx",
        },
    ]
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/slurm")
}

/// Every script in the folder must have a case. A new script without one would not be tested.
#[test]
fn every_script_is_tried() {
    let scripts = names(&folder()).into_iter();
    let scripts = scripts.filter_map(|name| name.strip_suffix(".sbatch").map(str::to_owned));
    let mut tried = cases().map(|case| case.script);
    tried.sort();
    assert_eq!(scripts.collect::<Vec<_>>(), tried);
}

#[test]
fn batch_scripts_run_as_they_stand() {
    let Some(hosts) = hosts(2, None) else { return };
    let Some(slurm) = start_slurm(&hosts, "") else {
        return;
    };
    let plugins = said(&slurm, "srun", &["--mpi=list"]);
    let dir = tempdir().unwrap();
    let submitted: Vec<_> = cases()
        .into_iter()
        .filter(|case| {
            let known = plugins.split_whitespace().any(|word| word == case.mpi);
            if !known {
                let Case { mpi, script, .. } = case;
                println!("skip: this Slurm has no plugin for --mpi={mpi}: {script}.sbatch");
            }
            known
        })
        .map(|case| (submit(&slurm, dir.path(), &case), case))
        .collect();
    // `sbatch --wait` polls only every two seconds.
    wait_until("all jobs have ended", || {
        std::thread::sleep(Duration::from_millis(100));
        said(&slurm, "squeue", &["--noheader"]).is_empty()
    });
    for (job, case) in submitted {
        let output = fs::read_to_string(dir.path().join(format!("slurm-{job}.out"))).unwrap();
        let job_says = said(&slurm, "scontrol", &["show", "job", &job]);
        assert!(
            job_says.contains("JobState=COMPLETED") && job_says.contains("ExitCode=0:0"),
            "{job_says}\n{output}"
        );
        let name = format!("tonnage-{}-{job}.jsonl", case.script);
        let records = records::read(&dir.path().join(name));
        assert!(!records.is_empty(), "{output}");
        for record in records {
            assert_eq!(record.outcome, Outcome::Measured, "{output}");
            assert_eq!(
                record.environment[0].launcher, case.launcher,
                "{}",
                case.script
            );
            let hosts = record.environment.iter().map(|part| part.hosts.len());
            assert_eq!(hosts.sum::<usize>(), 2, "{record:#?}");
        }
    }
}

/// Submits a script and returns the job's number. Apart from the options, the command is that of a user.
fn submit(slurm: &Slurm<'_>, dir: &Path, case: &Case) -> String {
    let mut sbatch = slurm.command("sbatch");
    sbatch
        .current_dir(dir)
        .env("HOME", dir)
        .env("TONNAGE_PROGRAM", env!("CARGO_BIN_EXE_tonnage"))
        .env("TONNAGE_MPI", case.mpi)
        .args(["--parsable", "-N2"])
        .arg(folder().join(format!("{}.sbatch", case.script)))
        .args(case.options.split_whitespace());
    if case.script == "collectives" {
        // A test needs only one of the four operations.
        sbatch.env("TONNAGE_OP", "all-reduce");
    }
    let output = sbatch.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Starts Slurm on the hosts, with these lines in its configuration. If that is impossible, prints the reason and
/// returns `None`.
pub(super) fn start_slurm<'a>(hosts: &'a Hosts, lines: &str) -> Option<Slurm<'a>> {
    match Slurm::start_with(hosts, lines) {
        Ok(slurm) => Some(slurm),
        Err(Error::Unavailable(why)) => {
            println!("skip: no Slurm: {why}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Returns standard output and standard error of a Slurm program.
pub(super) fn said(slurm: &Slurm<'_>, program: &str, arguments: &[&str]) -> String {
    let output = slurm.command(program).args(arguments).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}
