//! Rails of a worker: the loads that its engine counted, added up over workers and ranks, and which has the least. All
//! trials together are in `rail_report`.

use serde::{Deserialize, Serialize};

use tonnage_engine::RailLoad;
use tonnage_engine::paths::Rails;
use tonnage_units::Reduce;

/// One rail of one worker or of several.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RailTotals {
    /// Bytes that were handed to it.
    pub bytes: u64,
    /// Sum of the rates while it was busy.
    pub busy_bytes_per_s: u64,
    /// Sum of the times that it was busy.
    pub busy_ns: u64,
    /// Sum of the times of its workers.
    pub window_ns: u64,
}

/// The rail with the least share of its worker's rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeastRail {
    /// Thousandths of the mean rate of the worker's other rails that are like it.
    pub share_permille: u64,
    /// The rank.
    pub rank: u32,
    /// The worker.
    pub worker: u32,
    /// The rail.
    pub rail: u32,
}

/// The loads of a worker's rails in a trial of `window_ns`.
pub fn of_worker(loads: &[RailLoad], window_ns: u64) -> Vec<RailTotals> {
    let of_rail = |load: &RailLoad| {
        let busy = load.busy_polls as f64 / load.polls.max(1) as f64;
        let busy_ns = window_ns as f64 * busy;
        let rate = if busy_ns > 0.0 {
            load.bytes as f64 * 1e9 / busy_ns
        } else {
            0.0
        };
        RailTotals {
            bytes: load.bytes,
            busy_bytes_per_s: rate as u64,
            busy_ns: busy_ns as u64,
            window_ns,
        }
    };
    loads.iter().map(of_rail).collect()
}

/// The rail of a worker with the least share, beside those that lead to as many peers; in a stripe, those that had as
/// many bytes, which shares of a few bytes have not. `None` where none is like another.
pub fn least(
    (rank, worker): (u32, u32),
    use_of_rails: Rails,
    loads: &[RailLoad],
    totals: &[RailTotals],
) -> Option<LeastRail> {
    let both = || (0u32..).zip(loads.iter().zip(totals));
    let as_many = |one: u64, other: u64| one.abs_diff(other) <= one / 100;
    let share = |(rail, (load, one)): (u32, (&RailLoad, &RailTotals))| {
        let alike = |(number, (other, _)): &(u32, (&RailLoad, &RailTotals))| {
            let bytes = match use_of_rails {
                Rails::Stripe => as_many(load.bytes, other.bytes),
                Rails::Single | Rails::RoundRobin => other.bytes > 0,
            };
            *number != rail && other.peers == load.peers && bytes
        };
        let others = both().filter(alike);
        let rates: Vec<u64> = others
            .map(|(_, (_, other))| other.busy_bytes_per_s)
            .collect();
        let mean = rates.iter().sum::<u64>().checked_div(rates.len() as u64)?;
        let share_permille = (one.busy_bytes_per_s * 1000).checked_div(mean)?;
        (load.bytes > 0).then_some(LeastRail {
            share_permille,
            rank,
            worker,
            rail,
        })
    };
    both()
        .filter_map(share)
        .min_by_key(|rail| rail.share_permille)
}

/// Adds rails of the same places.
pub fn merge(rails: &mut Vec<RailTotals>, other: Vec<RailTotals>) {
    if rails.len() < other.len() {
        rails.resize(other.len(), RailTotals::default());
    }
    for (rail, other) in rails.iter_mut().zip(other) {
        rail.merge(other);
    }
}

impl Reduce for RailTotals {
    fn merge(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.busy_bytes_per_s = self.busy_bytes_per_s.saturating_add(other.busy_bytes_per_s);
        self.busy_ns = self.busy_ns.saturating_add(other.busy_ns);
        self.window_ns = self.window_ns.saturating_add(other.window_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(bytes: u64, busy_polls: u64, peers: u32) -> RailLoad {
        RailLoad {
            bytes,
            busy_polls,
            polls: 100,
            peers,
            in_flight: 0,
        }
    }

    #[test]
    fn a_rail_that_is_busy_longer_for_as_many_bytes_is_slow() {
        let loads = [load(1000, 50, 1), load(1000, 100, 1)];
        let totals = of_worker(&loads, 1_000_000_000);
        let rates: Vec<_> = totals.iter().map(|rail| rail.busy_bytes_per_s).collect();
        assert_eq!(rates, [2000, 1000]);
        let least = least((3, 1), Rails::Stripe, &loads, &totals).unwrap();
        assert_eq!((least.rank, least.worker, least.rail), (3, 1, 1));
        assert_eq!(least.share_permille, 500);
    }

    #[test]
    fn rails_to_more_peers_are_not_set_beside_those_to_fewer() {
        let least = |rails, loads: &[RailLoad]| {
            let totals = of_worker(loads, 1_000_000_000);
            least((0, 0), rails, loads, &totals).map(|rail| (rail.rail, rail.share_permille))
        };
        let (stripe, turns) = (Rails::Stripe, Rails::RoundRobin);
        let loads = [load(4000, 100, 2), load(1000, 100, 1), load(500, 100, 1)];
        assert_eq!(least(turns, &loads), Some((2, 500)));
        assert_eq!(least(turns, &loads[..2]), None);
        // A rail that leads nowhere carries nothing, and is not slow; nor is one whose peer has no turn.
        assert_eq!(least(turns, &[load(10, 100, 1), load(0, 0, 0)]), None);
        assert_eq!(least(turns, &[load(10, 100, 1), load(0, 0, 1)]), None);
        // Shares of a few bytes differ.
        assert_eq!(
            least(stripe, &[load(2000, 100, 1), load(1000, 100, 1)]),
            None
        );
        assert_eq!(least(stripe, &[load(1000, 100, 1), load(0, 0, 1)]), None);
    }
}
