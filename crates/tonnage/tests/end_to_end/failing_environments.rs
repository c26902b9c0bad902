//! Environments that fail: process limits, files that another run uses, an output that blocks, shared memory without
//! room. Each must give one clear line and the right exit code.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::fs::OFlags;
use tempfile::tempdir;

use tonnage_record::Outcome;

use super::files::{only, why};
use super::support::{
    BRIEF, Ended, LONG, Program, SOON, Started, free_port, parts, records, rows, tonnage, under,
    wait_until, words,
};

/// Returns a short run with the engine null, with one point for each size in `more`.
fn null(dir: &Path, more: &str) -> Program {
    let arguments = format!("transfer --engine null --op write --ranks 2 {BRIEF} {more}");
    tonnage(dir, &arguments)
}

/// Runs the program under a limit set by `prlimit`.
fn limited(dir: &Path, limit: &str, arguments: &str) -> Option<Ended> {
    let tried = Command::new("prlimit").arg("--version").output();
    if !tried.is_ok_and(|output| output.status.success()) {
        println!("skip: prlimit is not installed");
        return None;
    }
    Some(under(dir, &format!("prlimit {limit}"), arguments).run())
}

/// Runs the program in a separate namespace that a script prepares. Returns `None`, and prints the skip, if that is
/// impossible.
fn unshared(dir: &Path, what: &str, prepare: &str, arguments: &str) -> Option<Ended> {
    let script = format!("{prepare} || exit 77\nexec \"$@\"\n");
    fs::write(dir.join("prepare.sh"), script).unwrap();
    let run = under(dir, &format!("unshare {what} sh prepare.sh"), arguments);
    let ended = run.env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin").run();
    if ended.stderr.contains("unshare failed") || ended.code == Some(77) {
        println!("skip: no namespace of its own here: {}", ended.stderr);
        return None;
    }
    Some(ended)
}

/// Checks that standard error shows no panic, abort or signal.
fn orderly(ended: &Ended) {
    for sign in ["panicked", "RUST_BACKTRACE", "signal", "abort"] {
        assert!(!ended.stderr.contains(sign), "{sign} in {ended:#?}");
    }
}

#[test]
fn a_limit_on_the_size_of_files() {
    let dir = tempdir().unwrap();
    let transfer = format!("--ranks 2 {BRIEF}");
    let null = format!("transfer --engine null --op write --sizes 8..1k {transfer} -o r.jsonl");
    let Some(ended) = limited(dir.path(), "--fsize=8192", &null) else {
        return;
    };
    orderly(&ended);
    let ended = ended.with_code(1);
    assert_eq!(ended.rows().len(), 8, "{ended:#?}");
    ended.with_one_error(&["r.jsonl", "File too large", "ulimit -f"]);
    let kept = records::read(&dir.path().join("r.jsonl"));
    assert!((1..8).contains(&kept.len()), "{}", kept.len());
    fs::remove_file(dir.path().join("r.jsonl")).unwrap();

    let shm = format!("transfer --engine shm --op write --sizes 8 {transfer}");
    let ended = limited(dir.path(), "--fsize=8192", &shm)
        .unwrap()
        .with_code(1);
    orderly(&ended);
    assert!(ended.stdout.contains("File too large"), "{ended:#?}");

    let file = "file --bound none -o r.jsonl --ranks 2 --path t --block 64k --transfer 64k";
    let ended = limited(dir.path(), "--fsize=32768", file)
        .unwrap()
        .with_code(1);
    orderly(&ended);
    assert!(why(&only(&dir.path().join("r.jsonl")), &ended).contains("File too large"));
    assert!(!dir.path().join("t").exists());
}

/// While ranks join, rank 0 has a connection to every other rank.
#[test]
fn limits_on_open_files() {
    let dir = tempdir().unwrap();
    let transfer = "transfer --engine null --op write --ranks 20 --sizes 64 --iters 10 --trials 1";
    // The supervisor needs only a few files, and rank 0 raises its soft limit.
    let Some(ended) = limited(dir.path(), "--nofile=20:4096", transfer) else {
        return;
    };
    ended.with_code(0);
    let ended = limited(dir.path(), "--nofile=20:20", transfer).unwrap();
    orderly(&ended);
    let ended = ended.with_code(1);
    assert!(ended.took < SOON, "{ended:#?}");
    ended.with_one_error(&[
        "rank 0 on ",
        "open files for connections to 19 other ranks",
        "the limit on open files is 20 here",
        "ulimit -Hn",
    ]);
    // If fewer ranks would fit, the error gives their number.
    let ended = limited(dir.path(), "--nofile=40:40", transfer)
        .unwrap()
        .with_code(1);
    ended.with_one_error(&["the limit on open files is 40 here", "start at most 1"]);
}

