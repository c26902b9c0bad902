//! Paths over two devices.

use std::sync::Arc;

use super::support::{ALL, device, op, two_rails};
use crate::paths::{Cut, Division, Rails, divide};
use crate::{BoundKind, Caps, Ending, LaneKind, Op, Verb};

fn over_rails(rails: Rails) -> Division {
    Division {
        rails,
        ..Division::NONE
    }
}

#[test]
fn a_striped_operation_has_an_equal_part_on_each_rail() {
    let mut bench = two_rails(over_rails(Rails::Stripe));
    let lane = bench.writes();
    assert_eq!(bench.worker.post(&[op(lane, 5, 251)]).unwrap(), 1);
    let ranges =
        |ops: &[Op]| -> Vec<_> { ops.iter().map(|op| (op.local, op.remote, op.len)).collect() };
    let parts = [bench.posted(0), bench.posted(1)];
    assert_eq!(ranges(&parts[0]), [(1000, 5000, 126)]);
    assert_eq!(ranges(&parts[1]), [(1126, 5126, 125)]);
    // Rail 0 is not busy in the second poll: only the part on rail 1 is still in flight.
    bench.completes(0, &parts[0][0], Ending::Done);
    assert!(bench.polled().is_empty());
    bench.completes(1, &parts[1][0], Ending::Done);
    assert_eq!(bench.polled().len(), 1);
    assert!(bench.polled().is_empty());
    let loads = bench.worker.take_rail_loads();
    let figures = loads
        .iter()
        .map(|load| (load.bytes, load.busy_polls, load.polls, load.peers));
    assert!(figures.eq([(126, 1, 2, 2), (125, 2, 2, 2)]), "{loads:?}");
    assert!(
        bench
            .worker
            .take_rail_loads()
            .iter()
            .all(|load| load.bytes + load.polls == 0)
    );
}

#[test]
fn events_come_from_the_devices_of_all_rails() {
    let mut bench = two_rails(over_rails(Rails::Stripe));
    for (path, event) in ["port error of a", "port error of b"].iter().enumerate() {
        bench.path(path, |script| script.device_events.push((*event).into()));
    }
    let events = bench.worker.take_device_events();
    assert_eq!(events, ["port error of a", "port error of b"]);
}

#[test]
fn shares_are_cut_further_over_the_queue_pairs_of_their_rail() {
    let mut bench = two_rails(Division {
        queue_pairs: 2,
        cut: Some(Cut {
            chunk_bytes: 10,
            chunks_max: 64,
        }),
        rails: Rails::Stripe,
    });
    let lane = bench.writes();
    bench.worker.post(&[op(lane, 5, 60)]).unwrap();
    let offsets = |path| -> Vec<u64> {
        bench
            .posted(path)
            .iter()
            .map(|op| op.local - 1000)
            .collect()
    };
    assert_eq!(
        [0, 1, 2, 3].map(offsets),
        [vec![0, 20], vec![10], vec![30, 50], vec![40]]
    );
}

#[test]
fn round_robin_gives_each_peer_one_rail_in_turn() {
    let mut bench = two_rails(over_rails(Rails::RoundRobin));
    let lanes = [1, 2].map(|peer| bench.lane(LaneKind::Initiate(Verb::Write), peer));
    let ops: Vec<Op> = (0..6)
        .map(|tag| op(lanes[tag as usize % 2], tag, 64))
        .collect();
    assert_eq!(bench.worker.post(&ops).unwrap(), 6);
    let imms = |path| -> Vec<u32> { bench.posted(path).iter().map(|op| op.imm - 90).collect() };
    assert_eq!([imms(0), imms(1)], [vec![1, 3, 5], vec![0, 2, 4]]);
    let loads = bench.worker.take_rail_loads();
    assert!(
        loads
            .iter()
            .all(|load| (load.bytes, load.peers) == (192, 1)),
        "{loads:?}"
    );
}

#[test]
fn rails_have_the_capabilities_that_all_of_them_share() {
    let device = |caps| device(&Arc::default(), caps);
    let weak = Caps {
        verbs: &[Verb::Read],
        depth: 2,
        message_bytes_max: 9,
        delivered: false,
        delivery_on_request: false,
        arrives_by_polling: true,
        bound: BoundKind::Link { bytes_per_s: 5 },
        ..ALL
    };
    let strong = Caps {
        bound: BoundKind::Link { bytes_per_s: 7 },
        ..ALL
    };
    for devices in [[weak, strong], [strong, weak]] {
        let devices = devices.map(device).into();
        let domains = divide(devices, over_rails(Rails::RoundRobin));
        assert_eq!(domains.len(), 1);
        let caps = domains[0].caps();
        assert_eq!(
            (caps.verbs, caps.depth, caps.message_bytes_max),
            (weak.verbs, 2, 9)
        );
        assert!(!caps.delivered && !caps.delivery_on_request && caps.arrives_by_polling);
        assert_eq!(caps.bound, BoundKind::Link { bytes_per_s: 12 });
        // Round-robin gives each peer one path, so its writes stay in order.
        assert!(caps.ordered_writes);
    }
    let striped = divide(
        vec![device(strong), device(strong)],
        over_rails(Rails::Stripe),
    );
    assert!(!striped[0].caps().ordered_writes);
}
