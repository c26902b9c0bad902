//! The links that connect devices such as GPUs to the rest of their machines. If NICs move the bytes of a device's
//! memory, or the bytes are staged through the host, all of them cross the device's link. The speed of these links then
//! limits the bounds by NIC links and by socket streams. Copies inside a device don't cross its link, so they are not
//! measured, and the speed of the link alone is the bound.
//!
//! `link` handles the links of NICs. If a NIC and a device share a bridge, only the device's own link counts, because
//! the bridge's speed is not known here.

use std::collections::BTreeMap;

use tonnage_engine::memory::{BusDevice, BusLink};
use tonnage_plan::transfer::TransferPoint;
use tonnage_ranks::{Distinct, Hosts};
use tonnage_record::Bound;

use super::link::ROUNDS_MAX;
use super::mean_over_rounds;
use crate::opening::description::OpenMessage;

/// Devices that hold the memory of the ranks at one end of the flows, each with its link.
type EndDevices<'a> = BTreeMap<(Option<u32>, &'a str), (&'a BusDevice, &'a BusLink)>;

/// Devices of the senders and of the receivers. An end is `None` if one of its ranks has no device, or a device with an
/// unknown link.
type BothEnds<'a> = [Option<EndDevices<'a>>; 2];

/// Limits a bound to the bound of the devices' links.
pub(super) fn within_devices(
    bound: Bound,
    point: &TransferPoint,
    opened: &Distinct<OpenMessage>,
    hosts: &Hosts,
) -> Bound {
    match bound_of_links(point, opened, hosts) {
        Some((what, bytes_per_s)) if bytes_per_s < bound.bytes_per_s => Bound {
            links: bound.links,
            ..Bound::new(what, bytes_per_s)
        },
        _ => bound,
    }
}

/// Returns the bound of the devices' links, for a point without any other bound.
pub(super) fn limit_of_device_links(
    point: &TransferPoint,
    opened: &Distinct<OpenMessage>,
    hosts: &Hosts,
) -> Option<Bound> {
    let (what, bytes_per_s) = bound_of_links(point, opened, hosts)?;
    Some(Bound::new(what, bytes_per_s))
}

/// Explains an unknown link, with the reason that the first affected rank gives.
pub(super) fn links_unknown(opened: &Distinct<OpenMessage>) -> Option<String> {
    let devices = opened.iter().filter_map(OpenMessage::device_behind_link);
    let mut unknown = devices.filter_map(|device| Some((device, device.links_unknown.as_deref()?)));
    let (device, why) = unknown.next()?;
    Some(format!(
        "the bound does not include the link of {} to the rest of the machine, which is not known: {why}",
        device.title()
    ))
}

/// Explains a missing bound: names the first device with an unknown link.
pub(super) fn link_lacking(opened: &Distinct<OpenMessage>) -> Option<String> {
    let mut devices = opened.iter().filter_map(OpenMessage::device_behind_link);
    let device = devices.find(|device| device.link.is_none())?;
    let why = device.links_unknown.as_deref();
    Some(format!(
        "no bound: the link of {} to the rest of the machine is not known: {}",
        device.title(),
        why.unwrap_or("its speed is not reported")
    ))
}

/// Returns the bound of the links with a description. Rounds are combined as in a trial, and directions are added up.
fn bound_of_links(
    point: &TransferPoint,
    opened: &Distinct<OpenMessage>,
    hosts: &Hosts,
) -> Option<(String, f64)> {
    if opened
        .iter()
        .all(|opened| opened.device_behind_link().is_none())
    {
        return None;
    }
    let roles = point.roles;
    if point.roles.bidirectional {
        let of = |behind| {
            slowest_of_all_flows(point, opened, hosts, |rank| {
                roles.is_target_side(rank) == behind
            })
        };
        let ((what, one), (_, other)) = (of(false)?, of(true)?);
        // If a device is at both ends, all outgoing bytes share one direction of its link, and all incoming bytes the
        // other. This may be less than the sum.
        let all = slowest_of_all_flows(point, opened, hosts, |_| true);
        let lower = all.filter(|(_, speed)| *speed < one + other);
        return lower.or_else(|| Some((format!("{what}, both directions added up"), one + other)));
    }
    let rounds = roles
        .sampled_rounds(ROUNDS_MAX)
        .map(|round| roles.pairs_of_round(round));
    let rounds: Vec<_> = rounds.filter(|pairs| !pairs.is_empty()).collect();
    if rounds.is_empty() {
        return slowest_of_all_flows(point, opened, hosts, |_| true);
    }
    let bounds = rounds
        .iter()
        .map(|pairs| slowest_of_pairs(pairs, opened, hosts));
    let bounds = bounds.collect::<Option<Vec<_>>>()?;
    let flows = rounds.iter().map(|pairs| pairs.len() as u64);
    let rates = bounds.iter().map(|(_, speed)| *speed).zip(flows);
    let speed = mean_over_rounds(point.length.trial, rates);
    let (what, _) = bounds.into_iter().next()?;
    Some((what, speed))
}