/// Each message must name the command that solves the problem.
#[test]
fn networks_without_a_usable_address() {
    let veth = "ip link set lo up\nip link add v0 type veth peer name v1\nip link set v0 up\nip link set v1 up";
    // V stands for two links without addresses, and H for a rank with variables set by hand.
    let cases = "
        true                                                   => 1 => --ranks 2
            => cannot reach 127.0.0.1 | `ip link set lo up`
        ip link set lo up && ip addr del 127.0.0.1/8 dev lo    => 1 => --ranks 2
            => cannot listen on 127.0.0.1 | `ip addr add 127.0.0.1/8 dev lo`
        V => 2 => --control-interface v0 H => --control-interface v0: it is down | `ip addr add ADDRESS/BITS dev v0`
        V => 2 => --control-interface v9 H => --control-interface v9 | has no such interface; interfaces with an address: lo
        V => 2 => --rank 1 --world-size 2 --master [fe80::1]:29000
            => --master: fe80::1 is an address of one link | fe80::1%eth0
    ";
    for [prepare, code, arguments, reason] in rows(&cases.replace("\n            =>", " =>")) {
        let prepare = prepare.replace('V', veth);
        let code = code.parse().unwrap();
        let arguments = arguments.replace('H', "--rank 0 --world-size 2 --master 127.0.0.1:29000");
        let dir = tempdir().unwrap();
        let line = format!("transfer --engine null --op write --sizes 8 {BRIEF} {arguments}");
        let prepare = format!("({prepare}) >&2");
        let Some(ended) = unshared(dir.path(), "-n", &prepare, &line) else {
            return;
        };
        ended.with_code(code).with_one_error(&parts(reason));
    }
    let dir = tempdir().unwrap();
    let line = format!("transfer --engine null --op write --sizes 8 --ranks 2 {BRIEF}");
    if let Some(ended) = limited(dir.path(), "--nofile=10:10", &line) {
        ended.with_code(1).with_one_error(&["`ulimit -Hn`"]);
    }
}

#[test]
fn a_fifo_for_results() {
    let dir = tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    let made = Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    let ended = null(dir.path(), "--sizes 8 -o fifo").run().with_code(2);
    assert!(ended.took < Duration::from_secs(10), "{ended:#?}");
    ended.with_one_error(&["fifo is a FIFO without a reader", "start its reader"]);

    // The FIFO has room for the run's output, so the test can read it afterwards.
    let mut reader = OpenOptions::new();
    let reader = reader
        .read(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    let reader = reader.open(&fifo).unwrap();
    null(dir.path(), "--sizes 8..64 -o fifo").succeed();
    let text = std::io::read_to_string(reader).unwrap();
    assert_eq!(text.lines().count(), 4, "{text}");
}

#[test]
fn a_file_that_another_run_writes() {
    for option in ["-o", "--resume"] {
        let dir = tempdir().unwrap();
        let path = dir.path().join("r.jsonl");
        null(dir.path(), &format!("--sizes 16 {option} r.jsonl"))
            .run()
            .with_code(0);
        let before = fs::read(&path).unwrap();
        let first = format!(
            "transfer --engine null --op write --ranks 2 --sizes 8 {LONG} {option} r.jsonl"
        );
        let first = tonnage(dir.path(), &first).start();
        let held = || {
            let open = fs::read_dir(format!("/proc/{}/fd", first.rank(0).pid));
            let mut files = open.into_iter().flatten().flatten();
            files.any(|it| fs::read_link(it.path()).is_ok_and(|name| name.ends_with("r.jsonl")))
        };
        wait_until("the first run has the file", held);
        for second in ["-o", "--resume"] {
            let ended = null(dir.path(), &format!("--sizes 32 {second} r.jsonl")).run();
            let busy = "another run is writing its results to r.jsonl";
            ended.with_code(2).with_one_error(&[busy]);
        }
        assert_eq!(fs::read(&path).unwrap(), before);
        drop(first);
    }
}

#[test]
fn incomplete_last_lines() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("r.jsonl");
    null(dir.path(), "--sizes 8 -o r.jsonl").succeed();
    let good = fs::read(&path).unwrap();
    let zeros = [0; 300];
    let torn = &good[..good.len() / 2];
    for (tail, expected) in [
        (
            [&zeros[..], b"\n"].concat(),
            "line 2: not a record of tonnage: 300 bytes of zeros",
        ),
        (
            [torn, b"\n"].concat(),
            "line 2: not a record of tonnage: it is damaged, or another record was appended",
        ),
        (
            b"{\"schema_version\":0}\n".to_vec(),
            "schema version 0, which no version of tonnage has",
        ),
    ] {
        let bytes = [&good[..], &tail].concat();
        fs::write(&path, &bytes).unwrap();
        for arguments in ["show r.jsonl", "-o r.jsonl", "--resume r.jsonl"] {
            let run = match arguments.strip_prefix("show") {
                Some(_) => tonnage(dir.path(), arguments),
                None => null(dir.path(), &format!("--sizes 8 {arguments}")),
            };
            let ended = run.run().with_code(2);
            assert_eq!(ended.stderr.lines().count(), 1, "{ended:#?}");
            ended.with_one_error(&[expected, "r.jsonl"]);
        }
        assert_eq!(fs::read(&path).unwrap(), bytes, "it was changed");
    }
    // A broken end without a newline is treated as the last write before a crash of the machine, and is removed.
    for tail in [&zeros[..], torn] {
        fs::write(&path, [&good[..], tail].concat()).unwrap();
        null(dir.path(), "--sizes 8 --resume r.jsonl").succeed();
        assert_eq!(fs::read(&path).unwrap(), good);
    }
}

