//! MPI's collectives as a user runs them, under the mpirun of each installed MPI and without mpirun.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::tempdir;

use super::collective_torch::{every_result, plan_every_operation};
use super::support::launchers::{MPICH, OPEN_MPI, is_there, under_mpirun};
use super::support::{at_once, tonnage, words};

fn installed() -> impl Iterator<Item = &'static str> {
    let all = [OPEN_MPI, MPICH].into_iter();
    all.filter(|launcher| is_there(launcher))
}

#[test]
fn every_result_of_every_operation_is_checked_beside_native_ones() {
    // Only the first case varies the types, because the other options do not depend on them.
    let cases = [
        ("", "float32,int8"),
        ("in-place = true", "float32"),
        ("groups = 'mod:2'", "float32"),
    ];
    for launcher in installed() {
        let launcher = launcher.replace("-np 2", "-np 4");
        let dir = tempdir().unwrap();
        plan_every_operation(dir.path(), "mpi", &cases);
        let run = under_mpirun(dir.path(), &launcher, "run p.toml -o r.jsonl").run();
        run.with_code(0).printing(&["mpi: "]);
        for (keys, body) in every_result(dir.path(), &cases) {
            let summaries = body.backends.iter().map(|it| it.summary.as_ref().unwrap());
            assert!(summaries.map(|it| it.iterations).eq([10; 2]), "{body:#?}");
            let is_broadcast = body.point.op.name() == "broadcast";
            let in_place = keys.starts_with("in-place") || is_broadcast;
            assert_eq!(body.backends[0].really_in_place, in_place, "{body:#?}");
        }
    }
}

#[test]
fn ranks_that_are_not_mpi_s_are_refused_and_others_go_on() {
    let dir = tempdir().unwrap();
    let line = "collective --backend mpi,native:shm --op all-reduce --sizes 8 --ranks 2 --iters 2 --trials 1";
    let reason = match installed().count() {
        0 => "has no MPI library",
        _ => "start them with mpirun",
    };
    let ended = tonnage(dir.path(), line).run().with_code(1);
    ended.printing(&[reason, "native:shm"]);
}

/// MPI itself waits for a killed rank until another process ends the run.
#[test]
fn a_rank_that_is_killed_ends_the_others() {
    for launcher in installed() {
        let dir = tempdir().unwrap();
        let line =
            "collective --backend mpi --op all-reduce --sizes 64k --duration 60s --log-level debug";
        let run = under_mpirun(dir.path(), launcher, line).start();
        // The point is open, and calls go on for a minute.
        run.wait_until_said("rank 1: a trial of");
        run.signal_rank(1, Signal::KILL);
        let since = Instant::now();
        let ended = run.end();
        assert!(ended.code != Some(0), "{ended:#?}");
        assert!(since.elapsed() < Duration::from_secs(20), "{ended:#?}");
        // An mpirun may end the other ranks before they can report. It then prints the reason itself.
        let said = format!("{}{}", ended.stdout, ended.stderr);
        // MPICH's UCX ends the other rank itself if that rank was reading memory of the killed one.
        let of = [
            "rank 1 on",
            "signal 9 (Killed)",
            "Killed (signal 9)",
            "returned -1: No such process",
        ];
        assert!(of.iter().any(|of| said.contains(of)), "{ended:#?}");
    }
}

/// Builds an MPI library with an all-reduce that never returns. All its other functions come from the library with this
/// name.
fn hanging_mpi(dir: &Path, library: &str) -> Option<String> {
    let source = "unsigned sleep(unsigned);\n\
                  int MPI_Allreduce(void) { for (;;) sleep(1); }\n\
                  int MPI_Allreduce_c(void) { for (;;) sleep(1); }\n";
    std::fs::write(dir.join("hang.c"), source).unwrap();
    let words = "-shared -fPIC -Wl,--no-as-needed -o libhang.so hang.c";
    let linked = Command::new("gcc")
        .args(words.split(' '))
        .arg(format!("-l:{library}"))
        .current_dir(dir)
        .output();
    match linked {
        Ok(done) if done.status.success() => Some(dir.join("libhang.so").display().to_string()),
        failed => {
            println!("skip: gcc and libc6-dev do not link with {library} here: {failed:?}");
            None
        }
    }
}

/// All ranks are alive and their control threads answer. Only the library call does not return.
#[test]
fn a_call_that_hangs_ends_the_run_with_its_name() {
    at_once(installed(), |launcher| {
        let dir = tempdir().unwrap();
        let library = ["libmpi.so.40", "libmpich.so.12"][usize::from(launcher == MPICH)];
        let Some(mpi) = hanging_mpi(dir.path(), library) else {
            return;
        };
        let line = format!(
            "collective --backend mpi --mpi {mpi} --op all-reduce --sizes 64k --timeout 2s"
        );
        let ended = under_mpirun(dir.path(), launcher, &line).run();
        assert!(ended.code != Some(0), "{ended:#?}");
        assert!(ended.took < Duration::from_secs(15), "{ended:#?}");
        let said = words(&format!("{}{}", ended.stdout, ended.stderr));
        let call = "call 1 of all-reduce of 64 KiB by mpi has not come back for ";
        assert!(said.contains(call), "{said}");
        assert!(
            said.contains(&format!(" on {}: ", tonnage_sys::host::name())),
            "{said}"
        );
    });
}
