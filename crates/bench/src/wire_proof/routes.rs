//! The devices that the payload of each rank must cross, and the ranks that share these devices.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use tonnage_engine::paths::Rails;
use tonnage_plan::transfer::TransferPoint;
use tonnage_ranks::{Hosts, RankInfo};
use tonnage_units::{WireDevice, WireKind};

/// The devices that a rank's engine has named.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedDevices {
    /// Devices that the rank's payload must cross. Each has the lowest index that it has as a rail of any worker.
    pub devices: Vec<(WireDevice, u32)>,
    /// Number of rails per worker.
    pub rails: u32,
}

impl NamedDevices {
    /// Combines the named devices. Each comes with its index as a rail, which is less than `rails`. `None` without
    /// devices.
    pub fn new(mut devices: Vec<(WireDevice, u32)>, rails: u32) -> Option<Self> {
        devices.sort();
        devices.dedup_by(|(one, _), (before, _)| one == before);
        (!devices.is_empty()).then_some(Self { devices, rails })
    }

    fn each(&self) -> impl Iterator<Item = &WireDevice> {
        self.devices.iter().map(|(device, _)| device)
    }
}

/// A group of ranks in one network that share devices.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DeviceGroup {
    pub(super) host: String,
    pub(super) network: Option<u32>,
    pub(super) devices: Vec<WireDevice>,
    pub(super) ranks: Vec<u32>,
    /// For each device, the lowest index that it has as a rail on any rank. `rails` is the largest number of rails.
    rail_of: BTreeMap<WireDevice, u32>,
    rails: u32,
}

impl DeviceGroup {
    fn add(&mut self, rank: u32, named: &NamedDevices) {
        self.devices.extend(named.each().cloned());
        self.ranks.push(rank);
        self.rails = self.rails.max(named.rails);
        for (device, rail) in &named.devices {
            let first = self.rail_of.entry(device.clone()).or_insert(*rail);
            *first = (*first).min(*rail);
        }
    }

    /// Adds the devices and ranks of another group.
    fn merge_group(&mut self, other: Self) {
        self.devices.extend(other.devices);
        self.ranks.extend(other.ranks);
        self.rails = self.rails.max(other.rails);
        for (device, rail) in other.rail_of {
            let first = self.rail_of.entry(device).or_insert(rail);
            *first = (*first).min(rail);
        }
    }

    /// Returns whether every operation has a part for a device. An operation with fewer bytes than there are rails has
    /// no part for the last rails, which may therefore stay idle.
    pub(super) fn has_share(&self, device: &WireDevice, point: &TransferPoint) -> bool {
        if point.division.rails != Rails::Stripe {
            return true;
        }
        let shares = point.division.shares(self.rails as usize);
        let rail = self.rail_of.get(device);
        rail.is_none_or(|&rail| rail < shares.count(point.slots.size_bytes))
    }
}

/// The devices that each rank uses, as rank 0 knows them.
#[derive(Debug, Clone, Default)]
pub struct Routes {
    pub(super) groups: Vec<DeviceGroup>,
    /// The group of each rank; `None` if the rank's engine names no device.
    pub(super) group_of: Vec<Option<u32>>,
    /// Number of devices in all groups together.
    devices: u32,
    /// For each network with devices: the ranks that name devices, and one group. This group is the first one with an
    /// interface, and its reader also reads the TCP counters.
    networks: HashMap<Option<u32>, (Vec<u32>, Option<usize>)>,
}

/// The part of the routes that one rank needs to know.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankRoutes {
    /// Number of devices in all groups together; 0 if no engine names a device.
    pub(super) devices: u32,
    /// This rank's group; `None` if its engine names no device.
    pub(super) group: Option<u32>,
    /// The group whose counters this rank reads; `None` if another rank reads them.
    pub(super) reads: Option<GroupReader>,
    /// On rank 0, the ranks that name no device although others do.
    pub(super) unnamed: Vec<u32>,
    /// The groups of this rank's peers, after the peers have sent them.
    of_peers: BTreeMap<u32, u32>,
}

/// A group, with all facts that a rank needs to read the group's counters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct GroupReader {
    /// Index of the group among all groups.
    pub(super) at: u32,
    pub(super) group: DeviceGroup,
    /// All ranks in the group's network that name devices.
    pub(super) ranks_in_network: Vec<u32>,
    pub(super) reads_tcp: bool,
}

