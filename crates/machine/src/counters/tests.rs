//! Counters of invented machines, and parsers with arbitrary input.

use proptest::prelude::*;

use super::super::kernel_files::invented::Machine;
use super::*;

const DEV: &str = "Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 2048       4    0    0    0     0          0         0     2048       4    0    0    0     0       0          0
  eth0:18446744073709551615 7 1 2 0 0 0 0 3000 8 3 4 0 0 0 0
";

const SNMP: &str = "Ip: Forwarding DefaultTTL\nIp: 1 64
Tcp: RtoAlgorithm RtoMin RtoMax MaxConn InSegs OutSegs RetransSegs InErrs OutRsts
Tcp: 1 200 120000 -1 100 90 7 1 3
Udp: InDatagrams\nUdp: 5";

const NETSTAT: &str = "TcpExt: SyncookiesSent ListenDrops TCPTimeouts\nTcpExt: 0 2 5
IpExt: InNoRoutes\nIpExt: 0";

fn port(name: &str, port: u32) -> WireDevice {
    WireDevice {
        kind: WireKind::RdmaPort,
        name: name.into(),
        port,
    }
}

fn interface(name: &str) -> WireDevice {
    WireDevice {
        kind: WireKind::Interface,
        name: name.into(),
        port: 0,
    }
}

fn counters(pairs: &[(&str, u64)]) -> Counters {
    let own = |(name, value): &(&str, u64)| ((*name).to_owned(), *value);
    pairs.iter().map(own).collect()
}

#[test]
fn interfaces_and_tcp_are_those_of_the_own_namespace() {
    let machine = Machine::new();
    machine
        .files(
            "proc/self/net",
            &[("dev", DEV), ("snmp", SNMP), ("netstat", NETSTAT)],
        )
        // After `nsenter --net`, /sys still shows an interface of another namespace.
        .file("sys/class/net/eth9/statistics/rx_bytes", "5");
    let snapshot = Snapshot::read(&machine.tree(), &[]);
    let devices = [interface("eth0"), interface("lo")];
    assert_eq!(snapshot.devices(), devices, "and no eth9");
    let eth0 = snapshot.of(&interface("eth0")).unwrap();
    for (name, value) in [
        ("rx_bytes", u64::MAX),
        ("rx_packets", 7),
        ("rx_errors", 1),
        ("rx_dropped", 2),
        ("tx_bytes", 3000),
        ("tx_packets", 8),
        ("tx_errors", 3),
        ("tx_dropped", 4),
    ] {
        assert_eq!(eth0.get(name), Some(&value), "{name}");
    }
    assert_eq!(eth0.len(), 8);
    let tcp = [
        ("InErrs", 1),
        ("InSegs", 100),
        ("ListenDrops", 2),
        ("OutSegs", 90),
        ("RetransSegs", 7),
        ("TCPTimeouts", 5),
    ];
    assert_eq!(snapshot.tcp, counters(&tcp));
    assert_eq!(snapshot.of(&interface("eth9")), None);
}

#[test]
fn an_infiniband_port_counts_words_and_its_driver_troubles() {
    let machine = Machine::new();
    for port in [1, 2] {
        let at = format!("sys/class/infiniband/mlx5_0/ports/{port}");
        machine.files(
            &at,
            &[
                ("counters/port_xmit_data", "250"),
                ("counters/port_rcv_data", "1000"),
                ("counters/port_rcv_errors", "0"),
                ("counters/port_xmit_wait", "N/A (no PMA)"),
                ("hw_counters/lifespan", "10"),
                ("hw_counters/local_ack_timeout_err", "3"),
            ],
        );
    }
    let snapshot = Snapshot::read(&machine.tree(), &[port("mlx5_0", 1)]);
    let asked = snapshot.of(&port("mlx5_0", 1)).unwrap();
    assert_eq!(sent_bytes(asked), Some(1000));
    assert_eq!(received_bytes(asked), Some(4000));
    let names = "local_ack_timeout_err port_rcv_data_bytes port_rcv_errors port_xmit_data_bytes";
    assert!(asked.keys().eq(names.split(' ')), "{asked:?}");
    let other = snapshot.of(&port("mlx5_0", 2)).unwrap();
    assert_eq!((sent_bytes(other), other.len()), (Some(1000), 2));
}

#[test]
fn efa_counts_bytes_in_more_than_one_place() {
    let machine = Machine::new();
    let at = "sys/class/infiniband/efa_0/ports/1/hw_counters";
    for (name, value) in [
        ("tx_bytes", 100),
        ("rx_bytes", 5000),
        ("send_bytes", 60),
        ("rdma_write_bytes", 300),
        ("rdma_read_resp_bytes", 40),
        ("recv_bytes", 10),
        ("rx_drops", 2),
        ("retrans_pkts", 1),
    ] {
        machine.file(&format!("{at}/{name}"), &value.to_string());
    }
    machine.file("sys/class/infiniband/efa_0/hw_counters/mmap_err", "0");
    let snapshot = Snapshot::read(&machine.tree(), &[port("efa_0", 1)]);
    let counters = snapshot.of(&port("efa_0", 1)).unwrap();
    assert_eq!(sent_bytes(counters), Some(400), "60 + 300 + 40");
    assert_eq!(received_bytes(counters), Some(5000));
    assert_eq!(counters.get("mmap_err"), Some(&0));
}

