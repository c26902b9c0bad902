//! Proof of path: shows whether the payload of a point crossed the devices that the engines named.
//!
//! When engines open, every rank sends rank 0 the devices that its payload must cross ([`NamedDevices`]). Rank 0 then
//! knows which ranks share a device ([`Routes`]), and sends each rank its part ([`RankRoutes`]). Ranks that share
//! devices form a group. Before the warm-up and after the last trial, one rank of each group reads the counters
//! ([`CounterWatch`]). The expected bytes are those of all operations that were issued, including the warm-up.
//! [`tonnage_machine::counters`] reads the counters. `unproven` explains why something is not proven.

mod routes;
#[cfg(test)]
mod tests;
mod unproven;
mod watch;

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

pub use routes::{NamedDevices, RankRoutes, Routes};
pub use watch::{CounterWatch, Loads};

use crate::json::Json;
use routes::GroupReader;
use tonnage_machine::counters::{
    Counters, Snapshot, difference, is_trouble, received_bytes, sent_bytes,
};
use tonnage_record::wire_proof::{DEVICES_MAX, DevicePath, TcpPath, WireProof};
use tonnage_units::{Reduce, WireKind, number_list};
use watch::{DeviceLoad, has_carried, is_enough};

/// Time between two readings of the counters.
const READ_INTERVAL: Duration = Duration::from_millis(50);

/// Maximum number of explanations for one point. In a large run, a problem often occurs everywhere.
const WHY_MAX: usize = 16;

/// Findings of ranks about their groups. The order in which they are merged does not matter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WireFindings(Json<WireProof>);

impl Reduce for WireFindings {
    fn merge(&mut self, Self(Json(other)): Self) {
        let Self(Json(path)) = self;
        path.crossed &= other.crossed;
        path.devices_named += other.devices_named;
        path.devices_crossed += other.devices_crossed;
        path.devices.extend(other.devices);
        path.tcp.extend(other.tcp);
        path.why.extend(other.why);
        let first = |ranks: &str| number_list::parse(ranks).ok()?.first().copied();
        // Devices that the payload did not cross come first, so that the limit never removes them.
        path.devices.sort_by_cached_key(|device| {
            let key = (device.crossed, first(&device.ranks), device.kind);
            (key, device.name.clone(), device.port)
        });
        path.devices.truncate(DEVICES_MAX);
        path.tcp.sort_by_cached_key(|tcp| first(&tcp.ranks));
        path.tcp.truncate(DEVICES_MAX);
        path.why.sort();
        path.why.truncate(WHY_MAX);
    }
}

impl CounterWatch<'_> {
    /// Reads the counters again. Returns the findings about this rank's group, for merging with those of other ranks.
    pub fn judge(&self, Loads(loads): &Loads) -> WireFindings {
        let mut path = WireProof::empty();
        let Some(reader) = &self.route.reads else {
            return WireFindings(Json(path));
        };
        let load = loads.get(&reader.at).copied().unwrap_or_default();
        let deadline = Instant::now() + self.timeout;
        let mut after = self.read();
        // Counters include headers, so they must eventually reach the whole payload. Drivers may update them late, so
        // this waits for the update.
        let lacks = |after: &Snapshot| !has_carried(&self.moved(&reader.group, after), load, 100);
        while lacks(&after) && Instant::now() < deadline {
            std::thread::sleep(READ_INTERVAL);
            after = self.read();
        }
        self.judge_group(reader, load, &after, &mut path);
        WireFindings(Json(path))
    }

    fn judge_group(
        &self,
        reader: &GroupReader,
        load: DeviceLoad,
        after: &Snapshot,
        path: &mut WireProof,
    ) {
        let group = &reader.group;
        let moved = self.moved(group, after);
        let counted = has_carried(&moved, load, 99);
        let bypass = self.explain_bypass(reader, load, after).filter(|_| counted);
        let enough = counted && bypass.is_none();
        let all_listed = self.route.devices as usize <= DEVICES_MAX;
        let mut idle = Vec::new();
        for (device, counters) in group.devices.iter().zip(&moved) {
            let took_part = has_taken_part(counters.as_ref(), load, group.devices.len());
            if !took_part && !group.has_share(device, self.point) {
                continue;
            }
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
            path.why
                .push(self.why_unproven(reader, load, &moved, after));
        } else if !idle.is_empty() {
            path.why
                .push(unproven::idle_devices(group, &idle, self.point));
        }
        if reader.reads_tcp {
            let counters = difference(&self.before.tcp, &after.tcp);
            if all_listed || is_troubled(&counters) {
                path.tcp.push(TcpPath {
                    host: group.host.clone(),
                    ranks: number_list::format(&reader.ranks_in_network),
                    counters,
                });
            }
        }
    }

    /// On rank 0, combines the findings of all ranks into the result.
    pub fn conclude(&self, WireFindings(Json(mut path)): WireFindings) -> WireProof {
        let unnamed = &self.route.unnamed;
        if !unnamed.is_empty() {
            path.crossed = false;
            path.why
                .push(unproven::unnamed_ranks(unnamed, &self.point.engine));
        }
        path
    }
}

/// Returns whether one of several devices carried payload: at least a hundredth of an even share. This threshold is
/// low, because the distribution of workers over devices is unknown. A device with only a few packets carried no
/// payload.
fn has_taken_part(counters: Option<&Counters>, load: DeviceLoad, devices: usize) -> bool {
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
