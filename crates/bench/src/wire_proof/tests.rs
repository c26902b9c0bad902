//! Proofs of path on simulated machines, with counters that the tests set.

use std::collections::BTreeMap;

use super::routes::DeviceGroup;
use super::*;
use tonnage_engine::Verb;
use tonnage_engine::paths::Rails;
use tonnage_machine::kernel_files::invented::Machine;
use tonnage_plan::point::Traffic;
use tonnage_plan::transfer::{Access, TransferPoint};
use tonnage_ranks::testing::rank_info;
use tonnage_ranks::{Hosts, RankInfo, pack, unpack};
use tonnage_units::WireDevice;

const NOW: Duration = Duration::ZERO;

fn interface(name: &str) -> WireDevice {
    WireDevice {
        kind: WireKind::Interface,
        name: name.into(),
        port: 0,
    }
}

fn rdma(name: &str, port: u32) -> WireDevice {
    WireDevice {
        kind: WireKind::RdmaPort,
        name: name.into(),
        port,
    }
}

/// Returns a rank on a host such as "a", or in another network namespace of this host, such as "a/2".
fn info(rank: u32, place: &str) -> RankInfo {
    let (host, network) = place.split_once('/').unwrap_or((place, "1"));
    RankInfo {
        network_namespace: network.into(),
        ..rank_info(rank, host)
    }
}

fn named(devices: &[WireDevice]) -> Option<NamedDevices> {
    let places = devices.iter().cloned().zip(0..);
    NamedDevices::new(places.collect(), devices.len() as u32)
}

fn routes(hosts: &[&str], named: &[Option<NamedDevices>]) -> Routes {
    let infos: Vec<RankInfo> = (0..)
        .zip(hosts)
        .map(|(rank, host)| info(rank, host))
        .collect();
    Routes::new(
        &infos,
        &Hosts::from_infos(&infos),
        &named.iter().map(Option::as_ref).collect::<Vec<_>>(),
    )
}

fn point(op: Verb, ranks: u32) -> TransferPoint {
    let mut point = tonnage_plan::testing::slots_point(Access::Sequential, 4);
    (
        point.op,
        point.roles.ranks,
        point.slots.size_bytes,
        point.engine,
    ) = (op, ranks, 1000, "toy".into());
    point
}

/// Returns two ranks that write to each other through eth0 of their hosts, and the machine of the first rank.
fn two_ranks(hosts: [&str; 2]) -> (Machine, TransferPoint, Routes) {
    let eth = || named(&[interface("eth0")]);
    let routes = routes(&hosts, &[eth(), eth()]);
    (Machine::new(), point(Verb::Write, 2), routes)
}

/// Sets the received and the sent bytes of a machine's interfaces.
fn counted(machine: &Machine, interfaces: &[(&str, u64, u64)]) {
    let mut text = String::from("head\nhead\n");
    for (name, received, sent) in interfaces {
        text += &format!("{name}: {received} 1 0 0 0 0 0 0 {sent} 1 0 0 0 0 0 0\n");
    }
    machine.file("proc/self/net/dev", &text);
}

fn tcp(machine: &Machine, retransmitted: u64) {
    let text = format!("Tcp: OutSegs RetransSegs\nTcp: 50 {retransmitted}");
    machine.file("proc/self/net/snmp", &text);
}

fn watch<'a>(
    machine: &Machine,
    point: &'a TransferPoint,
    routes: &Routes,
    rank: u32,
) -> CounterWatch<'a> {
    CounterWatch::begin_in_tree(machine.tree(), point, route(routes, rank), rank, NOW)
}

/// Returns a rank's part of the routes, with the groups of all other ranks. Its memory is leaked for the rest of the
/// tests.
fn route(routes: &Routes, rank: u32) -> &'static RankRoutes {
    let mut route = routes.of_rank(rank);
    for (peer, group) in (0..).zip(&routes.group_of) {
        route.note_group(peer, *group);
    }
    Box::leak(Box::new(route))
}

