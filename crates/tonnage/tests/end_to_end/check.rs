//! Baselines of records, and hosts that are checked beside them: verdicts, codes, and an end within the budget.
//!
//! Figures are rates at which operations are offered, which a busy machine reaches too, and links of known speed.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::tempdir;
use tonnage_testbed::{Error, Hosts, LinkRates, Rate, Slurm, Ssh};

use super::hosts::hosts;
use super::ssh::{by_ssh, serving};
use super::support::{Ended, free_port, tonnage, tonnage_in};

/// A paced point, whose rate is the one that is offered.
const PACED: &str = "transfer --engine null --op write --ranks 2 --rate 2k --duration 60ms --trials 2 --warmup 1ms \
                     --limit none";

fn run(dir: &Path, arguments: &str) -> Ended {
    tonnage(dir, arguments).run()
}

fn last_line(ended: &Ended) -> &str {
    ended.stdout.lines().last().unwrap_or_default()
}

fn printing(ended: &Ended, parts: &[&str]) {
    for part in parts {
        assert!(ended.stdout.contains(part), "no {part:?} in {ended:#?}");
    }
}

/// A run of the point, and a baseline with a rate by hand, which no busy machine makes another.
fn paced_baseline(dir: &Path) {
    run(dir, &format!("{PACED} --sizes 64 -o r.jsonl")).with_code(0);
    by_hand(dir, "r.jsonl", 2000.0, "b.toml");
}

/// A baseline of some records with this rate: a check fails below a tenth of it.
fn by_hand(dir: &Path, records: &str, rate_per_s: f64, file: &str) {
    let text = format!(
        "[[value]]\npoint = {{ engine = 'null', op = 'write' }}\nmetric = 'message-rate'\nvalue = {rate_per_s}\n\
         source = 'the rate that is offered'\n"
    );
    fs::write(dir.join("hand.toml"), text).unwrap();
    let made = format!(
        "baseline {records} --by-hand hand.toml --metric message-rate --fail 90% --warn 80% -o {file}"
    );
    run(dir, &made).with_code(0);
}

#[test]
fn a_host_is_checked_beside_its_own_baseline() {
    let dir = tempdir().unwrap();
    let dir = dir.path();
    paced_baseline(dir);
    by_hand(dir, "r.jsonl", 100_000.0, "fast.toml");
    let passed = run(dir, "check --baseline b.toml --budget 20s -o v.json").with_code(0);
    assert!(last_line(&passed).starts_with("pass: "), "{passed:#?}");
    let report: Value =
        serde_json::from_str(&fs::read_to_string(dir.join("v.json")).unwrap()).unwrap();
    assert_eq!(
        (&report["verdict"], &report["entries"][0]["verdict"]),
        (&"pass".into(), &"pass".into())
    );
    // Each failure is measured again.
    fs::create_dir(dir.join("state")).unwrap();
    let failing =
        "check --baseline fast.toml --budget 20s --state state --cache 10m --nodelist failed";
    let failed = run(dir, &format!("{failing} -o f.json")).with_code(1);
    let reason = last_line(&failed);
    assert!(
        reason.starts_with("fail: null write 64 ") && reason.len() <= 80,
        "{reason}"
    );
    let report: Value =
        serde_json::from_str(&fs::read_to_string(dir.join("f.json")).unwrap()).unwrap();
    assert_eq!(report["entries"][0]["tries"].as_array().unwrap().len(), 2);
    assert_eq!(
        fs::read_to_string(dir.join("failed")).unwrap().trim(),
        report["hosts"][0].as_str().unwrap()
    );
    // The same check tells its verdict again, whatever its codes mean.
    let since = Instant::now();
    let told = run(dir, &format!("{failing} --force --exit nagios")).with_code(2);
    assert!(
        last_line(&told).ends_with(" s ago") && since.elapsed() < Duration::from_secs(2),
        "{told:#?}"
    );
    // A baseline compared with itself, and with another.
    printing(
        &run(dir, "baseline --diff b.toml b.toml").with_code(0),
        &["1 same"],
    );
    printing(
        &run(dir, "baseline --diff fast.toml b.toml").with_code(1),
        &["1 failing"],
    );
}

