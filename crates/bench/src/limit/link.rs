//! The nominal speed of the links that a point uses, where devices say it or the user does.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::opening::description::{Device, OpenMessage};
use tonnage_engine::LimitKind;
use tonnage_plan::transfer::TransferPoint;
use tonnage_ranks::{Alike, Hosts};
use tonnage_record::{Limit, Links};

/// The most rounds whose links are looked at; more of them have the same links again.
const ROUNDS_MAX: u32 = 1024;

/// The nominal speed of the devices that send or of those that receive, whichever is less; over rounds the mean. A
/// device that several ranks of a host share counts once.
pub(super) fn link_limit(
    point: &TransferPoint,
    opened: &Alike<OpenMessage>,
    hosts: &Hosts,
) -> Option<Limit> {
    let roles = point.roles();
    let rounds = roles.sampled_rounds(ROUNDS_MAX);
    let pairs = rounds.map(|round| roles.pairs_of_round(round));
    let mut rounds: Vec<Side<'_>> = pairs
        .filter_map(|pairs| of_pairs(point, opened, hosts, &pairs))
        .collect();
    if rounds.is_empty() {
        rounds.push(of_all(point, opened, hosts, |_| true)?);
    }
    if point.bidirectional
        && let Some(limit) = of_both_ways(point, opened, hosts, rounds.first()?)
    {
        return Some(limit);
    }
    let count = rounds.len() as f64;
    let mean =
        |of: fn(&Links) -> f64| rounds.iter().map(|side| of(&links(side))).sum::<f64>() / count;
    let first = rounds.first()?;
    let links = Links {
        used_bytes_per_s: mean(|links| links.used_bytes_per_s),
        all_bytes_per_s: mean(|links| links.all_bytes_per_s),
        ..links(first)
    };
    (links.used_bytes_per_s > 0.0).then_some(Limit {
        what: words(first)?,
        bytes_per_s: links.used_bytes_per_s,
        ci95_bytes_per_s: None,
        links: Some(links),
    })
}

/// The links of a side in words.
fn words(side: &Side<'_>) -> Option<String> {
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

/// The limits of both directions added up, because a link has its speed in each; `None` where the devices cannot send
/// as much, because some of them are at both ends.
fn of_both_ways(
    point: &TransferPoint,
    opened: &Alike<OpenMessage>,
    hosts: &Hosts,
    of_all_flows: &Side<'_>,
) -> Option<Limit> {
    let roles = point.roles();
    let forward = of_all(point, opened, hosts, |rank| !roles.is_behind(rank))?;
    let back = of_all(point, opened, hosts, |rank| roles.is_behind(rank))?;
    let (one, other) = (links(&forward), links(&back));
    let sum = Links {
        used: one.used.max(other.used),
        used_bytes_per_s: one.used_bytes_per_s + other.used_bytes_per_s,
        all: one.all.max(other.all),
        all_bytes_per_s: one.all_bytes_per_s + other.all_bytes_per_s,
    };
    let fits = (1.0..=links(of_all_flows).used_bytes_per_s).contains(&sum.used_bytes_per_s);
    fits.then_some(Limit {
        what: format!("{}, both directions added up", words(&forward)?),
        bytes_per_s: sum.used_bytes_per_s,
        ci95_bytes_per_s: None,
        links: Some(sum),
    })
}

/// Place of a device: its network, for two of them may have devices of one name, its name and its address.
type DevicePlace = (Option<u32>, Option<String>, Option<IpAddr>);

/// Devices of those who send, or of those who receive, and whether a flow takes them.
type Side<'a> = BTreeMap<DevicePlace, (&'a Device, bool)>;

/// Adds devices of a rank to a side; one that is there already is used if either says so.
fn add_devices<'a>(side: &mut Side<'a>, network: Option<u32>, device: &'a Device, used: bool) {
    let name = device.name.clone().or_else(|| device.interface.clone());
    let place = (network, name, device.address);
    let (_, known) = side.entry(place).or_insert((device, false));
    *known |= used;
}

/// The slower of two sides.
fn slower(sides: [Side<'_>; 2]) -> Option<Side<'_>> {
    let speed = |side: &Side<'_>| links(side).used_bytes_per_s;
    sides
        .into_iter()
        .min_by(|one, other| speed(one).total_cmp(&speed(other)))
}

/// The slower side of the flows that run at once from ranks which `begins` says.
fn of_all<'a>(
    point: &TransferPoint,
    opened: &'a Alike<OpenMessage>,
    hosts: &Hosts,
    begins: impl Fn(u32) -> bool,
) -> Option<Side<'a>> {
    let mut sides = [Side::new(), Side::new()];
    for (rank, opened) in (0u32..).zip(opened.iter()) {
        let (targets, initiators) = (
            point.roles().targets(rank),
            point.roles().initiators_of(rank),
        );
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
    slower(sides)
}

/// The slower side of the pairs of a round; `None` without any.
fn of_pairs<'a>(
    point: &TransferPoint,
    opened: &'a Alike<OpenMessage>,
    hosts: &Hosts,
    pairs: &[(u32, u32)],
) -> Option<Side<'a>> {
    let mut sides = [Side::new(), Side::new()];
    for &(initiator, target) in pairs {
        for (side, rank) in sides.iter_mut().zip([initiator, target]) {
            for rails in &opened.get(rank)?.devices {
                let used = point.rails.of_peer(initiator, target, rails.len());
                for (rail, device) in rails.iter().enumerate() {
                    add_devices(side, hosts.network(rank), device, used.contains(&rail));
                }
            }
        }
    }
    slower(sides).filter(|side| !side.is_empty())
}

/// Links of one side: those that some flow takes, and all.
fn links(side: &Side<'_>) -> Links {
    let speed = |device: &Device| match device.limit {
        LimitKind::Link { bytes_per_s } => bytes_per_s as f64,
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
