//! Description of a rank's host. Each rank publishes one before the ranks have met. From all of them, rank 0 chooses
//! where to listen: on loopback if all ranks share a host, otherwise on an address that the other ranks can reach.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

use crate::hosts::Location;
use crate::join::address::interface_address;

use tonnage_units::number_list;
use tonnage_units::{Error, Result};

/// Maximum number of published addresses. It is small because launchers limit the length of a value.
const ADDRESSES_MAX: usize = 8;
/// An address reserved for documentation (RFC 5737). It serves to find the default route; nothing is sent to it.
const ELSEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1));

/// One rank's host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Advert {
    /// Host name, for messages.
    host: String,
    /// The kernel's boot ID, which changes when the host reboots.
    boot_id: String,
    /// The process's network namespace. It matters because each namespace has its own 127.0.0.1.
    network_namespace: String,
    /// Addresses that other hosts may be able to reach, likeliest first.
    addresses: Vec<IpAddr>,
    /// Whether the user gave this rank a secret.
    given: bool,
}

impl Advert {
    /// Returns this process's advert.
    pub(crate) fn for_this_process(interface: Option<&str>, given: bool) -> Result<Self> {
        // Only the number is published, because launchers do not accept the other characters of the kernel's name.
        let mut network_namespace = tonnage_sys::host::network_namespace();
        network_namespace.retain(|sign| sign.is_ascii_digit());
        Ok(Self {
            host: tonnage_sys::host::name(),
            boot_id: tonnage_sys::host::boot_id(),
            network_namespace,
            addresses: match interface {
                Some(name) => vec![interface_address(name, None)?],
                None => own_addresses()?,
            },
            given,
        })
    }

    /// Formats the advert as one word for a launcher's store.
    pub(crate) fn encode(&self) -> String {
        let plain = |text: &str| {
            let sign = |sign: char| match sign {
                'a'..='z' | 'A'..='Z' | '0'..='9' | '-' | '.' => sign,
                _ => '_',
            };
            text.chars().take(200).map(sign).collect::<String>()
        };
        let addresses: Vec<_> = self.addresses.iter().map(IpAddr::to_string).collect();
        format!(
            "{}/{}/{}/{}/{}",
            plain(&self.host),
            plain(&self.boot_id),
            self.network_namespace,
            addresses.join(","),
            if self.given { "given" } else { "none" }
        )
    }

    /// Parses the output of [`Advert::encode`].
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('/');
        let (host, boot_id) = (parts.next()?.to_owned(), parts.next()?.to_owned());
        let network_namespace = parts.next()?.to_owned();
        if !network_namespace.bytes().all(|sign| sign.is_ascii_digit()) {
            return None;
        }
        let list = parts
            .next()?
            .split(',')
            .filter(|address| !address.is_empty());
        let addresses = list.map(str::parse).collect::<std::result::Result<_, _>>();
        let given = match parts.next()? {
            "given" => true,
            "none" => false,
            _ => return None,
        };
        if parts.next().is_some() {
            return None;
        }
        Some(Self {
            host,
            boot_id,
            network_namespace,
            addresses: addresses.ok()?,
            given,
        })
    }

    fn location(&self) -> Location<'_> {
        Location {
            host: &self.host,
            boot_id: &self.boot_id,
            network_namespace: &self.network_namespace,
            pid_namespace: "",
        }
    }
}

/// Fails if only some of the ranks were given a secret by the user.
pub(crate) fn refuse_mixed_secrets(mine: &Advert, others: &[Advert]) -> Result<()> {
    let others = (1..).zip(others);
    let differing = others.filter(|(_, other)| other.given != mine.given);
    let ranks: Vec<u32> = differing.map(|(rank, _)| rank).collect();
    if ranks.is_empty() {
        return Ok(());
    }
    let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
    let root = "rank 0".to_owned();
    let others = format!("{noun} {}", number_list::format(&ranks));
    let (with, without) = if mine.given {
        (root, others)
    } else {
        (others, root)
    };
    Err(Error::Usage(format!(
        "a secret (TONNAGE_SECRET or TONNAGE_SECRET_FILE) was given to {with}, but not to {without}: pass it on to all \
         ranks (Open MPI: mpirun -x TONNAGE_SECRET), or to none"
    )))
}

/// Returns the address on which rank 0 must listen so that all other ranks can reach it.
pub(crate) fn listening_address(
    mine: &Advert,
    others: &[Advert],
    interface: Option<&str>,
) -> Result<IpAddr> {
    if let Some(name) = interface {
        return interface_address(name, None);
    }
    choose_listening_address(mine, others, source_towards)
}

fn choose_listening_address(
    mine: &Advert,
    others: &[Advert],
    source: impl Fn(IpAddr) -> Option<IpAddr>,
) -> Result<IpAddr> {
    let mut chosen: Option<Vec<IpAddr>> = None;
    let elsewhere = |other: &&Advert| !mine.location().shares_network(other.location());
    for other in others.iter().filter(elsewhere) {
        // An address that both hosts have, such as a container bridge's, does not lead to the other host.
        let is_theirs = |address: &&IpAddr| !mine.addresses.contains(address);
        let theirs = other.addresses.iter().filter(is_theirs);
        let mut ways: Vec<IpAddr> = theirs.filter_map(|address| source(*address)).collect();
        ways.retain(|way| mine.addresses.contains(way));
        if let Some(mut before) = chosen {
            before.retain(|way| ways.contains(way));
            ways = before;
        }
        if ways.is_empty() {
            let theirs: Vec<_> = other.addresses.iter().map(IpAddr::to_string).collect();
            let none = "no address".to_owned();
            let listed = if theirs.is_empty() {
                none
            } else {
                theirs.join(", ")
            };
            return Err(Error::Usage(format!(
                "rank 0 on {} finds no address of its own from which all others can be reached, such as {} ({listed}): give \
                 --control-interface NAME",
                mine.host, other.host
            )));
        }
        chosen = Some(ways);
    }
    Ok(chosen
        .and_then(|ways| ways.first().copied())
        .unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)))
}