#[test]
fn what_cannot_be_measured_is_an_error_and_drains_nothing() {
    let dir = tempdir().unwrap();
    let dir = dir.path();
    paced_baseline(dir);
    let long = PACED.replace("--duration 60ms", "--duration 2s");
    // A full disk.
    let full = run(
        dir,
        "check --baseline b.toml -o /dev/full --force --exit prolog",
    )
    .with_code(0);
    assert!(last_line(&full).starts_with("error: "), "{full:#?}");
    // A library that is not there.
    let tcp = "transfer --engine fabric:tcp --op write --ranks 2 --sizes 64 --duration 10ms --trials 2 --limit none";
    run(dir, &format!("{tcp} -o t.jsonl")).with_code(0);
    run(dir, "baseline t.jsonl --min-runs 1 -o t.toml").with_code(0);
    let gone = "check --baseline t.toml --libfabric /nowhere/libfabric.so.1";
    let lacks = run(dir, &format!("{gone} --exit prolog")).with_code(0);
    assert!(last_line(&lacks).starts_with("error: "), "{lacks:#?}");
    run(dir, gone).with_code(1);
    // A rank that is stopped, in a run that lasts longer than the budget leaves.
    run(dir, &format!("{long} --sizes 64 -o l.jsonl")).with_code(0);
    by_hand(dir, "l.jsonl", 2000.0, "l.toml");
    let since = Instant::now();
    let stopped = tonnage(
        dir,
        "check --baseline l.toml --budget 12s --exit prolog --retest 0",
    )
    .start();
    stopped.signal_rank(1, Signal::STOP);
    let ended = stopped.end().with_code(0);
    assert!(since.elapsed() < Duration::from_secs(12), "{ended:#?}");
    assert!(last_line(&ended).starts_with("error: "), "{ended:#?}");
}

/// Each process of a launcher looks after a rank of its own; rank 0 tells the verdict.
#[test]
fn ranks_of_a_launcher_are_checked_together() {
    let dir = tempdir().unwrap();
    paced_baseline(dir.path());
    let port = free_port();
    let start = |rank| {
        let check = tonnage(dir.path(), "check --baseline b.toml --budget 30s");
        check.launched(rank, 2, port).start()
    };
    let [first, second] = [start(0), start(1)].map(|run| run.end().with_code(0));
    assert!(last_line(&first).starts_with("pass: "), "{first:#?}");
    assert_eq!(second.stdout, "", "{second:#?}");
}

#[test]
fn a_history_shows_runs_of_files_and_directories() {
    let dir = tempdir().unwrap();
    let dir = dir.path();
    fs::create_dir(dir.join("results")).unwrap();
    run(
        dir,
        &format!("{PACED} --sizes 64,4k --times 3 -o results/a.jsonl"),
    )
    .with_code(0);
    let shown = run(dir, "history results results/a.jsonl --metric message-rate").with_code(0);
    let marks = shown
        .stdout
        .lines()
        .filter(|line| line.contains("###"))
        .count();
    assert!(
        marks == 6 && shown.stdout.ends_with("2 points, 0 changes\n"),
        "{shown:#?}"
    );
    let csv = run(dir, "history results --only size=4KiB --format csv").with_code(0);
    assert_eq!(csv.stdout.lines().count(), 4, "{csv:#?}");
    run(dir, "history . ")
        .with_code(2)
        .saying(&["holds no files of results"]);
    run(dir, "history results --only shm")
        .with_code(2)
        .saying(&["no point has such a name"]);
}

/// A budget is kept, also where it is short.
#[test]
fn a_check_ends_within_its_budget() {
    let dir = tempdir().unwrap();
    paced_baseline(dir.path());
    for _ in 0..2 {
        let since = Instant::now();
        let ended = run(
            dir.path(),
            "check --baseline b.toml --budget 5s --retest 0 --exit prolog",
        )
        .with_code(0);
        assert!(since.elapsed() < Duration::from_secs(5), "{ended:#?}");
    }
}

