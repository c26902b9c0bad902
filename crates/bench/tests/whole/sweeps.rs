//! Cells of a sweep that cannot be measured, from the plan to the record, in whole runs with threads as ranks. Each of
//! these cells is skipped with its own reason. All others are measured.

use tonnage_engine::memory::{AvailableMemory, MemoryEntry};
use tonnage_engine::testing::TestDomain;
use tonnage_engine::{Entry, Lists};
use tonnage_engines::memory::HOST;
use tonnage_engines::{LISTS, shm};
use tonnage_record::Outcome;

use crate::runs::over;

/// The engine `shm`, limited to operations of 1000 bytes.
static SHORT: [Entry; 1] = [Entry {
    open: |request| {
        TestDomain::wrap_all((shm::ENTRY.open)(request), |domain| {
            domain.caps.message_bytes_max = 1000;
        })
    },
    ..shm::ENTRY
}];

const WITH_SHORT: Lists = Lists {
    engines: &SHORT,
    ..LISTS
};

/// Checks the outcomes of a table's points. `None` stands for a measured point; a text is part of the reason of a
/// skipped one.
fn check(ranks: u32, table: &str, lists: Lists, expected: &[Option<&str>]) {
    let records = over(lists).tables(ranks, table).unwrap();
    assert_eq!(records.len(), expected.len(), "{records:#?}");
    for (record, expected) in records.iter().zip(expected) {
        match (&record.outcome, expected) {
            (Outcome::Measured, None) => {}
            (Outcome::Skipped { why }, Some(part)) => assert!(why.contains(part), "{why}"),
            (other, expected) => panic!("{other:?}, and {expected:?} was expected"),
        }
    }
}

const TRANSFER: &str =
    "[[transfer]]\nengine = 'shm'\ntrials = 1\niters = 4\nwarmup = '0s'\nbound = 'none'\n";

#[test]
fn a_size_below_one_element_for_each_rank_is_skipped() {
    let table = "[[collective]]\nbackend = 'native:shm'\nop = 'all-gather'\nsizes = [8, 12, 600]\ntrials = 1\niters = 2\n\
                 warmup = '0s'\nverify = true\n";
    let reason = "sizes 8 of all-gather is less than one element";
    check(3, table, LISTS, &[Some(reason), None, None]);
    // The impossible cell is between two points that share an open engine.
    let table = "[[collective]]\nbackend = 'native:shm'\nop = ['all-reduce', 'send-recv-pairs', 'send-recv-ring']\n\
                 sizes = 64\ntrials = 1\niters = 2\nwarmup = '0s'\nverify = true\n";
    let reason = "send-recv-pairs needs an even number of ranks";
    check(3, table, LISTS, &[None, Some(reason), None]);
}

#[test]
fn an_operation_that_does_not_fit_its_size_is_skipped() {
    let table = format!("{TRANSFER}op = ['write', 'fetch-add']\nsizes = [8, 64]\nverify = true\n");
    let reason = "fetch-add";
    check(2, &table, LISTS, &[None, None, None, Some(reason)]);
}

/// Some limits are known only when the device is open. Such a limit skips only the points that exceed it. Other points
/// that share the engine are measured.
#[test]
fn a_size_beyond_the_device_is_skipped_alone() {
    let table = format!("{TRANSFER}op = 'write'\nsizes = [64, 2000, 1000, 4000]\n");
    check(
        2,
        &table,
        WITH_SHORT,
        &[
            None,
            Some("2000 bytes in one operation"),
            None,
            Some("4000 bytes in one operation"),
        ],
    );
}

#[test]
fn a_footprint_beyond_the_host_is_skipped_alone() {
    // A simulated host with 64 MiB.
    static FEW: [MemoryEntry; 1] = [MemoryEntry {
        available: |_| {
            Some(AvailableMemory {
                machine_bytes: 64 << 20,
                container_bytes: None,
            })
        },
        ..HOST
    }];
    let lists = Lists {
        memories: &FEW,
        ..LISTS
    };
    let table = format!("{TRANSFER}op = 'write'\nsizes = ['64', '64M', '4k']\n");
    let reason = "has 67108864 bytes of memory available";
    check(2, &table, lists, &[None, Some(reason), None]);
}

#[test]
fn a_lack_of_the_machine_is_the_reason_of_every_cell() {
    static ABSENT: [Entry; 1] = [Entry {
        open: |_| {
            Err(tonnage_units::Error::Unavailable {
                what: "the device".into(),
                why: "there is none".into(),
                how: "Get one".into(),
            })
        },
        ..shm::ENTRY
    }];
    let lists = Lists {
        engines: &ABSENT,
        ..LISTS
    };
    let table = format!("{TRANSFER}op = 'write'\nsizes = '64..1k'\n");
    check(2, &table, lists, &[Some("there is none"); 5]);
}
