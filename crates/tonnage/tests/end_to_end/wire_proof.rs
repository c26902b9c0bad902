//! Proof that the payload crossed the intended devices, and the effect of `--require-path`.

use std::path::Path;

use tempfile::tempdir;
use tonnage_record::{Outcome, Record};

use super::support::{BRIEF, Ended, records, tonnage};

fn transfer(dir: &Path, arguments: &str) -> Ended {
    let brief = format!("--op write --ranks 2 --sizes 64k --depth 8 {BRIEF} -o r.jsonl");
    tonnage(dir, &format!("transfer {arguments} {brief}")).run()
}

/// Runs a transfer over TCP sockets through these devices.
fn over_tcp(dir: &Path, devices: &str) -> Ended {
    transfer(
        dir,
        &format!("--engine fabric:tcp --devices {devices} --require-path"),
    )
}

#[test]
fn an_engine_without_devices_proves_nothing() {
    let dir = tempdir().unwrap();
    transfer(dir.path(), "--engine shm").with_code(0);
    let run = transfer(dir.path(), "--engine shm --require-path").with_code(1);
    let run = run.with_one_error(&[
        "--require-path: 1 of 1 measured points",
        "write 65536 B: engine shm names no device",
        "leave --require-path out",
    ]);
    // The table and the records must still be there.
    assert_eq!(run.rows().len(), 1);
    let records = records::read(&dir.path().join("r.jsonl"));
    assert_eq!(records.len(), 2);
    let is_fine = |it: &Record| it.outcome == Outcome::Measured && it.wire_proof.is_none();
    assert!(records.iter().all(is_fine), "{records:#?}");
}

#[test]
fn the_loopback_is_crossed_by_ranks_of_one_host() {
    let dir = tempdir().unwrap();
    let run = over_tcp(dir.path(), "lo").with_code(0);
    let record = &records::read(&dir.path().join("r.jsonl"))[0];
    let path = record.wire_proof.as_ref().unwrap();
    assert!(path.crossed, "{path:#?}");
    let device = &path.devices[0];
    assert_eq!(device.name, "lo");
    // The expected bytes include the warm-up.
    let payload = records::summary(record).payload_bytes;
    assert!(device.sent_bytes_expected >= payload, "{path:#?}");
    run.printing(&["path: the payload crossed lo of "]);
}

#[test]
fn payload_between_ranks_of_one_host_never_crosses_their_network_card() {
    let dir = tempdir().unwrap();
    let Some(name) = routed_interface() else {
        println!("skip: no interface except lo has a route");
        return;
    };
    let run = over_tcp(dir.path(), &name).with_code(1);
    let run = run.with_one_error(&["--require-path: 1 of 1", "are on one host, and lo"]);
    run.printing(&["OFF PATH ["]);
}

/// Returns the first interface in /proc/net/route. Such an interface is up and has an address.
fn routed_interface() -> Option<String> {
    let routes = std::fs::read_to_string("/proc/net/route").ok()?;
    let line = routes.lines().nth(1)?;
    line.split_whitespace().next().map(str::to_owned)
}