/// Returns the slower end over simultaneous flows from initiators that satisfy `begins`. It iterates over ranks,
/// because a list of all pairs can be too long for memory.
fn slowest_of_all_flows(
    point: &TransferPoint,
    opened: &Distinct<OpenMessage>,
    hosts: &Hosts,
    begins: impl Fn(u32) -> bool,
) -> Option<(String, f64)> {
    let roles = point.roles;
    let mut ends: BothEnds<'_> = [Some(EndDevices::new()), Some(EndDevices::new())];
    for rank in 0..point.roles.ranks {
        if ends.iter().all(Option::is_none) {
            return None;
        }
        let initiates = begins(rank) && !roles.targets(rank).is_empty();
        let is_target = roles.initiators_of(rank).into_iter().any(&begins);
        for (end, takes_part) in ends.iter_mut().zip([initiates, is_target]) {
            if takes_part {
                add_device(end, rank, opened, hosts);
            }
        }
    }
    slower(ends)
}

/// Returns the slower end of the pairs in a round.
fn slowest_of_pairs(
    pairs: &[(u32, u32)],
    opened: &Distinct<OpenMessage>,
    hosts: &Hosts,
) -> Option<(String, f64)> {
    let mut ends: BothEnds<'_> = [Some(EndDevices::new()), Some(EndDevices::new())];
    for &(initiator, target) in pairs {
        for (end, rank) in ends.iter_mut().zip([initiator, target]) {
            add_device(end, rank, opened, hosts);
        }
    }
    slower(ends)
}

/// Adds the device of a rank to an end. If the rank's device or its link is unknown, the end has no bound.
fn add_device<'a>(
    end: &mut Option<EndDevices<'a>>,
    rank: u32,
    opened: &'a Distinct<OpenMessage>,
    hosts: &Hosts,
) {
    let Some(devices) = end else {
        return;
    };
    let device = opened.get(rank).and_then(OpenMessage::device_behind_link);
    match device.and_then(|device| Some((device, device.link.as_ref()?))) {
        Some((device, link)) => {
            let place = (hosts.machine(rank), &*device.pci_address);
            devices.insert(place, (device, link));
        }
        None => *end = None,
    }
}

/// Returns the end with the lower total link speed; `None` if neither end has a bound.
fn slower(ends: BothEnds<'_>) -> Option<(String, f64)> {
    let speed = |end: &EndDevices<'_>| -> f64 {
        end.values().map(|(_, link)| link.bytes_per_s as f64).sum()
    };
    let ends = ends.into_iter().flatten().filter(|end| !end.is_empty());
    let slower = ends.min_by(|one, other| speed(one).total_cmp(&speed(other)))?;
    Some((describe_devices(&slower), speed(&slower)))
}