/// Returns the verdict of a rank. `loads` has the bytes that all ranks moved.
fn found(watch: &CounterWatch, loads: &[(u32, u64, u64)]) -> WireProof {
    let loads = loads
        .iter()
        .map(|&(group, sent, received)| (group, DeviceLoad { sent, received }))
        .collect();
    watch.conclude(watch.judge(&Loads(loads)))
}

fn groups(routes: &Routes) -> Vec<(Vec<u32>, usize)> {
    let shape = |group: &DeviceGroup| (group.ranks.clone(), group.devices.len());
    routes.groups.iter().map(shape).collect()
}

#[test]
fn ranks_that_share_a_device_form_a_group() {
    let eth = || named(&[interface("eth0")]);
    let both = || named(&[interface("eth0"), interface("eth1")]);
    let other = || named(&[interface("eth1")]);
    let hosts = ["a", "a", "b", "a"];
    let together = routes(&hosts, &[eth(), eth(), eth(), other()]);
    assert_eq!(
        groups(&together),
        [(vec![0, 1], 1), (vec![2], 1), (vec![3], 1)]
    );
    assert_eq!(
        (0..5)
            .map(|rank| together.of_rank(rank).group)
            .collect::<Vec<_>>(),
        [Some(0), Some(0), Some(1), Some(2), None]
    );
    // The last rank names devices of two groups, so these groups become one.
    let joined = routes(&["a", "a", "b", "a"], &[eth(), other(), eth(), both()]);
    assert_eq!(groups(&joined), [(vec![0, 1, 3], 2), (vec![2], 1)]);
    assert_eq!(joined.of_rank(1).group, Some(0));
    // Two network namespaces of one host don't share devices.
    let apart = routes(&["a", "a/2"], &[eth(), named(&[interface("eth0")])]);
    assert_eq!(groups(&apart), [(vec![0], 1), (vec![1], 1)]);
    let none = routes(&["a", "a"], &[None, None]);
    assert!(groups(&none).is_empty());
    assert!(CounterWatch::begin(&point(Verb::Write, 2), route(&none, 0), 0).is_none());
}

#[test]
fn the_side_with_the_bytes_counts_as_sender() {
    let routes = routes(
        &["a", "b", "a"],
        &[
            named(&[interface("eth0")]),
            named(&[interface("eth0")]),
            None,
        ],
    );
    let machine = Machine::new();
    for (op, from_zero) in [
        (Verb::Write, true),
        (Verb::WriteImm, true),
        (Verb::Send, true),
        (Verb::Read, false),
    ] {
        let point = point(op, 3);
        let loads = |rank, operations: &[(u32, u64)]| {
            watch(&machine, &point, &routes, rank).loads(&point, operations)
        };
        // The third rank names no device. But the devices of its peers carry the payload that they exchange with it.
        let mut all = loads(0, &[(1, 5)]);
        all.merge(loads(1, &[]));
        all.merge(loads(2, &[(1, 2)]));
        // Encodes and decodes the loads, as messages between ranks do.
        let Loads(all) = unpack(&pack(&all).unwrap()).unwrap();
        let load = |sent, received| DeviceLoad { sent, received };
        let expected = if from_zero {
            [(0, load(5000, 0)), (1, load(0, 7000))]
        } else {
            [(0, load(0, 5000)), (1, load(7000, 0))]
        };
        assert_eq!(all.into_iter().collect::<Vec<_>>(), expected, "{op:?}");
    }
    assert!(unpack::<Loads>(b"[").is_err() && unpack::<Loads>(b"").is_err());
}

