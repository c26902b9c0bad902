//! Ranks that ssh starts on several hosts. Each host runs a real sshd.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::tempdir;
use tonnage_record::{Outcome, Record};
use tonnage_testbed::{Error, Hosts, Ssh};

use super::hosts::{hosts, hosts_with_links, named};
use super::support::{
    BRIEF, Ended, Program, SECRET, Started, parts, records, rows, tonnage, wait_for_records,
};

/// Promised time after which a run that was lost leaves nothing on any host.
const GONE: Duration = Duration::from_secs(10);

pub(super) fn serving(hosts: &Hosts) -> Option<Ssh<'_>> {
    match Ssh::start(hosts) {
        Ok(ssh) => Some(ssh),
        Err(Error::Unavailable(why)) => {
            println!("skip: no sshd: {why}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Returns the program with the ssh client of these hosts and with these ssh options.
pub(super) fn by_ssh(ssh: &Ssh<'_>, dir: &Path, arguments: &str, options: &str) -> Program {
    let client = format!("{} {options}", ssh.program().display());
    tonnage(dir, arguments).arguments(&["--ssh".to_owned(), client])
}

/// A process on a host.
#[derive(Debug)]
struct There {
    pid: i32,
    command_line: String,
    environment: String,
}

/// Returns the agents and ranks on a host.
fn there(hosts: &Hosts, host: usize) -> Vec<There> {
    let space = Path::new("/run/netns").join(hosts.namespace(host));
    let space = fs::metadata(space).unwrap().ino();
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let look = |pid: i32| {
        let net = fs::metadata(format!("/proc/{pid}/ns/net")).ok()?;
        let text = |name: &str| {
            let bytes = fs::read(format!("/proc/{pid}/{name}")).ok()?;
            Some(String::from_utf8_lossy(&bytes).replace('\0', " "))
        };
        let command_line = text("cmdline")?;
        let mut words = ["host-agent", "host-rank"].iter();
        let is_ours = words.any(|word| command_line.contains(word));
        (net.ino() == space && is_ours).then(|| There {
            pid,
            command_line,
            environment: text("environ").unwrap_or_default(),
        })
    };
    pids.filter_map(look).collect()
}

fn nothing_is_left(hosts: &Hosts, since: Instant) {
    loop {
        let left: Vec<_> = (0..hosts.count())
            .flat_map(|host| there(hosts, host))
            .collect();
        if left.is_empty() {
            return;
        }
        assert!(since.elapsed() < GONE, "left behind: {left:#?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Checks that these hosts measured the points of a file, each host with its ranks.
fn were_measured_by(file: &Path, hosts: [(&str, &str); 2]) {
    let records = records::read(file);
    let is_measured = |record: &Record| record.outcome == Outcome::Measured;
    assert!(records.iter().all(is_measured), "{records:#?}");
    assert_eq!(named(&records), hosts);
}

#[test]
fn ranks_start_by_ssh_and_records_come_back() {
    let Some(hosts) = hosts(2, None) else { return };
    let Some(ssh) = serving(&hosts) else { return };
    let dir = tempdir().unwrap();
    let file = dir.path().join("r.jsonl");
    let arguments = format!(
        "transfer --hosts h0,h1:2 --engine null --op write --traffic fan-out --sizes 64 {BRIEF} -o r.jsonl"
    );
    let run = by_ssh(&ssh, dir.path(), &arguments, "").succeed();
    assert_eq!(run.rows().len(), 1, "{run:#?}");
    were_measured_by(&file, [("h0", "0"), ("h1", "1-2")]);
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains("\"tonnage --hosts, ssh\""), "{text}");
    nothing_is_left(&hosts, Instant::now());
    // A run that resumes the file measures only points that are new.
    let arguments = arguments
        .replace("-o r.jsonl", "--resume r.jsonl")
        .replace("--sizes 64", "--sizes 64,128");
    let arguments = format!("{arguments} --log-level debug");
    let resumed = by_ssh(&ssh, dir.path(), &arguments, "").run().with_code(0);
    // Lines from hosts other than rank 0's host start with the host's name.
    for begin in [
        "debug: rank 0 of 3 has joined",
        "h1: debug: rank 2 of 3 has joined",
    ] {
        let has = resumed.stderr.lines().any(|said| said.starts_with(begin));
        assert!(has, "no {begin:?} in {resumed:#?}");
    }
    assert_eq!(records::read(&file).len(), 2);
    // Runs a plan with a hosts file. Rank 0 must be on the first host in the file.
    fs::write(dir.path().join("hosts"), "h1 # first\nh0 slots=4\n").unwrap();
    fs::write(
        dir.path().join("plan.toml"),
        "name = \"p\"\n[[transfer]]\nengine = \"fabric:tcp\"\nop = \"read\"\nsizes = 4096\ntrials = 2\ntrial-time = \"5ms\"\n\
         warmup = \"1ms\"\nbound = \"none\"\n",
    )
    .unwrap();
    let line = "run plan.toml --hostfile hosts --per-host 2 -o p.jsonl --format csv";
    by_ssh(&ssh, dir.path(), line, "")
        .succeed()
        .printing(&["fabric:tcp"]);
    were_measured_by(&dir.path().join("p.jsonl"), [("h0", "2-3"), ("h1", "0-1")]);
}

#[test]
fn errors_on_a_host_name_the_host() {
    let Some(hosts) = hosts(2, None) else { return };
    let Some(ssh) = serving(&hosts) else { return };
    let dir = tempdir().unwrap();
    let run = |hosts: &str, options: &str| {
        let arguments =
            format!("transfer --hosts {hosts} --engine null --op write --sizes 64 {BRIEF}");
        by_ssh(&ssh, dir.path(), &arguments, options).run()
    };
    // This known-hosts file has a wrong host key: the client's own.
    let other = dir.path().join("other");
    let key = ssh.known_hosts().with_file_name("key.pub");
    fs::write(&other, format!("h* {}", fs::read_to_string(key).unwrap())).unwrap();
    let known = ssh.known_hosts().display().to_string();
    let wrong = "
        h0,nosuchhost =>                                   => nosuchhost: the name cannot be resolved | correct the name
        h0,h1         => -o UserKnownHostsFile=/dev/null   => h1: its host key is unknown | check it once by hand
        h0,h1         => -o UserKnownHostsFile=OTHER       => h1: the host key has changed | ssh-keygen -R h1
        h0,h1         => -p 2                              => h1: no ssh server listens there | sshd
        h0,h1         => -o IdentityFile=none -o IdentityAgent=none -F /dev/null -o UserKnownHostsFile=KNOWN
            => h1: ssh was refused | ssh-copy-id
    ";
    for [names, options, reason] in rows(&wrong.replace("\n            =>", " =>")) {
        let options = options.replace("KNOWN", &known);
        let options = options.replace("OTHER", &other.display().to_string());
        let ended = run(names, &options).with_code(1).saying(&parts(reason));
        assert!(ended.took < Duration::from_secs(10), "{ended:#?}");
    }
    run("h0,h1", "-p 'x")
        .with_code(2)
        .saying(&["--ssh", "is not a command"]);
    // Errors that ranks find are recorded as with --ranks.
    let line = "file --hosts h0,h1 --path /nosuch/dir/t --block 4k --transfer 4k";
    let ended = by_ssh(&ssh, dir.path(), line, "").run().with_code(1);
    ended.printing(&["FAIL  rank 0 on h0: /nosuch/dir"]);
    nothing_is_left(&hosts, Instant::now());
}

/// Runs `ip` on a host.
fn ip(hosts: &Hosts, host: usize, step: &str) {
    let status = hosts.command(host, "ip").args(step.split(' ')).status();
    assert!(status.unwrap().success(), "ip {step}");
}

#[test]
fn ranks_meet_where_all_can_come_or_the_host_is_named_in_time() {
    let Some(hosts) = hosts_with_links(2, 2, None) else {
        return;
    };
    let Some(ssh) = serving(&hosts) else { return };
    let dir = tempdir().unwrap();
    for host in 0..2 {
        // Every host has this address, so no host can use it to reach another.
        ip(&hosts, host, "link add decoy type bridge");
        ip(&hosts, host, "address add 172.17.0.1/16 dev decoy");
        ip(&hosts, host, "link set decoy up");
    }
    let page = by_ssh(&ssh, dir.path(), "hosts h0,h1", "").succeed();
    let page = page.printing(&[
        "yes, as h1",
        "glibc",
        "open files",
        "locked memory",
        "huge pages",
        "clock",
    ]);
    let meets_at = |page: Ended, rail: usize| {
        let address = hosts.link(0, rail).address();
        page.printing(&[&format!("Ranks would meet at {address} of h0.")]);
    };
    meets_at(page, 0);
    let chosen = by_ssh(&ssh, dir.path(), "hosts h0,h1 --control-interface eth1", "").succeed();
    meets_at(chosen, 1);
    // Host 1 sends frames for rank 0's host to a MAC address that no NIC has. This is as if a firewall dropped them.
    let address = hosts.address(0);
    let nobody = "lladdr 02:00:00:00:00:99 dev eth0 nud permanent";
    ip(&hosts, 1, &format!("neigh replace {address} {nobody}"));
    meets_at(by_ssh(&ssh, dir.path(), "hosts h0,h1", "").succeed(), 1);
    let arguments = format!(
        "transfer --hosts h0,h1 --engine null --op write --sizes 64 {BRIEF} --control-interface eth0"
    );
    let tried = format!("h1 cannot reach rank 0 on h0 at {address}:");
    let ended = by_ssh(&ssh, dir.path(), &arguments, "")
        .run()
        .with_code(1)
        .with_one_error(&[&tried, "timed out", "--control-interface"]);
    assert!(ended.took < Duration::from_secs(5), "{ended:#?}");
    nothing_is_left(&hosts, Instant::now());
}

/// Starts a run with a short first point. The record of this point shows that the run is under way.
fn in_the_middle(ssh: &Ssh<'_>, dir: &Path) -> Started {
    let experiment = |time: &str| {
        format!(
            "[[transfer]]\nengine = 'null'\nop = 'write'\nsizes = 64\ntrials = 1\ntrial-time = '{time}'\nwarmup = '0'\n\
             bound = 'none'\n"
        )
    };
    let plan = format!("name = 'p'\n{}{}", experiment("5ms"), experiment("1h"));
    fs::write(dir.join("plan.toml"), plan).unwrap();
    let _ = fs::remove_file(dir.join("r.jsonl"));
    let run = by_ssh(ssh, dir, "run plan.toml --hosts h0,h1 -o r.jsonl", "")
        .env("TONNAGE_SECRET", SECRET)
        .env("UCX_SOME_TOKEN", "correct-horse")
        .start();
    wait_for_records(dir, 1);
    run
}

fn kill(pid: i32) {
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
}

fn with_word(found: Vec<There>, word: &str) -> There {
    let mut found = found.into_iter();
    found
        .find(|process| process.command_line.contains(word))
        .unwrap()
}

#[test]
fn any_killed_process_leaves_nothing() {
    let Some(hosts) = hosts(2, None) else { return };
    let Some(ssh) = serving(&hosts) else { return };
    let dir = tempdir().unwrap();
    // The data goes through ssh's standard input, so no command line shows it.
    let run = in_the_middle(&ssh, dir.path());
    for host in 0..2 {
        let found = there(&hosts, host);
        assert_eq!(found.len(), 2, "an agent and a rank: {found:#?}");
        for process in &found {
            let words: Vec<_> = process.command_line.split_whitespace().skip(1).collect();
            let is_alone = words == ["host-agent"] || words == ["host-rank"];
            assert!(is_alone, "{found:#?}");
            for hidden in
                "SECRET correct-horse TONNAGE_RANK TONNAGE_SIZE 10.77.0.1: plan".split(' ')
            {
                let shows = process.environment.contains(hidden);
                assert!(!shows, "{hidden}: {found:#?}");
            }
        }
    }
    // A rank is killed.
    kill(with_word(there(&hosts, 1), "host-rank").pid);
    let since = Instant::now();
    run.end().with_code(1).with_one_error(&["rank 1 on h1"]);
    nothing_is_left(&hosts, since);
    // An ssh client is killed.
    let run = in_the_middle(&ssh, dir.path());
    let mut processes = run.processes().into_iter();
    let is_to_h1 = |line: &str| line.starts_with("ssh ") && line.contains(" h1 ");
    let client = processes.find(|it| is_to_h1(&it.command_line)).unwrap();
    assert!(run.signal_process(&client, Signal::KILL));
    let since = Instant::now();
    run.end()
        .with_code(1)
        .with_one_error(&["h1 lost its ssh", "signal 9"]);
    nothing_is_left(&hosts, since);
    // The supervisor is killed.
    let run = in_the_middle(&ssh, dir.path());
    run.signal(Signal::KILL);
    let since = Instant::now();
    assert_eq!(run.end().signal, Some(9));
    nothing_is_left(&hosts, since);
    // The user presses Ctrl-C.
    let run = in_the_middle(&ssh, dir.path());
    run.signal(Signal::INT);
    let since = Instant::now();
    // The measured points must be printed.
    run.end().with_code(130).printing(&["64"]);
    nothing_is_left(&hosts, since);
}

#[test]
fn a_cable_that_is_pulled_leaves_nothing() {
    let Some(hosts) = hosts(2, None) else { return };
    let Some(ssh) = serving(&hosts) else { return };
    let dir = tempdir().unwrap();
    let run = in_the_middle(&ssh, dir.path());
    hosts.link(1, 0).cut().unwrap();
    let since = Instant::now();
    // Processes behind the cut cable must end by themselves.
    nothing_is_left(&hosts, since);
    run.end().with_code(1).with_one_error(&["h1"]);
    assert!(since.elapsed() < GONE, "{:?}", since.elapsed());
}

#[test]
fn the_program_is_copied_where_it_is_missing() {
    let Some(hosts) = hosts(1, None) else { return };
    let Some(mut ssh) = serving(&hosts) else {
        return;
    };
    let dir = tempdir().unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_tonnage"));
    let folder = program.parent().unwrap().display();
    // Sessions see another directory instead of the program's, and a home directory of this size.
    let without = |size: &str| {
        format!("mount -t tmpfs none {folder}; mount -t tmpfs -o size={size},mode=700 none /root")
    };
    let other = format!(
        "printf '#!/bin/sh\\nexit 3\\n' >{0}; chmod +x {0}",
        program.display()
    );
    ssh.serve(0, 2222, &format!("{}; {other}", without("2g")))
        .unwrap();
    ssh.serve(0, 2223, &without("1m")).unwrap();
    let arguments = format!("transfer --hosts h0:2 --engine null --op write --sizes 64 {BRIEF}");
    let run = |port: u16, more: &str| {
        let (line, options) = (format!("{arguments} {more}"), format!("-p {port}"));
        by_ssh(&ssh, dir.path(), &line, &options).run()
    };
    for (port, more, parts) in [
        (2223, "", ["h0: the program is not there", "--push"]),
        (2222, "", ["h0: ssh ended with code 3", ""]),
        (2223, "--push", ["h0: the disk was full", "make room"]),
    ] {
        run(port, more).with_code(1).with_one_error(&parts);
    }
    let pushed = || run(2222, "--push --log-level info").with_code(0);
    let first = pushed().saying(&["copying"]);
    assert_eq!(first.rows().len(), 1, "{first:#?}");
    let second = pushed();
    assert!(!second.stderr.contains("copying"), "{second:#?}");
    // An incomplete copy, as after a power failure, must be replaced.
    let cut = "truncate -s 1000 ~/.cache/tonnage/*/tonnage";
    let status = std::process::Command::new(ssh.program())
        .args(["-p", "2222", "h0", cut])
        .status();
    assert!(status.unwrap().success());
    pushed().saying(&["copying"]);
    nothing_is_left(&hosts, Instant::now());
}
