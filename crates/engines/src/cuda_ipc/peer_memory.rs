//! Peer memory: describes this rank's memory to peers, and opens peers' memory for the GPU that copies it.

use std::os::fd::AsRawFd;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tonnage_engine::memory::Memory;
use tonnage_engine::{Descriptor, Libraries, Peer};
use tonnage_sys::cuda::{
    CudaContext, CudaDevice, CudaFailure, CudaPart, DeviceBuffer, ImportedBuffer, IpcHandle,
    Libcuda, PinnedArena, PinnedView,
};
use tonnage_units::{Error, Result};

use crate::memory::cuda_region::{DriverMemory, context_of, gpu_failed, gpu_name};
use crate::memory::vendor::GpuVendor;
use crate::memory::vendor::vendor_of;
use crate::rings::Contacts;

/// A registered memory, described for peers that open it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct IpcRegion {
    pid: u32,
    /// Number of the region. It is never reused, unlike file descriptors.
    region: u32,
    bytes: u64,
    shared: SharedBy,
}

/// How a memory is shared with other processes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum SharedBy {
    /// GPU memory, by the driver's handle.
    Gpu {
        uuid: String,
        /// PCI address, needed because some GPUs have no UUID.
        pci_address: String,
        name: String,
        handle: Vec<u8>,
    },
    /// Pinned host memory, by its file.
    Host { fd: i32 },
}

/// Memory of a peer that is open in this process.
pub(super) enum IpcBytes {
    Gpu(ImportedBuffer),
    Host(PinnedArena),
}

impl IpcBytes {
    #[inline]
    pub(super) fn part(&self, offset: u64, len: u64) -> Result<CudaPart<'_>, CudaFailure> {
        match self {
            Self::Gpu(buffer) => buffer.part(offset, len),
            Self::Host(arena) => arena.part(offset, len),
        }
    }

    fn context(&self) -> &Arc<CudaContext> {
        match self {
            Self::Gpu(buffer) => buffer.context(),
            Self::Host(arena) => arena.context(),
        }
    }
}

/// This rank's memory, as the end of a lane.
pub(super) enum OwnBytes {
    Gpu(Arc<DeviceBuffer>),
    Host(PinnedView),
}

impl OwnBytes {
    /// Wraps this rank's memory, so that streams of this context can copy its bytes.
    pub(super) fn new(memory: DriverMemory, context: &Arc<CudaContext>) -> Self {
        match memory {
            DriverMemory::Gpu(buffer) => Self::Gpu(buffer),
            DriverMemory::Pinned(pinned) => Self::Host(PinnedView::new(&pinned, context)),
        }
    }

    #[inline]
    pub(super) fn part(&self, offset: u64, len: u64) -> Result<CudaPart<'_>, CudaFailure> {
        match self {
            Self::Gpu(buffer) => buffer.part(offset, len),
            Self::Host(view) => view.part(offset, len),
        }
    }
}

/// The driver, and how it was chosen.
#[derive(Clone)]
pub(super) struct IpcDriver {
    pub(super) vendor: &'static GpuVendor,
    pub(super) library: Arc<Libcuda>,
    pub(super) libraries: Libraries,
}

impl IpcDriver {
    /// Returns the context for copies between this rank's memory and a peer's. For GPU memory, this is the context of
    /// this rank's GPU. For pinned memory, it is the context of the peer's GPU, so that no third GPU is involved.
    ///
    /// # Errors
    /// `Unavailable` if the peer's GPU is not visible to this process.
    pub(super) fn context(
        &self,
        own: &DriverMemory,
        (contacts, peer): (&Contacts, Peer),
        descriptor: &Descriptor,
    ) -> Result<Arc<CudaContext>> {
        let DriverMemory::Pinned(pinned) = own else {
            return Ok(Arc::clone(own.context()));
        };
        let SharedBy::Gpu {
            uuid,
            pci_address,
            name,
            ..
        } = decode_region(contacts, peer, descriptor)?.shared
        else {
            return Ok(Arc::clone(pinned.context()));
        };
        let GpuVendor { ipc, visible, .. } = self.vendor;
        let what = format!("{ipc}, pinned memory and GPU {uuid}");
        let seen = context_of(
            (&self.library, &self.libraries),
            (&uuid, &pci_address),
            &what,
        )?;
        seen.ok_or_else(|| Error::Unavailable {
            what,
            why: format!(
                "rank {peer}'s memory is on that GPU (which it calls {name}), but the GPU is not visible to this process, so \
                 a third GPU would have to copy"
            ),
            how: format!(
                "Let each rank see both GPUs ({visible}), or let the rank with the GPU initiate"
            ),
        })
    }
}

