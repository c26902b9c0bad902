//! Checks of links between hosts, and the Slurm scripts' use of the verdicts.
//!
//! The links have known speeds, which are low enough for busy CPUs.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tempfile::tempdir;
use tonnage_testbed::{LinkRates, Rate, Slurm, Ssh};

use super::check::{by_hand, last_line, paced_baseline, report, run, verdict_line};
use super::hosts::hosts;
use super::slurm_scripts::{said, start_slurm};
use super::ssh::{by_ssh, serving};
use super::support::{Ended, tonnage_in, wait_until};

/// The Slurm scripts drain a node only if the verdict is a failure. They must not drain it if the settings file has
/// syntax errors, or if the program is missing. They must not drain a node again that is already drained.
#[test]
fn scripts_for_slurm_drain_for_a_verdict_alone() {
    let dir = tempdir().unwrap();
    let dir = dir.path();
    let program = |name: &str, text: &str| {
        let path = dir.join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        path
    };
    let failing = program("failing", "echo 'fail: x'; exit 1");
    program(
        "scontrol",
        "case $1 in show) echo \"NodeName=h0 State=$NODE_STATE Reason=DRAIN\";; *) echo \"$@\" >>asked;; esac",
    );
    let good = format!("TONNAGE={}\n", failing.display());
    fs::write(dir.join("good.conf"), good).unwrap();
    fs::write(dir.join("bad.conf"), "BASELINE=(\nif then\n").unwrap();
    fs::write(dir.join("gone.conf"), "TONNAGE=/nowhere/tonnage\n").unwrap();
    let contrib = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../contrib/slurm");
    let code = |script: &str, conf: &str, state: &str| {
        let path = std::env::var("PATH").unwrap_or_default();
        let ended = std::process::Command::new(contrib.join(script))
            .current_dir(dir)
            .env("TONNAGE_CHECK_CONF", dir.join(conf))
            .env("PATH", format!("{}:{path}", dir.display()))
            .env("SLURMD_NODENAME", "h0")
            .env("NODE_STATE", state)
            .output();
        ended.unwrap().status.code()
    };
    for (conf, expected) in [("good.conf", 1), ("bad.conf", 0), ("gone.conf", 0)] {
        assert_eq!(code("prolog.sh", conf, "IDLE"), Some(expected), "{conf}");
        assert_eq!(code("health-check.sh", conf, "IDLE"), Some(0), "{conf}");
    }
    assert_eq!(code("health-check.sh", "good.conf", "IDLE+DRAIN"), Some(0));
    let asked = fs::read_to_string(dir.join("asked")).unwrap();
    let drained = "update nodename=h0 state=drain reason=tonnage fail: x\n";
    assert_eq!(asked, drained);
}

/// A rate that even busy CPUs can sustain.
fn rate() -> Rate {
    "200mbit".parse().unwrap()
}

/// TCP payload rate of the slow link, which has 0.17 Gb/s.
const SLOW_BYTES_PER_S: f64 = 20.3e6;

/// Writes a baseline of the link between two hosts to `dir`. If other programs took so much CPU time that 0.85 of the
/// rate would be lost in noise, prints this and returns false.
fn link_baseline(ssh: &Ssh<'_>, dir: &Path) -> bool {
    let transfer = "transfer --hosts h0,h1 --engine fabric:tcp --op write --sizes 64k --depth 8 --duration 120ms \
                    --trials 2 --warmup 50ms --bound none --runs 5 -o link.jsonl";
    by_ssh(ssh, dir, transfer, "").succeed();
    let made = run(dir, "baseline link.jsonl -o link.toml");
    let text = fs::read_to_string(dir.join("link.toml")).unwrap_or_default();
    let mut fail = text.lines().filter_map(|line| line.strip_prefix("fail = "));
    let fail: Option<f64> = fail.next_back().and_then(|value| value.parse().ok());
    let is_sharp = fail.is_some_and(|fail| fail > 1.03 * SLOW_BYTES_PER_S);
    if !is_sharp {
        let why = made.stdout;
        println!("skip: other programs took the CPUs from a link of 0.2 Gb/s: {why}");
    }
    is_sharp
}

