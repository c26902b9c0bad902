//! The bounds of points, from the engine's domain to the record, in whole runs with threads as ranks. The engine moves
//! no bytes, but has the bound of an engine over a network.

use std::net::Ipv4Addr;

use tonnage_engine::testing::TestDomain;
use tonnage_engine::{BoundKind, Domains, Entry, Lists, Verb};
use tonnage_engines::null;
use tonnage_machine::{CpuChoice, Topology};
use tonnage_plan::testing::{iterations, transfer_point};
use tonnage_plan::transfer::{Pacing, TransferPoint};
use tonnage_plan::{Planned, Point};
use tonnage_record::{Bound, Record};
use tonnage_units::{Error, Result};

use crate::runs::{Run, over};

/// Returns the `null` engine with this kind of bound.
fn limited(bound: BoundKind) -> Result<Domains> {
    TestDomain::wrap_all((null::ENTRY.open)(&Default::default()), |domain| {
        domain.caps.bound = bound;
        domain.stream_address = Some(Ipv4Addr::LOCALHOST.into());
    })
}

const STREAMS: Entry = Entry {
    open: |_| limited(BoundKind::SocketStream),
    ..null::ENTRY
};

const LINK: Entry = Entry {
    open: |_| {
        limited(BoundKind::Link {
            bytes_per_s: 12_500_000_000,
        })
    },
    ..null::ENTRY
};

fn point(op: Verb, workers: u32, pacing: Pacing) -> TransferPoint {
    TransferPoint {
        engine: "null".into(),
        op,
        threads: workers,
        pacing,
        latency: false,
        length: iterations(1000),
        ..transfer_point()
    }
}

/// Returns the bounds of these points, as rank 0 records them.
fn bounds(points: &[TransferPoint], engines: &'static [Entry]) -> Result<Vec<Option<Bound>>> {
    let planned = points.iter().cloned().map(Point::Transfer);
    let lists = Lists {
        engines,
        ..tonnage_engines::LISTS
    };
    let planned = planned.map(Planned::from).collect();
    let run = Run {
        cpus: CpuChoice::Auto,
        ..over(lists)
    };
    let records = run.records(2, planned)?;
    assert_eq!(records.len(), points.len());
    let bound = |record: Record| {
        let why = format!("no summary: {:?}", record.outcome);
        let summary = record.transfer().and_then(|body| body.summary.as_ref());
        let summary = summary.ok_or(Error::Failed(why))?;
        assert_eq!(summary.utilization.is_some(), record.bound.is_some());
        Ok(record.bound)
    };
    records.into_iter().map(bound).collect()
}

const STREAM: Pacing = Pacing::Stream { depth: 4 };

#[test]
fn an_engine_over_sockets_is_compared_with_socket_streams() {
    if Topology::read().allowed.len() < 2 {
        println!("skip: two ranks need a CPU each, because threads that yield have no bound");
        return;
    }
    let points = [
        point(Verb::Write, 1, STREAM),
        point(Verb::Read, 1, STREAM),
        point(Verb::Read, 1, Pacing::PingPong),
        // This point has more workers than there are CPUs.
        point(Verb::Write, Topology::read().allowed.len() as u32, STREAM),
    ];
    // On a busy host, a stream may not move anything in its time. The point then has no bound, so several attempts are
    // made.
    let found = (0..20).find_map(|_| {
        let bounds = bounds(&points, &[STREAMS]).unwrap();
        bounds[..2].iter().all(Option::is_some).then_some(bounds)
    });
    let bounds = found.unwrap();
    for bound in bounds[..2].iter().flatten() {
        let what = ["blocking", "polling"].map(|waiting| {
            format!("socket stream, 1 TCP connection, {waiting}, blocks of 1048576 B")
        });
        assert!(what.contains(&bound.what), "{bound:?}");
        assert!(bound.bytes_per_s > 1e6, "{bound:?}");
        assert!(bound.ci95_bytes_per_s.is_some(), "{bound:?}");
    }
    assert_eq!(bounds[2..], [None, None]);
}

#[test]
fn an_engine_with_a_known_link_is_compared_with_its_speed() {
    let points = [
        point(Verb::Write, 1, STREAM),
        point(Verb::Read, 1, Pacing::PingPong),
    ];
    let bounds = bounds(&points, &[LINK]).unwrap();
    let bound = bounds[0].as_ref().unwrap();
    assert_eq!(
        (bound.what.as_str(), bound.bytes_per_s),
        ("link speed of lo", 12.5e9)
    );
    assert_eq!(bounds[1], None);
}