/// Runs the program with this file as its standard output and this standard error.
fn into(arguments: &str, stdout: &str, stderr: Stdio) -> (Option<i32>, String) {
    let output = OpenOptions::new().write(true).open(stdout).unwrap();
    let program = Command::new(env!("CARGO_BIN_EXE_tonnage"))
        .args(arguments.split_whitespace())
        .env_clear()
        .stdout(output)
        .stderr(stderr)
        .output()
        .unwrap();
    let said = String::from_utf8(program.stderr).unwrap();
    (program.status.code(), said)
}

#[test]
fn an_output_that_is_always_full() {
    for arguments in [
        "--version",
        "--help",
        "file --help",
        "ior --help",
        "explain",
        "devices",
    ] {
        let (code, said) = into(arguments, "/dev/full", Stdio::piped());
        assert_eq!(code, Some(1), "{arguments}: {said}");
        let is_one = said.lines().count() == 1;
        assert!(
            is_one && said.starts_with("error: cannot write to standard output"),
            "{said}"
        );
    }
    for (arguments, code) in [
        ("transfer --bogus", 2),
        ("run nowhere.toml", 2),
        ("--version", 0),
    ] {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let (found, _) = into(arguments, "/dev/null", full.into());
        assert_eq!(found, Some(code), "{arguments}");
    }
}

