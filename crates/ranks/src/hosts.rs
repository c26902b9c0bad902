//! Groups ranks by the machine, network, processes and host that they share. The groups are computed once, when the
//! ranks have joined.
//!
//! | what is shared | by ranks |
//! | --- | --- |
//! | a machine: CPUs, memory, page cache, disks | with the same boot ID, or with the same host name if there is no boot ID |
//! | a network: its loopback and its devices | in the same network namespace of a machine |
//! | processes: each can see the other's PID and files | in the same PID namespace of a machine |
//! | a host | of one machine, with the same host name or the same network |
//!
//! Two containers or network namespaces on one machine share the machine's CPUs but not its loopback, regardless of
//! their host names. Whether ranks share a clock is measured; see [`crate::ClockOffset`]. If a launcher counts the
//! ranks of each host, its count takes precedence; see [`RankInfo::local_rank`].

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

use crate::RankInfo;

/// Location of a process by kernel identifiers. A field is empty if the system does not provide it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Location<'a> {
    pub(crate) host: &'a str,
    pub(crate) boot_id: &'a str,
    pub(crate) network_namespace: &'a str,
    pub(crate) pid_namespace: &'a str,
}

/// An identifier, and a flag. The flag is true if the host name is used in place of an unknown identifier.
type LocationKey<'a> = (&'a str, bool);

impl<'a> Location<'a> {
    fn from_info(info: &'a RankInfo) -> Self {
        Self {
            host: &info.host,
            boot_id: &info.boot_id,
            network_namespace: &info.network_namespace,
            pid_namespace: &info.pid_namespace,
        }
    }

    fn or_host_name(self, name: &'a str) -> LocationKey<'a> {
        if name.is_empty() {
            (self.host, true)
        } else {
            (name, false)
        }
    }

    fn machine_key(self) -> LocationKey<'a> {
        self.or_host_name(self.boot_id)
    }

    fn network_key(self) -> (LocationKey<'a>, LocationKey<'a>) {
        (
            self.machine_key(),
            self.or_host_name(self.network_namespace),
        )
    }

    fn container_key(self) -> (LocationKey<'a>, LocationKey<'a>) {
        (self.machine_key(), self.or_host_name(self.pid_namespace))
    }

    /// Returns whether two locations are the same host: the same boot, host name, network namespace and PID namespace.
    /// False if the boot ID is unknown.
    pub(crate) fn is_one_host(self, other: Location<'_>) -> bool {
        is_one_boot(self.boot_id, other.boot_id)
            && self.host == other.host
            && self.network_key() == other.network_key()
            && self.container_key() == other.container_key()
    }

    /// Returns whether two locations can reach each other over loopback.
    pub(crate) fn shares_network(self, other: Location<'_>) -> bool {
        self.network_key() == other.network_key()
    }
}

/// Returns the key of a rank's machine. Ranks with equal keys share a machine.
pub(crate) fn machine_name(info: &RankInfo) -> (&str, bool) {
    Location::from_info(info).machine_key()
}

/// Returns whether two ranks can find each other's processes by PID.
pub(crate) fn share_processes(one: &RankInfo, other: &RankInfo) -> bool {
    Location::from_info(one).container_key() == Location::from_info(other).container_key()
}

/// Returns whether two boot IDs are known and equal.
pub(crate) fn is_one_boot(one: &str, other: &str) -> bool {
    !one.is_empty() && one == other
}

/// Groups of ranks that share a machine (by boot ID), a network namespace, a PID namespace or a host. The number of a
/// group is its lowest rank.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hosts {
    machines: Vec<u32>,
    networks: Vec<u32>,
    processes: Vec<u32>,
    hosts: Vec<u32>,
}

impl Hosts {
    /// Groups the ranks by their locations. `infos` are in rank order.
    pub fn from_infos(infos: &[RankInfo]) -> Self {
        let machines = number_groups(infos, Location::machine_key);
        let networks = number_groups(infos, Location::network_key);
        let named = number_groups(infos, |place| (place.machine_key(), place.host));
        Self {
            hosts: merge_groupings(&named, &networks),
            processes: number_groups(infos, Location::container_key),
            machines,
            networks,
        }
    }

    /// Returns the lowest rank on this rank's machine. Ranks for which it is equal share CPUs, memory, page cache and
    /// disks.
    pub fn machine(&self, rank: u32) -> Option<u32> {
        self.machines.get(rank as usize).copied()
    }

    /// Returns the lowest rank in this rank's network. Ranks for which it is equal share network devices.
    pub fn network(&self, rank: u32) -> Option<u32> {
        self.networks.get(rank as usize).copied()
    }

    /// Returns all ranks of this rank's machine in ascending order, including itself.
    pub fn ranks_of_machine(&self, rank: u32) -> Vec<u32> {
        members_of_same_group(&self.machines, rank)
    }