impl RankRoutes {
    /// Returns the group of this rank.
    pub fn group(&self) -> Option<u32> {
        self.group
    }

    /// Records the group of a peer.
    pub fn note_group(&mut self, peer: u32, group: Option<u32>) {
        self.of_peers.extend(group.map(|group| (peer, group)));
    }

    /// Returns the group of a peer, if the peer has sent it.
    pub(super) fn group_of_peer(&self, peer: u32) -> Option<u32> {
        self.of_peers.get(&peer).copied()
    }
}

impl Routes {
    /// Forms groups of ranks that share a device. Only ranks in the same network can share one.
    pub fn new(infos: &[RankInfo], hosts: &Hosts, named: &[Option<&NamedDevices>]) -> Self {
        let mut owners = HashMap::new();
        let mut groups: Vec<DeviceGroup> = Vec::new();
        for (info, named) in infos.iter().zip(named) {
            let Some(named) = named else { continue };
            let network = hosts.network(info.rank);
            let mut shared: Vec<usize> = named
                .each()
                .filter_map(|device| owners.get(&(network, device)).copied())
                .collect();
            shared.sort_unstable();
            shared.dedup();
            let at = shared.first().copied().unwrap_or(groups.len());
            if at == groups.len() {
                groups.push(DeviceGroup {
                    host: info.host.to_string(),
                    network,
                    ..DeviceGroup::default()
                });
            }
            // If a rank names devices of several groups, these groups become one.
            for &other in shared.iter().skip(1) {
                let taken = std::mem::take(&mut groups[other]);
                groups[at].merge_group(taken);
                let owners = owners.values_mut().filter(|owner| **owner == other);
                owners.for_each(|owner| *owner = at);
            }
            for device in named.each() {
                owners.insert((network, device), at);
            }
            groups[at].add(info.rank, named);
        }
        groups.retain(|group| !group.ranks.is_empty());
        Self::from_groups(groups, infos.len())
    }

    fn from_groups(mut groups: Vec<DeviceGroup>, ranks: usize) -> Self {
        let mut group_of = vec![None; ranks];
        let mut networks: HashMap<Option<u32>, (Vec<u32>, Option<usize>)> = HashMap::new();
        for (at, group) in groups.iter_mut().enumerate() {
            group.devices.sort();
            group.devices.dedup();
            group.ranks.sort_unstable();
            for &rank in &group.ranks {
                if let Some(place) = group_of.get_mut(rank as usize) {
                    *place = Some(at as u32);
                }
            }
            let mut devices = group.devices.iter();
            let has_interface = devices.any(|device| device.kind == WireKind::Interface);
            let (ranks, tcp) = networks.entry(group.network).or_default();
            ranks.extend(&group.ranks);
            *tcp = tcp.or(has_interface.then_some(at));
        }
        for (ranks, _) in networks.values_mut() {
            ranks.sort_unstable();
        }
        let devices = groups.iter().map(|group| group.devices.len() as u32).sum();
        Self {
            groups,
            group_of,
            devices,
            networks,
        }
    }

    /// Returns the part of the routes that a rank needs.
    pub fn of_rank(&self, rank: u32) -> RankRoutes {
        let group = self.group_of.get(rank as usize).copied().flatten();
        RankRoutes {
            devices: self.devices,
            group,
            reads: group.and_then(|at| self.reader(at, rank)),
            unnamed: match rank == 0 && !self.groups.is_empty() {
                true => self.unnamed().collect(),
                false => Vec::new(),
            },
            of_peers: BTreeMap::new(),
        }
    }

    /// Returns the ranks that name no devices.
    fn unnamed(&self) -> impl Iterator<Item = u32> {
        let ranks = (0u32..).zip(&self.group_of);
        ranks.filter_map(|(rank, group)| group.is_none().then_some(rank))
    }

    /// Returns the group with this index if `rank` reads its counters. The group's lowest rank reads them.
    fn reader(&self, at: u32, rank: u32) -> Option<GroupReader> {
        let group = self.groups.get(at as usize)?;
        let (ranks, tcp) = self.networks.get(&group.network)?;
        (group.ranks.first() == Some(&rank)).then(|| GroupReader {
            at,
            group: group.clone(),
            ranks_in_network: ranks.clone(),
            reads_tcp: *tcp == Some(at as usize),
        })
    }
}
