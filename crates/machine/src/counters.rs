//! Counters of devices and of TCP: bytes, packets, errors, drops, retransmits.
//!
//! Interfaces are read from /proc/self/net/dev, which always describes the process's own network namespace.
//! /sys/class/net may describe another namespace, if the process entered its namespace without remounting /sys. RDMA
//! ports are read from /sys/class/infiniband. `tonnage_bench::wire_proof` decides what the counters prove.

use std::collections::BTreeMap;

use super::kernel_files::Tree;
use tonnage_units::{WireDevice, WireKind};

/// Counters by their kernel names.
pub type Counters = BTreeMap<String, u64>;

/// Number of columns in /proc/net/dev, and the columns in use. Each column in use gets the name that the same counter
/// has below /sys/class/net.
const INTERFACE_COLUMNS: usize = 16;
const INTERFACE_COUNTERS: [(usize, &str); 8] = [
    (0, "rx_bytes"),
    (1, "rx_packets"),
    (2, "rx_errors"),
    (3, "rx_dropped"),
    (8, "tx_bytes"),
    (9, "tx_packets"),
    (10, "tx_errors"),
    (11, "tx_dropped"),
];

/// Counters that are read from /proc/net/snmp and /proc/net/netstat: traffic, errors, and counters that distinguish
/// reordered segments from lost ones.
const TCP_NAMES: &str = "InSegs OutSegs RetransSegs InErrs InCsumErrors ListenDrops ListenOverflows TCPTimeouts \
    TCPLostRetransmit TCPFastRetrans TCPSlowStartRetrans TCPSpuriousRTOs TCPBacklogDrop TCPRcvQDrop TCPZeroWindowDrop \
    TCPAbortOnTimeout PruneCalled TCPSACKReorder TCPRenoReorder TCPTSReorder TCPDSACKRecv TCPDSACKOfoRecv TCPOFOQueue";

/// A sender's counts of reordering, one per detection method.
const REORDERINGS: [&str; 3] = ["TCPSACKReorder", "TCPRenoReorder", "TCPTSReorder"];

/// Counters of duplicate segments that receivers reported to this sender. A segment that arrived twice was not lost.
const DUPLICATES: [&str; 2] = ["TCPDSACKRecv", "TCPDSACKOfoRecv"];

/// Counters of retransmitted segments. They also grow if later segments were acknowledged first, although nothing was
/// lost.
const SENT_AGAIN: [&str; 2] = ["RetransSegs", "TCPFastRetrans"];

/// InfiniBand counts data in words of four bytes. The converted counters get names with `bytes`, so that they are not
/// mistaken for words.
const WORDS: [(&str, &str); 2] = [
    ("port_xmit_data", "port_xmit_data_bytes"),
    ("port_rcv_data", "port_rcv_data_bytes"),
];

/// Counters that add up to one direction's traffic, one row for each kind of device. Each sum is a lower bound on the
/// traffic, so the largest one is the closest.
type Sources = [&'static [&'static str]; 4];

const SENT: Sources = [
    &["tx_bytes"],
    &["port_xmit_data_bytes"],
    &["send_bytes", "rdma_write_bytes", "rdma_read_resp_bytes"],
    &["netdev_tx_bytes"],
];

const RECEIVED: Sources = [
    &["rx_bytes"],
    &["port_rcv_data_bytes"],
    &["recv_bytes", "rdma_write_recv_bytes", "rdma_read_bytes"],
    &["netdev_rx_bytes"],
];

/// Parts of the names of counters that grow only on problems. InfiniBand, every RDMA driver and TCP use their own
/// words.
const TROUBLE: &str = "err drop discard retrans timeout overflow out_of_sequence out_of_buffer nak \
    duplicate_request unresponsive impaired link_downed prune spurious";

/// All counters, read at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// All interfaces of the process's own network namespace.
    pub interfaces: BTreeMap<String, Counters>,
    /// All RDMA ports by device and number. Ports that were not requested have only byte counters.
    pub ports: BTreeMap<(String, u32), Counters>,
    /// TCP counters of the process's own network namespace.
    pub tcp: Counters,
}