#[test]
fn a_device_with_the_payload_in_its_counters_was_crossed() {
    let (machine, point, routes) = two_ranks(["a", "b"]);
    counted(&machine, &[("lo", 0, 0), ("eth0", 700, 100)]);
    tcp(&machine, 3);
    let watch = watch(&machine, &point, &routes, 0);
    counted(&machine, &[("lo", 0, 0), ("eth0", 900, 1_000_000_100)]);
    tcp(&machine, 7);
    // This is just enough, and the next case just isn't: 99 % of 1010101010 B are 1000000000 B.
    let path = found(&watch, &[(0, 1_010_101_010, 0), (1, 0, 1_010_101_010)]);
    assert!(path.crossed && path.why.is_empty(), "{path:#?}");
    assert_eq!((path.devices_named, path.devices_crossed), (1, 1));
    let device = &path.devices[0];
    assert_eq!(
        (device.sent_bytes, device.received_bytes),
        (Some(1_000_000_000), Some(200))
    );
    assert_eq!(device.counters["tx_packets"], 0);
    assert_eq!(
        path.tcp[0].counters,
        Counters::from([("OutSegs".into(), 0), ("RetransSegs".into(), 4)])
    );
    let path = found(&watch, &[(0, 1_010_101_012, 0)]);
    assert!(!path.crossed);
    assert_eq!(path.devices_crossed, 0);
    // If the bytes went in the wrong direction, their number proves nothing.
    assert!(!found(&watch, &[(0, 0, 1_000_000_000)]).crossed);
}

#[test]
fn payload_between_ranks_of_one_host_is_found_on_the_loopback() {
    let (machine, point, routes) = two_ranks(["a", "a"]);
    counted(&machine, &[("eth0", 0, 0), ("lo", 50, 50)]);
    let watch = watch(&machine, &point, &routes, 0);
    counted(&machine, &[("eth0", 10, 312), ("lo", 3_000_000, 3_000_000)]);
    let path = found(&watch, &[(0, 2 << 20, 2 << 20)]);
    assert!(!path.crossed && !path.devices[0].crossed);
    assert_eq!(
        path.why,
        [
            "the payload did not cross eth0 of a: ranks 0-1 sent 2.00 MiB and received 2.00 MiB, and the counters show \
          312 B and 10.0 B; ranks 0 and 1 are on one host, and lo carried that much meanwhile: place the ranks on \
          different hosts, or ask for lo"
        ]
    );
    // At the same time another process copies a file over eth0. Its bytes don't prove anything.
    let busy = 1 << 30;
    counted(&machine, &[("eth0", busy, busy), ("lo", 9_000, 9_000)]);
    let path = found(&watch, &[(0, 8_000, 8_000)]);
    assert!(!path.crossed && !path.devices[0].crossed);
    let why = &path.why[0];
    assert!(why.contains("lo carried that much meanwhile"), "{why}");
}

#[test]
fn payload_on_another_device_is_reported() {
    let (machine, point, routes) = two_ranks(["a", "b"]);
    counted(&machine, &[("eth0", 0, 0), ("eth1", 0, 0)]);
    let before = watch(&machine, &point, &routes, 0);
    counted(&machine, &[("eth0", 0, 0), ("eth1", 0, 5000)]);
    let why = &found(&before, &[(0, 5000, 0)]).why[0];
    assert!(
        why.contains("; eth1 carried that much meanwhile: look at the routes"),
        "{why}"
    );
    let why = &found(&before, &[(0, 6000, 0)]).why[0];
    assert!(
        why.contains("no other device there counted that much"),
        "{why}"
    );
    // Only one rank of a group reads the group's counters.
    let other = watch(&machine, &point, &routes, 1);
    assert_eq!(other.route.reads.as_ref().unwrap().at, 1);
}

#[test]
fn missing_devices_and_those_without_counters_prove_nothing() {
    let machine = Machine::new();
    counted(&machine, &[("eth0", 0, 0), ("lo", 0, 0)]);
    machine.file(
        "sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts",
        "4",
    );
    for (device, part) in [
        (
            interface("eth9"),
            "eth9 of a cannot be read, so that nothing is proven: /proc/net/dev lists eth0 and lo",
        ),
        (
            rdma("mlx5_0", 1),
            "mlx5_0 port 1 of a cannot be read, so that nothing is proven: /sys/class/infiniband",
        ),
        (
            rdma("rxe0", 1),
            "rxe0 port 1 of a shows no counters of bytes",
        ),
    ] {
        let one = || named(std::slice::from_ref(&device));
        let (point, routes) = (point(Verb::Write, 2), routes(&["a", "b"], &[one(), one()]));
        let path = found(&watch(&machine, &point, &routes, 0), &[(0, 1, 0)]);
        assert!(!path.crossed);
        assert!(path.why[0].starts_with(part), "{:?}", path.why);
    }
}

