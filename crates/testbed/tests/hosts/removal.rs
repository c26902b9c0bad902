//! Nothing is left behind, however the owner of the hosts ends.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tonnage_testbed::{HostsSpec, Rate};

use super::support::{
    command_line, is_gone, printed, processes_with, some_hosts, spaces, two_hosts, wait_until,
};

/// A process that runs in a host, identified by a unique sleep time.
struct Sleeper {
    seconds: String,
}

impl Sleeper {
    fn new(place: u32) -> Self {
        let seconds = format!("{}.{place}", 100_000 + std::process::id());
        Self { seconds }
    }

    /// Returns a script that ignores SIGTERM and sleeps twice.
    fn script(&self) -> String {
        format!("trap '' TERM; sleep {} & wait; sleep {0}", self.seconds)
    }

    fn runs(&self) -> bool {
        !processes_with(&format!("sleep {} ", self.seconds)).is_empty()
    }
}

fn send(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

fn guardian_of(folder: &Path) -> i32 {
    let found = processes_with(&format!(" tonnage-testbed {} ", folder.display()));
    assert_eq!(found.len(), 1, "{found:?}");
    found[0]
}

/// The program `tonnage-testbed` as the owner of two hosts, with a sleeper in one of them.
struct Owner {
    child: Child,
    folder: PathBuf,
    sleeper: Sleeper,
}

impl Owner {
    fn start(place: u32) -> Self {
        let sleeper = Sleeper::new(place);
        let script = format!(
            "echo \"${{PATH%%/bin:*}}\"; exec on 0 sh -c \"{}\"",
            sleeper.script()
        );
        // `nohup` and shells without job control start these tests with signals ignored, and child processes inherit
        // this.
        let mut child = Command::new("env")
            .arg("--default-signal=HUP,INT,QUIT,TERM")
            .arg(env!("CARGO_BIN_EXE_tonnage-testbed"))
            .args(["--rate", "1gbit", "--", "sh", "-c", &script])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = child.stdout.take().unwrap();
        let mut owner = Self {
            child,
            folder: PathBuf::new(),
            sleeper,
        };
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        owner.folder = line.trim().into();
        assert_eq!(spaces(&owner.folder).len(), 3, "two hosts and a switch");
        wait_until("the sleeper sleeps", || owner.sleeper.runs());
        owner
    }

    fn signal(&self, signal: Signal) {
        send(self.child.id() as i32, signal);
    }

    /// Waits until the owner has ended and no part of its hosts is left.
    fn leaves_nothing(mut self) {
        wait_until("the owner ends", || {
            self.child.try_wait().unwrap().is_some()
        });
        // The guardian removes the folder before it ends. The folder is among its arguments, so a running guardian is
        // found by it.
        wait_until("nothing is left", || {
            let beside = processes_with(self.folder.to_str().unwrap());
            is_gone(&self.folder) && !self.sleeper.runs() && beside.is_empty()
        });
    }
}

impl Drop for Owner {
    /// A failed test must not leave a process that holds standard error open, because `make` would wait for it.
    fn drop(&mut self) {
        // Both calls fail only if the process has already been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn after_a_drop() {
    let Some(hosts) = two_hosts(None) else { return };
    let folder = hosts.folder().to_owned();
    assert_eq!(spaces(&folder).len(), 3);
    let sleeper = Sleeper::new(0);
    let mut child = hosts
        .command(1, "sh")
        .args(["-c", &sleeper.script()])
        .spawn()
        .unwrap();
    wait_until("the sleeper sleeps", || sleeper.runs());
    drop(hosts);
    assert!(is_gone(&folder) && !sleeper.runs());
    child.wait().unwrap();
}

#[test]
fn after_a_close_with_several_links_that_are_shaped_and_cut() {
    let spec = HostsSpec {
        links: 3,
        rates: Rate::GBIT_1.into(),
        ..HostsSpec::default()
    };
    let Some(hosts) = some_hosts(spec) else {
        return;
    };
    let folder = hosts.folder().to_owned();
    assert_eq!(spaces(&folder).len(), 3, "two hosts and one switch");
    hosts.link(1, 2).cut().unwrap();
    hosts.close().unwrap();
    assert!(is_gone(&folder));
}

#[test]
fn after_the_guardian_was_killed() {
    let Some(hosts) = two_hosts(None) else { return };
    let folder = hosts.folder().to_owned();
    send(guardian_of(&folder), Signal::KILL);
    // Creating other hosts removes leftovers, but must not remove hosts with a living owner.
    drop(two_hosts(None));
    assert_eq!(printed(&mut hosts.command(0, "hostname")), "h0");
    hosts.close().unwrap();
    assert!(is_gone(&folder));
}

#[test]
fn after_the_owner_was_killed() {
    if two_hosts(None).is_none() {
        return;
    }
    for (place, signal) in [(1, Signal::KILL), (2, Signal::TERM), (3, Signal::HUP)] {
        let owner = Owner::start(place);
        owner.signal(signal);
        owner.leaves_nothing();
    }
}

#[test]
fn after_an_interruption() {
    if two_hosts(None).is_none() {
        return;
    }
    let mut owner = Owner::start(4);
    // The owner leaves SIGINT to the command, as with Ctrl-C, and removes the hosts when the command has ended.
    owner.signal(Signal::INT);
    let exact = format!("sleep {} ", owner.sleeper.seconds);
    let mut status = None;
    // The script sleeps twice, so the loop may have to kill two processes.
    wait_until("the owner ends after its command", || {
        let sleeping = processes_with(&exact);
        let sleeping = sleeping
            .into_iter()
            .filter(|&pid| command_line(pid) == exact);
        sleeping.for_each(|pid| {
            // The process may have ended in the meantime.
            let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
        });
        status = owner.child.try_wait().unwrap();
        status.is_some()
    });
    let status = status.unwrap();
    assert_eq!(
        status.code(),
        Some(128 + 9),
        "the command's own end: {status}"
    );
    assert!(is_gone(&owner.folder), "removed before the owner ended");
    owner.leaves_nothing();
}

#[test]
fn after_owner_and_guardian_were_killed_the_next_use_removes() {
    if two_hosts(None).is_none() {
        return;
    }
    let mut owner = Owner::start(5);
    send(guardian_of(&owner.folder), Signal::KILL);
    owner.signal(Signal::KILL);
    owner.child.wait().unwrap();
    // A new set of hosts removes the leftovers. A concurrent test may have done so already.
    drop(two_hosts(None));
    owner.leaves_nothing();
}

#[test]
fn a_namespace_created_too_late_is_removed_at_the_next_use() {
    let Some(hosts) = two_hosts(None) else { return };
    // Imitates an owner that was killed while it created a namespace, after the guardian had finished its removal.
    let late = format!("tonnage-{}-4000000000-h0", std::process::id());
    printed(Command::new("ip").args(["netns", "add", &late]));
    let other = format!("tonnage-other-{}", std::process::id());
    printed(Command::new("ip").args(["netns", "add", &other]));
    drop(two_hosts(None));
    assert!(!Path::new("/run/netns").join(late).exists());
    assert!(Path::new("/run/netns").join(&other).exists(), "not ours");
    printed(Command::new("ip").args(["netns", "del", &other]));
    assert_eq!(printed(&mut hosts.command(0, "hostname")), "h0");
}

#[test]
fn leftovers_that_cannot_be_removed_block_nothing_and_keep_mounted_files() {
    let Some(hosts) = two_hosts(None) else { return };
    let left = PathBuf::from(format!(
        "/run/tonnage-testbed/4000000000-{}",
        std::process::id()
    ));
    let inside = left.join("inside");
    fs::create_dir_all(&inside).unwrap();
    // The removal must not delete files in a mounted file system. Nor can it delete the folder before `umount`.
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "tonnage-test"])
        .arg(&inside)
        .status()
        .unwrap();
    assert!(mounted.success(), "mount needs the root that made hosts");
    fs::write(inside.join("file"), "").unwrap();
    let others = two_hosts(None);
    let kept = inside.join("file").exists();
    printed(Command::new("umount").arg(&inside));
    assert!(kept, "the mounted files were removed");
    let others = others.expect("the leftover blocked other hosts");
    assert_ne!(hosts.folder(), others.folder());
    drop(two_hosts(None));
    assert!(!left.exists());
}

