//! A domain whose workers have several paths: its capabilities, and its report.

use std::net::IpAddr;
use std::sync::Arc;

use tonnage_units::{Result, WireDevice};

use super::division::Division;
use super::worker::PathsWorker;
use crate::{Caps, Domain, Engine, EngineReport, Facts, WorkerConfig};

/// A device, with several endpoints of it for each worker.
pub(super) struct PathsDomain {
    device: Arc<dyn Domain>,
    division: Division,
    caps: Caps,
}

impl PathsDomain {
    pub(super) fn new(device: Arc<dyn Domain>, division: Division) -> Self {
        let mut caps = *device.caps();
        // What one path, or one part, promises of its last byte says nothing about the others.
        caps.ordered_writes = false;
        Self {
            device,
            division,
            caps,
        }
    }
}

impl Domain for PathsDomain {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn report(&self) -> EngineReport {
        let mut report = self.device.report();
        let mut facts = Facts::default().with("queue_pairs", self.division.queue_pairs);
        if let Some(cut) = self.division.cut {
            facts = facts
                .with("chunk_bytes", cut.chunk_bytes)
                .with("chunks_max", cut.chunks_max);
        }
        report.facts.extend(facts);
        report
    }

    fn stream_address(&self) -> Option<IpAddr> {
        self.device.stream_address()
    }

    fn wire_devices(&self) -> Vec<WireDevice> {
        self.device.wire_devices()
    }

    fn worker(&self, config: &WorkerConfig) -> Result<Box<dyn Engine>> {
        let parts_max = self.division.cut.map_or(1, |cut| cut.chunks_max);
        // A path carries parts, of which an operation has several.
        let depth = config.depth.saturating_mul(parts_max);
        let of_path = WorkerConfig {
            depth: depth.min(self.caps.depth.max(config.depth)),
            ..config.clone()
        };
        let endpoint = |_| self.device.worker(&of_path);
        let paths = (0..self.division.queue_pairs).map(endpoint);
        let paths = paths.collect::<Result<_>>()?;
        Ok(Box::new(PathsWorker::new(
            paths,
            self.division,
            config,
            &self.caps,
        )))
    }
}