#[test]
fn shared_devices_carry_the_payload_together() {
    let both = || named(&[interface("eth0"), interface("eth1")]);
    let (point, routes) = (
        point(Verb::Write, 2),
        routes(&["a", "b"], &[both(), both()]),
    );
    let machine = Machine::new();
    counted(&machine, &[("eth0", 0, 0), ("eth1", 0, 0)]);
    let watch = watch(&machine, &point, &routes, 0);
    counted(&machine, &[("eth0", 0, 60_000), ("eth1", 0, 40_000)]);
    let path = found(&watch, &[(0, 100_000, 0)]);
    assert!(path.crossed && path.devices_crossed == 2, "{path:#?}");
    counted(&machine, &[("eth0", 0, 100_000), ("eth1", 0, 400)]);
    let path = found(&watch, &[(0, 100_000, 0)]);
    let crossed: Vec<bool> = path.devices.iter().map(|device| device.crossed).collect();
    assert_eq!((path.crossed, crossed), (false, vec![true, false]));
    assert!(
        path.why[0].starts_with("eth1 of a carried none"),
        "{:?}",
        path.why
    );
}

#[test]
fn a_rank_without_a_named_device_is_not_proven() {
    let routes = routes(&["a", "b"], &[named(&[interface("lo")]), None]);
    let point = point(Verb::Write, 2);
    let machine = Machine::new();
    counted(&machine, &[("lo", 0, 0)]);
    let watch = watch(&machine, &point, &routes, 0);
    counted(&machine, &[("lo", 9, 9)]);
    let path = found(&watch, &[(0, 9, 9)]);
    assert_eq!((path.crossed, path.devices_crossed), (false, 1));
    assert!(
        path.why[0].starts_with("rank 1 uses engine toy without"),
        "{:?}",
        path.why
    );
}

#[test]
fn a_delayed_counter_is_waited_for() {
    let (machine, point, routes) = two_ranks(["a", "b"]);
    counted(&machine, &[("eth0", 0, 0)]);
    let watch = CounterWatch::begin_in_tree(
        machine.tree(),
        &point,
        route(&routes, 0),
        0,
        Duration::from_secs(20),
    );
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(READ_INTERVAL * 3);
            counted(&machine, &[("eth0", 0, 5000)]);
        });
        assert!(found(&watch, &[(0, 5000, 0)]).crossed);
    });
}

#[test]
fn a_large_run_lists_only_problems() {
    let count = DEVICES_MAX + 10;
    let hosts: Vec<String> = (0..count).map(|host| format!("h{host}")).collect();
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    let routes = routes(&hosts, &vec![named(&[interface("eth0")]); count]);
    let point = point(Verb::Write, count as u32);
    let machine = Machine::new();
    let path = |rank: u32, retransmitted, sent| {
        counted(&machine, &[("eth0", 0, 0)]);
        tcp(&machine, 0);
        let watch = watch(&machine, &point, &routes, rank);
        counted(&machine, &[("eth0", 0, sent)]);
        tcp(&machine, retransmitted);
        let loads = BTreeMap::from([(
            rank,
            DeviceLoad {
                sent: 100,
                received: 0,
            },
        )]);
        watch.judge(&Loads(loads))
    };
    let mut all = path(9, 0, 100);
    let quiet = all.clone().0.0;
    assert_eq!(
        (quiet.devices.len(), quiet.tcp.len(), quiet.devices_crossed),
        (0, 0, 1)
    );
    all.merge(path(7, 5, 100));
    all.merge(path(3, 0, 1));
    // Encodes and decodes the findings, as messages between ranks do.
    let WireFindings(Json(all)) = unpack(&pack(&all).unwrap()).unwrap();
    assert_eq!(
        (all.crossed, all.devices_named, all.devices_crossed),
        (false, 3, 2)
    );
    assert_eq!((all.devices[0].ranks.as_str(), all.devices.len()), ("3", 1));
    assert_eq!((all.tcp[0].ranks.as_str(), all.tcp.len()), ("7", 1));
}

