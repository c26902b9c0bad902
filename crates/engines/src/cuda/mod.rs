//! `cuda`: copies within one process, between memories of GPUs, and between GPUs and host memory. The ranks of its
//! points are threads of one process, each with its own memory. The initiator's thread posts the copies. GPUs of other
//! vendors have their own list rows, such as those in [`crate::hip`].
//!
//! | file | contents |
//! | --- | --- |
//! | `mod` | the list row, the domain, and a worker's lanes |
//! | `registry` | finding the memories of other threads of this process |
//!
//! A lane is a [`CudaCopier`]: two memories, streams, and events that follow the copies. It cannot reach memory of
//! another process.

mod registry;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use registry::CudaRegistration;
use tonnage_engine::memory::Memory;
use tonnage_engine::{
    Caps, Completion, Descriptor, DeviceMemoryAccess, Domain, Domains, EndpointAddress, Engine,
    EngineOption, EngineReport, Entry, Facts, Failure, Flush, Lane, LaneKind, LaneSpec, LaneTable,
    LibraryReport, Op, OpenRequest, Peer, PeerEndpoint, Region, RegionId, RegionTable, Verb,
    WorkerConfig,
};
use tonnage_sys::cuda::{CopyMark, CudaCopier, CudaFailure};
use tonnage_units::{Error, Result};

use crate::memory::cuda_bound;
use crate::memory::cuda_bound::BoundedEnd;
use crate::memory::cuda_region::{CudaEnd, driver_report, library, unavailable};
use crate::memory::nvidia::NVIDIA;
use crate::memory::vendor::GpuVendor;

/// Maximum number of copies in flight on each stream of a lane. With more copies, posting could block: a driver's
/// launch queue has about a thousand entries, and each copy takes two.
const DEPTH: u32 = 256;

/// Bytes per call of `post` if the driver blocks the caller until the bytes are copied, as it does with memory that is
/// not pinned. The caller checks its clock and its peers between calls.
const WAITED_BYTES_MAX: u64 = 4 << 20;

/// Value of option `by` that selects our copy kernel.
const BY_KERNEL: &str = "sm";

const OPTIONS: [EngineOption; 2] = [
    EngineOption::choice(
        "by",
        &["ce", BY_KERNEL],
        "ce: the driver's own copies (copy engines; HIP's runtime may use a kernel); sm: tonnage's kernel on the GPU's \
         processors (streaming multiprocessors, compute units)",
    ),
    EngineOption::bounded(
        "streams",
        1,
        [1, 32],
        "streams of a lane, which take its copies in turn; copies on different streams may run at the same time",
    ),
];

/// This engine's row in the list of engines.
pub const ENTRY: Entry = entry(
    NVIDIA,
    "copies by an NVIDIA GPU within one process: between host and GPU, within a GPU, or between two GPUs",
    |request| open(NVIDIA, request),
);