    /// Returns all ranks of this rank's PID namespace (its container) in ascending order, including itself.
    pub fn ranks_of_container(&self, rank: u32) -> Vec<u32> {
        members_of_same_group(&self.processes, rank)
    }

    /// Returns the lowest rank on each rank's machine, in rank order.
    pub fn machines(&self) -> &[u32] {
        &self.machines
    }

    /// Returns whether two ranks share CPUs, memory, page cache and disks.
    pub fn share_machine(&self, one: u32, other: u32) -> bool {
        self.machine(one).is_some() && self.machine(one) == self.machine(other)
    }

    /// Returns whether two ranks can find each other's processes by PID.
    pub fn share_processes(&self, one: u32, other: u32) -> bool {
        let of = |rank: u32| self.processes.get(rank as usize);
        of(one).is_some() && of(one) == of(other)
    }

    /// Returns whether all ranks share CPUs, memory, page cache and disks.
    pub fn is_one_machine(&self) -> bool {
        self.machines.iter().all(|machine| *machine == 0)
    }

    /// Returns whether all ranks can reach each other over loopback.
    pub fn is_one_network(&self) -> bool {
        self.networks.iter().all(|network| *network == 0)
    }

    /// Returns the lowest rank on this rank's host.
    pub fn host(&self, rank: u32) -> Option<u32> {
        self.hosts.get(rank as usize).copied()
    }

    /// Returns the ranks of each host in ascending order. The key of a host is its lowest rank.
    pub fn ranks_by_host(&self) -> BTreeMap<u32, Vec<u32>> {
        let mut all: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (rank, host) in (0u32..).zip(&self.hosts) {
            all.entry(*host).or_default().push(rank);
        }
        all
    }
}

/// Returns all ranks in the same group as `rank`, including itself.
fn members_of_same_group(groups: &[u32], rank: u32) -> Vec<u32> {
    let Some(own) = groups.get(rank as usize) else {
        return Vec::new();
    };
    let all = (0u32..).zip(groups);
    all.filter(|(_, group)| *group == own)
        .map(|(rank, _)| rank)
        .collect()
}

/// Returns, for each rank, the first rank with the same key.
fn number_groups<'a, K: Hash + Eq>(
    infos: &'a [RankInfo],
    key: impl Fn(Location<'a>) -> K,
) -> Vec<u32> {
    let mut first = HashMap::new();
    let mut before: Option<(&RankInfo, u32)> = None;
    let group = |(rank, info): (u32, &'a RankInfo)| {
        // The ranks of a host usually have consecutive numbers, so the previous rank's group often applies.
        let group = match before {
            Some((known, group)) if known.shares_allocations(info) => group,
            _ => *first.entry(key(Location::from_info(info))).or_insert(rank),
        };
        before = Some((info, group));
        group
    };
    (0u32..).zip(infos).map(group).collect()
}

/// Merges two groupings: ranks that share a group in either of them share a group in the result.
fn merge_groupings(one: &[u32], other: &[u32]) -> Vec<u32> {
    let mut parents: Vec<u32> = (0u32..).take(one.len()).collect();
    let root = |parents: &[u32], mut at: u32| {
        while let Some(&up) = parents.get(at as usize).filter(|up| **up != at) {
            at = up;
        }
        at
    };
    for (rank, first) in (0u32..).zip(one).chain((0u32..).zip(other)) {
        let (a, b) = (root(&parents, rank), root(&parents, *first));
        if let Some(parent) = parents.get_mut(a.max(b) as usize) {
            *parent = a.min(b);
        }
    }
    (0u32..)
        .take(one.len())
        .map(|rank| root(&parents, rank))
        .collect()
}