#[test]
fn shared_memory_that_cannot_be_used() {
    let cases = "
        tmpfs -o size=64k    => /dev/shm has only 64 KiB free
        tmpfs -o ro          => no file can be created in /dev/shm (Read-only file system
        tmpfs -o nr_inodes=1 => no file can be created in /dev/shm (No space left
        proc                 => no file can be created in /dev/shm (
    ";
    for [mount, expected] in rows(cases) {
        let dir = tempdir().unwrap();
        let arguments = format!(
            "transfer --engine fabric:shm --libfabric embedded --op write --ranks 2 --sizes 8 {BRIEF} -o r.jsonl"
        );
        let mount = format!("mount -t {mount} none /dev/shm");
        let Some(ended) = unshared(dir.path(), "-m", &mount, &arguments) else {
            return;
        };
        orderly(&ended);
        let record = &records::read(&dir.path().join("r.jsonl"))[0];
        let is_skipped = matches!(record.outcome, Outcome::Skipped { .. });
        let ended = ended.with_code(if is_skipped { 2 } else { 1 });
        let why = why(record, &ended);
        assert!(why.contains(expected), "no {expected:?} in {why}");
    }
}

/// libfabric only sets the length of its files, and a process that touches a page without room is killed. Here, each
/// kind of experiment needs more endpoints than fit into a Docker container's default.
#[test]
fn shared_memory_that_is_too_small_for_all_endpoints() {
    let transfer = format!("transfer --op write --engine fabric:shm --sizes 64k {BRIEF}");
    let small = |arguments: &str| {
        let dir = tempdir().unwrap();
        let mount = "mount -t tmpfs -o size=64m none /dev/shm";
        unshared(
            dir.path(),
            "-m",
            mount,
            &format!("{arguments} --libfabric embedded"),
        )
    };
    // On a host with many CPUs, there is no room even for one endpoint.
    let of_one = "/dev/shm has only 64 MiB free";
    for arguments in [
        format!("{transfer} --ranks 2 --queue-pairs 16"),
        format!("{transfer} --ranks 2 --threads 16"),
        format!("{transfer} --ranks 24"),
        "connect --engine fabric:shm --ranks 2 --threads 16 --duration 20ms --trials 1".to_owned(),
        "collective --backend native:fabric:shm --op all-reduce --sizes 4k --ranks 24 --trials 1 --trial-time 5ms \
         --bound none"
            .to_owned(),
        "stress --engine fabric:shm --ranks 24 --duration 100ms --max-size 4k".to_owned(),
        "tune --engine fabric:shm --op write --sizes 4k --goal bandwidth --ranks 2 --trial-time 2ms --threads 16 \
         --depth 16 --queue-pairs 1"
            .to_owned(),
    ] {
        let Some(ended) = small(&arguments) else {
            return;
        };
        let ended = ended.with_code(2);
        orderly(&ended);
        let said = words(&format!("{}{}", ended.stdout, ended.stderr));
        for part in ["in /dev/shm, which has 64 MiB free", "--shm-size=1g"] {
            let is_said = said.contains(part) || said.contains(of_one);
            assert!(is_said, "{arguments}: {said}");
        }
    }
    // 12 endpoints fit, although 12 files of their full length would not.
    let ended = small(&format!("{transfer} --ranks 2 --queue-pairs 6")).unwrap();
    assert!(
        ended.code == Some(0) || ended.stdout.contains(of_one),
        "{ended:#?}"
    );
}

/// A message that quotes a long argument must stay readable.
#[test]
fn arguments_of_hundreds_of_kilobytes() {
    let dir = tempdir().unwrap();
    let word = "x".repeat(60_000);
    let words = "x ".repeat(50_000);
    // W stands for a long word, and V for many words.
    for request in [
        "W",
        "transfer --W W",
        "run W",
        "show W",
        "explain V",
        "file --path W",
        "file --path V",
        "ior -a W",
        "transfer --ranks 2 --op write --engine W --sizes 8",
        "transfer --ranks 2 --op write --engine null --sizes W --cpus W",
        "transfer --ranks 2 --op write --engine null --sizes V",
        "transfer --ranks 2 --op write --engine null --sizes 8 -o W",
        "transfer --ranks 2 --op write --engine null --sizes 8 --resume W",
        "transfer --ranks 2 --op write --engine null --sizes 8 -o W --resume V",
        "transfer --ranks 2 --op write --engine null --sizes 8 --numa W",
        "transfer --ranks 2 --op write --engine null --sizes 8 --library W=W",
        "transfer --rank 0 --world-size 2 --master W:1",
    ] {
        let long = |it: &str| it.replace('W', &word).replace('V', &words);
        let arguments: Vec<String> = request.split(' ').map(long).collect();
        let ended = tonnage(dir.path(), "").arguments(&arguments).run();
        assert_eq!(ended.code, Some(2), "{request}");
        assert!(
            ended.stderr.len() < 8_500,
            "{request}: {}",
            ended.stderr.len()
        );
        assert!(ended.stdout.is_empty(), "{request}");
        ended.with_one_error(&[]);
    }
}

/// A label with control characters of a terminal, and files without records.
#[test]
fn unprintable_labels_and_files_without_records() {
    let dir = tempdir().unwrap();
    let label = "x\u{1b}[31mRED";
    let line = "transfer --engine null --op write --ranks 2 --sizes 8 --label";
    let ended = tonnage(dir.path(), line)
        .arguments(&[label.to_owned()])
        .run();
    ended.with_code(2).with_one_error(&["one line of text"]);
    for (name, bytes) in [("empty", &b""[..]), ("nul", &[0; 3])] {
        fs::write(dir.path().join(name), bytes).unwrap();
        let shown = tonnage(dir.path(), &format!("show {name}")).run();
        assert_ne!(shown.code, Some(0), "{name}: {shown:#?}");
        assert!(shown.stderr.contains(name), "{shown:#?}");
    }
}

/// Runs the program as a user without other processes, who may start this many.
fn with_processes(dir: &Path, most: u32, arguments: &str) -> Ended {
    let user = 1_000_000_000 + std::process::id();
    let launcher =
        format!("setpriv --reuid {user} --regid {user} --clear-groups prlimit --nproc={most}");
    under(dir, &launcher, arguments).run()
}

/// Each limit is just enough for the supervisor, the ranks, or some of their threads.
#[test]
fn threads_that_cannot_be_started() {
    let dir = tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let can = with_processes(dir.path(), 100, "explain MsgSize");
    if can.code != Some(0) {
        return println!("skip: programs cannot be run as another user: {can:?}");
    }
    let host = tonnage_sys::host::name();
    for arguments in [
        &format!("transfer --engine shm --op write --ranks 2 --threads 2 --sizes 8 {BRIEF}"),
        "transfer --engine fabric:tcp --op write --ranks 2 --sizes 8 --trials 1 --trial-time 5ms",
        "file --bound none --path t --ranks 2 --threads 2 --barriers --block 4k --transfer 1k",
        "connect --engine shm --ranks 2 --threads 2 --trials 1 --duration 200ms",
    ] {
        let mut refused = 0;
        for most in 2..=8 {
            let ended = with_processes(dir.path(), most, arguments);
            orderly(&ended);
            if ended.code == Some(0) {
                continue;
            }
            refused += 1;
            let first = ended.stderr.lines().next().unwrap_or_default();
            let begins = [0, 1].map(|rank| format!("error: rank {rank} on {host}: cannot start "));
            let is_named = begins.iter().any(|begin| first.starts_with(begin));
            let is_right = ended.code == Some(1) && is_named && first.contains("ulimit -u");
            assert!(is_right, "{arguments} with {most}: {ended:#?}");
        }
        assert!(refused >= 4, "{arguments}");
        assert!(!dir.path().join("t").exists());
    }
}

/// Runs the program with less and less memory, until it cannot start.
#[test]
fn memory_that_runs_out() {
    let dir = tempdir().unwrap();
    for arguments in [
        "devices",
        "file --bound none --path t --ranks 2 --block 4k --transfer 1k",
    ] {
        let mut said = false;
        for megabytes in (16..=64).rev() {
            let limit = format!("--as={megabytes}000000");
            let Some(ended) = limited(dir.path(), &limit, arguments) else {
                return;
            };
            // With even less memory, the loader cannot load the program's libraries.
            let is_loaded = !ended.stderr.contains("error while loading");
            if !is_loaded || ended.code.is_none_or(|code| code > 2) {
                break;
            }
            orderly(&ended);
            let mut lines = ended.stderr.lines();
            if let Some(line) = lines.find(|line| line.contains("out of memory: ")) {
                let named =
                    line.starts_with("error: ") && line.contains(&tonnage_sys::host::name());
                assert!(named && ended.code == Some(1), "{ended:#?}");
                said = true;
                break;
            }
        }
        assert!(said, "{arguments}");
        assert!(!dir.path().join("t").exists());
    }
}

/// The memory is enough for the program but not for a connection. libfabric does not report this, but retries forever.
#[test]
fn memory_too_short_for_a_connection() {
    let dir = tempdir().unwrap();
    let run = format!("transfer --engine fabric:tcp --op write --ranks 2 --sizes 64 {BRIEF}");
    let mut seen = Vec::new();
    // The mappings of the program differ between machines. The limit that leaves too little is therefore searched.
    for megabytes in (50..100).step_by(2).chain((100..=300).step_by(5)) {
        let Some(ended) = limited(dir.path(), &format!("--as={megabytes}000000"), &run) else {
            return;
        };
        orderly(&ended);
        assert!(
            ended.took < Duration::from_secs(20),
            "{megabytes}: {ended:#?}"
        );
        let text = words(&ended.stdout);
        let told = [
            "because its address space is nearly full: ",
            "raise the limit (ulimit -v)",
        ];
        if told.iter().all(|part| text.contains(part)) {
            assert_eq!(ended.code, Some(1));
            return;
        }
        seen.push((megabytes, ended.code));
    }
    panic!("no limit left too little for a connection: {seen:?}");
}

/// Under a launcher, no supervisor combines the exit codes.
#[test]
fn all_ranks_of_a_launcher_exit_with_the_code_of_a_point_that_fails_at_one() {
    let dir = tempdir().unwrap();
    let port = free_port();
    let run = format!("transfer --engine fabric:tcp --op write --sizes 64 {BRIEF}");
    let rank = |rank, library| {
        let program = tonnage(dir.path(), &run).env("TONNAGE_LIBFABRIC", library);
        program.launched(rank, 2, port).start()
    };
    let ended = [rank(0, "embedded"), rank(1, "/nonexistent.so")].map(Started::end);
    for (rank, run) in ended.iter().enumerate() {
        orderly(run);
        assert_eq!(run.code, Some(2), "rank {rank}: {ended:#?}");
    }
    let said = &ended[0].stderr;
    assert!(
        said.contains("/nonexistent.so: cannot open") && ended[1].stderr.is_empty(),
        "{ended:#?}"
    );
}
