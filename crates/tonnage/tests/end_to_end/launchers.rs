//! Ranks that an external launcher starts, and the secret that they share.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::process::Signal;
use tempfile::tempdir;
use tonnage_record::Record;

use super::support::records::body;
use super::support::{
    BRIEF, Ended, Program, SECRET, Started, free_port, has, parts, records, rows, tonnage,
};

fn transfer(dir: &Path, ranks: u32, more: &str) -> Program {
    let traffic = if ranks.is_multiple_of(2) {
        "pair"
    } else {
        "fan-out"
    };
    let arguments =
        format!("transfer --engine shm --op write --traffic {traffic} --sizes 8,4k {BRIEF} {more}");
    tonnage(dir, &arguments)
}

/// Runs all ranks. `change` adds each rank's own settings.
fn launch(
    dir: &Path,
    ranks: u32,
    more: &str,
    change: impl Fn(u32, Program) -> Program,
) -> Vec<Ended> {
    let port = free_port();
    let start = |rank| change(rank, transfer(dir, ranks, more).launched(rank, ranks, port)).start();
    let started: Vec<_> = (0..ranks).map(start).collect();
    started.into_iter().map(|run| run.end()).collect()
}

fn all_good(runs: &[Ended]) {
    for run in runs {
        assert!(run.code == Some(0) && run.stderr.is_empty(), "{runs:#?}");
    }
    assert!(
        runs[1..].iter().all(|run| run.stdout.is_empty()),
        "{runs:#?}"
    );
}

fn written(dir: &Path) -> Vec<Record> {
    let records = records::read(&dir.join("r.jsonl"));
    assert_eq!(records.len(), 2);
    let launchers = records.iter().map(|it| &*it.environment[0].launcher);
    assert!(launchers.eq(["RANK/WORLD_SIZE, MASTER_ADDR"; 2]));
    records
}

#[test]
fn ranks_find_each_other_by_environment() {
    let dir = tempdir().unwrap();
    let runs = launch(dir.path(), 3, "-o r.jsonl", |_, program| {
        program.env("TONNAGE_SECRET", SECRET)
    });
    all_good(&runs);
    assert_eq!(runs[0].rows().len(), 2, "{runs:#?}");
    let records = written(dir.path());
    assert!(records.iter().all(|it| body(it).point.roles.ranks == 3));
}

#[test]
fn the_secret_may_be_in_a_file() {
    let dir = tempdir().unwrap();
    let file = dir.path().join("secret");
    fs::write(&file, SECRET).unwrap();
    let with_file = |_: u32, program: Program| program.env("TONNAGE_SECRET_FILE", &file);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let refused = with_file(0, transfer(dir.path(), 2, "").launched(0, 2, free_port())).run();
    refused
        .with_code(2)
        .with_one_error(&["others may use", "chmod 600"]);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    all_good(&launch(dir.path(), 2, "-o r.jsonl", with_file));
    written(dir.path());
}

#[test]
fn without_a_secret_the_home_gets_one() {
    let dir = tempdir().unwrap();
    all_good(&launch(dir.path(), 2, "-o r.jsonl", |_, program| program));
    written(dir.path());
    let path = dir.path().join(".config/tonnage/secret");
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let secret = fs::read_to_string(path).unwrap();
    assert!(secret.trim().len() >= 32);
    let records = fs::read_to_string(dir.path().join("r.jsonl")).unwrap();
    assert!(!records.contains(secret.trim()));
}

#[test]
fn a_wrong_secret_keeps_a_rank_out_and_both_sides_report_it() {
    let dir = tempdir().unwrap();
    let runs = launch(dir.path(), 3, "", |rank, program| {
        let secret = ["a wholly different secret", SECRET][usize::from(rank != 2)];
        program
            .env("TONNAGE_SECRET", secret)
            .env("TONNAGE_JOIN_TIMEOUT", "1")
    });
    assert!(runs.iter().all(|run| run.code == Some(1)), "{runs:#?}");
    let root = &runs[0].stderr;
    has(root, "rank 2 | did not come within 1s");
    assert_eq!(root.matches("refused a connection").count(), 1, "{runs:#?}");
    let wrong = &runs[2].stderr;
    assert!(wrong.to_lowercase().contains("secret"), "{runs:#?}");
    assert_eq!(wrong.matches("error: ").count(), 1, "{runs:#?}");
}

/// Rank 0 must report the missing rank at once: a launcher may kill rank 0 as soon as another rank ends.
#[test]
fn rank_0_names_the_missing_rank_before_another_one_ends() {
    let dir = tempdir().unwrap();
    let port = free_port();
    let [zero, one] = [0, 1].map(|rank| {
        transfer(dir.path(), 3, "")
            .launched(rank, 3, port)
            .env("TONNAGE_SECRET", SECRET)
            .env("TONNAGE_JOIN_TIMEOUT", "0.5")
            .start()
    });
    let one = one.end();
    assert!(one.code == Some(1) && one.stderr.is_empty(), "{one:#?}");
    zero.signal(Signal::KILL);
    zero.end()
        .with_one_error(&["rank 2 of 3 did not come within"]);
}

