//! One device of a provider: its capabilities, its report and its workers.

use std::net::IpAddr;

use tonnage_engine::{
    BoundKind, Caps, DeviceMemoryAccess, Domain, Engine, EngineReport, Facts, LibraryReport,
    OpenRequest, Verb, WorkerConfig,
};
use tonnage_sys::libfabric::{Info, Offer};
use tonnage_units::{Error, Result, WireDevice, WireKind};

use super::arrival::{ArrivalProof, Granted};
use super::options::{COMPLETION, INJECT, OPTIONS, SHM_WRITES, core_provider};
use super::worker::{FabricWorker, FlushLimits, TransferModes};
use crate::memory::cuda_region::is_of_gpu;
use crate::registration::REGISTRATION;

/// One device of a provider.
pub(super) struct FabricDomain {
    info: Info,
    caps: Caps,
    /// Facts about the choice of library and device.
    chosen: Facts,
    /// `None` if the point has no writes.
    arrival: Option<ArrivalProof>,
    is_shm: bool,
    shm_writes: Option<String>,
    inject: bool,
    /// Maximum length of a write for which a later read is ordered after it (read-after-write, RAW).
    pub(super) read_after_write_bytes_max: u32,
    /// How to register GPU memory; `None` for host memory.
    registration: Option<String>,
}

impl FabricDomain {
    pub(super) fn new(
        request: &OpenRequest<'_>,
        info: Info,
        delivery: bool,
        chosen: Facts,
    ) -> Result<Self> {
        let attributes = info.attributes();
        let is_shm = core_provider(&attributes.provider) == "shm";
        let does = |verb| request.verbs.contains(&verb);
        let writes = does(Verb::Write) || does(Verb::WriteImm);
        let shm_writes = (is_shm && writes).then(|| request.option(&OPTIONS, SHM_WRITES));
        let ordered = |name| attributes.ordering.contains(&name);
        let granted = Granted {
            delivery,
            reads_after_writes: ordered("RMA-RAW") || ordered("RAW"),
            // Even with cma, writes with immediate data use the queue.
            synchronous: shm_writes.as_deref() == Some("cma") && !does(Verb::WriteImm),
        };
        let option = request.option(&OPTIONS, COMPLETION);
        let arrival = writes
            .then(|| ArrivalProof::choose(&option, granted, request.variant))
            .transpose()?;
        let caps = caps(attributes, arrival, shm_writes.as_deref());
        Ok(Self {
            caps,
            chosen,
            arrival,
            is_shm,
            shm_writes,
            inject: request.option(&OPTIONS, INJECT) == "auto",
            read_after_write_bytes_max: u32::try_from(attributes.read_after_write_bytes_max)
                .unwrap_or(u32::MAX),
            registration: is_of_gpu(request.memories.0)
                .then(|| request.option(&OPTIONS, REGISTRATION)),
            info,
        })
    }
}

fn caps(attributes: &Offer, arrival: Option<ArrivalProof>, shm_writes: Option<&str>) -> Caps {
    let depth = attributes.tx_depth.min(attributes.rx_depth);
    Caps {
        immediate_bits: 8 * attributes.immediate_bytes.min(4) as u32,
        delivered: matches!(
            arrival,
            Some(ArrivalProof::Synchronous | ArrivalProof::EveryWrite)
        ),
        delivery_on_request: arrival == Some(ArrivalProof::Flush { on_request: true }),
        arrivals_named: attributes.immediate_bytes >= 8,
        arrives_by_polling: true,
        // Whether the last byte of a write is known to become visible last.
        ordered_writes: match core_provider(&attributes.provider) {
            "shm" => shm_writes == Some("ordered"),
            "tcp" | "verbs" => true,
            _ => false,
        },
        bound: bound(attributes),
        ..Caps::new(
            &Verb::COPYING,
            u32::try_from(depth).unwrap_or(u32::MAX).clamp(1, DEPTH_MAX),
            attributes.message_bytes_max as u64,
        )
    }
}

/// Maximum depth of one lane. A greater depth would only fill queues.
const DEPTH_MAX: u32 = 4096;

/// How the bound of the bandwidth is measured.
fn bound(attributes: &Offer) -> BoundKind {
    match (
        core_provider(&attributes.provider),
        attributes.link_bits_per_s,
    ) {
        ("shm", _) => BoundKind::MemoryCopy,
        ("tcp" | "sockets" | "udp", _) => BoundKind::SocketStream,
        (_, Some(bits_per_s)) => BoundKind::Link {
            bytes_per_s: bits_per_s / 8,
        },
        (_, None) => BoundKind::None,
    }
}

