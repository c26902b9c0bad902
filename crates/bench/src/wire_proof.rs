//! Proof of path: did the payload of a point cross the devices that the engines named?
//!
//! Every rank says at opening which devices its payload has to cross ([`Named`]); from that all ranks know who shares
//! which device ([`Routes`]). Before the warm-up and after the last trial one rank of each group reads the counters
//! ([`Watch`]). How much should have crossed is added up from the operations that really were issued, warm-up included.
//! The counters themselves are read in [`tonnage_machine::counters`]; why something is not proven is put into words in
//! `why`.

#[cfg(test)]
mod tests;
mod why;

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use tonnage_engine::Verb;
use tonnage_machine::counters::{
    Counters, Snapshot, difference, is_trouble, received_bytes, sent_bytes,
};
use tonnage_machine::tree::Tree;
use tonnage_plan::transfer::TransferPoint;
use tonnage_ranks::{Hosts, RankInfo};
use tonnage_record::wire_proof::{DEVICES_MAX, DevicePath, TcpPath, WireProof};
use tonnage_units::number_list;
use tonnage_units::{Error, Result};
use tonnage_units::{WireDevice, WireKind};

/// Some drivers bring their counters up to date once a second, so that what is missing may still come.
const PATIENCE: Duration = Duration::from_millis(1500);

/// Time between two looks of a reader.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Sentences about one point, at most; on a large run the same is wrong everywhere.
const WHY_MAX: usize = 16;

/// Devices that a rank's engine names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Named {
    /// The devices that its payload has to cross.
    pub devices: Vec<WireDevice>,
}

impl Named {
    /// Devices that this process names; `None` without any.
    pub fn new(mut devices: Vec<WireDevice>) -> Option<Self> {
        devices.sort();
        devices.dedup();
        (!devices.is_empty()).then_some(Self { devices })
    }
}

/// Ranks of one network that share devices.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Group {
    host: String,
    network: Option<u32>,
    devices: Vec<WireDevice>,
    ranks: Vec<u32>,
}

/// Devices that each rank uses: the same on all ranks.
#[derive(Debug, Clone, Default)]
pub struct Routes {
    groups: Vec<Group>,
    /// For each rank its group; `None` where the engine names no device.
    group_of: Vec<Option<usize>>,
}

