//! MPI's collectives from outside, under the mpirun of each MPI that is installed, and without any.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::tempdir;
use tonnage_record::{CollectiveBody, Outcome};

use super::support::launchers::{MPICH, OPEN_MPI, is_there, under_mpirun};
use super::support::{records, tonnage, wait_until};

const ALL: &str = "all-reduce,reduce-scatter,all-gather,all-to-all,broadcast,reduce,gather,scatter,barrier,send-recv-pairs";

/// The operation that has no form in place.
const RING: &str = ",send-recv-ring";

fn installed() -> impl Iterator<Item = &'static str> {
    let all = [OPEN_MPI, MPICH].into_iter();
    all.filter(|launcher| is_there(launcher))
}

fn bodies(path: &Path) -> Vec<CollectiveBody> {
    let of = |record: tonnage_record::Record| {
        assert_eq!(record.outcome, Outcome::Measured, "{record:#?}");
        record.collective().unwrap().clone()
    };
    let text = std::fs::read_to_string(path).unwrap();
    let record = |line: &str| {
        records::allowed(line);
        serde_json::from_str(line).unwrap()
    };
    text.lines().map(record).map(of).collect()
}

#[test]
fn every_result_of_every_operation_is_checked_beside_native_ones() {
    for launcher in installed() {
        let launcher = launcher.replace("-np 2", "-np 4");
        // Types once: what else is varied does not depend on them.
        for (options, dtypes) in [
            ("", "float32,int8"),
            ("--in-place", "float32"),
            ("--groups mod:2", "float32"),
        ] {
            let ring = if options == "--in-place" { "" } else { RING };
            let dir = tempdir().unwrap();
            let line = format!(
                "collective --backend mpi,native:shm --op {ALL}{ring} --sizes 4000 --root 0 --dtype {dtypes} {options} \
                 --trials 2 --iters 3 --warmup 0s --verify -o r.jsonl"
            );
            let run = under_mpirun(dir.path(), &launcher, &line).run();
            let run = run.with_code(0);
            assert!(run.stdout.contains("mpi: "), "{}", run.stdout);
            let bodies = bodies(&dir.path().join("r.jsonl"));
            let ops = ALL.split(',').count() + usize::from(!ring.is_empty());
            let types = dtypes.split(',').count();
            assert_eq!(bodies.len(), (ops - 1) * types + 1, "a barrier has no type");
            for body in &bodies {
                let shape = body.point.shape();
                let place = |rank| body.point.grouping().seat(rank).place;
                let bytes: u64 = (0..4).map(|rank| shape.output_bytes(place(rank))).sum();
                for backend in &body.backends {
                    let summary = backend.summary.as_ref().unwrap();
                    // The first call, and the last one of both trials.
                    assert_eq!(summary.verified_bytes, bytes * 3, "{body:#?}");
                    assert_eq!(summary.iterations, 6);
                }
                let mpi = &body.backends[0];
                let is_broadcast = shape.op.to_string() == "broadcast";
                assert_eq!(
                    mpi.really_in_place,
                    options == "--in-place" || is_broadcast,
                    "{body:#?}"
                );
            }
        }
    }
}

#[test]
fn ranks_that_are_not_mpi_s_are_refused_and_others_go_on() {
    let dir = tempdir().unwrap();
    let line = "collective --backend mpi,native:shm --op all-reduce --sizes 8 --ranks 2 --iters 2 --trials 1";
    let ended = tonnage(dir.path(), line).run().with_code(1);
    let (has_mpi, said) = (installed().count() > 0, ended.stdout.replace("\n    ", " "));
    let reason = if has_mpi {
        "start them by one"
    } else {
        "has no MPI library"
    };
    assert!(said.contains(reason), "{said}");
    assert!(said.contains("native:shm"), "{said}");
    for (options, reason) in [
        ("--dtype bfloat16", "backend mpi has no dtype bfloat16"),
        ("--reduce avg", "backend mpi has no reduce avg"),
        ("--algorithm ring", "without a native backend"),
        ("--engine-option a=b", "without a native backend"),
        ("--timeout 5ms", "timeout 1s to timeout"),
    ] {
        let line =
            format!("collective --backend mpi --op all-reduce --sizes 8 --ranks 2 {options}");
        tonnage(dir.path(), &line)
            .run()
            .with_code(2)
            .saying(&[reason]);
    }
}

/// MPI waits for a rank that was killed until somebody ends it.
#[test]
fn a_rank_that_is_killed_ends_the_others() {
    for launcher in installed() {
        let dir = tempdir().unwrap();
        let line = "collective --backend mpi --op all-reduce --sizes 64k --duration 60s -o r.jsonl";
        let run = under_mpirun(dir.path(), launcher, line).start();
        // The point is open, and calls go on for a minute.
        wait_until("two ranks run", || run.processes().len() >= 2);
        std::thread::sleep(Duration::from_millis(1500));
        run.signal_rank(1, Signal::KILL);
        let since = Instant::now();
        let ended = run.end();
        assert!(ended.code != Some(0), "{ended:#?}");
        assert!(since.elapsed() < Duration::from_secs(20), "{ended:#?}");
        // An mpirun that is faster ends the others before they can say anything, and says why itself.
        let said = format!("{}{}", ended.stdout, ended.stderr);
        let of = ["rank 1 on", "signal 9 (Killed)", "Killed (signal 9)"];
        assert!(of.iter().any(|of| said.contains(of)), "{ended:#?}");
    }
}

/// An MPI whose all-reduce never comes back: everything but this is of the library with this name.
fn hanging_mpi(dir: &Path, library: &str) -> Option<String> {
    let source = "unsigned sleep(unsigned);\n\
                  int MPI_Allreduce(void) { for (;;) sleep(1); }\n\
                  int MPI_Allreduce_c(void) { for (;;) sleep(1); }\n";
    std::fs::write(dir.join("hang.c"), source).unwrap();
    let mut compiler = Command::new("gcc");
    compiler.args([
        "-shared",
        "-fPIC",
        "-Wl,--no-as-needed",
        "-o",
        "libhang.so",
        "hang.c",
    ]);
    let linked = compiler
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

/// All ranks live, and their control threads answer; only the library's call does not come back.
#[test]
fn a_call_that_hangs_ends_the_run_with_its_name() {
    for (launcher, library) in [(OPEN_MPI, "libmpi.so.40"), (MPICH, "libmpich.so.12")] {
        let dir = tempdir().unwrap();
        if !is_there(launcher) {
            continue;
        }
        let Some(mpi) = hanging_mpi(dir.path(), library) else {
            continue;
        };
        let line = format!(
            "collective --backend mpi --mpi {mpi} --op all-reduce --sizes 64k --timeout 2s -o r.jsonl"
        );
        let run = under_mpirun(dir.path(), launcher, &line).start();
        let since = Instant::now();
        let ended = run.end();
        let took = since.elapsed();
        assert!(ended.code != Some(0), "{ended:#?}");
        assert!(took < Duration::from_secs(15), "{took:?}: {ended:#?}");
        let said = format!("{}{}", ended.stdout, ended.stderr).replace("\n    ", " ");
        let words = "call 1 of all-reduce of 64 KiB by mpi has not come back for ";
        assert!(said.contains(words), "{said}");
        assert!(
            said.contains(&format!(" on {}: ", tonnage_sys::host::name())),
            "{said}"
        );
    }
}