#[test]
fn results_are_joined_in_any_order() {
    let device = |rank: u32, crossed| DevicePath {
        host: format!("h{rank}"),
        ranks: rank.to_string(),
        kind: WireKind::Interface,
        name: "eth0".into(),
        port: None,
        sent_bytes_expected: 1,
        received_bytes_expected: 1,
        sent_bytes: None,
        received_bytes: None,
        crossed,
        counters: Counters::new(),
    };
    let path = |rank, crossed| WireProof {
        crossed,
        devices_named: 1,
        devices_crossed: u32::from(crossed),
        devices: vec![device(rank, crossed)],
        tcp: vec![],
        why: if crossed {
            vec![]
        } else {
            vec![format!("why {rank}")]
        },
    };
    let parts: Vec<WireFindings> = (0..600)
        .map(|rank| WireFindings(Json(path(rank, rank % 200 != 199))))
        .collect();
    let join = |parts: &mut dyn Iterator<Item = &WireFindings>| {
        let mut all = WireFindings(Json(WireProof::empty()));
        parts.for_each(|part| all.merge(part.clone()));
        all.0.0
    };
    let joined = join(&mut parts.iter());
    assert_eq!(joined, join(&mut parts.iter().rev()));
    assert_eq!((joined.devices_named, joined.devices_crossed), (600, 597));
    let first: Vec<&str> = joined.devices[..4]
        .iter()
        .map(|device| device.ranks.as_str())
        .collect();
    assert_eq!(
        (joined.devices.len(), first),
        (DEVICES_MAX, vec!["199", "399", "599", "0"])
    );
    assert_eq!(joined.why, ["why 199", "why 399", "why 599"]);
}

#[test]
fn neighbours_are_ranks_that_exchange_payload() {
    let eth = || named(&[interface("eth0")]);
    let routes = routes(&["a", "a", "b", "b"], &[eth(), eth(), eth(), eth()]);
    let machine = Machine::new();
    counted(&machine, &[("eth0", 0, 0)]);
    for (traffic, expected) in [
        (Traffic::Pair, None),
        (Traffic::AllToAll, Some((0, 1))),
        (Traffic::FanIn, Some((1, 0))),
    ] {
        let mut point = point(Verb::Write, 4);
        point.roles.traffic = traffic;
        let watch = watch(&machine, &point, &routes, 0);
        let reader = watch.route.reads.as_ref().unwrap();
        assert_eq!(watch.neighbours(reader), expected, "{traffic:?}");
    }
}

/// An operation of one byte has no part for the second rail, but an operation of two bytes has one.
#[test]
fn a_rail_without_a_share_may_rest() {
    // Rails have the order of this list, not that of their names.
    let both = || named(&[interface("eth1"), interface("eth0")]);
    let mut point = point(Verb::Write, 2);
    let routes = routes(&["a", "b"], &[both(), both()]);
    let machine = Machine::new();
    counted(&machine, &[("eth0", 0, 0), ("eth1", 0, 0)]);
    for (rails, size_bytes, resting, crossed) in [
        (Rails::Stripe, 1, "eth0", Some(1)),
        (Rails::Stripe, 1, "eth1", None),
        (Rails::Stripe, 2, "eth0", None),
        (Rails::Single, 1, "eth0", None),
    ] {
        (point.division.rails, point.slots.size_bytes) = (rails, size_bytes);
        let before = watch(&machine, &point, &routes, 0);
        let sent = |name| if name == resting { 40 } else { 100_000 };
        let machine = Machine::new();
        counted(
            &machine,
            &[("eth0", 0, sent("eth0")), ("eth1", 0, sent("eth1"))],
        );
        let after = CounterWatch {
            before: before.before,
            ..watch(&machine, &point, &routes, 0)
        };
        let path = found(&after, &[(0, 100_000, 0)]);
        let proven = path.crossed.then_some(path.devices_crossed);
        assert_eq!(
            proven, crossed,
            "{rails:?} {size_bytes} {resting}: {path:#?}"
        );
    }
}