/// Fills in `local_rank` and `local_size` for ranks that did not get them from a launcher.
pub(crate) fn count_local_ranks(infos: &mut [RankInfo], hosts: &Hosts) {
    // Ranks counted so far on each host, indexed by the host's first rank.
    let mut seen = vec![0u32; hosts.hosts.len()];
    let mut places = Vec::with_capacity(seen.len());
    for host in &hosts.hosts {
        let count = seen.get_mut(*host as usize);
        places.push(count.map_or(0, |count| {
            *count += 1;
            *count - 1
        }));
    }
    for ((info, host), place) in infos.iter_mut().zip(&hosts.hosts).zip(places) {
        if info.local_size.is_none() {
            info.local_rank = place;
            info.local_size = seen.get(*host as usize).copied();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::rank_info;

    /// Creates ranks at these locations: host, boot, network, container.
    fn infos(places: &[[&str; 4]]) -> Vec<RankInfo> {
        let info = |(rank, [host, boot_id, network, container]): (u32, &[&str; 4])| RankInfo {
            boot_id: (*boot_id).into(),
            network_namespace: (*network).into(),
            pid_namespace: (*container).into(),
            ..rank_info(rank, host)
        };
        (0u32..).zip(places).map(info).collect()
    }

    fn hosts(places: &[[&str; 4]]) -> Hosts {
        Hosts::from_infos(&infos(places))
    }

    #[test]
    fn ranks_of_one_place_share_everything() {
        let all = hosts(&[["h", "b", "n", "p"]; 3]);
        assert!(all.is_one_machine() && all.is_one_network() && all.share_processes(0, 2));
        assert_eq!(members_of_same_group(&all.hosts, 1), [0, 1, 2]);
    }

    #[test]
    fn network_namespaces_with_one_host_name_share_cpus_but_not_loopback() {
        let all = hosts(&[["h", "b", "n0", "p"], ["h", "b", "n1", "p"]]);
        assert!(all.is_one_machine() && !all.is_one_network() && all.share_processes(0, 1));
        assert_eq!(
            members_of_same_group(&all.hosts, 0),
            [0, 1],
            "one name is one host"
        );
    }

    #[test]
    fn containers_are_hosts_of_one_machine() {
        let all = hosts(&[["c0", "b", "n0", "p0"], ["c1", "b", "n1", "p1"]]);
        assert!(all.is_one_machine() && !all.is_one_network() && !all.share_processes(0, 1));
        let pair = infos(&[["c0", "b", "n0", "p0"], ["c1", "b", "n1", "p1"]]);
        assert!(share_processes(&pair[0], &pair[0]) && !share_processes(&pair[0], &pair[1]));
        assert_eq!(
            (
                members_of_same_group(&all.hosts, 0),
                members_of_same_group(&all.hosts, 1)
            ),
            (vec![0], vec![1])
        );
        let on_host_network = hosts(&[["c0", "b", "n", "p0"], ["c1", "b", "n", "p1"]]);
        assert!(on_host_network.is_one_network());
        assert_eq!(on_host_network.ranks_of_machine(1), [0, 1]);
        assert_eq!(on_host_network.ranks_of_container(1), [1]);
        assert_eq!(on_host_network.ranks_of_container(2), [0u32; 0]);
        assert_eq!(members_of_same_group(&on_host_network.hosts, 1), [0, 1]);
    }

    #[test]
    fn machines_with_the_same_host_name_share_nothing() {
        // Namespace numbers alone prove nothing, because the kernel may use the same numbers on every machine.
        let all = hosts(&[["h", "b0", "n", "p"], ["h", "b1", "n", "p"]]);
        assert!(!all.is_one_machine() && !all.is_one_network() && !all.share_machine(0, 1));
        assert!(!all.share_processes(0, 1) && !all.share_machine(0, 9));
        assert_eq!(members_of_same_group(&all.hosts, 1), [1]);
    }

    #[test]
    fn without_kernel_identifiers_the_host_name_decides() {
        let all = hosts(&[["h0", "", "", ""], ["h1", "", "", ""], ["h1", "", "", ""]]);
        assert_eq!(all.machines(), [0, 1, 1]);
        assert!(all.share_processes(1, 2) && all.network(0) != all.network(1));
        // A boot ID never matches an equal host name.
        let mixed = hosts(&[["h", "", "", ""], ["x", "h", "", ""]]);
        assert!(!mixed.is_one_machine());
        assert!(is_one_boot("a", "a") && !is_one_boot("", "") && !is_one_boot("a", "b"));
    }

    #[test]
    fn local_ranks_are_counted_by_host_unless_the_launcher_sets_them() {
        let here = ["h", "a", "n", "p"];
        let mut counted = infos(&[here, ["h", "b", "n", "p"], here, ["c", "a", "m", "p"]]);
        let all = Hosts::from_infos(&counted);
        count_local_ranks(&mut counted, &all);
        let places: Vec<_> = counted
            .iter()
            .map(|info| (info.local_rank, info.local_size))
            .collect();
        assert_eq!(
            places,
            [(0, Some(2)), (0, Some(1)), (1, Some(2)), (0, Some(1))]
        );
        let mut launched = infos(&[here]);
        launched[0].local_size = Some(4);
        let all = Hosts::from_infos(&launched);
        count_local_ranks(&mut launched, &all);
        assert_eq!(launched[0].local_size, Some(4));
    }

    #[test]
    fn a_rank_that_shares_a_name_and_a_network_merges_both_hosts() {
        let all = hosts(&[
            ["x", "b", "n0", "p"],
            ["y", "b", "n1", "p"],
            ["x", "b", "n1", "p"],
        ]);
        assert_eq!(members_of_same_group(&all.hosts, 1), [0, 1, 2]);
        assert_eq!(all.ranks_by_host(), [(0, vec![0, 1, 2])].into());
    }
}
