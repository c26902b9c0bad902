//! Whole runs of two ranks. Their engine sends the bytes of its operations over the loopback.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use tonnage_engine::testing::{CAPS, TestDomain, TestEngine, TestScript, ends_at_once};
use tonnage_engine::{Caps, Domains, Entry, Lists, Verb};
use tonnage_machine::counters::{Snapshot, received_bytes};
use tonnage_machine::kernel_files::Tree;
use tonnage_record::{Outcome, Record, WireProof};
use tonnage_units::{Result, WireDevice, WireKind};

use crate::runs::over;

static VERBS: [Verb; 2] = [Verb::Write, Verb::Read];

const OPERATIONS: u64 = 100;
const SIZE_BYTES: u32 = 1 << 16;

/// Returns a device that, for each operation, sends the operation's number of bytes over the loopback.
fn toy(device: Option<WireDevice>) -> Result<Domains> {
    Ok(vec![Arc::new(TestDomain {
        caps: Caps {
            verbs: &VERBS,
            depth: 8,
            message_bytes_max: 1 << 20,
            ..CAPS
        },
        wire_devices: device.into_iter().collect(),
        ..TestDomain::new(|_| worker())
    })])
}

fn worker() -> TestEngine {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut sink, _) = listener.accept().unwrap();
    // The thread ends when the engine is dropped, because this closes the other end of the connection.
    std::thread::spawn(move || {
        let mut bytes = vec![0; 1 << 16];
        while sink.read(&mut bytes).is_ok_and(|count| count > 0) {}
    });
    TestEngine::new(TestScript {
        answers: Some(Box::new(move |_, op| {
            stream.write_all(&vec![0; op.len as usize]).unwrap();
            None
        })),
        ends: Some(ends_at_once()),
        ..TestScript::default()
    })
}

const TOY: Entry = Entry {
    name: "toy",
    about: "sends as many bytes over the loopback",
    has_devices: true,
    verbs: &VERBS,
    moves_bytes: true,
    ..tonnage_engines::null::ENTRY
};

fn interface(name: &str) -> WireDevice {
    WireDevice {
        kind: WireKind::Interface,
        name: name.into(),
        port: 0,
    }
}

/// Returns the interface, other than the loopback, that has received the fewest bytes.
fn quiet() -> Option<WireDevice> {
    let snapshot = Snapshot::read(&Tree::host(), &[]);
    let interfaces = snapshot.interfaces.iter().filter(|(name, _)| *name != "lo");
    let quietest = interfaces.min_by_key(|(_, counters)| received_bytes(counters));
    quietest.map(|(name, _)| interface(name))
}

/// Returns the records of a write and of a read, by two ranks on one host.
fn records(engines: &'static [Entry]) -> Vec<Record> {
    let table = format!(
        "[[transfer]]\nengine = 'toy'\nop = ['write', 'read']\nsizes = {SIZE_BYTES}\ndepth = 4\niters = {OPERATIONS}\n\
         trials = 1\nwarmup = '0s'\nbound = 'none'"
    );
    let lists = Lists {
        engines,
        ..tonnage_engines::LISTS
    };
    over(lists).tables(2, &table).unwrap()
}

fn path(record: &Record) -> &WireProof {
    assert_eq!(record.outcome, Outcome::Measured);
    record.wire_proof.as_ref().unwrap()
}

#[test]
fn the_loopback_is_crossed() {
    static LOOPBACK: [Entry; 1] = [Entry {
        open: |_| toy(Some(interface("lo"))),
        ..TOY
    }];
    for record in records(&LOOPBACK) {
        let path = path(&record);
        assert!(path.crossed && path.why.is_empty(), "{path:#?}");
        let device = &path.devices[0];
        let payload = OPERATIONS * u64::from(SIZE_BYTES);
        assert_eq!((device.ranks.as_str(), path.devices.len()), ("0-1", 1));
        assert_eq!(device.sent_bytes_expected, payload);
        assert_eq!(device.received_bytes_expected, payload);
        assert!(device.sent_bytes.unwrap() >= payload);
        assert!(path.tcp[0].counters["OutSegs"] > 0);
    }
}

#[test]
fn another_interface_is_not_crossed() {
    if quiet().is_none() {
        println!("skip: the only network interface is lo");
        return;
    }
    static QUIET: [Entry; 1] = [Entry {
        open: |_| toy(quiet()),
        ..TOY
    }];
    for record in records(&QUIET) {
        let path = path(&record);
        assert_eq!(
            (path.crossed, path.devices_crossed),
            (false, 0),
            "{path:#?}"
        );
        let why = &path.why[0];
        assert!(
            why.contains("ranks 0 and 1 are on one host, and lo"),
            "{why}"
        );
    }
}

#[test]
fn an_engine_that_names_no_device_has_no_path_proof() {
    static NAMELESS: [Entry; 1] = [Entry {
        open: |_| toy(None),
        ..TOY
    }];
    for record in records(&NAMELESS) {
        assert_eq!(
            (record.outcome, record.wire_proof),
            (Outcome::Measured, None)
        );
    }
}
