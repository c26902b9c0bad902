//! Devices that the payload of each rank has to cross, and which ranks share them.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use tonnage_ranks::{Hosts, RankInfo};
use tonnage_units::number_list;
use tonnage_units::{WireDevice, WireKind};

/// Devices that a rank's engine names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedDevices {
    /// The devices that its payload has to cross.
    pub devices: Vec<WireDevice>,
}

impl NamedDevices {
    /// Devices that this process names; `None` without any.
    pub fn new(mut devices: Vec<WireDevice>) -> Option<Self> {
        devices.sort();
        devices.dedup();
        (!devices.is_empty()).then_some(Self { devices })
    }
}

/// Ranks of one network that share devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DeviceGroup {
    pub(super) host: String,
    pub(super) network: Option<u32>,
    pub(super) devices: Vec<WireDevice>,
    pub(super) ranks: Vec<u32>,
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
                .devices
                .iter()
                .filter_map(|device| owners.get(&(network, device)).copied())
                .collect();
            shared.sort_unstable();
            shared.dedup();
            let at = shared.first().copied().unwrap_or(groups.len());
            if at == groups.len() {
                groups.push(DeviceGroup {
                    host: info.host.clone(),
                    network,
                    devices: Vec::new(),
                    ranks: Vec::new(),
                });
            }
            // A rank with devices of several groups makes them one; those that are taken in stay behind empty.
            for &other in shared.iter().skip(1) {
                let devices = std::mem::take(&mut groups[other].devices);
                let ranks = std::mem::take(&mut groups[other].ranks);
                groups[at].devices.extend(devices);
                groups[at].ranks.extend(ranks);
                let owners = owners.values_mut().filter(|owner| **owner == other);
                owners.for_each(|owner| *owner = at);
            }
            for device in &named.devices {
                owners.insert((network, device), at);
            }
            groups[at].devices.extend(named.devices.iter().cloned());
            groups[at].ranks.push(info.rank);
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