/// Searches all messages at the highest verbosity, all written files, and every command line.
#[test]
fn the_secret_appears_nowhere() {
    let dir = tempdir().unwrap();
    let port = free_port();
    let started = [0, 1].map(|rank| {
        let rank = transfer(dir.path(), 2, "-o r.jsonl --log-level debug").launched(rank, 2, port);
        rank.env("TONNAGE_SECRET", SECRET).start()
    });
    let mut all: Vec<String> = started.iter().flat_map(command_lines).collect();
    for run in started {
        let ended = run.end().with_code(0);
        assert!(
            !ended.stderr.is_empty(),
            "no output at the highest verbosity"
        );
        all.extend([ended.stdout, ended.stderr]);
    }
    all.push(fs::read_to_string(dir.path().join("r.jsonl")).unwrap());
    assert!(!all.iter().any(|text| text.contains(SECRET)), "{all:#?}");
}

fn command_lines(run: &Started) -> Vec<String> {
    let processes = run.processes().into_iter();
    processes.map(|process| process.command_line).collect()
}

/// For ranks that it starts itself, the program generates a secret. Only their environment may contain it.
#[test]
fn the_secret_of_local_ranks_appears_nowhere() {
    let dir = tempdir().unwrap();
    let arguments = "transfer --engine shm --op write --ranks 2 --sizes 8 --trials 1 --trial-time 400ms --bound none \
                     --log-level debug -o r.jsonl";
    let run = tonnage(dir.path(), arguments).start();
    let rank = run.rank(1);
    let environment = fs::read(format!("/proc/{}/environ", rank.pid)).unwrap();
    let environment = String::from_utf8(environment).unwrap();
    let secret = environment
        .split('\0')
        .find_map(|text| text.strip_prefix("TONNAGE_SECRET="));
    let secret = secret.unwrap();
    assert_eq!(secret.len(), 64);
    let mut all = command_lines(&run);
    let ended = run.end().with_code(0);
    all.extend([ended.stdout, ended.stderr]);
    all.push(fs::read_to_string(dir.path().join("r.jsonl")).unwrap());
    assert!(!all.iter().any(|text| text.contains(secret)), "{all:#?}");
}

#[test]
fn sources_that_disagree_are_refused() {
    let dir = tempdir().unwrap();
    let slurm = "SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=8 SLURM_STEP_NODELIST=n1";
    let of_launcher = format!(
        "RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT={}",
        free_port()
    );
    // L stands for the variables of a launcher, and S for those of Slurm.
    let refused = "
        L PMI_RANK=1 PMI_SIZE=2     =>           => RANK=0 | PMI_RANK=1 | disagree
        L WORLD_SIZE=x              =>           => WORLD_SIZE=x
        L RANK=2                    =>           => rank 2 of 2 | RANK | WORLD_SIZE
        L TONNAGE_SECRET=short      =>           => TONNAGE_SECRET | 5 bytes | at least 16
        L TONNAGE_JOIN_TIMEOUT=soon =>           => TONNAGE_JOIN_TIMEOUT=soon | seconds | above 0
        RANK=0                      =>           => WORLD_SIZE is not set | RANK | incomplete
        L                           => --ranks 4 => --ranks 4 | leave --ranks out | `unset RANK WORLD_SIZE`
        S                           => --ranks 4 => the 8 ranks | leave --ranks out | `unset ${!SLURM_*}` in bash
    ";
    for [variables, more, reason] in rows(refused) {
        let mut program = transfer(dir.path(), 2, more);
        for variable in variables.split(' ').flat_map(|it| match it {
            "L" => of_launcher.split(' ').collect(),
            "S" => slurm.split(' ').collect(),
            it => vec![it],
        }) {
            if let Some((name, value)) = variable.split_once('=') {
                program = program.env(name, value);
            }
        }
        program.run().with_code(2).with_one_error(&parts(reason));
    }
}

/// Job J and job J + 10000 use the same port. The run's name in the key keeps their ranks apart.
#[test]
fn steps_with_one_port_do_not_mix() {
    let dir = tempdir().unwrap();
    let port = free_port().to_string();
    let task = |job: &str, rank: &str| {
        transfer(dir.path(), 2, "")
            .env("SLURM_JOB_ID", job)
            .env("SLURM_STEP_ID", "0")
            .env("SLURM_PROCID", rank)
            .env("SLURM_STEP_NUM_TASKS", "2")
            .env("SLURM_STEP_NODELIST", "n1")
            .env("TONNAGE_PORT", &port)
            .env("TONNAGE_SECRET", SECRET)
            .env("TONNAGE_JOIN_TIMEOUT", "20")
            .start()
    };
    let zero = task("7", "0");
    let stranger = task("10007", "1").end();
    assert_eq!(stranger.code, Some(1), "{stranger:#?}");
    assert!(
        stranger.stderr.contains("rank 0 of this run"),
        "{stranger:#?}"
    );
    // The run that the wrong rank reached must keep waiting for its own rank.
    task("7", "1").end().with_code(0);
    zero.end().with_code(0);
}

#[test]
fn ranks_with_different_plans_do_not_start() {
    let dir = tempdir().unwrap();
    let port = free_port();
    let started = [(0, "--label one"), (1, "--label two")].map(|(rank, more)| {
        let program = transfer(dir.path(), 2, more).launched(rank, 2, port);
        let program = program.env("TONNAGE_SECRET", SECRET);
        program.env("TONNAGE_JOIN_TIMEOUT", "5").start()
    });
    for run in started {
        let ended = run.end();
        assert!(matches!(ended.code, Some(1 | 2)), "{ended:#?}");
    }
}
