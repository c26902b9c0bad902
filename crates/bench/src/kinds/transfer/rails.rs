//! Loads of the rails, as engines counted them, added up over workers, ranks and trials. Also determines the slow rail.

use serde::{Deserialize, Serialize};

use super::totals::TrialTotals;
use crate::opening::description::{DeviceDescription, OpenMessage};
use crate::opening::openings::Openings;
use tonnage_engine::RailLoad;
use tonnage_engine::paths::Rails;
use tonnage_plan::transfer::TransferPoint;
use tonnage_ranks::{Distinct, RankInfo};
use tonnage_record::transfer::{Rail, SlowRail};
use tonnage_units::Reduce;

/// A rail is slow if its rate is below this many thousandths of the other rails' mean rate.
const SHARE_LEAST_PERMILLE: u64 = 900;

/// Sums of one rail over several workers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RailTotals {
    /// Number of bytes that were posted to the rail.
    pub bytes: u64,
    /// Sum of the workers' rates while the rail was busy.
    pub busy_bytes_per_s: u64,
    /// Sum of the workers' times in which the rail was busy.
    pub busy_ns: u64,
    /// Sum of the workers' measured intervals.
    pub window_ns: u64,
}

/// The rail with the smallest share of its worker's rates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeastLoadedRail {
    /// Rate in thousandths of the mean rate of comparable rails of the worker.
    pub share_permille: u64,
    pub rank: u32,
    pub worker: u32,
    pub rail: u32,
}

