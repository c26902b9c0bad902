//! Settings of the network paths that engines' TCP sockets use, for all kinds of experiments. They are read while an
//! engine is open, outside all measured intervals.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::json::Json;
use tonnage_machine::tcp_paths::{SocketPath, paths};
use tonnage_ranks::Rank;
use tonnage_record::network_path::{NETWORK_PATHS_MAX, NetworkPath};
use tonnage_units::{Reduce, number_list};

/// Network paths that one rank has observed.
pub struct PathWatch {
    /// Inodes of sockets that were open before any engine: the ranks' own connections.
    known: BTreeSet<u64>,
    found: Vec<NetworkPath>,
}

impl PathWatch {
    /// Creates a watch that ignores sockets with these inodes.
    pub fn new(known: BTreeSet<u64>) -> Self {
        let found = Vec::new();
        Self { known, found }
    }

    /// Discards all observed paths.
    pub fn reset(&mut self) {
        self.found.clear();
    }

    /// Reads the settings of the sockets that are open now.
    pub fn read_sockets(&mut self) {
        self.add(&paths(&self.known));
    }

    fn add(&mut self, sockets: &[SocketPath]) {
        let mut now: Vec<NetworkPath> = Vec::new();
        for socket in sockets {
            let path = path_of_socket(socket);
            match now
                .iter_mut()
                .find_map(|known| known.merge_if_equal(&path).then_some(known))
            {
                Some(known) => known.sockets += 1,
                None => now.push(path),
            }
        }
        merge_paths(&mut self.found, now);
    }

    /// Returns the observed paths, for merging with those of other ranks.
    pub fn paths(&self, rank: &Rank) -> NetworkPaths {
        let info = rank.rank_infos().get(rank.id() as usize);
        let host = info.map_or_else(String::new, |info| info.host.to_string());
        let named = self.found.iter().map(|path| NetworkPath {
            host: host.clone(),
            ranks: rank.id().to_string(),
            ..path.clone()
        });
        NetworkPaths(Json(named.collect()))
    }
}

fn path_of_socket(socket: &SocketPath) -> NetworkPath {
    NetworkPath {
        host: String::new(),
        ranks: String::new(),
        interface: socket.interface.clone(),
        mtu_bytes: socket.mtu_bytes,
        route_mtu_bytes: socket.route_mtu_bytes,
        qdisc: socket.qdisc.clone(),
        congestion_control: socket.congestion_control.clone(),
        sockets: 1,
        send_buffer_bytes_min: socket.send_buffer_bytes,
        send_buffer_bytes_max: socket.send_buffer_bytes,
        receive_buffer_bytes_min: socket.receive_buffer_bytes,
        receive_buffer_bytes_max: socket.receive_buffer_bytes,
    }
}

/// Adds paths. Paths with equal settings are merged, and the result has the ranks of both.
fn merge_paths(all: &mut Vec<NetworkPath>, others: Vec<NetworkPath>) {
    for other in others {
        match all
            .iter_mut()
            .find_map(|known| known.merge_if_equal(&other).then_some(known))
        {
            Some(known) => known.ranks = both_names(&known.ranks, &other.ranks),
            None => all.push(other),
        }
    }
}

/// Merges two lists of ranks, in the form that records use.
fn both_names(one: &str, other: &str) -> String {
    let lists = [one, other].into_iter().filter(|list| !list.is_empty());
    let mut ranks: Vec<u32> = lists
        .filter_map(|list| number_list::parse(list).ok())
        .flatten()
        .collect();
    ranks.sort_unstable();
    ranks.dedup();
    number_list::format(&ranks)
}

/// Paths of several ranks. Those with equal settings are merged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NetworkPaths(Json<Vec<NetworkPath>>);

impl Reduce for NetworkPaths {
    fn merge(&mut self, Self(Json(others)): Self) {
        let Self(Json(all)) = self;
        merge_paths(all, others);
        all.sort_by(|one, other| {
            let key = |path: &NetworkPath| (path.host.clone(), path.interface.clone());
            key(one).cmp(&key(other))
        });
        all.truncate(NETWORK_PATHS_MAX);
    }
}

impl NetworkPaths {
    /// Returns the paths for a record.
    pub fn into_inner(self) -> Vec<NetworkPath> {
        let Self(Json(all)) = self;
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket(interface: &str, send_buffer_bytes: u64) -> SocketPath {
        SocketPath {
            interface: interface.into(),
            mtu_bytes: 1500,
            route_mtu_bytes: None,
            qdisc: "tbf".into(),
            congestion_control: "bbr".into(),
            send_buffer_bytes,
            receive_buffer_bytes: 2 * send_buffer_bytes,
        }
    }

    fn of_rank(rank: u32, host: &str, sockets: &[SocketPath]) -> NetworkPaths {
        let mut watch = PathWatch::new(BTreeSet::new());
        watch.add(sockets);
        let named = watch.found.iter().map(|path| NetworkPath {
            host: host.into(),
            ranks: rank.to_string(),
            ..path.clone()
        });
        NetworkPaths(Json(named.collect()))
    }

    #[test]
    fn sockets_with_one_path_become_one_entry() {
        let mut all = of_rank(0, "a", &[socket("eth0", 100), socket("eth0", 300)]);
        all.merge(of_rank(1, "a", &[socket("eth0", 50)]));
        all.merge(of_rank(2, "b", &[socket("eth1", 70)]));
        let [a, b] = &all.into_inner()[..] else {
            panic!("two paths");
        };
        assert_eq!((a.ranks.as_str(), a.sockets), ("0-1", 2));
        assert_eq!(
            (a.send_buffer_bytes_min, a.send_buffer_bytes_max),
            (50, 300)
        );
        assert_eq!(a.receive_buffer_bytes_max, 600);
        assert_eq!(
            (b.host.as_str(), b.interface.as_str(), b.ranks.as_str()),
            ("b", "eth1", "2")
        );
    }

    /// If the same sockets are read twice, they must not count twice.
    #[test]
    fn reading_again_counts_no_socket_twice() {
        let mut watch = PathWatch::new(BTreeSet::new());
        for bytes in [100, 400] {
            watch.add(&[socket("eth0", bytes), socket("eth0", bytes)]);
        }
        let [path] = &watch.found[..] else {
            panic!("{:?}", watch.found);
        };
        assert_eq!((path.sockets, path.send_buffer_bytes_max), (2, 400));
    }
}
