//! Hosts that are checked individually. A late or hanging host must not change the verdicts of other hosts.
//!
//! [`super::check_links`] tests hosts with their own links.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;
use tempfile::tempdir;

use super::check::{by_hand, paced_baseline, report, run, verdict_line};
use super::ssh_stand_in::{RUNS, write};
use super::support::{free_port, tonnage};

/// Writes a baseline with these sizes. Measuring each takes slightly more than `trial_ms`.
///
/// The records come from shorter trials and are changed afterwards, to save time.
fn slow_baseline(dir: &Path, sizes: &str, trial_ms: u64) {
    let line = format!(
        "transfer --engine null --op write --ranks 2 --rate 2k --duration 20ms --trials 1 --warmup 1ms --bound none \
         --sizes {sizes} -o r.jsonl"
    );
    run(dir, &line).with_code(0);
    let text = fs::read_to_string(dir.join("r.jsonl")).unwrap();
    let longer = text.lines().map(|line| {
        let mut record: Value = serde_json::from_str(line).unwrap();
        let trial = &mut record["point"]["length"]["trial"]["duration_ns"];
        assert_eq!(*trial, 20_000_000);
        *trial = (trial_ms * 1_000_000).into();
        record.as_object_mut().unwrap().remove("checksum");
        record.to_string() + "\n"
    });
    fs::write(dir.join("r.jsonl"), longer.collect::<String>()).unwrap();
    by_hand(dir, "r.jsonl", 2000.0, "b.toml");
    let text = fs::read_to_string(dir.join("b.toml")).unwrap();
    let takes_s = Duration::from_millis(trial_ms + 20).as_secs_f64();
    let longer = text.lines().map(|line| match line.split_once(" = ") {
        Some(("takes-s", _)) => format!("takes-s = {takes_s}\n"),
        _ => format!("{line}\n"),
    });
    fs::write(dir.join("b.toml"), longer.collect::<String>()).unwrap();
}

fn each(dir: &Path, file: &str) -> Vec<Value> {
    report(dir, file)["each"].as_array().unwrap().clone()
}

/// Script of hosts that hang at different moments: at login, while receiving the program, and after the agent has
/// started.
const HANG: &str = r#"case "$*" in
*' dead '*) exec sleep 600 ;;
*' full '*) echo "tonnage-wanted $(uname -m) $(getconf GNU_LIBC_VERSION)"; exec sleep 600 ;;
*' mute '*)
    for last; do :; done
    env -i PATH="$PATH" HOME="$HOME" /bin/sh -c "$last" </dev/null | sed 's/"boot_id":"/&another-/'
    exec sleep 600 ;;
esac"#;

/// A hanging host is given up after half of the time, and the other hosts are checked meanwhile. The report has the
/// last step that the host reached, or how long it was silent.
#[test]
fn a_hanging_host_does_not_take_the_others_time() {
    let dir = tempdir().unwrap();
    let dir = dir.path();
    paced_baseline(dir);
    let stand_in = write(dir, &format!("{HANG}\n{RUNS}"));
    let check = |hosts: &str, budget: &str, file: &str| {
        let line = format!("check --each-host --hosts {hosts} --baseline b.toml {budget}");
        let check = tonnage(dir, &format!("{line} -o {file}"));
        check
            .arguments(&["--ssh".to_owned(), stand_in.clone()])
            .run()
    };
    let begun = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let (ended, behind) = std::thread::scope(|scope| {
        let behind = || {
            check(
                "dead,live",
                "--time-limit 8s --ssh-parallel 1",
                "behind.json",
            )
        };
        let behind = scope.spawn(behind);
        let ended = check(
            "live,dead,full,mute",
            "--push --time-limit 17s",
            "each.json",
        );
        (ended.with_code(1), behind.join().unwrap())
    });
    assert!(ended.took < Duration::from_secs(17), "{ended:#?}");
    verdict_line(&ended, "error: 3 of 4 hosts: ");
    let verdicts = each(dir, "each.json");
    assert_eq!(verdicts[0]["verdict"], "pass", "{verdicts:#?}");
    assert_eq!(verdicts[0]["report"]["budget_s"], 17.0);
    // The reachable host was checked before the hanging hosts were given up.
    let checked_ns = verdicts[0]["report"]["time_unix_ns"].as_u64().unwrap();
    let checked = Duration::from_nanos(checked_ns).saturating_sub(begun);
    assert!(checked < Duration::from_secs(7), "{checked:?}");
    // The report uses the name that a host has reported for itself.
    let own = tonnage_sys::host::name();
    for (verdict, host, why) in [
        (&verdicts[1], "dead", "error: ssh was given up after "),
        (&verdicts[2], "full", "bytes of the program in "),
        (&verdicts[3], &own, "error: it was silent for 6.5s: "),
    ] {
        let reason = verdict["reason"].as_str().unwrap();
        assert!(reason.contains(why), "{verdict:#}");
        assert_eq!(verdict["host"], host, "{verdict:#}");
    }
    // A hanging gateway makes the hosts behind it unreachable.
    behind.with_code(1);
    let behind = each(dir, "behind.json")[1].to_string();
    let advice = "behind others: raise --ssh-parallel or --time-limit";
    assert!(behind.contains(advice), "{behind}");
    check("live,dead", "--time-limit 7s", "none.json")
        .with_code(2)
        .saying(&["half of it is for reaching them", "give it 8 s"]);
}

/// The process that started first also ends first. By then, the check that the later process started must be over.
#[test]
fn processes_of_a_launcher_that_start_late_lose_no_verdict() {
    let dir = tempdir().unwrap();
    let dir = dir.path();
    // Measuring all of these sizes would take more than the whole budget.
    slow_baseline(dir, "64..64k*2", 1000);
    let port = free_port();
    let start = |rank| {
        let arguments =
            "check --each-host --baseline b.toml --time-limit 12s --retest 0 -o each.json --force";
        let check = tonnage(dir, arguments).env("TONNAGE_JOIN_TIMEOUT", "8");
        check.launched(rank, 2, port).start()
    };
    let first = start(1);
    sleep(Duration::from_secs(4));
    // This process has its own eight seconds to check the host, but the other process has only six left.
    let late = start(0);
    // If other programs take the CPUs, the verdict may be an error. All processes must still have the same verdict.
    let [late, first] = [late, first].map(|run| run.end());
    assert!(!late.stderr.contains("did not come"), "{late:#?}");
    assert_eq!((first.code, &*first.stdout), (late.code, ""), "{first:#?}");
    let verdicts = each(dir, "each.json");
    assert_eq!(verdicts.len(), 1, "{verdicts:#?}");
    if verdicts[0]["verdict"] == "error" {
        return println!("skip: other programs took the CPUs: {:#}", verdicts[0]);
    }
    assert_eq!(verdicts[0]["verdict"], "pass", "{verdicts:#?}");
    assert_eq!(late.code, Some(0), "{late:#?}");
}