/// Returns the source address from which this host reaches `address`. Connecting a datagram socket sends nothing.
fn source_towards(address: IpAddr) -> Option<IpAddr> {
    let any: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect((address, 9)).ok()?;
    let source = socket.local_addr().ok()?.ip();
    (!source.is_loopback() && !source.is_unspecified()).then_some(source)
}

fn own_addresses() -> Result<Vec<IpAddr>> {
    let all = tonnage_sys::interfaces::addresses()
        .map_err(|error| Error::io("cannot list the network interfaces", error))?;
    let mut own: Vec<IpAddr> = all.iter().map(|entry| entry.address).collect();
    own.retain(|ip| match ip {
        IpAddr::V4(v4) => !v4.is_loopback() && !v4.is_link_local(),
        IpAddr::V6(v6) => !v6.is_loopback() && !v6.is_unicast_link_local(),
    });
    let usual = source_towards(ELSEWHERE);
    own.sort_by_key(|ip| (Some(*ip) != usual, ip.is_ipv6()));
    own.truncate(ADDRESSES_MAX);
    Ok(own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn advert(host: &str, addresses: &[&str]) -> Advert {
        Advert {
            host: host.into(),
            boot_id: format!("boot-{host}"),
            network_namespace: "7".into(),
            addresses: addresses.iter().map(|text| text.parse().unwrap()).collect(),
            given: false,
        }
    }

    /// Returns the own address from which `address` is reached, assuming that the first two numbers decide the route.
    fn way(address: IpAddr) -> Option<IpAddr> {
        let text = address.to_string();
        ["10.1.", "10.2.", "172.17."]
            .iter()
            .find(|net| text.starts_with(**net))
            .map(|net| format!("{net}0.1").parse().unwrap())
    }

    fn chosen(others: &[Advert]) -> Result<String> {
        let mine = advert("a", &["10.1.0.1", "10.2.0.1", "172.17.0.1"]);
        choose_listening_address(&mine, others, way).map(|ip| ip.to_string())
    }

    #[test]
    fn rank_0_listens_where_all_can_reach_it() {
        let a = advert("a", &[]);
        let b = advert("b", &["172.17.0.1", "10.2.0.2", "10.1.0.2"]);
        let c = advert("c", &["10.1.0.3"]);
        assert_eq!(chosen(&[]).unwrap(), "127.0.0.1");
        assert_eq!(chosen(std::slice::from_ref(&a)).unwrap(), "127.0.0.1");
        assert_eq!(chosen(&[a, b.clone()]).unwrap(), "10.2.0.1");
        assert_eq!(chosen(&[b.clone(), c.clone()]).unwrap(), "10.1.0.1");
        let d = advert("d", &["10.2.0.9"]);
        for lost in [vec![b, c, d], vec![advert("e", &["192.0.2.9"])]] {
            let error = chosen(&lost).unwrap_err().to_string();
            assert!(error.contains("--control-interface"), "{error}");
        }
    }

    #[test]
    fn a_secret_for_some_ranks_only_is_refused() {
        let with = |given: bool| Advert {
            given,
            ..advert("a", &[])
        };
        for given in [true, false] {
            refuse_mixed_secrets(&with(given), &[with(given), with(given)]).unwrap();
        }
        let mixed = [with(false), with(true), with(true)];
        let error = refuse_mixed_secrets(&with(false), &mixed).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        let text = error.to_string();
        assert!(text.contains("to ranks 2-3, but not to rank 0"), "{text}");
        let text = refuse_mixed_secrets(&with(true), &mixed)
            .unwrap_err()
            .to_string();
        assert!(text.contains("to rank 0, but not to rank 1"), "{text}");
    }

    #[test]
    fn another_network_namespace_is_another_host() {
        let other = Advert {
            network_namespace: "8".into(),
            ..advert("a", &["10.2.0.9"])
        };
        assert_eq!(chosen(&[other]).unwrap(), "10.2.0.1");
    }

    #[test]
    fn adverts_round_trip() {
        let mine = Advert::for_this_process(None, true).unwrap();
        let text = mine.encode();
        assert!(!text.contains([' ', '=', '\n', ';']), "{text}");
        assert!(text.len() <= super::super::pmi1::VALUE_BYTES_MAX);
        let read = Advert::parse(&text).unwrap();
        assert!(read.location().shares_network(mine.location()));
        assert_eq!(read.addresses, mine.addresses);
        assert!(read.given);
        let advert = advert("a b=c", &["10.1.0.1", "fd00::2"]);
        assert_eq!(Advert::parse(&advert.encode()).unwrap().host, "a_b_c");
        for wrong in
            "|a/b/c//none|a/b/1|a/b/1/x/none|a/b/1/10.0.0.1|a/b/1/10.0.0.1/|a/b/1/10.0.0.1/none/"
                .split('|')
        {
            assert_eq!(Advert::parse(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in "[a-f0-9:./,]{0,60}") {
            if let Some(read) = Advert::parse(&text) {
                prop_assert!(Advert::parse(&read.encode()).is_some());
            }
        }
    }
}