/// Returns the loads of a worker's rails in a trial of `window_ns`.
pub fn rail_totals(loads: &[RailLoad], window_ns: u64) -> Vec<RailTotals> {
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

/// Returns the rail of a worker with the smallest share. A rail is compared only with rails that lead to the same
/// number of peers. In a stripe, they must also have carried about the same number of bytes. This may not hold if
/// chunks have only a few bytes. `None` if no two rails are comparable.
pub fn least_loaded_rail(
    (rank, worker): (u32, u32),
    use_of_rails: Rails,
    loads: &[RailLoad],
    totals: &[RailTotals],
) -> Option<LeastLoadedRail> {
    let both = || (0u32..).zip(loads.iter().zip(totals));
    let as_many = |one: u64, other: u64| one.abs_diff(other) <= one / 100;
    let share = |(rail, (load, one)): (u32, (&RailLoad, &RailTotals))| {
        let is_comparable = |(number, (other, _)): &(u32, (&RailLoad, &RailTotals))| {
            let bytes = match use_of_rails {
                Rails::Stripe => as_many(load.bytes, other.bytes),
                Rails::Single | Rails::RoundRobin => other.bytes > 0,
            };
            *number != rail && other.peers == load.peers && bytes
        };
        let others = both().filter(is_comparable);
        let rates: Vec<u64> = others
            .map(|(_, (_, other))| other.busy_bytes_per_s)
            .collect();
        let mean = rates.iter().sum::<u64>().checked_div(rates.len() as u64)?;
        let share_permille = (one.busy_bytes_per_s * 1000).checked_div(mean)?;
        (load.bytes > 0).then_some(LeastLoadedRail {
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

/// Adds up two lists of rails, index by index.
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

/// Returns the sums of the rails over all trials.
pub fn rail_summary(
    point: &TransferPoint,
    opened: &Distinct<OpenMessage>,
    trials: &[TrialTotals],
) -> Vec<Rail> {
    let mut sums = Vec::new();
    for trial in trials {
        merge(&mut sums, trial.rails.clone());
    }
    let count = trials.len().max(1) as f64;
    let rail = |(rail, sum): (u32, RailTotals)| Rail {
        rail,
        device: common_device(point, opened, rail),
        payload_bytes: sum.bytes,
        busy_bytes_per_s: sum.busy_bytes_per_s as f64 / count,
        busy_fraction: sum.busy_ns as f64 / sum.window_ns.max(1) as f64,
    };
    (0..).zip(sums).map(rail).collect()
}

/// Returns the name of a rail's device, if it is the same on all initiating ranks.
fn common_device(
    point: &TransferPoint,
    opened: &Distinct<OpenMessage>,
    rail: u32,
) -> Option<String> {
    let initiates = |rank: u32| point.roles.initiates(rank);
    let ranks = (0u32..)
        .zip(opened.iter())
        .filter(|(rank, _)| initiates(*rank));
    let workers = ranks.flat_map(|(_, opened)| &opened.devices);
    let mut names = workers.map(|rails| rails.get(rail as usize).and_then(device_name));
    let first = names.next()??;
    names
        .all(|name| name.as_ref() == Some(&first))
        .then_some(first)
}

fn device_name(device: &DeviceDescription) -> Option<String> {
    device.name.clone().or_else(|| device.interface.clone())
}

/// Returns the slow rail: it was below its share in every trial, and had the same index each time. The rank need not be
/// the same. A slow link at a target slows this rail for all initiators, and any of them may be the slowest. `None` if
/// workers share CPUs, because polls then depend on the scheduler.
pub fn slow_rail(
    opened: &Openings,
    ranks: &[RankInfo],
    trials: &[TrialTotals],
) -> Option<SlowRail> {
    if opened.common.yields {
        return None;
    }
    let leasts: Option<Vec<LeastLoadedRail>> =
        trials.iter().map(|trial| trial.least_rail).collect();
    let leasts = leasts?;
    let first = leasts.iter().min_by_key(|rail| rail.share_permille)?;
    let is_slow = |rail: &LeastLoadedRail| {
        rail.share_permille < SHARE_LEAST_PERMILLE && rail.rail == first.rail
    };
    if !leasts.iter().all(is_slow) {
        return None;
    }
    let least = first.share_permille;
    let rails = opened
        .all
        .get(first.rank)?
        .devices
        .get(first.worker as usize)?;
    Some(SlowRail {
        rank: first.rank,
        host: ranks.get(first.rank as usize)?.host.to_string(),
        rail: first.rail,
        device: rails.get(first.rail as usize).and_then(device_name),
        share: least as f64 / 1000.0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::opening::openings::tests::openings;
    use tonnage_engine::{BoundKind, EngineReport};
    use tonnage_plan::point::Traffic;
    use tonnage_plan::roles::Roles;
    use tonnage_ranks::testing::rank_info;

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
        let totals = rail_totals(&loads, 1_000_000_000);
        let rates: Vec<_> = totals.iter().map(|rail| rail.busy_bytes_per_s).collect();
        assert_eq!(rates, [2000, 1000]);
        let least = least_loaded_rail((3, 1), Rails::Stripe, &loads, &totals).unwrap();
        assert_eq!((least.rank, least.worker, least.rail), (3, 1, 1));
        assert_eq!(least.share_permille, 500);
    }

    #[test]
    fn rails_with_different_peer_counts_are_not_compared() {
        let least = |rails, loads: &[RailLoad]| {
            let totals = rail_totals(loads, 1_000_000_000);
            least_loaded_rail((0, 0), rails, loads, &totals)
                .map(|rail| (rail.rail, rail.share_permille))
        };
        let (stripe, turns) = (Rails::Stripe, Rails::RoundRobin);
        let loads = [load(4000, 100, 2), load(1000, 100, 1), load(500, 100, 1)];
        assert_eq!(least(turns, &loads), Some((2, 500)));
        assert_eq!(least(turns, &loads[..2]), None);
        // A rail without peers carries nothing, and is not slow. The same is true if its peers have no turn.
        assert_eq!(least(turns, &[load(10, 100, 1), load(0, 0, 0)]), None);
        assert_eq!(least(turns, &[load(10, 100, 1), load(0, 0, 1)]), None);
        // In a stripe with few bytes, rails carry different numbers of bytes and are not comparable.
        assert_eq!(
            least(stripe, &[load(2000, 100, 1), load(1000, 100, 1)]),
            None
        );
        assert_eq!(least(stripe, &[load(1000, 100, 1), load(0, 0, 1)]), None);
    }

    fn trial(rank: u32, share_permille: u64) -> TrialTotals {
        TrialTotals {
            least_rail: Some(LeastLoadedRail {
                share_permille,
                rank,
                worker: 0,
                rail: 1,
            }),
            ..TrialTotals::default()
        }
    }

    fn device(name: &str) -> DeviceDescription {
        DeviceDescription {
            used: true,
            bound: BoundKind::None,
            link_stated: false,
            delivers: [true, true],
            sends_taken: true,
            address: None,
            interface: None,
            name: Some(name.to_owned()),
            bound_place: None,
        }
    }

    fn opened(yielding: bool) -> Openings {
        let message = OpenMessage {
            yielding,
            memory_device: None,
            device_memory_by: tonnage_engine::DeviceMemoryAccess::Unknown,
            idle: false,
            engine: EngineReport::default(),
            devices: vec![vec![device("eth0"), device("eth1")]],
            wire_devices: None,
        };
        openings(&vec![message; 5], Roles::new(Traffic::Pair, 5))
    }

    fn ranks() -> Vec<RankInfo> {
        (0..5)
            .map(|rank| rank_info(rank, &format!("h{rank}")))
            .collect()
    }

    #[test]
    fn only_a_rail_that_is_slow_in_every_trial_is_named() {
        let named = |trials: &[TrialTotals], yielding| {
            let slow = slow_rail(&opened(yielding), &ranks(), trials)?;
            Some((slow.rank, slow.host, slow.device?, slow.share))
        };
        let expected = Some((4, "h4".to_owned(), "eth1".to_owned(), 0.5));
        assert_eq!(named(&[trial(4, 500), trial(4, 600)], false), expected);
        assert_eq!(named(&[trial(4, 500), trial(4, 600)], true), None);
        assert_eq!(named(&[trial(4, 500), trial(4, 900)], false), None);
        let other = Some((3, "h3".to_owned(), "eth1".to_owned(), 0.4));
        assert_eq!(named(&[trial(4, 500), trial(3, 400)], false), other);
        let mut first_rail = trial(4, 500);
        first_rail.least_rail.as_mut().unwrap().rail = 0;
        assert_eq!(named(&[trial(4, 500), first_rail], false), None);
        assert_eq!(named(&[trial(4, 500), TrialTotals::default()], false), None);
        assert_eq!(named(&[], false), None);
    }

    #[test]
    fn the_least_of_all_ranks_is_kept() {
        let mut merged = trial(4, 500);
        merged.merge(trial(2, 300));
        merged.merge(trial(3, 700));
        assert_eq!(merged.least_rail.unwrap().rank, 2);
    }
}
