//! Real launchers (mpirun of Open MPI and of MPICH, and torchrun), and environments that only look like a launcher's.
//!
//! The tests configure nothing, neither a secret nor an address. A launcher that is not installed is skipped.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::tempdir;
use tonnage_record::Outcome;

use super::support::launchers::{MPICH, OPEN_MPI, is_there, under_mpirun};
use super::support::processes::Process;
use super::support::records::body;
use super::support::{
    BRIEF, Ended, LONG, Program, Started, free_port, records, rows, tonnage, under, wait_until,
};

const POINT: &str = "transfer --engine shm --op write --sizes 8,4k";

/// Both kinds of mpirun, with their name in records.
const MPIRUNS: [(&str, &str); 2] = [
    (OPEN_MPI, "OMPI_COMM_WORLD_*, PMIx"),
    (MPICH, "PMI_*, PMI-1"),
];

/// Returns the installed mpirun programs.
fn mpiruns() -> impl Iterator<Item = (&'static str, &'static str)> {
    MPIRUNS.into_iter().filter(|(name, _)| is_there(name))
}

/// Returns a torchrun command with two ranks and a free port for the master. Under Python 3.11, torchrun of torch 1.13
/// fails unless output is redirected. The number 1 stands for standard output.
fn torchrun() -> String {
    let port = free_port();
    format!(
        "torchrun --no_python --nproc_per_node 2 --master_port {port} --redirects 1 --tee 1 --log_dir log"
    )
}

/// Options of a run with two engines and four points.
const POINTS: &str = "--engine shm,fabric:tcp --op write --sizes 8,4k";

/// Checks that the directory has one run with two ranks, started by this launcher.
fn started_by(dir: &Path, launcher: &str) {
    let records = records::read(&dir.join("r.jsonl"));
    assert_eq!(records.len(), 4, "one run of four points");
    for record in &records {
        assert_eq!(
            (&record.outcome, body(record).point.roles.ranks),
            (&Outcome::Measured, 2)
        );
        assert_eq!(record.environment[0].launcher, launcher);
    }
}

/// Ranks of one host meet on the loopback interface, with a generated secret that is never printed.
#[test]
fn mpirun_needs_no_configuration() {
    for (launcher, source) in mpiruns() {
        let dir = tempdir().unwrap();
        // Trials are long enough to observe the processes, even if a poll of them takes a while.
        let slower = BRIEF.replace("5ms", "100ms");
        let arguments = format!("transfer {POINTS} {slower} --log-level debug -o r.jsonl");
        let port = free_port();
        let run = under_mpirun(dir.path(), launcher, &arguments)
            .env("TONNAGE_PORT", port.to_string())
            .start();
        // Rank 1 may already have ended, but rank 0 is still running.
        let mut lines = format!("{:?}", run.rank(0));
        let ranks = run.processes();
        lines.extend(ranks.iter().map(|process| process.command_line.clone()));
        let listens = format!("rank 0 listens on 127.0.0.1:{port} ");
        let ended = run.end().with_code(0).saying(&[&listens]);
        assert_eq!(ended.rows().len(), 4, "{ended:#?}");
        assert!(!ended.stderr.contains("error: "), "{ended:#?}");
        started_by(dir.path(), source);
        let home = dir.path().join(".config/tonnage/secret");
        assert!(!home.exists(), "the run has a secret of its own");
        let record = fs::read_to_string(dir.path().join("r.jsonl")).unwrap();
        assert!(lines.contains("transfer") && !ended.stdout.is_empty());
        for text in [record, ended.stderr, ended.stdout, lines] {
            let is_secret = |word: &str| word.len() == 64;
            let mut words = text.split(|sign: char| !sign.is_ascii_hexdigit());
            assert!(!words.any(is_secret), "{text}");
        }
    }
}

#[test]
fn torchrun_needs_no_configuration() {
    let launcher = torchrun();
    if !is_there(&launcher) {
        return;
    }
    let dir = tempdir().unwrap();
    let arguments = format!("transfer {POINTS} {BRIEF} -o r.jsonl");
    // torchrun itself listens on its port, so the ranks use the next one.
    under(dir.path(), &launcher, &arguments).run().with_code(0);
    started_by(dir.path(), "RANK/WORLD_SIZE, MASTER_ADDR");
}

