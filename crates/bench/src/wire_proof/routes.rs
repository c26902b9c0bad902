//! Devices that the payload of each rank has to cross, and which ranks share them.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use tonnage_engine::paths::Rails;
use tonnage_plan::transfer::TransferPoint;
use tonnage_ranks::{Hosts, RankInfo};
use tonnage_units::number_list;
use tonnage_units::{WireDevice, WireKind};

/// Devices that a rank's engine names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedDevices {
    /// The devices that its payload has to cross, each with its first place among the rails of the workers.
    pub devices: Vec<(WireDevice, u32)>,
    /// Rails of a worker.
    pub rails: u32,
}

impl NamedDevices {
    /// Devices that this process names, each with its place among `rails`; `None` without any.
    pub fn new(mut devices: Vec<(WireDevice, u32)>, rails: u32) -> Option<Self> {
        devices.sort();
        devices.dedup_by(|(one, _), (before, _)| one == before);
        (!devices.is_empty()).then_some(Self { devices, rails })
    }

    fn each(&self) -> impl Iterator<Item = &WireDevice> {
        self.devices.iter().map(|(device, _)| device)
    }
}

/// Ranks of one network that share devices.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct DeviceGroup {
    pub(super) host: String,
    pub(super) network: Option<u32>,
    pub(super) devices: Vec<WireDevice>,
    pub(super) ranks: Vec<u32>,
    /// The first place of each device among the rails of any rank, and the most rails that one has.
    rail_of: HashMap<WireDevice, u32>,
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

    /// Takes in another group.
    fn take(&mut self, other: Self) {
        self.devices.extend(other.devices);
        self.ranks.extend(other.ranks);
        self.rails = self.rails.max(other.rails);
        for (device, rail) in other.rail_of {
            let first = self.rail_of.entry(device).or_insert(rail);
            *first = (*first).min(rail);
        }
    }

    /// Returns whether every operation has a share for a device. A stripe of fewer bytes than rails has none for the
    /// last of them, which may rest.
    pub(super) fn has_share(&self, device: &WireDevice, point: &TransferPoint) -> bool {
        if point.rails != Rails::Stripe {
            return true;
        }
        let shares = point.division().shares(self.rails as usize);
        let rail = self.rail_of.get(device);
        rail.is_none_or(|&rail| rail < shares.count(point.size_bytes))
    }
}

/// Devices that each rank uses: the same on all ranks.
#[derive(Debug, Clone, Default)]
pub struct Routes {
    pub(super) groups: Vec<DeviceGroup>,
    /// For each rank its group; `None` where the engine names no device.
    pub(super) group_of: Vec<Option<usize>>,
}

impl Routes {
    /// Takes together ranks that share a device, which those of one network may do.
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
                    host: info.host.clone(),
                    network,
                    ..DeviceGroup::default()
                });
            }
            // A rank with devices of several groups makes them one.
            for &other in shared.iter().skip(1) {
                let taken = std::mem::take(&mut groups[other]);
                groups[at].take(taken);
                let owners = owners.values_mut().filter(|owner| **owner == other);
                owners.for_each(|owner| *owner = at);
            }
            for device in named.each() {
                owners.insert((network, device), at);
            }
            groups[at].add(info.rank, named);
        }
        groups.retain(|group| !group.ranks.is_empty());
        Self::of(groups, infos.len())
    }

    fn of(mut groups: Vec<DeviceGroup>, ranks: usize) -> Self {
        let mut group_of = vec![None; ranks];
        for (at, group) in groups.iter_mut().enumerate() {
            group.devices.sort();
            group.devices.dedup();
            group.ranks.sort_unstable();
            for &rank in &group.ranks {
                if let Some(place) = group_of.get_mut(rank as usize) {
                    *place = Some(at);
                }
            }
        }
        Self { groups, group_of }
    }

    pub(super) fn group_of(&self, rank: u32) -> Option<usize> {
        self.group_of.get(rank as usize).copied().flatten()
    }

    pub(super) fn devices(&self) -> usize {
        self.groups.iter().map(|group| group.devices.len()).sum()
    }

    /// The group whose reader also reads TCP: the first of its network that has an interface.
    pub(super) fn reads_tcp(&self, at: usize) -> bool {
        let has_interface = |group: &&DeviceGroup| {
            let mut devices = group.devices.iter();
            devices.any(|device| device.kind == WireKind::Interface)
        };
        let network = self.groups[at].network;
        let first = self
            .groups
            .iter()
            .filter(|group| group.network == network)
            .find(has_interface);
        first.is_some_and(|first| first.ranks == self.groups[at].ranks)
    }

    /// The ranks of a network, for a person.
    pub(super) fn ranks_in(&self, network: Option<u32>) -> String {
        let groups = self.groups.iter().filter(|group| group.network == network);
        let mut ranks: Vec<u32> = groups
            .flat_map(|group| group.ranks.iter().copied())
            .collect();
        ranks.sort_unstable();
        number_list::format(&ranks)
    }
}