impl Snapshot {
    /// Reads all counters of `devices`, and the byte counters of all other devices. Missing counters are left out.
    pub fn read(tree: &Tree, devices: &[WireDevice]) -> Self {
        let text = |name: &str| {
            tree.text(format!("proc/self/net/{name}"))
                .unwrap_or_default()
        };
        let interfaces = parse_interfaces(&text("dev"));
        let mut ports = BTreeMap::new();
        for device in tree.names("sys/class/infiniband") {
            for number in tree.names(format!("sys/class/infiniband/{device}/ports")) {
                let Ok(port) = number.parse() else { continue };
                let asked = |other: &WireDevice| {
                    let key = (other.kind, other.name.as_str(), other.port);
                    key == (WireKind::RdmaPort, device.as_str(), port)
                };
                let all = devices.iter().any(asked);
                let counters = rdma_port(tree, &device, port, all, &interfaces);
                ports.insert((device.clone(), port), counters);
            }
        }
        let mut tcp = parse_protocol(&text("snmp"), "Tcp");
        tcp.extend(parse_protocol(&text("netstat"), "TcpExt"));
        tcp.retain(|name, _| TCP_NAMES.split(' ').any(|one| one == name));
        Self {
            interfaces,
            ports,
            tcp,
        }
    }

    /// Returns the counters of a device; `None` if it was not found.
    pub fn of(&self, device: &WireDevice) -> Option<&Counters> {
        match device.kind {
            WireKind::Interface => self.interfaces.get(&device.name),
            WireKind::RdmaPort => self.ports.get(&(device.name.clone(), device.port)),
        }
    }

    /// Returns every device that has counters here.
    pub fn devices(&self) -> Vec<WireDevice> {
        let interfaces = self.interfaces.keys().map(|name| WireDevice {
            kind: WireKind::Interface,
            name: name.clone(),
            port: 0,
        });
        let ports = self.ports.keys().map(|(name, port)| WireDevice {
            kind: WireKind::RdmaPort,
            name: name.clone(),
            port: *port,
        });
        interfaces.chain(ports).collect()
    }
}

/// Returns the growth of each counter between two readings. Counters that are missing in either reading, or that went
/// backwards because a device was reset, are left out.
pub fn difference(before: &Counters, after: &Counters) -> Counters {
    let growth = |(name, after): (&String, &u64)| {
        let moved = after.checked_sub(*before.get(name)?)?;
        Some((name.clone(), moved))
    };
    after.iter().filter_map(growth).collect()
}

/// Returns the bytes that a device sent, from its counters or their difference; `None` if it does not count them.
pub fn sent_bytes(counters: &Counters) -> Option<u64> {
    largest(counters, &SENT)
}

/// Returns the bytes that a device received, from its counters or their difference; `None` if it does not count them.
pub fn received_bytes(counters: &Counters) -> Option<u64> {
    largest(counters, &RECEIVED)
}

/// Returns whether growth of this counter indicates a problem.
pub fn is_trouble(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    TROUBLE.split_whitespace().any(|part| name.contains(part))
}

/// Retransmits and reordering of a host's TCP, from the growth of its counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reordering {
    /// Number of retransmitted segments.
    pub retransmitted: u64,
    /// Number of times that segments arrived out of order.
    pub reorderings: u64,
    /// Number of times that a receiver already had a segment.
    pub duplicates: u64,
}

impl Reordering {
    /// Derives the figures from these counters; `None` if nothing was retransmitted, or no counter indicates
    /// reordering.
    pub fn from_counters(counters: &Counters) -> Option<Self> {
        let sum = |names: &[&str]| {
            let values = names.iter().filter_map(|name| counters.get(*name));
            values.fold(0, |sum: u64, value| sum.saturating_add(*value))
        };
        let found = Self {
            retransmitted: sum(&SENT_AGAIN[..1]),
            reorderings: sum(&REORDERINGS),
            duplicates: sum(&DUPLICATES),
        };
        let is_reordering = found.reorderings > 0 || found.duplicates > 0;
        (found.retransmitted > 0 && is_reordering).then_some(found)
    }