#[test]
fn wrong_requests_are_refused_with_the_code_of_their_style() {
    let dir = tempdir().unwrap();
    let dir = dir.path();
    paced_baseline(dir);
    let other = fs::read_to_string(dir.join("b.toml")).unwrap();
    let other: String = other
        .lines()
        .map(|line| match line.starts_with("cpu = ") {
            true => "cpu = \"1 x Z80\"\n".to_owned(),
            false => format!("{line}\n"),
        })
        .collect();
    fs::write(dir.join("other.toml"), other).unwrap();
    fs::create_dir(dir.join("open")).unwrap();
    fs::set_permissions(
        dir.join("open"),
        std::os::unix::fs::PermissionsExt::from_mode(0o777),
    )
    .unwrap();
    for (arguments, part) in [
        ("--baseline none.toml", "cannot be read"),
        ("--baseline b.toml --only shm", "there are null write"),
        (
            "--baseline b.toml --hosts a,b,c",
            "no point of 3 ranks on 3 hosts",
        ),
        (
            "--baseline b.toml --budget 3s --retest 9",
            "the shortest needs",
        ),
        ("--baseline b.toml --budget 1s", "too short"),
        ("--baseline b.toml --devices eth7", "nothing over eth7"),
        (
            "--baseline b.toml --state open --cache 1m",
            "may be written by others",
        ),
        ("--baseline b.toml -o b.toml", "--force"),
        ("--baseline b.toml --bugdet 3s", "unexpected argument"),
    ] {
        for (style, code) in [("plain", 2), ("prolog", 0)] {
            let ended = run(dir, &format!("check {arguments} --exit {style}")).with_code(code);
            assert!(ended.stderr.contains(part), "{arguments}: {ended:#?}");
        }
    }
    // Nothing is known of such hosts.
    for (style, code) in [("plain", 1), ("nagios", 3), ("prolog", 0)] {
        let skipped =
            run(dir, &format!("check --baseline other.toml --exit {style}")).with_code(code);
        assert!(
            last_line(&skipped).starts_with("skip: ")
                && skipped.stderr.contains("it is of 1 x Z80")
        );
    }
    run(dir, "baseline r.jsonl r.jsonl -o x.toml")
        .with_code(2)
        .saying(&["named twice"]);
    run(dir, "baseline r.jsonl -o b.toml")
        .with_code(2)
        .saying(&["--force"]);
    run(dir, "baseline r.jsonl --min-runs 6 -o x.toml")
        .with_code(2)
        .saying(&["1 of the 6 runs"]);
}

/// A rate that busy CPUs carry too.
fn rate() -> Rate {
    "200mbit".parse().unwrap()
}

/// TCP payload of a link of 0.17 Gb/s.
const SLOW_BYTES_PER_S: f64 = 20.3e6;

/// A baseline of the link between two hosts, in `dir`; false, and said, where other programs took so much of the CPUs
/// that 0.85 of its rate could not be told from it.
fn link_baseline(ssh: &Ssh<'_>, dir: &Path) -> bool {
    let transfer = "transfer --hosts h0,h1 --engine fabric:tcp --op write --sizes 64k --window 8 --duration 120ms \
                    --trials 2 --warmup 50ms --limit none --times 5 -o link.jsonl";
    by_ssh(ssh, dir, transfer, "").succeed();
    let made = run(dir, "baseline link.jsonl -o link.toml");
    let text = fs::read_to_string(dir.join("link.toml")).unwrap_or_default();
    let mut fail = text.lines().filter_map(|line| line.strip_prefix("fail = "));
    let fail: Option<f64> = fail.next_back().and_then(|value| value.parse().ok());
    let is_sharp = fail.is_some_and(|fail| fail > 1.03 * SLOW_BYTES_PER_S);
    if !is_sharp {
        println!(
            "skip: other programs took the CPUs from a link of 0.2 Gb/s: {}",
            made.stdout
        );
    }
    is_sharp
}

fn check_link(ssh: &Ssh<'_>, dir: &Path) -> Ended {
    by_ssh(
        ssh,
        dir,
        "check --hosts h0,h1 --baseline link.toml --budget 30s --exit prolog --nodelist failed --force",
        "",
    )
    .run()
}

/// The figures of such a link are the shaper's, unless other programs take the CPUs.
#[test]
fn a_slow_link_fails_and_one_as_it_was_does_not() {
    let Some(hosts) = hosts(2, Some(rate())) else {
        return;
    };
    let Some(ssh) = serving(&hosts) else { return };
    let dir = tempdir().unwrap();
    if !link_baseline(&ssh, dir.path()) {
        return;
    }
    for _ in 0..3 {
        let passed = check_link(&ssh, dir.path()).with_code(0);
        assert!(last_line(&passed).starts_with("pass: "), "{passed:#?}");
    }
    let slow: LinkRates = Some("170mbit".parse::<Rate>().unwrap()).into();
    hosts.link(1, 0).set_rates(slow).unwrap();
    let failed = check_link(&ssh, dir.path()).with_code(1);
    let reason = last_line(&failed);
    assert!(
        reason.starts_with("fail: h0,h1 fabric:tcp write 64k 0.02"),
        "{failed:#?}"
    );
    assert_eq!(
        fs::read_to_string(dir.path().join("failed")).unwrap(),
        "h[0-1]\n"
    );
    // A link that is down fails where it is looked at, without a word to anybody.
    hosts.link(1, 0).cut().unwrap();
    let down = tonnage_in(
        &hosts,
        1,
        dir.path(),
        "check --hosts h0,h1 --baseline link.toml --exit prolog",
    );
    let down = down.run().with_code(1);
    assert!(
        last_line(&down).starts_with("fail: link of eth0 is "),
        "{down:#?}"
    );
}