#[test]
fn variables_of_a_slurm_step_do_not_reach_the_hosts() {
    if two_hosts(None).is_none() {
        return;
    }
    let output = Command::new(env!("CARGO_BIN_EXE_tonnage-testbed"))
        .env("SLURM_JOB_ID", "7")
        .env("SLURM_STEP_ID", "0")
        .args(["--", "env"])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("HOST0=") && !text.contains("SLURM_"),
        "{text}"
    );
}

#[test]
fn without_root_the_reason_is_printed() {
    let is_root = rustix::process::geteuid().is_root();
    // The unprivileged user needs a copy of the program in a folder that it can enter.
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = folder.path().join("tonnage-testbed");
    fs::copy(env!("CARGO_BIN_EXE_tonnage-testbed"), &program).unwrap();
    let run = || {
        let mut command = Command::new(&program);
        if is_root {
            command.uid(65534).gid(65534);
        }
        command.args(["--", "true"]).output()
    };
    // If a concurrent test forks while the copy is being written, its child holds the copy open for a moment.
    let is_busy = |output: &std::io::Result<std::process::Output>| {
        let error = output.as_ref().err();
        error.is_some_and(|error| error.kind() == std::io::ErrorKind::ExecutableFileBusy)
    };
    let mut output = run();
    for _ in 0..100 {
        if !is_busy(&output) {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
        output = run();
    }
    let output = output.unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(said, "error: only root can make network namespaces\n");
}