/// The device that payload must cross: the network interface of a socket, or the port of an RDMA NIC. Shared memory has
/// none.
fn wire_device(attributes: &Offer) -> Option<WireDevice> {
    let (kind, name, port) = match core_provider(&attributes.provider) {
        "shm" => return None,
        "tcp" | "sockets" | "udp" => (WireKind::Interface, attributes.domain.as_str(), 0),
        // EFA and verbs append the endpoint kind to the device's name. Only the first port of a NIC is counted.
        "efa" | "verbs" => {
            let device = attributes.domain.split('-').next().unwrap_or_default();
            (WireKind::RdmaPort, device, 1)
        }
        // The counters of other devices are not read here, so they cannot prove anything.
        _ => return None,
    };
    (!name.is_empty()).then(|| WireDevice {
        kind,
        name: name.to_owned(),
        port,
    })
}

impl Domain for FabricDomain {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn report(&self) -> EngineReport {
        let (attributes, library) = (self.info.attributes(), self.info.library());
        let progress = Facts::default()
            .with_fact("control", attributes.control_progress.clone())
            .with_fact("data", attributes.data_progress.clone())
            .with_fact("driven_by", "every rank polls, targets too");
        let inject = if self.inject {
            attributes.inject_bytes_max
        } else {
            0
        };
        // The longest write that a flush proves to have arrived, if there is a limit.
        let flushes = matches!(self.arrival, Some(ArrivalProof::Flush { .. }));
        let flushed =
            Some(self.read_after_write_bytes_max).filter(|&bytes| flushes && bytes < u32::MAX);
        let address = attributes.address.map(|address| address.to_string());
        EngineReport {
            name: "fabric".to_owned(),
            library: Some(LibraryReport {
                version: format!("libfabric {}", library.release()),
                library: library.path().to_owned(),
            }),
            provider: Some(attributes.provider.clone()),
            provider_version: Some(attributes.provider_version.to_string()),
            device: Some(attributes.domain.clone()),
            facts: (self.chosen.clone())
                .with_fact("api_version", attributes.api_version.to_string())
                .with_fact("fabric", attributes.fabric.clone())
                .with_optional_fact("address", address)
                .with_fact("mr_mode", attributes.mr_mode.clone())
                .with_fact("ordering", attributes.ordering.clone())
                .with_optional_fact("completion", self.arrival.map(ArrivalProof::describe))
                .with_optional_fact("flushed_bytes_max", flushed)
                .with_optional_fact("shm_writes", self.shm_writes.clone())
                .with_fact("inject_bytes_max", inject)
                .with_fact("tx_depth", attributes.tx_depth)
                .with_fact("rx_depth", attributes.rx_depth)
                .with_fact("depth", self.caps.depth)
                .with_fact("progress", progress)
                .with_fact("threading", attributes.threading.clone())
                .with_fact("immediate_bytes", attributes.immediate_bytes),
            ..EngineReport::default()
        }
    }

    fn stream_address(&self) -> Option<IpAddr> {
        self.info.attributes().address
    }

    fn device_memory_by(&self) -> DeviceMemoryAccess {
        // libfabric decides whether shm copies within a GPU or through the host.
        match core_provider(&self.info.attributes().provider) {
            "shm" => DeviceMemoryAccess::Unknown,
            _ => DeviceMemoryAccess::Cards,
        }
    }

    fn wire_devices(&self) -> Vec<WireDevice> {
        wire_device(self.info.attributes()).into_iter().collect()
    }

    fn worker(&self, config: &WorkerConfig) -> Result<Box<dyn Engine + Send>> {
        let info = self
            .info
            .duplicate()
            .map_err(|error| Error::Failed(error.into()))?;
        let modes = TransferModes {
            inject: self.inject,
            deliver_every_write: self.arrival == Some(ArrivalProof::EveryWrite),
            flushes: match self.arrival {
                Some(ArrivalProof::Flush { on_request }) => Some(FlushLimits {
                    bytes_max: self.read_after_write_bytes_max,
                    longer_delivered: on_request,
                }),
                _ => None,
            },
            attaches: self.shm_writes.as_deref() == Some("cma"),
            is_shm: self.is_shm,
        };
        let worker = FabricWorker::open(info, config, (modes, self.registration.clone()))?;
        Ok(Box::new(worker))
    }
}