fn decode_region(contacts: &Contacts, peer: Peer, descriptor: &Descriptor) -> Result<IpcRegion> {
    serde_json::from_slice(&descriptor.0).map_err(|error| {
        contacts.unusable(peer, format!("cannot decode the peer's region ({error})"))
    })
}

/// An open memory of a peer, and the path to it from the GPU that opened it.
pub(super) struct IpcMemory {
    /// The peer's number for this memory.
    pub(super) region: u32,
    pub(super) bytes: IpcBytes,
    /// Description of the path between this memory and memory of the GPU that opened it.
    way: String,
}

impl IpcMemory {
    /// Describes the path between this memory and this rank's end.
    pub(super) fn way_from(&self, own: &OwnBytes) -> String {
        match (own, &self.bytes) {
            (OwnBytes::Host(_), IpcBytes::Gpu(buffer)) => {
                format!(
                    "pinned memory of the host and {}",
                    gpu_name(buffer.context())
                )
            }
            _ => self.way.clone(),
        }
    }
}

/// Returns the error for memory that the driver does not know.
pub(super) fn unknown_memory(vendor: &GpuVendor, memory: &dyn Memory) -> Error {
    let GpuVendor {
        memory: gpu,
        pinned,
        driver_words,
        ..
    } = vendor;
    Error::Unavailable {
        what: format!("memory {} with engine {}", memory.report().kind, vendor.ipc),
        why: format!("GPUs move the bytes, and {driver_words} does not know this memory"),
        how: format!("Choose --memory {gpu}, {gpu}:N or {pinned}, or engine shm for host memory"),
    }
}

/// Describes a memory for peers.
///
/// # Errors
/// `Unavailable` for memory that the driver cannot share.
pub(super) fn describe(
    vendor: &GpuVendor,
    number: u32,
    memory: &dyn Memory,
    bytes: &DriverMemory,
) -> Result<IpcRegion> {
    let unavailable = |why: String, how: String| Error::Unavailable {
        what: format!("memory {} with engine {}", memory.report().kind, vendor.ipc),
        why,
        how,
    };
    let shared = match bytes {
        DriverMemory::Gpu(buffer) => {
            let device = buffer.context().device();
            if buffer.granularity().is_some() {
                return Err(unavailable(
                    "the driver cannot make an IPC handle for memory allocated by virtual-memory handles".to_owned(),
                    "Leave --memory-option alloc=vmm out: alloc=malloc is shared between processes".to_owned(),
                ));
            }
            let handle = buffer.export().map_err(|failure| {
                unavailable(
                    format!("{} cannot share it with other processes: {failure}", gpu_name(buffer.context())),
                    format!(
                        "Use a whole GPU on Linux, whose driver shares memory between processes; engine {} copies within \
                         one process",
                        vendor.copies
                    ),
                )
            })?;
            SharedBy::Gpu {
                uuid: device.uuid.clone(),
                pci_address: device.pci_address.clone(),
                name: gpu_name(buffer.context()),
                handle: handle.0.to_vec(),
            }
        }
        DriverMemory::Pinned(pinned) => match pinned.arena().file() {
            Some(file) => SharedBy::Host {
                fd: file.as_raw_fd(),
            },
            None => {
                return Err(unavailable(
                    "peers map each other's memory, but this memory is private to one process"
                        .to_owned(),
                    "Allocate it shared".to_owned(),
                ));
            }
        },
    };
    Ok(IpcRegion {
        pid: std::process::id(),
        region: number,
        bytes: memory.bytes(),
        shared,
    })
}

/// A peer's memory that is open in this process. It stays open while a lane uses it, and afterwards until other memory
/// of this peer is opened.
struct Opened {
    peer: Peer,
    described: IpcRegion,
    memory: Arc<IpcMemory>,
}

/// The open memories of peers.
#[derive(Default)]
pub(super) struct IpcMemories {
    opened: Vec<Opened>,
}

