//! Chooses addresses at which the ranks might meet, and the order in which to try them.
//!
//! Trial connections decide between the addresses, because only a connection proves that a route exists. The order
//! follows from the addresses at which ssh reached the hosts, because host names in a cluster usually resolve to the
//! network that connects it.

use std::cmp::Reverse;
use std::net::{IpAddr, SocketAddr};

use super::messages::AgentHello;
use crate::hosts::Location;

/// Maximum number of addresses to try.
const CANDIDATES_MAX: usize = 8;

/// Prefixes of the names of interfaces that lead only to containers and virtual machines on the same host.
const INSIDE: [&str; 9] = [
    "docker", "virbr", "br-", "veth", "cni", "flannel", "lxc", "lxdbr", "podman",
];

/// Returns addresses of rank 0's host to try, likeliest first.
pub fn candidate_addresses(root: &AgentHello, others: &[&AgentHello]) -> Vec<IpAddr> {
    let names: Vec<IpAddr> = others
        .iter()
        .filter_map(|hello| hello.ssh_address)
        .collect();
    let mut found: Vec<(usize, &super::messages::HostAddress)> =
        (root.addresses.iter().enumerate())
            .filter(|(_, address)| may_be_reachable(address.ip))
            // The address at which ssh connected is reachable, regardless of its interface's name.
            .filter(|(_, address)| {
                Some(address.ip) == root.ssh_address || !is_host_internal(&address.interface)
            })
            .collect();
    found.sort_by_key(|(place, address)| {
        let near = names.iter().map(|name| common_bits(*name, address.ip));
        (
            Some(address.ip) != root.ssh_address,
            Reverse(near.min()),
            address.ip.is_ipv6(),
            *place,
        )
    });
    let mut ips: Vec<IpAddr> = found.into_iter().map(|(_, address)| address.ip).collect();
    ips.truncate(CANDIDATES_MAX);
    ips
}

fn may_be_reachable(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => !v4.is_loopback() && !v4.is_link_local(),
        IpAddr::V6(v6) => !v6.is_loopback() && !v6.is_unicast_link_local(),
    }
}

fn is_host_internal(interface: &str) -> bool {
    INSIDE.iter().any(|name| interface.starts_with(name))
}

/// Returns the length of the common prefix in bits; 0 if the addresses are of different families.
fn common_bits(one: IpAddr, other: IpAddr) -> u32 {
    match (one, other) {
        (IpAddr::V4(one), IpAddr::V4(other)) => (one.to_bits() ^ other.to_bits()).leading_zeros(),
        (IpAddr::V6(one), IpAddr::V6(other)) => (one.to_bits() ^ other.to_bits()).leading_zeros(),
        _ => 0,
    }
}

/// Returns whether two hosts are the same machine. If so, a run must not treat them as two hosts.
pub fn is_same_machine(one: &AgentHello, other: &AgentHello) -> bool {
    location_of(one).is_one_host(location_of(other))
}

fn location_of(hello: &AgentHello) -> Location<'_> {
    Location {
        host: &hello.name,
        boot_id: &hello.boot_id,
        network_namespace: &hello.network_namespace,
        pid_namespace: &hello.pid_namespace,
    }
}

