//! The nominal speed of the links that a point uses. Devices report it, or the user states it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::opening::description::{DeviceDescription, OpenMessage};
use tonnage_engine::BoundKind;
use tonnage_plan::transfer::TransferPoint;
use tonnage_ranks::{Distinct, Hosts};
use tonnage_record::{Bound, Links};

use super::mean_over_rounds;

/// Maximum number of rounds for which links are evaluated. If there are more, a sample of rounds is evaluated that is
/// spread over all of them.
pub(super) const ROUNDS_MAX: u32 = 1024;

/// Returns the total nominal speed of the sending or of the receiving devices, whichever is lower. Several rounds are
/// combined as in a trial. A device that several ranks of a host share counts once.
pub(super) fn link_bound(
    point: &TransferPoint,
    opened: &Distinct<OpenMessage>,
    hosts: &Hosts,
) -> Option<Bound> {
    let roles = point.roles;
    let rounds = roles.sampled_rounds(ROUNDS_MAX);
    let pairs = rounds.map(|round| roles.pairs_of_round(round));
    let mut rounds: Vec<(LinkSide<'_>, u64)> = pairs
        .filter_map(|pairs| {
            Some((
                slowest_side_of_pairs(point, opened, hosts, &pairs)?,
                pairs.len() as u64,
            ))
        })
        .collect();
    if rounds.is_empty() {
        rounds.push((side_of_all_flows(point, opened, hosts, |_| true)?, 1));
    }
    let (first, _) = rounds.first()?;
    if point.roles.bidirectional
        && let Some(bound) = sum_of_directions(point, opened, hosts, first)
    {
        return Some(bound);
    }
    let of_all_rounds = |of: fn(&Links) -> f64| {
        let rates = rounds
            .iter()
            .map(|(side, flows)| (of(&links(side)), *flows));
        mean_over_rounds(point.length.trial, rates)
    };
    let links = Links {
        used_bytes_per_s: of_all_rounds(|links| links.used_bytes_per_s),
        all_bytes_per_s: of_all_rounds(|links| links.all_bytes_per_s),
        ..links(first)
    };
    (links.used_bytes_per_s > 0.0).then_some(Bound {
        links: Some(links),
        ..Bound::new(describe_side(first)?, links.used_bytes_per_s)
    })
}

/// Returns the part of the bound's description about the links of a side.
fn describe_side(side: &LinkSide<'_>) -> Option<String> {
    let (_, (device, _)) = side.iter().find(|(_, (_, used))| *used)?;
    let stated = if device.link_stated { "stated " } else { "" };
    Some(
        match (
            links(side).used,
            device.interface.as_ref().or(device.name.as_ref()),
        ) {
            (1, Some(name)) => format!("{stated}link speed of {name}"),
            (1, None) => format!("{stated}link speed of 1 device"),
            (several, _) => format!("{stated}link speed of {several} devices together"),
        },
    )
}

/// Returns the sum of the bounds of both directions, because a link reaches its full speed in each direction. `None` if
/// some devices are at both ends, and therefore cannot carry this sum.
fn sum_of_directions(
    point: &TransferPoint,
    opened: &Distinct<OpenMessage>,
    hosts: &Hosts,
    of_all_flows: &LinkSide<'_>,
) -> Option<Bound> {
    let roles = point.roles;
    let forward = side_of_all_flows(point, opened, hosts, |rank| !roles.is_target_side(rank))?;
    let back = side_of_all_flows(point, opened, hosts, |rank| roles.is_target_side(rank))?;
    let (one, other) = (links(&forward), links(&back));
    let sum = Links {
        used: one.used.max(other.used),
        used_bytes_per_s: one.used_bytes_per_s + other.used_bytes_per_s,
        all: one.all.max(other.all),
        all_bytes_per_s: one.all_bytes_per_s + other.all_bytes_per_s,
    };
    let fits = (1.0..=links(of_all_flows).used_bytes_per_s).contains(&sum.used_bytes_per_s);
    fits.then_some(Bound {
        links: Some(sum),
        ..Bound::new(
            format!("{}, both directions added up", describe_side(&forward)?),
            sum.used_bytes_per_s,
        )
    })
}

/// Key of a device: its network, its name in that network, and its address. Different networks may use the same device
/// names.
type DevicePlace = (Option<u32>, Option<String>, Option<IpAddr>);

/// Devices of the senders or of the receivers. The flag is true if a flow uses the device.
type LinkSide<'a> = BTreeMap<DevicePlace, (&'a DeviceDescription, bool)>;