impl IpcMemories {
    /// Returns the peer's memory with this descriptor for streams of this context. Opens the memory if needed.
    pub(super) fn find_or_open(
        &mut self,
        (contacts, context): (&Contacts, &Arc<CudaContext>),
        peer: Peer,
        descriptor: &Descriptor,
    ) -> Result<Arc<IpcMemory>> {
        let described = decode_region(contacts, peer, descriptor)?;
        let known = |opened: &&Opened| {
            (opened.peer, &opened.described) == (peer, &described)
                && Arc::ptr_eq(opened.memory.bytes.context(), context)
        };
        if let Some(opened) = self.opened.iter().find(known) {
            return Ok(Arc::clone(&opened.memory));
        }
        if contacts.process_of(peer) != Some(described.pid) {
            let why = "the peer's region belongs to another process";
            return Err(contacts.unusable(peer, why.to_owned()));
        }
        let memory = Arc::new(open((contacts, context), peer, &described)?);
        self.opened
            .retain(|old| old.peer != peer || Arc::strong_count(&old.memory) > 1);
        self.opened.push(Opened {
            peer,
            described,
            memory: Arc::clone(&memory),
        });
        Ok(memory)
    }
}

fn open(
    (contacts, context): (&Contacts, &Arc<CudaContext>),
    peer: Peer,
    described: &IpcRegion,
) -> Result<IpcMemory> {
    let own = gpu_name(context);
    let (bytes, way) = match &described.shared {
        SharedBy::Gpu {
            uuid,
            pci_address,
            name,
            handle,
        } => {
            let handle: [u8; 64] = handle.as_slice().try_into().map_err(|_| {
                contacts.unusable(peer, "the peer's handle has the wrong length".to_owned())
            })?;
            let failed = |failure| not_opened((contacts, context), (peer, name), &failure);
            // Some drivers open memory without checking whether the GPU has a path to it.
            let is_it =
                |device: &CudaDevice| (uuid, pci_address) == (&device.uuid, &device.pci_address);
            context.check_way_to(is_it).map_err(failed)?;
            let imported = ImportedBuffer::open(context, IpcHandle(handle), described.bytes);
            let imported = imported.map_err(failed)?;
            let same = is_it(context.device());
            let way = match same {
                true => format!("within {own}"),
                false => format!("{own} and GPU {uuid}, which its owner calls {name}"),
            };
            (IpcBytes::Gpu(imported), way)
        }
        SharedBy::Host { fd } => {
            let arena = contacts.attach(peer, (described.pid, *fd), described.bytes)?;
            let pinned = PinnedArena::pin(context, arena).map_err(|failure| {
                gpu_failed(vendor_of(context.driver()).ipc, context, &failure)
            })?;
            (
                IpcBytes::Host(pinned),
                format!("{own} and pinned memory of the host"),
            )
        }
    };
    Ok(IpcMemory {
        region: described.region,
        bytes,
        way,
    })
}

/// Returns the error for a peer's memory that the driver could not open.
fn not_opened(
    (contacts, context): (&Contacts, &CudaContext),
    (peer, name): (Peer, &str),
    failure: &CudaFailure,
) -> Error {
    let own = gpu_name(context);
    let vendor = vendor_of(context.driver());
    let is_one_of = |codes: &[i32]| failure.code().is_some_and(|code| codes.contains(&code));
    let has_no_way = matches!(failure, CudaFailure::NoPeer { .. });
    let how = match has_no_way || is_one_of(vendor.codes.no_way) {
        true => vendor.no_way.to_owned(),
        false if is_one_of(vendor.codes.not_seen) => format!(
            "Let each rank see both GPUs ({}), and choose its own with --memory {}:N",
            vendor.visible, vendor.memory
        ),
        false => "Start both ranks in one container and as one user; a container needs the host's PID and IPC namespaces \
              (--pid=host --ipc=host) to share GPU memory with another one"
            .to_owned(),
    };
    match contacts.unusable(
        peer,
        format!(
            "{own} cannot open memory of rank {peer} on the GPU that it calls {name}: {failure}"
        ),
    ) {
        Error::Unavailable { what, why, .. } => Error::Unavailable { what, why, how },
        other => other,
    }
}
