//! Faulty hosts, with a stand-in for ssh. The stand-in is a script that runs the command locally or behaves like a
//! faulty host.
//!
//! [`super::ssh`] tests real ssh and sshd.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::process::Signal;
use tempfile::tempdir;

use super::support::{BRIEF, Ended, parts, rows, tonnage, wait_until};

/// Script that runs its last argument as sshd would: with a shell, and without this process's environment.
pub const RUNS: &str =
    "for last; do :; done\nexec env -i PATH=\"$PATH\" HOME=\"$HOME\" /bin/sh -c \"$last\"";

/// Runs the program with this script as ssh.
fn run(dir: &Path, script: &str, arguments: &str) -> Ended {
    tonnage(dir, arguments)
        .arguments(&["--ssh".to_owned(), write(dir, script)])
        .run()
}

/// Writes the script that stands in for ssh, and returns its path.
pub fn write(dir: &Path, script: &str) -> String {
    let path = dir.join("stand-in");
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

fn transfer(hosts: &str) -> String {
    format!("transfer {hosts} --engine null --op write --sizes 64 {BRIEF}")
}

#[test]
fn ranks_of_one_host_meet_there() {
    let dir = tempdir().unwrap();
    let ended = run(dir.path(), RUNS, &transfer("--hosts u@h:2 --format jsonl")).with_code(0);
    assert_eq!(ended.stdout.lines().count(), 1, "{ended:#?}");
    assert!(ended.stderr.is_empty(), "{ended:#?}");
    // Checkpoints must go to the local file only.
    let arguments =
        transfer("--hosts h:2 --interval 100ms --checkpoint 100ms --duration 350ms -o r.jsonl")
            .replace("--trial-time 5ms ", "")
            .replace("--trials 2 ", "");
    let ended = run(dir.path(), RUNS, &arguments).with_code(0);
    let text = fs::read_to_string(dir.path().join("r.jsonl")).unwrap();
    assert!(text.lines().count() >= 2, "{text} {ended:#?}");
    let is_row = |line: &&str| line.trim_start().starts_with("64 B ");
    assert_eq!(ended.stdout.lines().filter(is_row).count(), 1, "{ended:#?}");
    // The whole plan must be measured as often as requested.
    let several = transfer("--hosts h:2 --runs 3 --format jsonl");
    let ended = run(dir.path(), RUNS, &several).with_code(0);
    for repetition in 0..3 {
        let told = format!("\"repetition\":{repetition}");
        assert_eq!(ended.stdout.matches(&told).count(), 1, "{ended:#?}");
    }
    // Login scripts may print text, even without a newline at the end.
    let printing = format!("printf title\n{RUNS}");
    run(dir.path(), &printing, &transfer("--hosts h:2")).with_code(0);
    // The hosts file may be a pipe, which can be read only once.
    let pipe = dir.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    let writing = std::thread::spawn({
        let pipe = pipe.clone();
        move || fs::write(pipe, "h slots=2\n")
    });
    let of_pipe = transfer(&format!("--hostfile {}", pipe.display()));
    run(dir.path(), RUNS, &of_pipe).with_code(0);
    writing.join().unwrap().unwrap();
    // A host that is listed twice gets the ranks of both entries. This must be reported.
    run(dir.path(), RUNS, &transfer("--hosts h,h"))
        .with_code(0)
        .saying(&["h is listed more than once"]);
}

/// No process may be left behind, including the stand-in for ssh.
#[test]
fn a_login_that_hangs_ends_with_the_run() {
    for signal in [Signal::TERM, Signal::KILL] {
        let dir = tempdir().unwrap();
        let stand_in = write(dir.path(), "exec sleep 600");
        let run = tonnage(dir.path(), &transfer("--hosts h0,h1"))
            .arguments(&["--ssh".to_owned(), stand_in])
            .start();
        wait_until("both logins hang", || {
            let processes = run.processes().into_iter();
            processes
                .filter(|it| it.command_line.starts_with("sleep"))
                .count()
                == 2
        });
        run.signal(signal);
        let ended = run.end();
        assert_eq!(ended.signal, Some(signal.as_raw()), "{ended:#?}");
    }
}

#[test]
fn requests_that_do_not_fit_are_refused() {
    let dir = tempdir().unwrap();
    let cases = "
        --hosts h0,h1                    => h0 and h1 are one machine | h0:2
        --hosts h0:2 --control-interface nosuch0 => h0: --control-interface nosuch0 | interfaces with an address:
        --hosts h0:2 --env NOT_SET       => --env NOT_SET | NOT_SET=VALUE
    ";
    for [hosts, reason] in rows(cases) {
        let refused = run(dir.path(), RUNS, &transfer(hosts)).with_code(2);
        refused.with_one_error(&parts(reason));
    }
    let launched = tonnage(dir.path(), &transfer("--hosts h0,h1"))
        .launched(0, 2, 1)
        .run();
    launched
        .with_code(2)
        .with_one_error(&["--hosts h0", "rank 0 of 2", "outside of the launcher"]);
    let missing = tonnage(dir.path(), &transfer("--hosts h0,h1 --ssh nosuchprogram")).run();
    missing
        .with_code(2)
        .with_one_error(&["nosuchprogram is not installed", "openssh-client"]);
}

#[test]
fn hosts_that_are_wrong_are_named_with_the_next_thing_to_try() {
    let dir = tempdir().unwrap();
    let other = r#"echo 'Welcome!'; echo '@tonnage {"Hello":{"build":{"version":"9.9","revision":"beef"},"program":"/opt/t"}}'; cat >/dev/null"#;
    let hosts = "
        OTHER                                                   =>        => h0: tonnage 9.9 (beef) is there as /opt/t | --push
        echo tonnage-wanted sparc64 glibc 2.99; cat >/dev/null  => --push => h0: its architecture is sparc64 | was built for it
        echo tonnage-wanted $(uname -m) glibc 2.9; cat >/dev/null => --push => h0: its C library is glibc 2.9 | runs with glibc
        echo tonnage-absent; exit 127                           =>        => h0: the program is not there | --push
        echo \"error: unrecognized subcommand 'host-agent'\" >&2; exit 2 => => h0: another version | --push
        exit 3 => => h0: ssh ended with code 3 | ssh -o BatchMode=yes h0 true
    ";
    for [script, more, reason] in rows(hosts) {
        let script = if script == "OTHER" { other } else { script };
        let line = transfer(&format!("--hosts h0:2 {more}"));
        let ended = run(dir.path(), script, &line).with_code(1);
        // The message of the remote program is in brackets.
        assert_eq!(ended.stderr.lines().count(), 1, "{ended:#?}");
        ended.saying(&parts(reason));
    }
    let page = run(dir.path(), "echo tonnage-absent; exit 127", "hosts h0,h1").with_code(1);
    page.printing(&["h0\n  not reachable", "h1\n  not reachable"]);
}

#[test]
fn variables_go_along() {
    let dir = tempdir().unwrap();
    // Records list variables that control libraries.
    let records = |more: &str| {
        let line = transfer(&format!("--hosts h0:2 --format jsonl {more}"));
        let program = tonnage(dir.path(), &line).env("FI_TEST_VARIABLE", "along");
        let program = program.arguments(&["--ssh".to_owned(), write(dir.path(), RUNS)]);
        program.run().with_code(0).stdout
    };
    let stdout = records("--env UCX_TEST_VARIABLE=asked");
    for variable in [
        "\"FI_TEST_VARIABLE\":\"along\"",
        "\"UCX_TEST_VARIABLE\":\"asked\"",
    ] {
        assert!(stdout.contains(variable), "{stdout}");
    }
    let stdout = records("--no-env --env UCX_TEST_VARIABLE=asked");
    assert!(
        !stdout.contains("FI_TEST_VARIABLE") && stdout.contains("UCX_TEST_VARIABLE"),
        "{stdout}"
    );
}