impl Routes {
    /// Takes together ranks that share a device, which those of one network may do.
    pub fn new(infos: &[RankInfo], hosts: &Hosts, named: &[Option<&Named>]) -> Self {
        let mut owners = HashMap::new();
        let mut groups: Vec<Group> = Vec::new();
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
                groups.push(Group {
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

    fn of(mut groups: Vec<Group>, ranks: usize) -> Self {
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

    fn group_of(&self, rank: u32) -> Option<usize> {
        self.group_of.get(rank as usize).copied().flatten()
    }

    fn devices(&self) -> usize {
        self.groups.iter().map(|group| group.devices.len()).sum()
    }

    /// The group whose reader also reads TCP: the first of its network that has an interface.
    fn reads_tcp(&self, at: usize) -> bool {
        let has_interface = |group: &&Group| {
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
    fn ranks_in(&self, network: Option<u32>) -> String {
        let groups = self.groups.iter().filter(|group| group.network == network);
        let mut ranks: Vec<u32> = groups
            .flat_map(|group| group.ranks.iter().copied())
            .collect();
        ranks.sort_unstable();
        number_list::format(&ranks)
    }
}

/// Payload bytes of a group of ranks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Load {
    sent: u64,
    received: u64,
}

type Loads = BTreeMap<usize, Load>;

/// Growth of a device's counters; `None` for one that is not there.
type Moved = Option<Counters>;

/// One rank's part in the proof of one point.
pub struct Watch<'a> {
    point: &'a TransferPoint,
    routes: &'a Routes,
    rank: u32,
    tree: Tree,
    patience: Duration,
    /// The groups that this rank reads for.
    mine: Vec<usize>,
    before: Snapshot,
}

impl<'a> Watch<'a> {
    /// Reads what the counters say before the first operation; `None` where no engine of any rank names a device.
    pub fn begin(point: &'a TransferPoint, routes: &'a Routes, rank: u32) -> Option<Self> {
        (!routes.groups.is_empty()).then(|| Self::on(Tree::host(), point, routes, rank, PATIENCE))
    }

    fn on(
        tree: Tree,
        point: &'a TransferPoint,
        routes: &'a Routes,
        rank: u32,
        patience: Duration,
    ) -> Self {
        let reads = |at: &usize| routes.groups[*at].ranks.first() == Some(&rank);
        let mine = (0..routes.groups.len()).filter(reads).collect();
        let mut watch = Self {
            point,
            routes,
            rank,
            tree,
            patience,
            mine,
            before: Snapshot::default(),
        };
        watch.before = watch.read();
        watch
    }

    fn read(&self) -> Snapshot {
        if self.mine.is_empty() {
            return Snapshot::default();
        }
        let groups = self.mine.iter().map(|at| &self.routes.groups[*at]);
        let devices: Vec<WireDevice> = groups.flat_map(|group| group.devices.clone()).collect();
        Snapshot::read(&self.tree, &devices)
    }

    /// Payload that this rank's operations should have moved through the devices of both sides, for [`merge_loads`].
    ///
    /// # Errors
    /// When it cannot be encoded.
    pub fn loads(&self, operations: &[(u32, u64)]) -> Result<Vec<u8>> {
        let mut loads = Loads::new();
        for &(peer, count) in operations {
            let bytes = count.saturating_mul(u64::from(self.point.size_bytes));
            let (from, to) = match self.point.op {
                Verb::Read => (peer, self.rank),
                Verb::Write | Verb::WriteImm | Verb::Send => (self.rank, peer),
            };
            if let Some(group) = self.routes.group_of(from) {
                loads.entry(group).or_default().sent += bytes;
            }
            if let Some(group) = self.routes.group_of(to) {
                loads.entry(group).or_default().received += bytes;
            }
        }
        encode(&loads)
    }

    /// Reads the counters again and says what they prove about this rank's groups, for [`merge_paths`].
    ///
    /// # Errors
    /// When the loads of all ranks cannot be read.
    pub fn judge(&self, loads: &[u8]) -> Result<Vec<u8>> {
        let loads: Loads = decode(loads)?;
        let load = |at: &usize| loads.get(at).copied().unwrap_or_default();
        let deadline = Instant::now() + self.patience;
        let mut after = self.read();
        let lacks = |after: &Snapshot| {
            let mut groups = self.mine.iter();
            // Headers are counted too, so that all of the payload can be waited for.
            groups.any(|at| !carried(&self.moved(*at, after), load(at), 100))
        };
        while lacks(&after) && Instant::now() < deadline {
            std::thread::sleep(LOOK_AGAIN);
            after = self.read();
        }
        let mut path = WireProof::nothing();
        for at in &self.mine {
            self.judge_group(*at, load(at), &after, &mut path);
        }
        encode(&path)
    }

    /// Growth of the counters of a group's devices.
    fn moved(&self, at: usize, after: &Snapshot) -> Vec<Moved> {
        let devices = self.routes.groups[at].devices.iter();
        devices.map(|device| self.moved_by(device, after)).collect()
    }

    fn moved_by(&self, device: &WireDevice, after: &Snapshot) -> Moved {
        Some(difference(self.before.of(device)?, after.of(device)?))
    }

    fn judge_group(&self, at: usize, load: Load, after: &Snapshot, path: &mut WireProof) {
        let group = &self.routes.groups[at];
        let moved = self.moved(at, after);
        let counted = carried(&moved, load, 99);
        let bypass = self.bypass(at, load, after).filter(|_| counted);
        let enough = counted && bypass.is_none();
        let all_listed = self.routes.devices() <= DEVICES_MAX;
        let mut idle = Vec::new();
        for (device, counters) in group.devices.iter().zip(&moved) {
            let took_part = took_part(counters.as_ref(), load, group.devices.len());
            if enough && !took_part {
                idle.push(device);
            }
            let crossed = enough && took_part;
            let found = counters.clone().unwrap_or_default();
            path.devices_named += 1;
            path.devices_crossed += u32::from(crossed);
            path.crossed &= crossed;
            if all_listed || !crossed || is_troubled(&found) {
                path.devices.push(DevicePath {
                    host: group.host.clone(),
                    ranks: number_list::format(&group.ranks),
                    kind: device.kind,
                    name: device.name.clone(),
                    port: (device.kind == WireKind::RdmaPort).then_some(device.port),
                    sent_bytes_expected: load.sent,
                    received_bytes_expected: load.received,
                    sent_bytes: sent_bytes(&found),
                    received_bytes: received_bytes(&found),
                    crossed,
                    counters: found,
                });
            }
        }
        if let Some(why) = bypass {
            path.why.push(why);
        } else if !enough {
            path.why.push(self.why_not(at, load, &moved, after));
        } else if !idle.is_empty() {
            path.why.push(why::idle(group, &idle));
        }
        if self.routes.reads_tcp(at) {
            let counters = difference(&self.before.tcp, &after.tcp);
            if all_listed || is_troubled(&counters) {
                path.tcp.push(TcpPath {
                    host: group.host.clone(),
                    ranks: self.routes.ranks_in(group.network),
                    counters,
                });
            }
        }
    }

    /// The common result, from what all ranks said.
    ///
    /// # Errors
    /// When what they said cannot be read.
    pub fn conclude(&self, all: &[u8]) -> Result<WireProof> {
        let mut path: WireProof = decode(all)?;
        let unnamed: Vec<u32> = (0u32..)
            .zip(&self.routes.group_of)
            .filter(|(_, group)| group.is_none())
            .map(|(rank, _)| rank)
            .collect();
        if !unnamed.is_empty() {
            path.crossed = false;
            path.why.push(why::unnamed(&unnamed, &self.point.engine));
        }
        Ok(path)
    }
}

/// Returns whether devices together counted this part of the payload in both directions.
fn carried(moved: &[Moved], load: Load, percent: u64) -> bool {
    let sum = |bytes: fn(&Counters) -> Option<u64>| {
        let counted = moved.iter().flatten().filter_map(bytes);
        counted.fold(0, u64::saturating_add)
    };
    is_enough(sum(sent_bytes), load.sent, percent)
        && is_enough(sum(received_bytes), load.received, percent)
}

fn is_enough(counted: u64, expected: u64, percent: u64) -> bool {
    u128::from(counted) * 100 >= u128::from(expected) * u128::from(percent)
}

/// Returns whether one of several devices did anything for the payload: at least a hundredth of an even share. Nobody
/// knows how workers are spread over devices, but one that only saw a few packets was not used.
fn took_part(counters: Option<&Counters>, load: Load, devices: usize) -> bool {
    let Some(counters) = counters else {
        return false;
    };
    if devices < 2 {
        return true;
    }
    let counted = sent_bytes(counters)
        .unwrap_or(0)
        .saturating_add(received_bytes(counters).unwrap_or(0));
    let share = load.sent.saturating_add(load.received) / devices as u64;
    is_enough(counted, share, 1)
}

fn is_troubled(counters: &Counters) -> bool {
    counters
        .iter()
        .any(|(name, moved)| *moved > 0 && is_trouble(name))
}

/// Adds up loads on the way up the control tree. What cannot be read empties the result, so that the reader fails
/// instead of a sum being wrong.
pub fn merge_loads(left: &mut Vec<u8>, right: &[u8]) {
    let merged = decode::<Loads>(left).and_then(|mut sum| {
        for (group, load) in decode::<Loads>(right)? {
            let entry = sum.entry(group).or_default();
            entry.sent = entry.sent.saturating_add(load.sent);
            entry.received = entry.received.saturating_add(load.received);
        }
        encode(&sum)
    });
    *left = merged.unwrap_or_default();
}

/// Joins what ranks say on the way up the control tree, in an order that does not depend on who came first. As
/// [`merge_loads`] with what cannot be read.
pub fn merge_paths(left: &mut Vec<u8>, right: &[u8]) {
    let merged = decode::<WireProof>(left).and_then(|mut path| {
        let other: WireProof = decode(right)?;
        path.crossed &= other.crossed;
        path.devices_named += other.devices_named;
        path.devices_crossed += other.devices_crossed;
        path.devices.extend(other.devices);
        path.tcp.extend(other.tcp);
        path.why.extend(other.why);
        let first = |ranks: &str| number_list::parse(ranks).ok()?.first().copied();
        // What was not crossed comes first, so that it is never what is cut off.
        path.devices.sort_by_cached_key(|device| {
            let key = (device.crossed, first(&device.ranks), device.kind);
            (key, device.name.clone(), device.port)
        });
        path.devices.truncate(DEVICES_MAX);
        path.tcp.sort_by_cached_key(|tcp| first(&tcp.ranks));
        path.tcp.truncate(DEVICES_MAX);
        path.why.sort();
        path.why.truncate(WHY_MAX);
        encode(&path)
    });
    *left = merged.unwrap_or_default();
}

fn encode(value: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(value)
        .map_err(|error| Error::Failed(format!("cannot tell what devices counted: {error}")))
}

fn decode<T: for<'a> Deserialize<'a>>(bytes: &[u8]) -> Result<T> {
    serde_json::from_slice(bytes)
        .map_err(|error| Error::Failed(format!("cannot read what devices counted: {error}")))
}