/// Adds a device of a rank to a side. If the device is already there, it counts as used if either entry is used.
fn add_devices<'a>(
    side: &mut LinkSide<'a>,
    network: Option<u32>,
    device: &'a DeviceDescription,
    used: bool,
) {
    let names = [&device.bound_place, &device.name, &device.interface];
    let name = names.into_iter().flatten().next().cloned();
    let place = (network, name, device.address);
    let (_, known) = side.entry(place).or_insert((device, false));
    *known |= used;
}

/// Returns the side with the lower total speed.
fn slower_side(sides: [LinkSide<'_>; 2]) -> Option<LinkSide<'_>> {
    let speed = |side: &LinkSide<'_>| links(side).used_bytes_per_s;
    sides
        .into_iter()
        .min_by(|one, other| speed(one).total_cmp(&speed(other)))
}

/// Returns the slower side over simultaneous flows from initiators that satisfy `begins`.
fn side_of_all_flows<'a>(
    point: &TransferPoint,
    opened: &'a Distinct<OpenMessage>,
    hosts: &Hosts,
    begins: impl Fn(u32) -> bool,
) -> Option<LinkSide<'a>> {
    let mut sides = [LinkSide::new(), LinkSide::new()];
    for (rank, opened) in (0u32..).zip(opened.iter()) {
        let (targets, initiators) = (point.roles.targets(rank), point.roles.initiators_of(rank));
        let initiates = begins(rank) && !targets.is_empty();
        let is_target = initiators.into_iter().any(&begins);
        for device in opened.devices.iter().flatten() {
            for (side, takes_part) in sides.iter_mut().zip([initiates, is_target]) {
                if takes_part {
                    add_devices(side, hosts.network(rank), device, device.used);
                }
            }
        }
    }
    slower_side(sides)
}

/// Returns the slower side of the pairs of a round; `None` without pairs.
fn slowest_side_of_pairs<'a>(
    point: &TransferPoint,
    opened: &'a Distinct<OpenMessage>,
    hosts: &Hosts,
    pairs: &[(u32, u32)],
) -> Option<LinkSide<'a>> {
    let mut sides = [LinkSide::new(), LinkSide::new()];
    for &(initiator, target) in pairs {
        for (side, rank) in sides.iter_mut().zip([initiator, target]) {
            for rails in &opened.get(rank)?.devices {
                let used = point
                    .division
                    .rails
                    .for_peer(initiator, target, rails.len());
                for (rail, device) in rails.iter().enumerate() {
                    add_devices(side, hosts.network(rank), device, used.contains(&rail));
                }
            }
        }
    }
    slower_side(sides).filter(|side| !side.is_empty())
}