fn check_link(ssh: &Ssh<'_>, dir: &Path) -> Ended {
    let line = "check --hosts h0,h1 --baseline link.toml --time-limit 30s --exit prolog --nodelist failed --force";
    by_ssh(ssh, dir, line, "").run()
}

/// The shaper determines the figures of this link, unless other programs take the CPUs.
#[test]
fn a_slow_link_fails_and_an_unchanged_one_passes() {
    let Some(hosts) = hosts(2, Some(rate())) else {
        return;
    };
    let Some(ssh) = serving(&hosts) else { return };
    let dir = tempdir().unwrap();
    if !link_baseline(&ssh, dir.path()) {
        return;
    }
    // If other programs take the CPUs for a moment, a check may fail. At least one of three checks must pass.
    let mut tries = (0..3).map(|_| check_link(&ssh, dir.path()));
    let passes = |it: Ended| it.code == Some(0) && last_line(&it).starts_with("pass: ");
    assert!(
        tries.any(passes),
        "three checks of an unchanged link failed"
    );
    let slow: LinkRates = Some("170mbit".parse::<Rate>().unwrap()).into();
    hosts.link(1, 0).set_rates(slow).unwrap();
    let failed = check_link(&ssh, dir.path()).with_code(1);
    verdict_line(&failed, "fail: h0,h1 fabric:tcp write 64k 0.0");
    let nodes = fs::read_to_string(dir.path().join("failed")).unwrap();
    assert_eq!(nodes, "h[0-1]\n");
    // A link that is down makes the check fail, without any notification.
    hosts.link(1, 0).cut().unwrap();
    let line = "check --hosts h0,h1 --baseline link.toml --exit prolog";
    let down = tonnage_in(&hosts, 1, dir.path(), line).run().with_code(1);
    verdict_line(&down, "fail: link of eth0 is ");
}

/// Each host has its own verdict. An unreachable host must not affect the verdicts of other hosts.
#[test]
fn hosts_are_checked_individually() {
    let Some(hosts) = hosts(2, None) else { return };
    let Some(ssh) = serving(&hosts) else { return };
    let dir = tempdir().unwrap();
    let dir = dir.path();
    paced_baseline(dir);
    by_hand(dir, "r.jsonl", 100_000.0, "fast.toml");
    let check = |arguments: &str| {
        let check =
            format!("check --each-host --hosts h0,h1 --force --nodelist failed {arguments}");
        by_ssh(&ssh, dir, &check, "").run()
    };
    let failed_hosts = || fs::read_to_string(dir.join("failed")).unwrap();
    let passed = check("--baseline b.toml --time-limit 30s").with_code(0);
    assert_eq!(last_line(&passed), "pass: 2 hosts within the baseline");
    assert_eq!(failed_hosts(), "\n");
    let failed = check("--baseline fast.toml --time-limit 30s --exit prolog").with_code(1);
    let reason = verdict_line(&failed, "fail: 2 of 2 hosts: h[0-1]: null write 64 ");
    assert!(reason.len() <= 80, "{failed:#?}");
    assert_eq!(failed_hosts(), "h[0-1]\n");
    hosts.link(1, 0).cut().unwrap();
    // ssh's own timeout ends the login.
    let lost = check("--baseline b.toml --time-limit 30s -o each.json --exit nagios").with_code(3);
    assert!(lost.took < Duration::from_secs(30), "{lost:#?}");
    verdict_line(&lost, "error: h1: ");
    let verdicts = report(dir, "each.json");
    assert_eq!(verdicts["each"][0]["verdict"], "pass", "{verdicts:#}");
    // The baseline determines the number of ranks, so the list of hosts must not.
    let line = "check --each-host --hosts h0:2,h1 --baseline b.toml";
    let wrong = by_ssh(&ssh, dir, line, "").run();
    wrong.with_code(2).saying(&["numbers behind hosts"]);
}

