//! Rails of all trials together, as the record has them, and the slow one.

use super::rails::{LeastRail, RailTotals, merge};
use super::totals::TrialTotals;
use crate::opening::description::{Device, OpenMessage};
use crate::opening::openings::Openings;
use tonnage_plan::transfer::TransferPoint;
use tonnage_ranks::{Alike, RankInfo};
use tonnage_record::transfer::{Rail, SlowRail};

/// A rail with less of the others' mean rate is under its share.
const SHARE_LEAST_PERMILLE: u64 = 900;

/// The rails of all trials.
pub fn summary(
    point: &TransferPoint,
    opened: &Alike<OpenMessage>,
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

/// The name of a rail's device, where it is the same on all ranks that initiate.
fn common_device(point: &TransferPoint, opened: &Alike<OpenMessage>, rail: u32) -> Option<String> {
    let initiates = |rank: u32| point.roles().initiates(rank);
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

fn device_name(device: &Device) -> Option<String> {
    device.name.clone().or_else(|| device.interface.clone())
}

/// The rail that was under its share in every trial, the same number each time: a link at a target slows the same rail
/// of all who initiate to it, and which of them is the slowest is chance. None is named where workers share CPUs: how
/// often they poll then says more about the scheduler.
pub fn slow(opened: &Openings, ranks: &[RankInfo], trials: &[TrialTotals]) -> Option<SlowRail> {
    if opened.common.yields {
        return None;
    }
    let leasts: Option<Vec<LeastRail>> = trials.iter().map(|trial| trial.least_rail).collect();
    let leasts = leasts?;
    let first = leasts.iter().min_by_key(|rail| rail.share_permille)?;
    let is_slow =
        |rail: &LeastRail| rail.share_permille < SHARE_LEAST_PERMILLE && rail.rail == first.rail;
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
    use tonnage_engine::{EngineReport, LimitKind};
    use tonnage_plan::point::Traffic;
    use tonnage_plan::roles::Roles;
    use tonnage_ranks::testing::rank_info;
    use tonnage_units::Reduce;

    fn trial(rank: u32, share_permille: u64) -> TrialTotals {
        TrialTotals {
            least_rail: Some(LeastRail {
                share_permille,
                rank,
                worker: 0,
                rail: 1,
            }),
            ..TrialTotals::NONE
        }
    }

    fn device(name: &str) -> Device {
        Device {
            used: true,
            limit: LimitKind::None,
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
            device_memory_by: tonnage_engine::DeviceMemoryBy::Unknown,
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
    fn only_what_is_slow_in_every_trial_is_named() {
        let named = |trials: &[TrialTotals], yielding| {
            let slow = slow(&opened(yielding), &ranks(), trials)?;
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
        assert_eq!(named(&[trial(4, 500), TrialTotals::NONE], false), None);
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
