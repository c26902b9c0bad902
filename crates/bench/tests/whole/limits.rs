//! Bounds of points, from the engine's domain to the record: whole runs with threads as ranks. The engine moves nothing
//! and states a bound like an engine over a network.

use std::net::Ipv4Addr;

use tonnage_engine::testing::TestDomain;
use tonnage_engine::{Domains, Entry, LimitKind, Lists, Verb};
use tonnage_engines::null;
use tonnage_machine::{CpuChoice, Topology};
use tonnage_plan::testing::{iterations, transfer_point};
use tonnage_plan::transfer::{Pacing, TransferPoint};
use tonnage_plan::{Planned, Point};
use tonnage_record::{Limit, Record};
use tonnage_units::{Error, Result};

use crate::runs::{Run, over};

/// The `null` engine with another kind of bound.
fn limited(limit: LimitKind) -> Result<Domains> {
    TestDomain::wrap_all((null::ENTRY.open)(&Default::default()), |domain| {
        domain.caps.limit = limit;
        domain.stream_address = Some(Ipv4Addr::LOCALHOST.into());
    })
}

const STREAMS: Entry = Entry {
    open: |_| limited(LimitKind::SocketStream),
    ..null::ENTRY
};

const LINK: Entry = Entry {
    open: |_| {
        limited(LimitKind::Link {
            bytes_per_s: 12_500_000_000,
        })
    },
    ..null::ENTRY
};

fn point(op: Verb, workers: u32, pacing: Pacing) -> TransferPoint {
    TransferPoint {
        engine: "null".into(),
        op,
        workers,
        pacing,
        latency: false,
        length: iterations(1000),
        ..transfer_point()
    }
}

/// The bounds of the points, as rank 0 records them.
fn limits(points: &[TransferPoint], engines: &'static [Entry]) -> Result<Vec<Option<Limit>>> {
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
    let limit = |record: Record| {
        let why = format!("no summary: {:?}", record.outcome);
        let summary = record.transfer().and_then(|body| body.summary.as_ref());
        let summary = summary.ok_or(Error::Failed(why))?;
        assert_eq!(summary.utilization.is_some(), record.limit.is_some());
        Ok(record.limit)
    };
    records.into_iter().map(limit).collect()
}

const STREAM: Pacing = Pacing::Stream { window: 4 };

#[test]
fn an_engine_over_sockets_is_compared_with_socket_streams() {
    if Topology::read().allowed.len() < 2 {
        println!("skip: two ranks need a CPU each, because workers that yield have no limit");
        return;
    }
    let points = [
        point(Verb::Write, 1, STREAM),
        point(Verb::Read, 1, STREAM),
        point(Verb::Read, 1, Pacing::PingPong),
        // More workers than CPUs.
        point(Verb::Write, Topology::read().allowed.len() as u32, STREAM),
    ];
    // On a busy host a stream may move nothing in its time, which leaves a point without a bound.
    let found = (0..20).find_map(|_| {
        let limits = limits(&points, &[STREAMS]).unwrap();
        limits[..2].iter().all(Option::is_some).then_some(limits)
    });
    let limits = found.unwrap();
    for limit in limits[..2].iter().flatten() {
        let what = ["blocking", "polling"].map(|waiting| {
            format!("socket stream, 1 TCP connection, {waiting}, blocks of 1048576 B")
        });
        assert!(what.contains(&limit.what), "{limit:?}");
        assert!(limit.bytes_per_s > 1e6, "{limit:?}");
        assert!(limit.ci95_bytes_per_s.is_some(), "{limit:?}");
    }
    assert_eq!(limits[2..], [None, None]);
}

#[test]
fn an_engine_with_a_known_link_is_compared_with_its_speed() {
    let points = [
        point(Verb::Write, 1, STREAM),
        point(Verb::Read, 1, Pacing::PingPong),
    ];
    let limits = limits(&points, &[LINK]).unwrap();
    let limit = limits[0].as_ref().unwrap();
    assert_eq!(
        (limit.what.as_str(), limit.bytes_per_s),
        ("link speed of lo", 12.5e9)
    );
    assert_eq!(limits[1], None);
}