/// A script that sets what differs between hosts, which share all files, and becomes one of contrib.
fn script(dir: &Path, name: &str, ssh: &Ssh<'_>) -> PathBuf {
    let contrib = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../contrib/slurm");
    let path = dir.join(name);
    let conf = dir.join("check.conf");
    // The job's node is measured with h0. On h2 somebody has taken a library away.
    let text = format!(
        "TONNAGE={program}\nBASELINE={dir}/link.toml\nBUDGET=25s\nOPTIONS=\"--hosts h0,h1 --ssh {client}\"\n\
         [ \"$SLURMD_NODENAME\" = h2 ] && OPTIONS=\"$OPTIONS --libfabric /nowhere/libfabric.so.1\"\n",
        program = env!("CARGO_BIN_EXE_tonnage"),
        dir = dir.display(),
        client = ssh.program().display(),
    );
    fs::write(&conf, text).unwrap();
    let text = format!(
        "#!/bin/sh\nexport TONNAGE_CHECK_CONF={}\nexec {}/{name}\n",
        conf.display(),
        contrib.display()
    );
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    path
}

fn state(slurm: &Slurm<'_>, node: &str) -> String {
    let mut sinfo = slurm.command("sinfo");
    let said = sinfo
        .args(["--noheader", "--nodes", node, "--format=%T %E"])
        .output()
        .unwrap();
    String::from_utf8_lossy(&said.stdout).into_owned()
}

fn start_slurm<'a>(hosts: &'a Hosts, lines: &str) -> Option<Slurm<'a>> {
    match Slurm::start_with(hosts, lines) {
        Ok(slurm) => Some(slurm),
        Err(Error::Unavailable(why)) => {
            println!("skip: no Slurm: {why}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// The node of the slow link is drained by the prolog and by the health check, and the one on which the check cannot be
/// made is not.
#[test]
fn a_real_slurm_drains_the_slow_node_and_not_the_erroneous_one() {
    let Some(hosts) = hosts(3, Some(rate())) else {
        return;
    };
    let Some(ssh) = serving(&hosts) else { return };
    let dir = tempdir().unwrap();
    if !link_baseline(&ssh, dir.path()) {
        return;
    }
    let prolog = script(dir.path(), "prolog.sh", &ssh);
    let lines = format!("Prolog={}\nPrologEpilogTimeout=60\n", prolog.display());
    let Some(slurm) = start_slurm(&hosts, &lines) else {
        return;
    };
    let slow: LinkRates = Some("170mbit".parse::<Rate>().unwrap()).into();
    hosts.link(1, 0).set_rates(slow).unwrap();
    let ended = slurm.srun(["-w", "h2", "-N1", "true"]).output().unwrap();
    assert!(ended.status.success(), "{ended:#?}");
    assert!(
        state(&slurm, "h2").starts_with("idle"),
        "{}",
        state(&slurm, "h2")
    );
    // The job waits for another node, and is taken back once this one is drained.
    let mut job = slurm
        .srun(["-w", "h1", "-N1", "--immediate=20", "true"])
        .spawn()
        .unwrap();
    let since = Instant::now();
    while !state(&slurm, "h1").starts_with("drain") {
        assert!(
            since.elapsed() < Duration::from_secs(50),
            "{}",
            state(&slurm, "h1")
        );
        std::thread::sleep(Duration::from_millis(100));
    }
    let _ = job.kill();
    let _ = job.wait();
    // The health check calls Slurm itself.
    let mut resume = slurm.command("scontrol");
    resume
        .args(["update", "nodename=h1", "state=resume"])
        .status()
        .unwrap();
    let health = script(dir.path(), "health-check.sh", &ssh);
    for node in [1, 2] {
        let mut check = hosts.command(node, &health);
        let name = format!("h{node}");
        check
            .env("SLURMD_NODENAME", &name)
            .env("SLURM_CONF", slurm.configuration());
        assert!(check.status().unwrap().success());
    }
    let drained = state(&slurm, "h1");
    assert!(
        drained.contains("drain") && drained.contains("tonnage fail: h0,h1 fabric:tcp"),
        "{drained}"
    );
    assert!(
        !state(&slurm, "h2").contains("drain"),
        "{}",
        state(&slurm, "h2")
    );
}
