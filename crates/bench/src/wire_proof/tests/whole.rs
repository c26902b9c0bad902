//! Whole runs of two ranks with an engine that sends as many bytes over the loopback as its operations have.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use tonnage_sys::clock::Clock;

use super::interface;
use crate::conductor::run;
use crate::observer::{Observer, Progress};
use crate::settings::{Numa, Settings};
use tonnage_engine::testing::{CAPS, Script, TestDomain, TestEngine, at_once};
use tonnage_engine::{Caps, Domain, Entry, Libraries, Lifecycle, Lists, OpenRequest, Verb};
use tonnage_machine::counters::{Snapshot, received_bytes};
use tonnage_machine::kernel_files::Tree;
use tonnage_machine::{CpuChoice, Topology};
use tonnage_plan::transfer::{Addresses, TransferPoint, TrialLength};
use tonnage_plan::{Planned, Point};
use tonnage_ranks::testing::run_with;
use tonnage_record::{Outcome, Program, Record, WireProof};
use tonnage_units::Result;
use tonnage_units::WireDevice;

static VERBS: [Verb; 2] = [Verb::Write, Verb::Read];

const OPERATIONS: u64 = 100;
const SIZE_BYTES: u32 = 1 << 16;

type Open = fn(&OpenRequest<'_>) -> Result<Vec<Arc<dyn Domain>>>;

/// A device that sends as many bytes over the loopback as its operations have.
fn toy(device: Option<WireDevice>) -> Result<Vec<Arc<dyn Domain>>> {
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
    // Ends when the engine is dropped and with it the other end.
    std::thread::spawn(move || {
        let mut bytes = vec![0; 1 << 16];
        while sink.read(&mut bytes).is_ok_and(|count| count > 0) {}
    });
    TestEngine::new(Script {
        answers: Some(Box::new(move |_, op| {
            stream.write_all(&vec![0; op.len as usize]).unwrap();
            None
        })),
        ends: Some(at_once()),
        ..Script::default()
    })
}

fn entry(name: &'static str, open: Open) -> Entry {
    Entry {
        name,
        about: "sends as many bytes over the loopback",
        variant: None,
        options: &[],
        has_devices: true,
        libraries: &[],
        lifecycle: Lifecycle::NONE,
        device_memory: None,
        one_process: false,
        verbs: &VERBS,
        ordered_writes: false,
        moves_bytes: true,
        open,
    }
}

/// The interface beside the loopback that has seen the fewest bytes.
fn quiet() -> Option<WireDevice> {
    let snapshot = Snapshot::read(&Tree::host(), &[]);
    let interfaces = snapshot.interfaces.iter().filter(|(name, _)| *name != "lo");
    let quietest = interfaces.min_by_key(|(_, counters)| received_bytes(counters));
    quietest.map(|(name, _)| interface(name))
}

struct Keep(Vec<Record>);

impl Observer for Keep {
    fn begin(&mut self, _: usize, _: usize, _: &Point) {}

    fn progress(&mut self, _: &Progress) {}

    fn record(&mut self, record: Record) -> Result<()> {
        self.0.push(record);
        Ok(())
    }
}

/// The record of a write and a read by an engine of two ranks on one host.
fn records(engine: &'static str, open: Open) -> Vec<Record> {
    let mut point = tonnage_plan::testing::slots_point(Addresses::Sequential, 4);
    (point.engine, point.size_bytes) = (engine.to_owned(), SIZE_BYTES);
    (point.stride_bytes, point.footprint_bytes) = (SIZE_BYTES.into(), 4 * u64::from(SIZE_BYTES));
    point.length.trial = TrialLength::Iterations(OPERATIONS);
    let points = [
        point.clone(),
        TransferPoint {
            op: Verb::Read,
            ..point
        },
    ];
    // As long as the test: lists are those of a program.
    let engines: &'static [Entry] = Box::leak(Box::new([entry(engine, open)]));
    let settings = Settings {
        lists: Lists {
            engines,
            ..tonnage_engines::LISTS
        },
        plan: "test".into(),
        topology: Topology::read().into(),
        cpus: CpuChoice::None,
        numa: Numa::None,
        devices: Default::default(),
        gpus: Vec::new(),
        link_bytes_per_s: None,
        libraries: Libraries::new(),
        clock: Clock::new(),
        program: Program {
            version: "0".into(),
            git_revision: "unknown".into(),
        },
        repetition: None,
        ledger: None,
    };
    let body = move |rank: Result<tonnage_ranks::Rank>| {
        let (mut rank, mut keep) = (rank.unwrap(), Keep(Vec::new()));
        let asked: Vec<_> = points
            .iter()
            .map(|point| Planned::from(Point::Transfer(point.clone())))
            .collect();
        run(&asked, &mut rank, &settings, &mut keep).unwrap();
        rank.close().unwrap();
        keep.0
    };
    let mut all = run_with(2, |_, options| options.host = "here".into(), body);
    all.swap_remove(0)
}

fn path(record: &Record) -> &WireProof {
    assert_eq!(record.outcome, Outcome::Measured);
    record.wire_proof.as_ref().unwrap()
}

#[test]
fn the_loopback_is_crossed() {
    for record in records("toy", |_| toy(Some(interface("lo")))) {
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
        println!("skip: there is no network interface beside lo");
        return;
    }
    for record in records("toy", |_| toy(quiet())) {
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
fn an_engine_that_names_nothing_has_no_path() {
    for record in records("toy", |_| toy(None)) {
        assert_eq!(
            (record.outcome, record.wire_proof),
            (Outcome::Measured, None)
        );
    }
}
