//! The counters before and after a point, and the payload that they should have counted.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::routes::{DeviceGroup, RankRoutes};
use tonnage_engine::Verb;
use tonnage_machine::counters::{Counters, Snapshot, difference, received_bytes, sent_bytes};
use tonnage_machine::kernel_files::Tree;
use tonnage_plan::transfer::TransferPoint;
use tonnage_units::{Reduce, WireDevice};

/// Longest time that a driver may take to update its counters. Some drivers update them once per second.
const COUNTERS_TIMEOUT: Duration = Duration::from_millis(1500);

/// Number of payload bytes that a group of ranks sent and received.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DeviceLoad {
    pub(super) sent: u64,
    pub(super) received: u64,
}

/// Number of payload bytes of each group, by the group's index.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loads(pub(super) BTreeMap<u32, DeviceLoad>);

impl Reduce for Loads {
    fn merge(&mut self, other: Self) {
        for (group, load) in other.0 {
            let sum = self.0.entry(group).or_default();
            sum.sent = sum.sent.saturating_add(load.sent);
            sum.received = sum.received.saturating_add(load.received);
        }
    }
}

/// Growth of a device's counters; `None` if the device was missing.
pub(super) type CounterGrowth = Option<Counters>;

/// One rank's part in the proof of path for a point.
pub struct CounterWatch<'a> {
    pub(super) point: &'a TransferPoint,
    pub(super) route: &'a RankRoutes,
    pub(super) rank: u32,
    pub(super) tree: Tree,
    pub(super) timeout: Duration,
    pub(super) before: Snapshot,
}

impl<'a> CounterWatch<'a> {
    /// Reads the counters before the first operation. Returns `None` if no engine names a device.
    pub fn begin(point: &'a TransferPoint, route: &'a RankRoutes, rank: u32) -> Option<Self> {
        (route.devices > 0)
            .then(|| Self::begin_in_tree(Tree::host(), point, route, rank, COUNTERS_TIMEOUT))
    }

    pub(super) fn begin_in_tree(
        tree: Tree,
        point: &'a TransferPoint,
        route: &'a RankRoutes,
        rank: u32,
        timeout: Duration,
    ) -> Self {
        let mut watch = Self {
            point,
            route,
            rank,
            tree,
            timeout,
            before: Snapshot::default(),
        };
        watch.before = watch.read();
        watch
    }

    pub(super) fn read(&self) -> Snapshot {
        match &self.route.reads {
            Some(reader) => Snapshot::read(&self.tree, &reader.group.devices),
            None => Snapshot::default(),
        }
    }

    /// Returns the group of `rank`, which must be this rank or one of its peers.
    fn group_of(&self, rank: u32) -> Option<u32> {
        match rank == self.rank {
            true => self.route.group,
            false => self.route.group_of_peer(rank),
        }
    }

    /// Returns the payload that a worker's operations of a point should have moved through the devices of both ends.
    /// The caller adds up the workers.
    pub fn loads(&self, point: &TransferPoint, operations: &[(u32, u64)]) -> Loads {
        let mut loads = BTreeMap::<u32, DeviceLoad>::new();
        for &(peer, count) in operations {
            let bytes = count.saturating_mul(u64::from(point.slots.size_bytes));
            let (from, to) = match point.op {
                Verb::Read | Verb::FetchAdd | Verb::CompareSwap => (peer, self.rank),
                Verb::Write | Verb::WriteImm | Verb::Send => (self.rank, peer),
            };
            if let Some(group) = self.group_of(from) {
                loads.entry(group).or_default().sent += bytes;
            }
            if let Some(group) = self.group_of(to) {
                loads.entry(group).or_default().received += bytes;
            }
        }
        Loads(loads)
    }

    /// Returns the growth of the counters of each device in a group.
    pub(super) fn moved(&self, group: &DeviceGroup, after: &Snapshot) -> Vec<CounterGrowth> {
        let devices = group.devices.iter();
        devices.map(|device| self.moved_by(device, after)).collect()
    }

    pub(super) fn moved_by(&self, device: &WireDevice, after: &Snapshot) -> CounterGrowth {
        Some(difference(self.before.of(device)?, after.of(device)?))
    }
}

/// Returns whether the devices together have counted at least `percent` of the payload, in each direction.
pub(super) fn has_carried(moved: &[CounterGrowth], load: DeviceLoad, percent: u64) -> bool {
    let sum = |bytes: fn(&Counters) -> Option<u64>| {
        let counted = moved.iter().flatten().filter_map(bytes);
        counted.fold(0, u64::saturating_add)
    };
    is_enough(sum(sent_bytes), load.sent, percent)
        && is_enough(sum(received_bytes), load.received, percent)
}

/// Returns whether at least `percent` of the expected bytes were counted.
pub(super) fn is_enough(counted: u64, expected: u64, percent: u64) -> bool {
    u128::from(counted) * 100 >= u128::from(expected) * u128::from(percent)
}
