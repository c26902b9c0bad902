//! Placement of pairs on the sockets of this machine: near, far, and by default.

use tempfile::tempdir;
use tonnage_machine::Topology;
use tonnage_record::{Outcome, Placed, Record};

use super::support::records::recorded as run;
use super::support::{BRIEF, records, tonnage};

const TITLES: [&str; 2] = ["near (peers on one socket)", "far (peers on two sockets)"];

const TRANSFER: &str = "transfer --engine shm --op write --ranks 2 --sizes 8";

/// Returns the sockets of all threads.
fn sockets(record: &Record) -> Vec<Option<u32>> {
    let parts = record.effective.iter();
    parts.flat_map(|part| part.sockets.clone()).collect()
}

/// Returns 2 if pairs can be near or far here, and 1 if they can only be near. Otherwise prints a skip and returns
/// `None`.
fn sockets_here() -> Option<u32> {
    let topology = Topology::read();
    match (topology.has_near_and_far(), topology.allowed_sockets()) {
        (true, _) => Some(2),
        (false, 1) if topology.allowed.len() > 1 => Some(1),
        _ => {
            println!("skip: the kernel names no sockets, or none has two CPUs for this process");
            None
        }
    }
}

#[test]
fn places_are_measured_where_the_machine_has_them() {
    let Some(sockets_here) = sockets_here() else {
        return;
    };
    let (run, records) = run(&format!("{TRANSFER} --place near,far {BRIEF}"));
    let [near, far] = &records[..] else {
        panic!("{run:#?}");
    };
    assert_eq!(near.outcome, Outcome::Measured, "{run:#?}");
    assert_eq!(near.placed, Some(Placed::Near));
    assert!(sockets(near).windows(2).all(|pair| pair[0] == pair[1]));
    let run = run.printing(&TITLES);
    if far.outcome == Outcome::Measured {
        assert!(sockets_here > 1, "{run:#?}");
        assert_eq!((run.code, far.placed), (Some(0), Some(Placed::Far)));
        assert!(sockets(far).windows(2).all(|pair| pair[0] != pair[1]));
    } else {
        assert_eq!((run.code, sockets_here), (Some(1), 1), "{run:#?}");
        assert_eq!(far.placed, None);
        let why = records::why(far);
        assert!(
            why.starts_with("--place far cannot be used here: this machine has "),
            "{why}"
        );
        assert!(why.contains("socket"), "{why}");
        run.printing(&["skipped"]);
    }
}

#[test]
fn a_pair_is_placed_near_by_default_and_the_title_shows_it() {
    if sockets_here().is_none() {
        return;
    }
    let (run, records) = run(&format!("{TRANSFER} {BRIEF}"));
    assert_eq!(run.code, Some(0), "{run:#?}");
    let placed = records[0].placed.unwrap();
    assert_eq!(placed, Placed::Near, "{run:#?}");
    assert!(run.stdout.contains(placed.describe()), "{run:#?}");
    assert_eq!(records::body(&records[0]).point.place, None);
    let unpinned = super::support::records::recorded(&format!("{TRANSFER} --cpus none {BRIEF}"));
    assert_eq!(unpinned.1[0].placed, None);
    assert!(!unpinned.0.stdout.contains("(peers on"), "{unpinned:#?}");
}

#[test]
fn a_place_is_a_column_for_programs() {
    if sockets_here().is_none() {
        return;
    }
    let dir = tempdir().unwrap();
    let arguments = format!("{TRANSFER} --place near {BRIEF} --format csv");
    let table = tonnage(dir.path(), &arguments).succeed().stdout;
    assert_eq!(records::first_row(&table)["place"], "near");
}

#[test]
fn connections_have_places_too() {
    let Some(sockets_here) = sockets_here() else {
        return;
    };
    let dir = tempdir().unwrap();
    let arguments = "connect --engine shm --ranks 2 --place near,far --duration 50ms --trials 2";
    let run = tonnage(dir.path(), arguments).run();
    let run = run.with_code(i32::from(sockets_here < 2)).printing(&TITLES);
    if sockets_here < 2 {
        run.printing(&["skipped: --place far"]);
    }
}