/// Returns number and speed of the used links of a side, and of all its links.
fn links(side: &LinkSide<'_>) -> Links {
    let speed = |device: &DeviceDescription| match device.bound {
        BoundKind::Link { bytes_per_s } => bytes_per_s as f64,
        _ => 0.0,
    };
    let used = || side.values().filter(|(_, used)| *used);
    Links {
        used: used().count() as u32,
        used_bytes_per_s: used().map(|(device, _)| speed(device)).sum(),
        all: side.len() as u32,
        all_bytes_per_s: side.values().map(|(device, _)| speed(device)).sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::opening::openings::tests::{hosts, opened, openings};
    use tonnage_engine::paths::Rails;
    use tonnage_plan::point::Traffic;
    use tonnage_plan::transfer::{Access, TrialLength};

    const SLOW: BoundKind = BoundKind::Link { bytes_per_s: 1_000 };
    const FAST: BoundKind = BoundKind::Link { bytes_per_s: 5_000 };

    fn point(traffic: Traffic, ranks: usize) -> TransferPoint {
        let mut point = tonnage_plan::testing::slots_point(Access::Sequential, 1 << 16);
        (point.roles.traffic, point.roles.ranks) = (traffic, ranks as u32);
        point
    }

    fn of_point(point: &TransferPoint, all: &[OpenMessage], names: &[&str]) -> Option<Bound> {
        link_bound(point, &openings(all, point.roles).all, &hosts(names))
    }

    fn link(traffic: Traffic, all: &[OpenMessage], hosts: &[&str]) -> Bound {
        of_point(&point(traffic, all.len()), all, hosts).unwrap()
    }

    fn eth(bound: BoundKind, last: u8) -> OpenMessage {
        opened(bound, Some(("eth0", [10, 0, 0, last])))
    }

    #[test]
    fn the_slower_side_of_a_link_is_the_bound() {
        let all = [
            opened(FAST, Some(("eth0", [10, 0, 0, 1]))),
            opened(SLOW, Some(("eth7", [10, 0, 0, 2]))),
        ];
        let bound = link(Traffic::Pair, &all, &["a", "b"]);
        assert_eq!(
            (bound.what.as_str(), bound.bytes_per_s),
            ("link speed of eth7", 1e3)
        );
    }

    fn both_ways(all: &[OpenMessage], hosts: &[&str], initiators: Option<u32>) -> (String, f64) {
        let mut point = point(Traffic::Pair, all.len());
        (point.roles.bidirectional, point.roles.initiators) = (true, initiators);
        let bound = of_point(&point, all, hosts).unwrap();
        assert_eq!(bound.links.unwrap().used_bytes_per_s, bound.bytes_per_s);
        (bound.what, bound.bytes_per_s)
    }

    /// A link sends and receives at the same time, at full speed in each direction.
    #[test]
    fn each_direction_has_the_speed_of_its_slower_side() {
        let pair = [eth(FAST, 1), eth(SLOW, 2)];
        // If both sides are equally fast, the initiators' device is named.
        let equal = [eth(SLOW, 1), opened(SLOW, Some(("eth7", [10, 0, 0, 2])))];
        let both = "link speed of eth0, both directions added up";
        for two in [pair, equal] {
            assert_eq!(both_ways(&two, &["a", "b"], None), (both.into(), 2e3));
        }
        // Two hosts send to a third one. Its link receives no faster than it sends.
        let three = [eth(SLOW, 1), eth(SLOW, 2), eth(SLOW, 3)];
        assert_eq!(
            both_ways(&three, &["a", "b", "c"], Some(2)),
            (both.into(), 2e3)
        );
        // Both ranks share a device, and each byte crosses it once, whichever rank sends it.
        let one = [eth(SLOW, 1), eth(SLOW, 1)];
        assert_eq!(
            both_ways(&one, &["a", "a"], None),
            ("link speed of eth0".into(), 1e3)
        );
        let two = [eth(SLOW, 1), eth(SLOW, 2), eth(SLOW, 3), eth(SLOW, 4)];
        assert_eq!(
            both_ways(&two, &["a", "b", "c", "d"], None),
            (
                "link speed of 2 devices together, both directions added up".into(),
                4e3
            )
        );
    }

    #[test]
    fn a_device_counts_once_for_all_ranks_of_its_host() {
        let all = [eth(SLOW, 1), eth(SLOW, 1), eth(SLOW, 2), eth(SLOW, 3)];
        let bound = link(Traffic::Pair, &all, &["a", "a", "b", "c"]);
        assert_eq!(bound.bytes_per_s, 1e3, "{bound:?}");
        let bound = link(Traffic::AllToAll, &all, &["a", "a", "b", "c"]);
        assert_eq!(
            (bound.what.as_str(), bound.bytes_per_s),
            ("link speed of 3 devices together", 3e3)
        );
    }

    /// Two processes may use different names for one GPU. The GPU's bus address identifies its link.
    #[test]
    fn a_gpu_with_two_names_counts_once() {
        let gpu = |name: &str, place: Option<&str>| {
            let mut rank = opened(SLOW, None);
            let device = &mut rank.devices[0][0];
            (device.name, device.bound_place) = (Some(name.into()), place.map(Into::into));
            rank
        };
        let host = gpu("memory of the host", None);
        let host = || {
            let mut host = host.clone();
            host.devices[0][0].bound = FAST;
            host
        };
        let fan_in = |places: [Option<&str>; 2]| {
            let [one, other] = places;
            let all = [host(), gpu("cuda:0", one), gpu("cuda:3", other)];
            link(Traffic::FanIn, &all, &["a", "a", "a"]).bytes_per_s
        };
        assert_eq!(fan_in([Some("0000:1b:00.0"); 2]), 1e3);
        assert_eq!(fan_in([Some("0000:1b:00.0"), Some("0000:1c:00.0")]), 2e3);
        assert_eq!(fan_in([None; 2]), 2e3);
    }

    /// Returns numbers and speeds of the used links and of all links.
    fn counted(bound: &Bound) -> [(u32, f64); 2] {
        let links = bound.links.as_ref().unwrap();
        [
            (links.used, links.used_bytes_per_s),
            (links.all, links.all_bytes_per_s),
        ]
    }

    #[test]
    fn devices_are_described_by_their_known_names() {
        let named = |interface: Option<&str>, name: Option<&str>, stated| {
            let mut all = [opened(SLOW, None), opened(FAST, None)];
            let device = &mut all[0].devices[0][0];
            (device.interface, device.name) = (interface.map(Into::into), name.map(Into::into));
            device.link_stated = stated;
            link(Traffic::Pair, &all, &["a", "b"]).what
        };
        assert_eq!(
            named(Some("eth0"), Some("mlx5_0"), false),
            "link speed of eth0"
        );
        assert_eq!(named(None, Some("mlx5_0"), false), "link speed of mlx5_0");
        assert_eq!(named(None, None, false), "link speed of 1 device");
        assert_eq!(named(None, None, true), "stated link speed of 1 device");
    }

    /// The devices of ranks that only receive don't count as senders, even if they are faster. A rank without peers
    /// doesn't count at all.
    #[test]
    fn each_side_has_the_devices_of_its_own_ranks() {
        let all = [eth(SLOW, 1), eth(SLOW, 2), eth(SLOW, 3)];
        let hosts = ["a", "b", "c"];
        let fan_out = link(Traffic::FanOut, &all, &hosts);
        assert_eq!(counted(&fan_out), [(1, 1e3), (1, 1e3)]);
        let mut fan_in = point(Traffic::FanIn, 3);
        fan_in.roles.initiators = Some(1);
        let all = [eth(FAST, 1), eth(SLOW, 2), eth(SLOW, 3)];
        let bound = of_point(&fan_in, &all, &hosts).unwrap();
        assert_eq!(counted(&bound), [(1, 1e3), (1, 1e3)]);
    }

    #[test]
    fn rounds_are_combined_as_a_trial_combines_them() {
        let all = [eth(FAST, 1), eth(SLOW, 2), eth(FAST, 3)];
        let mut in_turn = point(Traffic::InTurn, 3);
        in_turn.length.trial = TrialLength::DurationNs(1);
        let bound = of_point(&in_turn, &all, &["a", "b", "c"]).unwrap();
        assert_eq!(counted(&bound), [(1, 3e3), (1, 3e3)]);
        assert_eq!(
            (bound.bytes_per_s, bound.what.as_str()),
            (3e3, "link speed of eth0")
        );
        // With equal numbers of operations, slow rounds take longer: 2 / (1/1 + 1/5).
        in_turn.length.trial = TrialLength::Iterations(1000);
        let bound = of_point(&in_turn, &all, &["a", "b", "c"]).unwrap();
        let links = bound.links.unwrap();
        for rate in [bound.bytes_per_s, links.all_bytes_per_s] {
            assert!((rate - 2.0 / 1.2e-3).abs() < 1e-6, "{rate}");
        }
    }

    /// Each rank has two rails, and flows use one of them or both.
    #[test]
    fn unused_rails_count_only_among_all_links() {
        let all = [1, 2].map(|last| {
            let mut rank = eth(SLOW, last);
            let mut rail = eth(FAST, last + 10).devices.remove(0).remove(0);
            rail.used = false;
            rank.devices[0].push(rail);
            rank
        });
        let hosts = ["a", "b"];
        let bound = link(Traffic::Pair, &all, &hosts);
        assert_eq!(counted(&bound), [(1, 1e3), (2, 6e3)]);
        // With round-robin rails, a pair uses one rail, which follows from both rank numbers.
        let mut in_turn = point(Traffic::InTurn, 2);
        in_turn.division.rails = Rails::RoundRobin;
        let bound = of_point(&in_turn, &all, &hosts).unwrap();
        assert_eq!(counted(&bound), [(1, 5e3), (2, 6e3)]);
        // Two workers share each device, but only one of the two uses it.
        let mut shared = all.clone();
        for rank in &mut shared {
            let mut other = rank.devices[0].clone();
            other.iter_mut().for_each(|rail| rail.used = !rail.used);
            rank.devices.push(other);
        }
        let bound = link(Traffic::Pair, &shared, &hosts);
        assert_eq!(counted(&bound), [(2, 6e3), (2, 6e3)]);
    }

    #[test]
    fn devices_without_a_known_speed_have_no_bound() {
        let all = [eth(BoundKind::SocketStream, 1), eth(BoundKind::None, 2)];
        for bidirectional in [false, true] {
            let mut point = point(Traffic::Pair, 2);
            point.roles.bidirectional = bidirectional;
            assert_eq!(of_point(&point, &all, &["a", "b"]), None);
        }
    }
}
