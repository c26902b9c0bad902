//! A domain with several paths per worker: its capabilities and its report.

use std::net::IpAddr;
use std::sync::Arc;

use tonnage_units::{Result, WireDevice};

use super::division::Division;
use super::worker::PathsWorker;
use crate::{
    BoundKind, Caps, DeviceMemoryAccess, Domain, Engine, EngineReport, Facts, Verb, WorkerConfig,
};

/// Several devices, each with the same number of endpoints per worker.
pub(super) struct PathsDomain {
    /// At least one device.
    devices: Vec<Arc<dyn Domain>>,
    division: Division,
    caps: Caps,
}

impl PathsDomain {
    pub(super) fn new(devices: Vec<Arc<dyn Domain>>, division: Division) -> Self {
        let all = devices.iter().map(|device| *device.caps());
        let mut caps = all.reduce(common_caps).unwrap_or(Caps::new(&[], 0, 0));
        // Writes are ordered within a path, not between paths. So a divided flow cannot promise that a write's last
        // byte becomes visible last.
        caps.ordered_writes &= !division.divides_flows();
        Self {
            devices,
            division,
            caps,
        }
    }
}

/// Capabilities common to two devices.
fn common_caps(one: Caps, other: Caps) -> Caps {
    let delivers = |caps: Caps| caps.delivered || caps.delivery_on_request;
    Caps {
        verbs: common_verbs(one.verbs, other.verbs),
        immediate_bits: one.immediate_bits.min(other.immediate_bits),
        depth: one.depth.min(other.depth),
        message_bytes_max: one.message_bytes_max.min(other.message_bytes_max),
        moves_bytes: one.moves_bytes && other.moves_bytes,
        delivered: one.delivered && other.delivered,
        delivery_on_request: delivers(one) && delivers(other),
        sends_taken: one.sends_taken && other.sends_taken,
        passive_target: one.passive_target && other.passive_target,
        arrivals_named: one.arrivals_named && other.arrivals_named,
        arrives_by_polling: one.arrives_by_polling || other.arrives_by_polling,
        ordered_writes: one.ordered_writes && other.ordered_writes,
        shared_memory: one.shared_memory || other.shared_memory,
        carried: one.carried || other.carried,
        bound: combined_bound(one.bound, other.bound),
    }
}

/// The shorter list of verbs, if the other list contains all of them.
fn common_verbs(one: &'static [Verb], other: &'static [Verb]) -> &'static [Verb] {
    let (fewer, more) = if one.len() <= other.len() {
        (one, other)
    } else {
        (other, one)
    };
    match fewer.iter().all(|verb| more.contains(verb)) {
        true => fewer,
        false => &[],
    }
}

fn combined_bound(one: BoundKind, other: BoundKind) -> BoundKind {
    match (one, other) {
        (BoundKind::Link { bytes_per_s: one }, BoundKind::Link { bytes_per_s: other }) => {
            BoundKind::Link {
                bytes_per_s: one.saturating_add(other),
            }
        }
        (one, other) if one == other => one,
        _ => BoundKind::None,
    }
}

impl Domain for PathsDomain {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn report(&self) -> EngineReport {
        let mut reports: Vec<_> = self.devices.iter().map(|device| device.report()).collect();
        let mut report = reports.first().cloned().unwrap_or_default();
        if reports.len() > 1 {
            report.devices = std::mem::take(&mut reports);
        }
        let mut facts = Facts::default().with_fact("queue_pairs", self.division.queue_pairs);
        if !self.division.rails.is_single() {
            facts = facts.with_fact("rails", self.division.rails.name());
        }
        if let Some(cut) = self.division.cut {
            facts = facts
                .with_fact("chunk_bytes", cut.chunk_bytes)
                .with_fact("chunks_max", cut.chunks_max);
        }
        report.facts.extend(facts);
        report
    }

    fn bound_place(&self) -> Option<&str> {
        let [device] = &self.devices[..] else {
            return None;
        };
        device.bound_place()
    }

    fn device_memory_by(&self) -> DeviceMemoryAccess {
        let first = self.devices.first();
        first.map_or_else(DeviceMemoryAccess::default, |device| {
            device.device_memory_by()
        })
    }

    fn stream_address(&self) -> Option<IpAddr> {
        let [device] = &self.devices[..] else {
            return None;
        };
        device.stream_address()
    }

    fn wire_devices(&self) -> Vec<WireDevice> {
        let all = self.devices.iter();
        all.flat_map(|device| device.wire_devices()).collect()
    }

    fn worker(&self, config: &WorkerConfig) -> Result<Box<dyn Engine + Send>> {
        let shares = self.division.shares(self.devices.len());
        // An operation in flight can have several parts in flight on a path, so a path needs a greater depth.
        let depth = config.depth.saturating_mul(shares.parts_max());
        let of_path = WorkerConfig {
            depth: depth.min(self.caps.depth.max(config.depth)),
            ..config.clone()
        };
        let mut engines = Vec::new();
        for device in &self.devices {
            for _ in 0..self.division.queue_pairs {
                engines.push(device.worker(&of_path)?);
            }
        }
        Ok(Box::new(PathsWorker::new(
            engines,
            self.division,
            config,
            &self.caps,
        )))
    }
}