/// Returns the list row for a vendor's GPUs; `open` opens them.
pub(crate) const fn entry(
    vendor: &'static GpuVendor,
    about: &'static str,
    open: fn(&OpenRequest<'_>) -> Result<Domains>,
) -> Entry {
    Entry {
        options: &OPTIONS,
        libraries: std::slice::from_ref(&vendor.library),
        device_memory: Some(vendor.memory),
        one_process: true,
        ..Entry::new(vendor.copies, about, CAPS.verbs, open)
    }
}

/// Opens the engine for a vendor's GPUs.
pub(crate) fn open(vendor: &'static GpuVendor, request: &OpenRequest<'_>) -> Result<Domains> {
    Ok(vec![Arc::new(CudaDomain::open(vendor, request)?)])
}

const CAPS: Caps = Caps {
    // When the event after a copy has completed, the host and all later work of the GPU see the bytes.
    delivered: true,
    delivery_on_request: true,
    arrivals_named: true,
    sends_taken: true,
    passive_target: true,
    ..Caps::new(&[Verb::Write, Verb::Read], DEPTH, u32::MAX as u64)
};

struct CudaDomain {
    vendor: &'static GpuVendor,
    caps: Caps,
    /// This rank's end of copies.
    end: BoundedEnd,
    driver: LibraryReport,
    by_kernel: bool,
    streams: u32,
}

impl CudaDomain {
    fn open(vendor: &'static GpuVendor, request: &OpenRequest<'_>) -> Result<Self> {
        let what = format!("engine {}", vendor.copies);
        let library = library(vendor, Some(request.libraries), &what)?;
        let end = cuda_bound::end(vendor, request.memories)?;
        Ok(Self {
            vendor,
            caps: Caps {
                bound: end.bound,
                ..CAPS
            },
            end,
            driver: driver_report(&library),
            by_kernel: request.option(&OPTIONS, "by") == BY_KERNEL,
            // The value is within the option's bounds, because the options were checked before.
            streams: request.number(&OPTIONS, "streams") as u32,
        })
    }
}

impl Domain for CudaDomain {
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
        let copies_by = self.vendor.copies_by;
        EngineReport {
            name: self.vendor.copies.to_owned(),
            library: Some(self.driver.clone()),
            device: Some(self.end.name.clone()),
            facts: Facts::default()
                .with_fact(
                    "by",
                    if self.by_kernel {
                        "a kernel of the GPU"
                    } else {
                        copies_by
                    },
                )
                .with_fact("streams", u64::from(self.streams))
                .with_optional_fact("bound_of_links", self.end.links.clone())
                .with_optional_fact("bound_of_links_unknown", self.end.links_unknown.clone())
                .with_fact("depth", DEPTH)
                .with_fact("ranks_are", "threads of one process")
                .with_fact(
                    "completion",
                    "delivered: the event behind a copy is passed when its bytes have arrived",
                )
                .with_fact("ordering", "in order within a stream"),
            ..EngineReport::default()
        }
    }

    fn worker(&self, config: &WorkerConfig) -> Result<Box<dyn Engine + Send>> {
        Ok(Box::new(CudaCopies {
            vendor: self.vendor,
            by_kernel: self.by_kernel,
            streams: self.streams,
            // Depth of each stream.
            depth: config.depth.clamp(1, DEPTH),
            regions: RegionTable::default(),
            lanes: LaneTable::default(),
            broken: None,
        }))
    }
}

/// Identifies a lane by its specification.
#[derive(Debug, Clone, PartialEq, Eq)]
struct LaneKey {
    verb: Verb,
    peer: Peer,
    local: RegionId,
    remote: Vec<u8>,
}

struct LaneState {
    /// Name of the engine.
    name: &'static str,
    key: LaneKey,
    copier: CudaCopier,
    /// The end with the GPU that makes the copies, for messages.
    end: CudaEnd,
    // Both memories must outlive all copies in flight. The copier keeps their bytes alive; these references also keep
    // the code that fills and verifies them.
    _memories: [Arc<dyn Memory>; 2],
}

struct CudaCopies {
    vendor: &'static GpuVendor,
    by_kernel: bool,
    streams: u32,
    depth: u32,
    regions: RegionTable<CudaRegistration>,
    lanes: LaneTable<LaneState>,
    /// The first failure of the driver. After it, the state of copies in flight is unknown.
    broken: Option<String>,
}

impl CudaCopies {
    fn check(&self) -> Result<()> {
        match &self.broken {
            None => Ok(()),
            Some(why) => Err(Error::Failed(why.clone())),
        }
    }

    /// Records a failure of the driver. All later operations are refused.
    #[cold]
    fn mark_broken(&mut self, error: Error) -> Error {
        self.broken = Some(error.to_string());
        error
    }