/// Writes a script that configures each host and then runs one of contrib's scripts. The settings must be in a script,
/// because the hosts share all files.
fn script(dir: &Path, name: &str, ssh: &Ssh<'_>) -> PathBuf {
    let contrib = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../contrib/slurm");
    let path = dir.join(name);
    let conf = dir.join("check.conf");
    // The job's node is measured together with h0. On h2, a library is missing.
    let text = format!(
        "TONNAGE={program}\nBASELINE={dir}/link.toml\nBUDGET=25s\nOPTIONS=\"--hosts h0,h1 --ssh {client}\"\n\
         [ \"$SLURMD_NODENAME\" = h2 ] && OPTIONS=\"$OPTIONS --libfabric /nowhere/libfabric.so.1\"\n",
        program = env!("CARGO_BIN_EXE_tonnage"),
        dir = dir.display(),
        client = ssh.program().display(),
    );
    fs::write(&conf, text).unwrap();
    let (conf, contrib) = (conf.display(), contrib.display());
    let text = format!("#!/bin/sh\nexport TONNAGE_CHECK_CONF={conf}\nexec {contrib}/{name}\n");
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    path
}

fn state(slurm: &Slurm<'_>, node: &str) -> String {
    said(
        slurm,
        "sinfo",
        &["--noheader", "--nodes", node, "--format=%T %E"],
    )
}

/// The prolog and the health check must drain the node with the slow link. They must not drain the node on which the
/// check cannot run.
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
    // The node may still be ending its previous job.
    let is_settled = |it: &str| it.starts_with("idle") || it.starts_with("drain");
    wait_until("h2 is idle or drained", || is_settled(&state(&slurm, "h2")));
    let state_of_h2 = state(&slurm, "h2");
    assert!(state_of_h2.starts_with("idle"), "{state_of_h2}");
    // If other programs take the CPUs, a check may end in an error, which drains nothing. At least one of three jobs
    // must drain the node.
    let drains = (0..3).any(|_| job_drains(&slurm, "h1"));
    assert!(drains, "{}", state(&slurm, "h1"));
    // The health check itself calls Slurm.
    said(
        &slurm,
        "scontrol",
        &["update", "nodename=h1", "state=resume"],
    );
    let health = script(dir.path(), "health-check.sh", &ssh);
    for node in [1, 2] {
        let mut check = hosts.command(node, &health);
        let name = format!("h{node}");
        check
            .env("SLURMD_NODENAME", &name)
            .env("SLURM_CONF", slurm.configuration());
        assert!(check.status().unwrap().success());
    }
    let (h1, h2) = (state(&slurm, "h1"), state(&slurm, "h2"));
    assert!(
        h1.contains("drain") && h1.contains("tonnage fail: h0,h1 fabric:tcp"),
        "{h1}"
    );
    assert!(!h2.contains("drain"), "{h2}");
}

/// Starts a job on a node. Returns whether the job's prolog drains the node and the job is requeued.
fn job_drains(slurm: &Slurm<'_>, node: &str) -> bool {
    let job = slurm.srun(["-w", node, "-N1", "--immediate=20", "true"]);
    let mut job = { job }.spawn().unwrap();
    let is_drained = || state(slurm, node).starts_with("drain");
    let since = Instant::now();
    while job.try_wait().unwrap().is_none() && !is_drained() {
        assert!(since.elapsed() < Duration::from_secs(50), "{node} hangs");
        std::thread::sleep(Duration::from_millis(100));
    }
    let _ = job.kill();
    let failed = !job.wait().unwrap().success();
    let since = Instant::now();
    while failed && !is_drained() && since.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(100));
    }
    is_drained()
}
