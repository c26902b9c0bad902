//! Tests of a real Slurm on these hosts.

use tonnage_testbed::{Error, Hosts, Slurm};

use super::support::{is_gone, printed, processes_with, two_hosts, wait_until};

fn start(hosts: &Hosts) -> Option<Slurm<'_>> {
    match Slurm::start(hosts) {
        Ok(slurm) => Some(slurm),
        Err(Error::Unavailable(why)) => {
            println!("skip: no Slurm: {why}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn srun_runs_on_both_nodes() {
    let Some(hosts) = two_hosts(None) else { return };
    let Some(slurm) = start(&hosts) else { return };
    let mut lines: Vec<_> = printed(&mut slurm.srun(["-N2", "--label", "hostname"]))
        .lines()
        .map(str::to_owned)
        .collect();
    lines.sort();
    assert_eq!(lines, ["0: h0", "1: h1"]);
    let failed = slurm.srun(["-N2", "false"]).output().unwrap();
    assert_eq!(failed.status.code(), Some(1), "{failed:?}");
}

#[test]
fn two_clusters_run_at_once_and_leave_nothing() {
    let Some(one) = two_hosts(None) else { return };
    let Some(other) = two_hosts(None) else { return };
    let folders = [one.folder().to_owned(), other.folder().to_owned()];
    let Some(first) = start(&one) else { return };
    let Some(second) = start(&other) else { return };
    let seconds = format!("{}", 200_000 + std::process::id());
    let sleeping = format!("sleep {seconds}");
    // This job still runs when its cluster ends.
    let job = ["-N1", "--output=/dev/null", "--wrap", &sleeping];
    printed(first.command("sbatch").args(job));
    wait_until("the job runs", || !processes_with(&sleeping).is_empty());
    drop(first);
    assert_eq!(
        printed(&mut second.srun(["-N2", "-n2", "echo", "here"])),
        "here\nhere"
    );
    wait_until("the job has ended", || processes_with(&sleeping).is_empty());
    let Some(again) = start(&one) else { return };
    assert_eq!(printed(&mut again.srun(["-N1", "hostname"])), "h0");
    drop((again, second));
    for (hosts, folder) in [one, other].into_iter().zip(folders) {
        hosts.close().unwrap();
        assert!(is_gone(&folder));
        assert!(processes_with(folder.to_str().unwrap()).is_empty());
    }
}