    /// Returns this memory as an end of copies.
    fn end(&self, memory: &dyn Memory) -> Result<CudaEnd> {
        let vendor = self.vendor;
        CudaEnd::new(vendor, memory).ok_or_else(|| Error::Unavailable {
            what: format!(
                "memory {} with engine {}",
                memory.report().kind,
                vendor.copies
            ),
            why: format!(
                "{} copies only memory of its own GPUs and host memory",
                vendor.driver_words
            ),
            how: format!(
                "Choose --memory {}, {} or host memory",
                vendor.memory, vendor.pinned
            ),
        })
    }

    /// Creates a lane with its streams, and with events for the copies on each stream.
    fn resolve(
        &self,
        key: LaneKey,
        memories: [Arc<dyn Memory>; 2],
        sizes: (u32, u32),
    ) -> Result<LaneState> {
        let [own, far] = [self.end(&*memories[0])?, self.end(&*memories[1])?];
        let name = self.vendor.copies;
        let what = || {
            let [own, far] = [&memories[0], &memories[1]].map(|memory| memory.report().kind);
            format!(
                "{} between memory {own} and memory {far} of rank {}",
                key.verb.name(),
                key.peer
            )
        };
        let refused = |failure: &CudaFailure| {
            unavailable(self.vendor, &format!("{name}, {}", what()), failure)
        };
        // The initiator's GPU, if there is one, makes the copies: it pushes writes and pulls reads.
        let driving = if own.gpu.is_some() { &own } else { &far };
        let Some(gpu) = &driving.gpu else {
            return Err(refused(&CudaFailure::NoGpu));
        };
        let kernel = match self.by_kernel {
            false => None,
            true => Some(gpu.copy_kernel().map_err(|why| Error::Unavailable {
                what: format!("{name}, {}, by={BY_KERNEL}", what()),
                why: format!("{}: {why}", gpu.name()),
                how: "Choose --engine-option by=ce".to_owned(),
            })?),
        };
        let ends = (own.region.clone(), far.region.clone());
        let ends = match key.verb {
            Verb::Read => (ends.1, ends.0),
            _ => ends,
        };
        let copier = CudaCopier::new(&gpu.context, ends, kernel, sizes)
            .map_err(|failure| refused(&failure))?;
        Ok(LaneState {
            name,
            key,
            copier,
            end: driving.clone(),
            _memories: memories,
        })
    }
}

impl LaneState {
    #[cold]
    fn failed(&self, failure: &CudaFailure) -> Error {
        let what = format!(
            "{}: {} with rank {}",
            self.name,
            self.key.verb.name(),
            self.key.peer
        );
        match &self.end.gpu {
            Some(gpu) => Error::Failed(format!("{what}: {}", gpu.failed(failure))),
            None => Error::Failed(format!("{what}: {failure}")),
        }
    }
}

impl Engine for CudaCopies {
    fn register(&mut self, memory: &Arc<dyn Memory>) -> Result<Region> {
        self.end(&**memory)?;
        let registration = CudaRegistration::new(memory);
        let descriptor = registration.descriptor();
        let id = self.regions.put(registration);
        Ok(Region { id, descriptor })
    }

    fn deregister(&mut self, region: RegionId) -> Result<()> {
        self.lanes.check_unused(region, |lane| lane.key.local)?;
        self.regions.take(region).map(|_| ())
    }

    /// Returns the concatenated descriptors of this worker's memories, so that peers can check whether they can copy
    /// them.
    fn endpoint_addresses(&mut self, peers: &[Peer]) -> Result<Vec<EndpointAddress>> {
        let all = self.regions.iter();
        let address: Vec<u8> = all.flat_map(|(_, it)| it.descriptor().0).collect();
        Ok(vec![EndpointAddress(address); peers.len()])
    }