/// Tests pods of an Indexed Job, and ranks with variables set by hand.
#[test]
fn ranks_may_be_named_without_a_launcher() {
    let port = free_port().to_string();
    let of_pod = |rank: u32, program: Program| {
        program
            .env("JOB_COMPLETION_INDEX", rank.to_string())
            .env("WORLD_SIZE", "2")
            .env("MASTER_ADDR", "127.0.0.1")
            .env("MASTER_PORT", &port)
    };
    let by_hand = |rank: u32, program: Program| {
        let place = format!("--rank {rank} --world-size 2 --master 127.0.0.1:{port}");
        let words = place.split(' ').map(str::to_owned);
        program.arguments(&words.collect::<Vec<_>>())
    };
    type Named<'a> = &'a dyn Fn(u32, Program) -> Program;
    let ways: [(Named<'_>, &str); 2] = [
        (&of_pod, "JOB_COMPLETION_INDEX, MASTER_ADDR"),
        (&by_hand, "--rank/--world-size, --master"),
    ];
    for (way, source) in ways {
        let dir = tempdir().unwrap();
        let rank = |rank| {
            let line = format!("transfer {POINTS} {BRIEF} -o r.jsonl");
            way(rank, tonnage(dir.path(), &line)).start()
        };
        for run in [rank(0), rank(1)] {
            run.end().with_code(0);
        }
        started_by(dir.path(), source);
    }
}

#[test]
fn a_rank_that_waits_prints_for_whom_and_how_long() {
    let dir = tempdir().unwrap();
    let alone = |rank: u32| {
        let port = free_port();
        let line =
            format!("{POINT} {BRIEF} --rank {rank} --world-size 2 --master 127.0.0.1:{port}");
        let program = tonnage(dir.path(), &line).env("TONNAGE_JOIN_TIMEOUT", "5");
        (port, program.start())
    };
    let (zeros_port, zero) = alone(0);
    let (ones_port, one) = alone(1);
    let zero = zero.end().with_code(1);
    zero.saying(&[&format!(
        "waiting for rank 1 of 2 at 127.0.0.1:{zeros_port} (2 s left)"
    )]);
    let one = one.end().with_code(1);
    one.saying(&[&format!(
        "waiting for rank 0 on 127.0.0.1 port {ones_port}: "
    )]);
}

#[test]
fn a_secret_that_only_some_ranks_have_is_refused() {
    for (launcher, _) in mpiruns() {
        let dir = tempdir().unwrap();
        // Only one rank has the secret, as if the user forgot Open MPI's -x and mpirun passed it only to its own host.
        let script = format!(
            "case $OMPI_COMM_WORLD_RANK$PMI_RANK in 1) export TONNAGE_SECRET=correct-horse-battery-staple ;; esac\n\
             exec {} {POINT} {BRIEF}\n",
            env!("CARGO_BIN_EXE_tonnage")
        );
        fs::write(dir.path().join("rank.sh"), script).unwrap();
        let ended = run_script(dir.path(), launcher, "rank.sh");
        assert!(ended.code != Some(0), "{ended:#?}");
        ended.saying(&["was given to rank 1, but not to rank 0", "mpirun -x"]);
        // All ranks arrive, but their command lines differ.
        let script = format!(
            "exec {} transfer --engine shm --op write --sizes $((8 << 0$OMPI_COMM_WORLD_RANK$PMI_RANK)) {BRIEF}\n",
            env!("CARGO_BIN_EXE_tonnage")
        );
        fs::write(dir.path().join("rank.sh"), script).unwrap();
        let ended = run_script(dir.path(), launcher, "rank.sh").with_code(1);
        ended.saying(&["it was started with another command line or plan"]);
    }
}

/// Runs a script in the directory under a launcher. `under` appends its usual arguments, which the script ignores.
fn run_script(dir: &Path, launcher: &str, script: &str) -> Ended {
    under_mpirun(dir, &format!("{launcher} sh {script}"), "").run()
}

#[test]
fn two_runs_in_one_mpich_job_report_the_cause() {
    if !is_there(MPICH) {
        return;
    }
    let dir = tempdir().unwrap();
    let run = format!("{} {POINT} {BRIEF}", env!("CARGO_BIN_EXE_tonnage"));
    fs::write(dir.path().join("two.sh"), format!("{run} && {run}\n")).unwrap();
    let ended = run_script(dir.path(), MPICH, "two.sh");
    assert!(
        ended.code != Some(0) && ended.rows().len() == 2,
        "{ended:#?}"
    );
    ended.saying(&["already sent finalize", "an mpirun of its own"]);
}

#[test]
fn an_srun_that_mpirun_started_is_not_hidden_by_it() {
    let dir = tempdir().unwrap();
    let step = "SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NODELIST=n1";
    let tonnage = format!("{} {POINT} {BRIEF}", env!("CARGO_BIN_EXE_tonnage"));
    // The shell is the step's task. The program is either its child, as with a wrapper script, or replaces it.
    for (name, last) in [("child.sh", "; exit $?"), ("same.sh", "")] {
        let exec = if last.is_empty() { "exec " } else { "" };
        let script = format!("export SLURM_TASK_PID=$$\n{exec}env {step} {tonnage}{last}\n");
        fs::write(dir.path().join(name), script).unwrap();
        under(dir.path(), &format!("sh {name}"), "")
            .env("OMPI_COMM_WORLD_RANK", "0")
            .env("OMPI_COMM_WORLD_SIZE", "1")
            .run()
            .with_code(2)
            .with_one_error(&[
                "OMPI_COMM_WORLD_SIZE=1",
                "SLURM_STEP_NUM_TASKS=2",
                "disagree",
            ]);
    }
    // In the reverse order, the task started mpirun, so mpirun's numbers count.
    let script = format!(
        "export SLURM_TASK_PID=$$ {step}\n\
         env OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 {tonnage} --ranks 2\nexit $?\n"
    );
    fs::write(dir.path().join("around.sh"), script).unwrap();
    under(dir.path(), "sh around.sh", "").run().with_code(0);
}

/// Waits for the results file, which rank 0 opens when all ranks have joined.
fn joined(dir: &Path, file: &str) {
    wait_until("the ranks have joined", || dir.join(file).exists());
}

#[test]
fn a_stopped_launcher_does_not_keep_a_run_that_is_over() {
    for (launcher, helper) in [(OPEN_MPI, "mpirun.openmpi"), (MPICH, "hydra_pmi_proxy")] {
        if !is_there(launcher) {
            continue;
        }
        let dir = tempdir().unwrap();
        let arguments = "transfer --engine shm --op write --sizes 8 --trials 1 --trial-time 500ms --warmup 0 --bound none \
                         -o r.jsonl";
        let run = under_mpirun(dir.path(), launcher, arguments).start();
        joined(dir.path(), "r.jsonl");
        let is_server = |it: &Process| it.rank.is_none() && it.command_line.contains(helper);
        let server = run.processes().into_iter().find(is_server).unwrap();
        let server = Pid::from_raw(server.pid).unwrap();
        kill_process(server, Signal::STOP).unwrap();
        let ranks_go_on = || run.processes().iter().any(|process| process.rank.is_some());
        let since = Instant::now();
        while ranks_go_on() && since.elapsed() < Duration::from_secs(30) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let wait = ranks_go_on();
        kill_process(server, Signal::CONT).unwrap();
        assert!(!wait, "{launcher}: the ranks wait for the stopped {helper}");
        run.end();
    }
}

#[test]
fn a_killed_launcher_leaves_no_rank_behind() {
    for (launcher, _) in mpiruns() {
        let dir = tempdir().unwrap();
        let arguments = format!("transfer --engine shm --op write --sizes 8 {LONG} -o r.jsonl");
        let run = under_mpirun(dir.path(), launcher, &arguments).start();
        joined(dir.path(), "r.jsonl");
        run.rank(1);
        run.signal(Signal::KILL);
        // `end` checks that the ranks end within 5 s.
        run.end();
    }
}

#[test]
fn a_secret_that_was_given_is_used() {
    for (launcher, _) in mpiruns() {
        let dir = tempdir().unwrap();
        let run = |secret: &str| {
            under_mpirun(dir.path(), launcher, &format!("{POINT} {BRIEF}"))
                .env("TONNAGE_SECRET", secret)
                .run()
        };
        run("correct-horse-battery-staple").with_code(0);
        let short = run("short").saying(&["TONNAGE_SECRET", "at least 16"]);
        assert!(short.code != Some(0), "{short:#?}");
    }
}

/// Kills rank 1 and waits until the whole run has ended.
fn kill_one(run: Started) {
    run.signal_rank(1, Signal::KILL);
    let since = Instant::now();
    let ended = run.end();
    assert!(ended.code != Some(0), "{ended:#?}");
    assert!(since.elapsed() < Duration::from_secs(20), "{ended:#?}");
}

#[test]
fn a_killed_rank_ends_mpirun() {
    for (launcher, _) in mpiruns() {
        let dir = tempdir().unwrap();
        let start = |name: &str| {
            let arguments = format!("transfer --engine shm --op write --sizes 8 {LONG} -o {name}");
            under_mpirun(dir.path(), launcher, &arguments).start()
        };
        kill_one(start("early.jsonl"));
        let run = start("late.jsonl");
        joined(dir.path(), "late.jsonl");
        kill_one(run);
    }
}

/// A stopped rank must be ended with the other ranks. MPICH's mpirun would wait for it forever, and Open MPI's does not
/// notice that it is stopped.
#[test]
fn a_stopped_rank_ends_with_the_others_under_mpirun() {
    let runs: Vec<_> = MPIRUNS
        .into_iter()
        .filter(|(name, _)| is_there(name))
        .map(|(launcher, _)| {
            let dir = tempdir().unwrap();
            let arguments = format!("transfer --engine shm --op write --sizes 8 {LONG} -o r.jsonl");
            let run = under_mpirun(dir.path(), launcher, &arguments)
                .env("TONNAGE_HEARTBEAT_TIMEOUT", "1")
                .start();
            joined(dir.path(), "r.jsonl");
            run.signal_rank(1, Signal::STOP);
            (dir, run, Instant::now())
        })
        .collect();
    for (_dir, run, since) in runs {
        let ended = run.end();
        assert!(ended.code != Some(0), "{ended:#?}");
        assert!(since.elapsed() < Duration::from_secs(15), "{ended:#?}");
        let name = format!("error: rank 1 on {}", tonnage_sys::host::name());
        assert_eq!(ended.stderr.matches(&name).count(), 1, "{ended:#?}");
    }
}

#[test]
fn processes_that_cannot_know_each_other_are_refused() {
    let changes = "
        mpirun.openmpi => -u OMPI_COMM_WORLD_RANK -u OMPI_COMM_WORLD_SIZE => OMPI_COMM_WORLD_LOCAL_SIZE=2
        mpirun.openmpi => RANK=0 WORLD_SIZE=1                             => disagree
        mpirun.openmpi => OMPI_COMM_WORLD_SIZE=4                          => of 4, but PMIx says rank
        mpirun.mpich   => -u PMI_RANK -u PMI_SIZE                         => MPI_LOCALNRANKS=2
        mpirun.mpich   => -u PMI_FD                                       => PMI_FD is not set
    ";
    for [name, lost, part] in rows(changes) {
        let Some((launcher, _)) = mpiruns().find(|(it, _)| it.starts_with(name)) else {
            continue;
        };
        let dir = tempdir().unwrap();
        let line = format!("{POINT} {BRIEF}");
        let run = || under_mpirun(dir.path(), &format!("{launcher} env {lost}"), &line).run();
        // A launcher may die of SIGPIPE before it prints anything, because the program ends so early. It is then tried
        // again.
        let mut ended = run();
        for _ in 0..3 {
            if ended.signal == Some(13) {
                ended = run();
            }
        }
        ended.with_code(2).saying(&[part]);
    }
}

#[test]
fn an_apparent_launcher_is_refused_naming_what_is_missing() {
    let dir = tempdir().unwrap();
    // The loader rejects the empty file and then stops searching.
    fs::write(dir.path().join("libpmix.so.2"), "").unwrap();
    let program = || tonnage(dir.path(), &format!("{POINT} {BRIEF}"));
    program()
        .env("OMPI_COMM_WORLD_RANK", "0")
        .env("OMPI_COMM_WORLD_SIZE", "2")
        .env("PMIX_NAMESPACE", "7")
        .env("LD_LIBRARY_PATH", dir.path())
        .run()
        .with_code(1)
        .with_one_error(&["PMIx", "libpmix.so.2", "apt-get install libpmix2"]);
    program()
        .env("PMI_RANK", "1")
        .env("PMI_SIZE", "2")
        .env("PMI_FD", "999")
        .run()
        .with_code(1)
        .with_one_error(&["PMI_FD=999", "rank 1 on", "mpirun or srun itself"]);
}