#[test]
fn a_device_in_software_is_counted_at_its_interface() {
    let machine = Machine::new();
    let at = "sys/class/infiniband/rxe0/ports/1";
    machine
        .file("proc/self/net/dev", DEV)
        .file(&format!("{at}/gid_attrs/ndevs/0"), "eth0")
        .file(&format!("{at}/hw_counters/sent_pkts"), "9");
    let snapshot = Snapshot::read(&machine.tree(), &[port("rxe0", 1)]);
    let counters = snapshot.of(&port("rxe0", 1)).unwrap();
    assert_eq!(sent_bytes(counters), Some(3000));
    assert_eq!(counters.get("sent_pkts"), Some(&9));
    assert_eq!(counters.get("netdev_tx_dropped"), Some(&4));
}

#[test]
fn differences_leave_out_counters_that_went_backwards() {
    let before = counters(&[("tx_bytes", 10), ("rx_bytes", 10), ("gone", 1)]);
    let after = counters(&[("tx_bytes", 25), ("rx_bytes", 3), ("new", 1)]);
    assert_eq!(difference(&before, &after), counters(&[("tx_bytes", 15)]));
    assert_eq!(received_bytes(&difference(&before, &after)), None);
}

#[test]
fn trouble_is_recognized_by_name() {
    let trouble = "rx_errors tx_dropped RetransSegs InErrs TCPTimeouts ListenDrops ListenOverflows \
                   local_ack_timeout_err packet_seq_err out_of_sequence out_of_buffer rnr_nak_retry_err \
                   port_xmit_discards symbol_error link_downed retrans_bytes rx_drops \
                   unresponsive_remote_events netdev_rx_dropped";
    let fine = "rx_bytes tx_packets InSegs OutSegs port_xmit_data_bytes port_xmit_wait \
                rdma_read_resp_bytes multicast_rcv_packets np_cnp_sent TCPSACKReorder TCPTSReorder \
                TCPDSACKRecv TCPOFOQueue";
    for (names, is_bad) in [(trouble, true), (fine, false)] {
        for name in names.split_whitespace() {
            assert_eq!(is_trouble(name), is_bad, "{name}");
        }
    }
}

#[test]
fn duplicates_and_reordering_tell_that_segments_were_not_lost() {
    let of = |retransmitted, reorderings, duplicates| {
        let counters = Counters::from([
            ("RetransSegs".into(), retransmitted),
            ("TCPSACKReorder".into(), reorderings),
            ("TCPDSACKRecv".into(), duplicates),
        ]);
        Reordering::from_counters(&counters).map(|found| (found.is_all(), found.is_likely()))
    };
    assert_eq!(of(1734, 9, 1734), Some((true, true)));
    assert_eq!(of(1734, 9, 40), Some((false, true)));
    assert_eq!(of(1734, 0, 40), Some((false, false)));
    assert_eq!((of(1734, 0, 0), of(0, 9, 9)), (None, None));
}

#[test]
fn this_machine_has_a_loopback() {
    let snapshot = Snapshot::read(&Tree::host(), &[]);
    if !Tree::host().exists("proc/self/net/dev") {
        println!("skip: there is no /proc/self/net/dev here");
        return;
    }
    let lo = snapshot.of(&interface("lo")).unwrap();
    assert!(sent_bytes(lo).is_some() && received_bytes(lo).is_some());
    assert!(snapshot.tcp.contains_key("RetransSegs"));
}

proptest! {
    #[test]
    fn parsers_take_any_text(text in "(?s).{0,300}") {
        parse_interfaces(&text);
        parse_protocol(&text, "Tcp");
    }

    #[test]
    fn interfaces_are_read_back(
        rows in proptest::collection::btree_map("[a-z][a-z0-9.@-]{0,14}", proptest::collection::vec(any::<u64>(), 16), 0..6),
        junk in "[^:]{0,40}",
    ) {
        let mut text = format!("{junk}\n");
        for (name, figures) in &rows {
            let figures: Vec<String> = figures.iter().map(u64::to_string).collect();
            text += &format!("{name:>6}: {}\n", figures.join("   "));
        }
        let found = parse_interfaces(&text);
        prop_assert_eq!(found.keys().collect::<Vec<_>>(), rows.keys().collect::<Vec<_>>());
        for (name, figures) in rows {
            prop_assert_eq!(found[&name]["rx_bytes"], figures[0]);
            prop_assert_eq!(found[&name]["tx_bytes"], figures[8]);
            prop_assert_eq!(found[&name]["tx_dropped"], figures[11]);
        }
    }

    #[test]
    fn protocols_are_read_back(
        names in proptest::collection::btree_set("[A-Za-z]{1,20}", 0..20), seed in any::<u64>(), short in 0usize..3,
    ) {
        let names: Vec<String> = names.into_iter().collect();
        let figures: Vec<u64> = (0..names.len() as u64).map(|at| seed.wrapping_mul(at + 1)).collect();
        let kept = figures.len().saturating_sub(short);
        let line: Vec<String> = figures[..kept].iter().map(u64::to_string).collect();
        let text = format!("Ip: A\nIp: 1\nTcp: {}\nTcp: {}\n", names.join(" "), line.join(" "));
        let found = parse_protocol(&text, "Tcp");
        prop_assert_eq!(found.len(), kept);
        for (name, figure) in names.iter().zip(&figures[..kept]) {
            prop_assert_eq!(found.get(name), Some(figure));
        }
    }
}