    fn connect(&mut self, peers: &[PeerEndpoint]) -> Result<()> {
        for neighbor in peers {
            for descriptor in neighbor.address.0.chunks(registry::DESCRIPTOR_BYTES) {
                let remote = Descriptor(descriptor.to_vec());
                let far = registry::find(self.vendor.copies, &remote, neighbor.peer)?;
                for (local, own) in self.regions.iter() {
                    let key = LaneKey {
                        verb: Verb::Write,
                        peer: neighbor.peer,
                        local,
                        remote: remote.0.clone(),
                    };
                    // A lane that fails later would end the run. If it fails here, only the point is skipped.
                    self.resolve(key, [Arc::clone(&own.memory), Arc::clone(&far)], (1, 1))?;
                }
            }
        }
        Ok(())
    }

    fn lane(&mut self, spec: &LaneSpec<'_>) -> Result<Lane> {
        let LaneKind::Initiate(verb) = spec.kind else {
            let name = self.vendor.copies;
            return Err(Error::Failed(format!("engine {name} has no receives")));
        };
        let key = LaneKey {
            verb,
            peer: spec.peer,
            local: spec.local,
            remote: spec.remote.0.clone(),
        };
        if let Some(known) = self.lanes.find(|lane| lane.key == key) {
            return Ok(known);
        }
        let own = Arc::clone(&self.regions.get(spec.local)?.memory);
        let far = registry::find(self.vendor.copies, spec.remote, spec.peer)?;
        let lane = self.resolve(key, [own, far], (self.streams, self.depth))?;
        Ok(self.lanes.put(lane))
    }

    fn release_lane(&mut self, lane: Lane) {
        self.lanes.release(lane);
    }

    fn post(&mut self, ops: &[Op]) -> Result<usize> {
        self.check()?;
        let mut waited = 0;
        for (taken, op) in ops.iter().enumerate() {
            let lane = match self.lanes.get_mut(op.lane) {
                Ok(lane) => lane,
                Err(error) => return if taken > 0 { Ok(taken) } else { Err(error) },
            };
            let mark = CopyMark {
                tag: op.tag,
                len: op.len,
            };
            let (from, to) = match lane.key.verb {
                Verb::Read => (op.remote, op.local),
                _ => (op.local, op.remote),
            };
            match lane.copier.post(from, to, mark) {
                Ok(true) if lane.copier.waits() => {
                    waited += u64::from(op.len);
                    if waited >= WAITED_BYTES_MAX {
                        return Ok(taken + 1);
                    }
                }
                Ok(true) => {}
                Ok(false) => return Ok(taken),
                Err(failure) => {
                    let mut error = lane.failed(&failure);
                    if !matches!(failure, CudaFailure::Outside(_)) {
                        error = self.mark_broken(error);
                    }
                    return if taken > 0 { Ok(taken) } else { Err(error) };
                }
            }
        }
        Ok(ops.len())
    }

    fn flush(&mut self, lane: Lane, _tag: u32) -> Result<Flush> {
        self.lanes.get(lane).map(|_| Flush::Delivered)
    }

    fn poll(&mut self, done: &mut [Completion]) -> Result<usize> {
        self.check()?;
        let (mut count, mut failed) = (0, None);
        for (number, lane) in self.lanes.iter_mut() {
            let room = done.len() - count;
            let mut free = done[count..].iter_mut();
            let polled = lane.copier.poll(room, |mark| {
                if let Some(slot) = free.next() {
                    *slot = Completion {
                        tag: mark.tag,
                        lane: number,
                        len: mark.len,
                        ..Completion::EMPTY
                    };
                }
            });
            match polled {
                Ok(ended) => count += ended,
                Err(failure) => {
                    failed = Some(lane.failed(&failure));
                    break;
                }
            }
        }
        failed.map_or(Ok(count), |error| Err(self.mark_broken(error)))
    }

    fn flush_incoming(&mut self) -> Result<bool> {
        Ok(false)
    }

    fn failure(&self, _done: &Completion) -> Failure {
        // A failed copy ends the engine, because the driver does not report which copy failed.
        Failure::default()
    }
}