    /// Returns whether no segment was lost: receivers reported at least as many duplicates as segments were
    /// retransmitted.
    pub fn is_all(&self) -> bool {
        self.duplicates >= self.retransmitted
    }

    /// Returns whether the retransmits do not indicate loss: segments arrived out of order, or every retransmit was a
    /// duplicate.
    pub fn is_likely(&self) -> bool {
        self.reorderings > 0 || self.is_all()
    }

    /// Returns whether this TCP counter grows on reordering as well as on loss.
    pub fn explains(name: &str) -> bool {
        SENT_AGAIN.contains(&name)
    }
}

fn largest(counters: &Counters, sources: &Sources) -> Option<u64> {
    let sum = |names: &&[&str]| {
        let values = names.iter().filter_map(|name| counters.get(*name).copied());
        values.reduce(u64::saturating_add)
    };
    sources.iter().filter_map(sum).max()
}

/// Reads the counters of one RDMA port: the standard counters, the driver's counters for the port, and the driver's
/// counters for the whole device.
fn rdma_port(
    tree: &Tree,
    device: &str,
    port: u32,
    all: bool,
    interfaces: &BTreeMap<String, Counters>,
) -> Counters {
    let root = format!("sys/class/infiniband/{device}");
    let counts_bytes = |name: &str| SENT.iter().chain(&RECEIVED).any(|row| row.contains(&name));
    let mut counters = Counters::new();
    for directory in [
        format!("{root}/hw_counters"),
        format!("{root}/ports/{port}/hw_counters"),
        format!("{root}/ports/{port}/counters"),
    ] {
        for name in tree.names(&directory) {
            let renamed = WORDS.iter().find(|(words, _)| *words == name);
            let known = renamed.map_or(name.as_str(), |(_, bytes)| bytes);
            // `lifespan` is not a counter, but the time for which the driver caches its values.
            if name == "lifespan" || !(all || counts_bytes(known)) {
                continue;
            }
            let Some(value) = tree.number::<u64>(format!("{directory}/{name}")) else {
                continue;
            };
            let value = renamed.map_or(value, |_| value.saturating_mul(4));
            counters.insert(known.to_owned(), value);
        }
    }
    if sent_bytes(&counters).is_none() && received_bytes(&counters).is_none() {
        // A software device has no byte counters of its own, but all its traffic passes its network interface.
        let network = tree.text(format!("{root}/ports/{port}/gid_attrs/ndevs/0"));
        let network = network.and_then(|name| interfaces.get(&name));
        for (name, value) in network.into_iter().flatten() {
            counters.insert(format!("netdev_{name}"), *value);
        }
    }
    counters
}

/// Parses /proc/net/dev: two header lines, then one line for each interface.
fn parse_interfaces(text: &str) -> BTreeMap<String, Counters> {
    let line = |line: &str| {
        let (name, figures) = line.rsplit_once(':')?;
        let figures = figures.split_whitespace().map(|figure| figure.parse().ok());
        let figures: Vec<u64> = figures.collect::<Option<_>>()?;
        if figures.len() < INTERFACE_COLUMNS {
            return None;
        }
        let counter = |(at, name): (usize, &str)| (name.to_owned(), figures[at]);
        let counters = INTERFACE_COUNTERS.map(counter).into();
        Some((name.trim().to_owned(), counters))
    };
    text.lines().filter_map(line).collect()
}

/// Parses /proc/net/snmp or /proc/net/netstat: for each protocol a line of names, then a line of values. Negative
/// values are left out, because they are settings ("no limit").
fn parse_protocol(text: &str, protocol: &str) -> Counters {
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    let mut lines = lines
        .filter(|(name, _)| *name == protocol)
        .map(|(_, rest)| rest.split_whitespace());
    let (Some(names), Some(figures)) = (lines.next(), lines.next()) else {
        return Counters::new();
    };
    names
        .zip(figures)
        .filter_map(|(name, figure)| Some((name.to_owned(), figure.parse().ok()?)))
        .collect()
}

#[cfg(test)]
mod tests;
