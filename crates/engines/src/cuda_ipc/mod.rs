//! `cuda-ipc`: one-sided operations on GPU memory of other ranks on the same machine. The initiator's GPU opens this
//! memory by an IPC handle and makes the copies. The engine does for GPUs what [`crate::shm`] does for CPUs.
//!
//! | file | contents |
//! | --- | --- |
//! | `mod` | the list row, capabilities, report |
//! | `worker` | a worker: registrations, lanes, posting, polling |
//! | `peer_memory` | describing memory to peers, and opening theirs |
//! | `peer_stream` | the stream to a peer: copies, arrivals after copies, and operations in flight |
//! | `closing` | closing peers' memory before they free it |
//!
//! All operations of one GPU to a peer use one stream, in the order in which they were posted. An operation is done
//! when the event after its copy has completed. Arrivals are reported through the rings that `shm` also uses
//! (`crate::rings`), in shared memory pinned by the driver. If the driver guarantees the order, the GPU itself writes
//! an arrival after the data. GPUs of other vendors have their own list rows, such as those in [`crate::hip`].
//!
//! Memory is allocated, filled and verified by [`crate::memory`]; driver calls are in `tonnage_sys::cuda`.

mod closing;
mod peer_memory;
mod peer_stream;
mod worker;

use std::sync::Arc;

use closing::CloseTimeout;
use peer_memory::IpcDriver;
use tonnage_engine::{
    Caps, DeviceMemoryAccess, Domain, Domains, Engine, EngineReport, Entry, Facts, OpenRequest,
    Verb, WorkerConfig,
};
use tonnage_units::Result;
use worker::{CudaIpc, IN_FLIGHT_MAX};

use crate::memory::cuda_bound;
use crate::memory::cuda_bound::BoundedEnd;
use crate::memory::cuda_region::{driver_report, library};
use crate::memory::nvidia::NVIDIA;
use crate::memory::vendor::GpuVendor;

const CAPS: Caps = Caps {
    immediate_bits: 32,
    delivered: true,
    delivery_on_request: true,
    arrivals_named: true,
    // A copy engine guarantees no order within a copy.
    ordered_writes: false,
    sends_taken: true,
    // Peers map pinned host memory, so it must be shared. GPU memory is always shared by its handle.
    shared_memory: true,
    ..Caps::new(&Verb::COPYING, IN_FLIGHT_MAX, u32::MAX as u64)
};

/// This engine's row in the list of engines.
pub const ENTRY: Entry = entry(
    NVIDIA,
    "copies between NVIDIA GPUs of one host, by the initiator's GPU, to and from memory that the peer's process has \
     allocated",
    |request| open(NVIDIA, request),
);

/// Returns the list row for a vendor's GPUs; `open` opens them.
pub(crate) const fn entry(
    vendor: &'static GpuVendor,
    about: &'static str,
    open: fn(&OpenRequest<'_>) -> Result<Domains>,
) -> Entry {
    Entry {
        libraries: std::slice::from_ref(&vendor.library),
        device_memory: Some(vendor.memory),
        ..Entry::new(vendor.ipc, about, CAPS.verbs, open)
    }
}

/// Opens the engine for a vendor's GPUs.
pub(crate) fn open(vendor: &'static GpuVendor, request: &OpenRequest<'_>) -> Result<Domains> {
    Ok(vec![Arc::new(IpcDomain::open(vendor, request)?)])
}

struct IpcDomain {
    caps: Caps,
    /// This rank's end of copies.
    end: BoundedEnd,
    driver: IpcDriver,
    initiates: bool,
    patience: Arc<CloseTimeout>,
}

impl IpcDomain {
    fn open(vendor: &'static GpuVendor, request: &OpenRequest<'_>) -> Result<Self> {
        let what = format!("engine {}", vendor.ipc);
        let library = library(vendor, Some(request.libraries), &what)?;
        let end = cuda_bound::end(vendor, request.memories)?;
        Ok(Self {
            caps: Caps {
                bound: end.bound,
                ..CAPS
            },
            end,
            driver: IpcDriver {
                vendor,
                library,
                libraries: request.libraries.clone(),
            },
            initiates: request.initiates,
            patience: Arc::default(),
        })
    }
}

impl Domain for IpcDomain {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn bound_place(&self) -> Option<&str> {
        Some(&self.end.place)
    }

    fn device_memory_by(&self) -> DeviceMemoryAccess {
        DeviceMemoryAccess::Copies
    }

    fn report(&self) -> EngineReport {
        EngineReport {
            name: self.driver.vendor.ipc.to_owned(),
            library: Some(driver_report(&self.driver.library)),
            device: Some(self.end.name.clone()),
            facts: Facts::default()
                .with_optional_fact("bound_of_links", self.end.links.clone())
                .with_optional_fact("bound_of_links_unknown", self.end.links_unknown.clone())
                .with_fact("depth", IN_FLIGHT_MAX)
                .with_fact(
                    "completion",
                    "delivered: the initiator's GPU has done the copy",
                )
                .with_fact(
                    "ordering",
                    "in order, by one stream of each GPU towards each peer",
                ),
            ..EngineReport::default()
        }
    }

    fn worker(&self, config: &WorkerConfig) -> Result<Box<dyn Engine + Send>> {
        let driver = (self.driver.clone(), self.initiates);
        let patience = Arc::clone(&self.patience);
        Ok(Box::new(CudaIpc::new(config, driver, patience)))
    }
}