/// Returns the first address that every host has reached. If there is none, returns the index of the first host that
/// reached no address.
pub fn first_reached_by_all(
    addresses: &[SocketAddr],
    tried: &[Vec<Option<String>>],
) -> std::result::Result<SocketAddr, usize> {
    let reached = |failures: &Vec<_>, place: usize| matches!(failures.get(place), Some(None));
    let by_all = |place: &usize| tried.iter().all(|failures| reached(failures, *place));
    if let Some(place) = (0..addresses.len()).find(by_all) {
        return Ok(addresses[place]);
    }
    let reaches_none = |failures: &Vec<Option<String>>| failures.iter().all(Option::is_some);
    Err(tried.iter().position(reaches_none).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::super::messages::{HostAddress, ProgramBuild};
    use super::*;
    use proptest::prelude::*;

    fn hello(ssh: &str, addresses: &[(&str, &str)]) -> AgentHello {
        AgentHello {
            build: ProgramBuild {
                version: "1".into(),
                revision: "r".into(),
            },
            program: String::new(),
            name: "h".into(),
            boot_id: "b".into(),
            network_namespace: "n".into(),
            pid_namespace: "p".into(),
            ssh_address: ssh.parse().ok(),
            addresses: addresses
                .iter()
                .map(|(interface, ip)| HostAddress {
                    interface: (*interface).into(),
                    ip: ip.parse().unwrap(),
                })
                .collect(),
        }
    }

    fn order(root: &AgentHello, others: &[&AgentHello]) -> String {
        let ips = candidate_addresses(root, others);
        let texts: Vec<_> = ips.iter().map(IpAddr::to_string).collect();
        texts.join(" ")
    }

    const MANY: [(&str, &str); 7] = [
        ("lo", "127.0.0.1"),
        ("docker0", "172.17.0.1"),
        ("eth0", "192.168.7.1"),
        ("eth1", "10.1.0.1"),
        ("virbr0", "192.168.122.1"),
        ("eth1", "fe80::1"),
        ("eth2", "fd00::1"),
    ];

    #[test]
    fn the_address_of_ssh_is_first_and_container_bridges_are_left_out() {
        let other = hello("10.1.0.2", &[]);
        // The order must also hold if ssh used another address, for example because localhost is in the list. The
        // network of the other hosts' names then decides.
        for own in ["10.1.0.1", "127.0.0.1"] {
            assert_eq!(
                order(&hello(own, &MANY), &[&other]),
                "10.1.0.1 192.168.7.1 fd00::1"
            );
        }
        let six = hello("fd00::2", &[]);
        assert_eq!(
            order(&hello("", &MANY), &[&six]),
            "fd00::1 192.168.7.1 10.1.0.1"
        );
        // A bridge's address is kept if ssh itself connected to it.
        assert!(order(&hello("192.168.122.1", &MANY), &[&other]).starts_with("192.168.122.1 "));
    }

    #[test]
    fn a_machine_is_identified_by_its_boot_and_namespaces() {
        let (one, mut other) = (hello("10.1.0.1", &[]), hello("10.1.0.2", &[]));
        assert!(is_same_machine(&one, &other));
        other.network_namespace = "m".into();
        assert!(!is_same_machine(&one, &other));
        let unknown = AgentHello {
            boot_id: String::new(),
            ..hello("", &[])
        };
        assert!(!is_same_machine(&unknown, &unknown.clone()));
    }

    #[test]
    fn an_address_counts_only_if_all_hosts_reach_it() {
        let addresses: Vec<SocketAddr> = ["10.1.0.1:7", "10.2.0.1:7"]
            .map(|text| text.parse().unwrap())
            .into();
        let (yes, no) = (None, Some("timed out".to_owned()));
        let reached = |tried: &[[&Option<String>; 2]]| {
            let tried: Vec<Vec<_>> = tried
                .iter()
                .map(|row| row.map(Clone::clone).into())
                .collect();
            first_reached_by_all(&addresses, &tried)
        };
        assert_eq!(reached(&[[&yes, &yes], [&no, &yes]]), Ok(addresses[1]));
        assert_eq!(reached(&[[&yes, &yes], [&no, &no]]), Err(1));
        assert_eq!(reached(&[[&yes, &no], [&no, &yes]]), Err(0));
        assert_eq!(reached(&[]), Ok(addresses[0]));
        assert_eq!(first_reached_by_all(&addresses, &[vec![]]), Err(0));
    }

    proptest! {
        #[test]
        fn candidates_are_the_hosts_own_and_each_once(
            addresses in prop::collection::vec((prop::sample::select(vec!["eth0", "docker0", "br-1", "ib0"]), any::<u32>()), 0..12),
            ssh in any::<u32>(),
        ) {
            let listed: Vec<_> = addresses.iter().map(|(name, bits)| (*name, IpAddr::V4((*bits).into()).to_string())).collect();
            let listed: Vec<_> = listed.iter().map(|(name, ip)| (*name, ip.as_str())).collect();
            let root = hello("", &listed);
            let other = hello(&IpAddr::V4(ssh.into()).to_string(), &[]);
            let found = candidate_addresses(&root, &[&other]);
            prop_assert!(found.len() <= CANDIDATES_MAX);
            for ip in &found {
                let of = root.addresses.iter().filter(|address| address.ip == *ip);
                prop_assert!(of.clone().count() > 0);
                prop_assert!(of.clone().any(|address| !is_host_internal(&address.interface)));
            }
        }
    }
}
