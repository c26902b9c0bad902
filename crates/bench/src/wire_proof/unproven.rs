//! Explains a missing proof that the payload crossed a device, and suggests a next step.

use super::routes::{DeviceGroup, GroupReader};
use super::watch::{CounterGrowth, CounterWatch, DeviceLoad, has_carried};
use tonnage_machine::counters::{Snapshot, received_bytes, sent_bytes};
use tonnage_plan::transfer::TransferPoint;
use tonnage_units::number_list;
use tonnage_units::quantity::human::bytes;
use tonnage_units::{WireDevice, WireKind};

/// Maximum number of other devices in a list of devices that may have carried the payload.
const OTHERS_MAX: usize = 3;

impl CounterWatch<'_> {
    /// Explains why the devices of a group have counted too few bytes.
    pub(super) fn why_unproven(
        &self,
        reader: &GroupReader,
        load: DeviceLoad,
        moved: &[CounterGrowth],
        after: &Snapshot,
    ) -> String {
        let group = &reader.group;
        let host = &group.host;
        let pairs = || group.devices.iter().zip(moved);
        if let Some((device, _)) = pairs().find(|(_, moved)| moved.is_none()) {
            return missing_device(host, device, after);
        }
        let counts = |moved: &CounterGrowth| {
            let counters = moved.as_ref();
            counters.and_then(sent_bytes).is_some() && counters.and_then(received_bytes).is_some()
        };
        if let Some((device, _)) = pairs().find(|(_, moved)| !counts(moved)) {
            return format!(
                "{} of {host} shows no counters of bytes that could be followed through the point, so that nothing is \
                 proven: see whether its driver has counters, and in a container mount the host's /sys",
                title(device)
            );
        }
        let sum = |of: fn(&_) -> Option<u64>| moved.iter().flatten().filter_map(of).sum::<u64>();
        let short = format!(
            "the payload did not cross {} of {host}: {} sent {} and received {}, and the counters show {} and {}",
            titles(&group.devices),
            list_ranks(&group.ranks),
            format_count(load.sent),
            format_count(load.received),
            format_count(sum(sent_bytes)),
            format_count(sum(received_bytes)),
        );
        let others = self.other_busy_devices(group, load, after);
        let meanwhile = match &others[..] {
            [] => "no other device there counted that much".to_owned(),
            others => format!("{} carried that much meanwhile", titles(others)),
        };
        match (self.neighbours(reader), others.first()) {
            (Some((from, to)), other) => {
                let instead = other.map_or(String::new(), |other| {
                    format!(", or ask for {}", title(other))
                });
                format!(
                    "{short}; ranks {from} and {to} are on one host, and {meanwhile}: place the ranks on different \
                     hosts{instead}"
                )
            }
            (None, Some(other)) => format!(
                "{short}; {meanwhile}: look at the routes and addresses of the hosts, or ask for {}",
                title(other)
            ),
            (None, None) => format!(
                "{short}; {meanwhile}: see whether other devices share the link, and try a longer --duration"
            ),
        }
    }

    /// Explains payload that did not cross the named interface. Ranks on one host reach each other over the loopback,
    /// whichever address they use. The interface's counters don't prove otherwise, because other traffic can raise the
    /// counters by as much.
    pub(super) fn explain_bypass(
        &self,
        reader: &GroupReader,
        load: DeviceLoad,
        after: &Snapshot,
    ) -> Option<String> {
        let group = &reader.group;
        let is_loopback = |device: &WireDevice| device.name == "lo";
        let interface = group
            .devices
            .iter()
            .find(|device| device.kind == WireKind::Interface && !is_loopback(device))?;
        let (from, to) = self.neighbours(reader)?;
        let loopback = self
            .other_busy_devices(group, load, after)
            .into_iter()
            .find(|other| is_loopback(other))?;
        Some(format!(
            "the payload did not cross {} of {}: ranks {from} and {to} are on one host, and {} carried that much \
             meanwhile: place the ranks on different hosts, or ask for {}",
            title(interface),
            group.host,
            title(&loopback),
            title(&loopback)
        ))
    }

    /// Returns the first two ranks on a group's host that exchange payload with each other.
    pub(super) fn neighbours(&self, reader: &GroupReader) -> Option<(u32, u32)> {
        let here = &reader.ranks_in_network;
        let is_here = |rank: &u32| here.binary_search(rank).is_ok();
        here.iter().find_map(|&rank| {
            let targets = self.point.roles.targets(rank);
            let target = targets.into_iter().find(is_here)?;
            let ranks = &reader.group.ranks;
            let ours = ranks.contains(&rank) || ranks.contains(&target);
            ours.then_some((rank, target))
        })
    }

    /// Returns devices outside the group if their counters have grown by at least the payload.
    fn other_busy_devices(
        &self,
        group: &DeviceGroup,
        load: DeviceLoad,
        after: &Snapshot,
    ) -> Vec<WireDevice> {
        let named = &group.devices;
        let mut others = after.devices();
        others.retain(|device| {
            !named.contains(device) && has_carried(&[self.moved_by(device, after)], load, 99)
        });
        others.truncate(OTHERS_MAX);
        others
    }
}

/// Explains that a device was missing, at least for a part of the point.
fn missing_device(host: &str, device: &WireDevice, after: &Snapshot) -> String {
    let (what, place) = match device.kind {
        WireKind::Interface => ("interface", "/proc/net/dev"),
        WireKind::RdmaPort => ("RDMA port", "/sys/class/infiniband"),
    };
    let mut known = after.devices();
    known.retain(|other| other.kind == device.kind);
    let known = match &known[..] {
        [] => "nothing".to_owned(),
        known => titles(known),
    };
    format!(
        "{} of {host} cannot be read, so that nothing is proven: {place} lists {known}; ask for {what} names of that \
         list",
        title(device)
    )
}

/// Explains that some devices were idle while other devices carried all payload.
pub(super) fn idle_devices(
    group: &DeviceGroup,
    idle: &[&WireDevice],
    point: &TransferPoint,
) -> String {
    let mut expected = group.devices.clone();
    expected.retain(|device| group.has_share(device, point));
    format!(
        "{} of {} carried none of the payload that {} should have spread over {}: use at least as many --threads as \
         devices, or leave it out",
        titles(idle.iter().copied()),
        group.host,
        list_ranks(&group.ranks),
        titles(&expected),
    )
}

/// Explains that the engines of some ranks name no device, although others do.
pub(super) fn unnamed_ranks(unnamed: &[u32], engine: &str) -> String {
    format!(
        "{} use{} engine {engine} without naming a device, so nothing is proven about their side: name one with \
         --devices",
        list_ranks(unnamed),
        if unnamed.len() == 1 { "s" } else { "" }
    )
}

fn list_ranks(ranks: &[u32]) -> String {
    let plural = if ranks.len() == 1 { "" } else { "s" };
    format!("rank{plural} {}", number_list::format(ranks))
}

fn titles<'a>(devices: impl IntoIterator<Item = &'a WireDevice>) -> String {
    let titles: Vec<String> = devices.into_iter().map(title).collect();
    match titles.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        Some((only, _)) => only.clone(),
        None => String::new(),
    }
}

fn title(device: &WireDevice) -> String {
    match device.kind {
        WireKind::Interface => device.name.clone(),
        WireKind::RdmaPort => format!("{} port {}", device.name, device.port),
    }
}

fn format_count(count: u64) -> String {
    bytes(count as f64)
}