/// Returns the part of the bound's description about the links of these devices.
fn describe_devices(devices: &EndDevices<'_>) -> String {
    let mut all = devices.values();
    match (all.next(), all.len()) {
        (Some((device, link)), 0) => format!(
            "{} of {}, by which bytes leave and reach its memory",
            link.kind,
            device.title()
        ),
        (first, others) => {
            let kind = first.map_or("", |(_, link)| link.kind.as_str());
            format!(
                "{kind} of {} devices whose memory bytes leave or reach, together",
                others + 1
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::opening::openings::tests::{device, hosts, opened, openings};
    use tonnage_engine::BoundKind;
    use tonnage_plan::point::Traffic;
    use tonnage_plan::transfer::{Access, TrialLength};

    const CARD: BoundKind = BoundKind::Link { bytes_per_s: 50 };

    /// Returns a rank with memory on a GPU of this number and link speed; `None` stands for host memory.
    fn rank(gpu: Option<(u32, Option<u64>)>) -> OpenMessage {
        let device = gpu.map(|(number, speed)| BusDevice {
            name: format!("cuda:{number}"),
            pci_address: format!("0000:{number:02x}:00.0"),
            link: speed.map(|bytes_per_s| BusLink {
                kind: "PCIe".to_owned(),
                bytes_per_s,
            }),
            ..device()
        });
        OpenMessage {
            memory_device: device,
            ..opened(CARD, Some(("mlx5_0", [10, 0, 0, 1])))
        }
    }

    fn cards() -> Bound {
        Bound::new("link speed of mlx5_0", 50.0)
    }

    fn bound(
        all: &[OpenMessage],
        names: &[&str],
        change: impl Fn(&mut TransferPoint),
    ) -> (String, f64) {
        let mut point = tonnage_plan::testing::slots_point(Access::Sequential, 1 << 16);
        (point.roles.traffic, point.roles.ranks) = (Traffic::Pair, all.len() as u32);
        change(&mut point);
        let all = openings(all, point.roles).all;
        let bound = within_devices(cards(), &point, &all, &hosts(names));
        (bound.what, bound.bytes_per_s)
    }

    #[test]
    fn the_slower_of_card_and_device_is_the_bound() {
        let of = |own, far| bound(&[rank(own), rank(far)], &["a", "b"], |_| ());
        let card = ("link speed of mlx5_0".to_owned(), 50.0);
        let gpu = |number: u32, speed| {
            let what = format!(
                "PCIe of cuda:{number} (0000:{number:02x}:00.0), by which bytes leave and reach its memory"
            );
            (what, speed)
        };
        let (slow, slower, fast) = (
            Some((1, Some(30))),
            Some((2, Some(20))),
            Some((3, Some(90))),
        );
        assert_eq!(of(slow, slower), gpu(2, 20.0));
        assert_eq!(of(slow, fast), gpu(1, 30.0));
        // An end with host memory or an unknown link has no bound, so the other end determines it.
        assert_eq!(of(None, slow), gpu(1, 30.0));
        assert_eq!(of(Some((4, None)), slow), gpu(1, 30.0));
        for (own, far) in [
            (fast, fast),
            (None, fast),
            (None, None),
            (Some((4, None)), None),
        ] {
            assert_eq!(of(own, far), card);
        }
    }

    /// A list of all pairs of these ranks would exceed the memory of most hosts.
    #[test]
    fn many_ranks_without_device_memory_are_handled() {
        let (ranks, card) = (100_000, ("link speed of mlx5_0".to_owned(), 50.0));
        for rest in [None, Some((1, Some(20)))] {
            // Rank 0 has no device and is at both ends of an all-to-all, so neither end has a bound.
            let mut point = tonnage_plan::testing::slots_point(Access::Sequential, 1 << 16);
            (point.roles.traffic, point.roles.ranks) = (Traffic::AllToAll, ranks);
            let mut all = vec![rank(rest); ranks as usize];
            all[0] = rank(None);
            let all: Distinct<OpenMessage> = all.into_iter().collect();
            let bound = within_devices(cards(), &point, &all, &Hosts::default());
            assert_eq!((bound.what, bound.bytes_per_s), card);
        }
    }

    /// A bound that leaves out an unknown link must name the link and the reason.
    #[test]
    fn links_that_are_not_known_are_named() {
        let mut unknown = rank(Some((4, None)));
        let device = unknown.memory_device.as_mut().unwrap();
        device.links_unknown = Some("no library".to_owned());
        let reason = |all: &[OpenMessage]| {
            let point = tonnage_plan::testing::slots_point(Access::Sequential, 1 << 16);
            links_unknown(&openings(all, point.roles).all)
        };
        assert_eq!(reason(&[rank(None), rank(Some((1, Some(20))))]), None);
        let text = reason(&[rank(None), unknown]).unwrap();
        assert!(
            text.contains("cuda:4 (0000:04:00.0)") && text.ends_with(": no library"),
            "{text}"
        );
    }

    /// Two ranks that share a GPU share its link. A GPU at the same address of another host is a different one.
    #[test]
    fn each_link_counts_once() {
        let shared = rank(Some((1, Some(20))));
        let host = rank(None);
        let fan_out = |names: &[&str]| {
            let all = [host.clone(), shared.clone(), shared.clone()];
            bound(&all, names, |point| point.roles.traffic = Traffic::FanOut)
        };
        assert_eq!(fan_out(&["a", "b", "b"]).1, 20.0);
        let (what, speed) = fan_out(&["a", "b", "c"]);
        assert_eq!(speed, 40.0);
        assert_eq!(
            what,
            "PCIe of 2 devices whose memory bytes leave or reach, together"
        );
        // One rank of each end has no device memory, so neither end has a bound of its own.
        let mixed = [shared.clone(), host.clone(), shared.clone()];
        let all_to_all = bound(&mixed, &["a", "b", "c"], |point| {
            point.roles.traffic = Traffic::AllToAll
        });
        assert_eq!(all_to_all.1, 50.0);
    }

    /// A link reaches its speed in each direction, so directions are added up. Rounds are not: of equal durations, the
    /// mean counts.
    #[test]
    fn directions_add_up_and_rounds_do_not() {
        let [slow, fast] = [10, 30].map(|speed| rank(Some((speed as u32, Some(speed)))));
        let both = bound(&[slow.clone(), fast.clone()], &["a", "b"], |point| {
            point.roles.bidirectional = true;
        });
        assert_eq!(both.1, 20.0);
        assert!(both.0.ends_with(", both directions added up"), "{both:?}");
        let shared = bound(&[slow.clone(), slow.clone()], &["a", "a"], |point| {
            point.roles.bidirectional = true;
        });
        assert_eq!(shared.1, 10.0);
        let host = rank(None);
        let in_turn = |trial| {
            let ranks = [host.clone(), slow.clone(), fast.clone()];
            let (_, speed) = bound(&ranks, &["a", "b", "c"], |point| {
                (point.roles.traffic, point.length.trial) = (Traffic::InTurn, trial);
            });
            speed
        };
        assert_eq!(in_turn(TrialLength::DurationNs(1)), 20.0);
        // With equal numbers of operations, slow rounds take longer: 2 / (1/10 + 1/30).
        assert!((in_turn(TrialLength::Iterations(1000)) - 15.0).abs() < 1e-9);
    }
}
