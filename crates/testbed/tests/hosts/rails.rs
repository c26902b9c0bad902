//! Links of a host carry traffic separately, and cutting one does not affect the others.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use rustix::io::Errno;
use tonnage_testbed::{Hosts, HostsSpec, LinkCounters};

use super::support::{connect, connect_from, listen, printed, some_hosts, wait_until};

/// Large enough to be distinguished from all other traffic.
const PAYLOAD_BYTES: usize = 8 << 20;

/// Upper bound on a link's traffic other than payload: ARP requests and neighbour announcements of the kernel.
const CHATTER_BYTES: u64 = 100_000;

fn two_hosts_with_two_links() -> Option<Hosts> {
    some_hosts(HostsSpec {
        links: 2,
        ..HostsSpec::default()
    })
}

/// Connects link `rail` of host 0 to the same link of host 1, and returns the two ends in this order.
fn connection(hosts: &Hosts, rail: usize) -> (TcpStream, TcpStream) {
    let (listener, address) = listen(hosts, 1, rail);
    let out = connect(hosts, 0, address).unwrap();
    let (into, peer) = listener.accept().unwrap();
    assert_eq!(peer.ip(), hosts.link(0, rail).address());
    (out, into)
}

/// Counters of both links of both hosts, as `[host][rail]`.
fn counters(hosts: &Hosts) -> [[LinkCounters; 2]; 2] {
    [0, 1].map(|host| [0, 1].map(|rail| hosts.link(host, rail).counters().unwrap()))
}

fn send(mut out: TcpStream, mut into: TcpStream) {
    let sender = std::thread::spawn(move || out.write_all(&vec![0u8; PAYLOAD_BYTES]).unwrap());
    let mut bytes = Vec::new();
    into.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes.len(), PAYLOAD_BYTES);
    sender.join().unwrap();
}

#[test]
fn each_link_carries_its_own_traffic_and_no_other() {
    let Some(hosts) = two_hosts_with_two_links() else {
        return;
    };
    for rail in [0, 1] {
        let before = counters(&hosts);
        let (out, into) = connection(&hosts, rail);
        send(out, into);
        let after = counters(&hosts);
        let grown = |host: usize, rail: usize| {
            let (before, after) = (before[host][rail], after[host][rail]);
            (
                after.sent_bytes - before.sent_bytes,
                after.received_bytes - before.received_bytes,
            )
        };
        let payload = PAYLOAD_BYTES as u64;
        assert!(grown(0, rail).0 > payload, "{before:?} {after:?}");
        assert!(grown(1, rail).1 > payload, "{before:?} {after:?}");
        for host in [0, 1] {
            let (sent, received) = grown(host, 1 - rail);
            assert!(
                sent + received < CHATTER_BYTES,
                "rail {rail} leaks: {before:?} {after:?}"
            );
        }
    }
}

#[test]
fn programs_see_each_link_with_its_address() {
    let Some(hosts) = two_hosts_with_two_links() else {
        return;
    };
    let names = printed(hosts.command(0, "cat").arg("/etc/hosts"));
    for line in [
        "10.77.0.1 h0",
        "10.77.1.1 h0-rail1",
        "10.77.0.2 h1",
        "10.77.1.2 h1-rail1",
    ] {
        assert!(names.lines().any(|found| found == line), "{line}: {names}");
    }
    for rail in [0, 1] {
        let link = hosts.link(1, rail);
        assert_eq!(link.interface(), format!("eth{rail}"));
        let shown = printed(hosts.command(1, "ip").args(["-o", "-4", "address", "show"]));
        let address = format!("{} ", link.interface());
        let line = shown.lines().find(|line| line.contains(&address)).unwrap();
        assert!(line.contains(&format!("{}/24", link.address())), "{shown}");
    }
}

#[test]
fn a_rail_cannot_be_reached_from_another() {
    let Some(hosts) = two_hosts_with_two_links() else {
        return;
    };
    // Both hosts connect, so that the test covers the return path too.
    for (from, to) in [(0, 1), (1, 0)] {
        for rail in [0, 1] {
            let (_same, address) = listen(&hosts, to, rail);
            connect_from(&hosts, from, rail, address).unwrap();
            let (_other, address) = listen(&hosts, to, 1 - rail);
            let refused = connect_from(&hosts, from, rail, address).unwrap_err();
            assert_eq!(refused, Errno::HOSTUNREACH, "rail {rail} of h{from}");
        }
    }
    // Host 0 now has a route to rail 0 over rail 1. Still, no interface on rail 1 may answer for an address of rail 0.
    let ip = |arguments: &[&str]| {
        let space = hosts.namespace(0);
        printed(Command::new("ip").args(["-n", &space]).args(arguments))
    };
    ip(&["route", "add", "10.77.0.2", "dev", "eth1", "table", "101"]);
    let (_listener, address) = listen(&hosts, 1, 0);
    let refused = connect_from(&hosts, 0, 1, address).unwrap_err();
    assert_eq!(refused, Errno::HOSTUNREACH);
    let neighbours = ip(&["neighbour", "show", "dev", "eth1"]);
    let answer = neighbours
        .lines()
        .find(|line| line.starts_with("10.77.0.2 "));
    assert!(
        answer.is_some_and(|line| !line.contains("lladdr")),
        "somebody answered: {neighbours}"
    );
}

#[test]
fn a_cut_link_does_not_stop_the_other() {
    let Some(hosts) = two_hosts_with_two_links() else {
        return;
    };
    let carriers = || {
        let files = [0, 1].map(|rail| format!("/sys/class/net/eth{rail}/carrier"));
        printed(hosts.command(1, "cat").args(files))
    };
    for cut in [1, 0] {
        let mut ends = [0, 1].map(|rail| connection(&hosts, rail));
        assert_eq!(carriers(), "1\n1");
        hosts.link(1, cut).cut().unwrap();
        assert_eq!(carriers(), if cut == 1 { "1\n0" } else { "0\n1" });
        for (out, into) in &mut ends {
            out.write_all(b"12345678").unwrap();
            into.set_read_timeout(Some(Duration::from_secs(30)))
                .unwrap();
        }
        let mut bytes = [0; 8];
        ends[1 - cut].1.read_exact(&mut bytes).unwrap();
        // The other link accepts new connections too.
        connection(&hosts, 1 - cut);
        let into = &mut ends[cut].1;
        into.set_read_timeout(Some(Duration::from_millis(300)))
            .unwrap();
        let nothing = into.read(&mut [0; 8]).unwrap_err().kind();
        assert_eq!(nothing, ErrorKind::WouldBlock);
        let (_listener, address) = listen(&hosts, 1, cut);
        let refused = connect(&hosts, 0, address).unwrap_err().kind();
        assert!(
            [ErrorKind::TimedOut, ErrorKind::HostUnreachable].contains(&refused),
            "{refused}"
        );

        hosts.link(1, cut).mend().unwrap();
        into.set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        into.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"12345678");
        wait_until("a new connection is made", || {
            connect(&hosts, 0, address).is_ok()
        });
    }
}
