//! Local memory: registered memory, which is deregistered when nothing uses it any more, and memory that the caller
//! allocated.
//!
//! The kinds of memory that the library can allocate are rows of `tonnage_engines::memory`.

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use tonnage_engine::memory::{DeviceMemory, Dmabuf, Memory, MemoryReport};
use tonnage_sys::mapping::Arena;
use tonnage_units::Error;

use crate::address::RemoteMemory;
use crate::cell::SharedEndpoint;
use crate::error::{TransferError, TransferErrorKind, TransferResult};
use crate::state::LocalId;

/// Memory registered with an endpoint. It is deregistered after this handle is dropped and no session uses it. An
/// engine may keep the bytes themselves until it closes, because a peer may still be reading them.
pub struct LocalMemory {
    cell: SharedEndpoint,
    id: LocalId,
    memory: Arc<dyn Memory>,
    remote: RemoteMemory,
}

impl LocalMemory {
    /// Wraps an existing registration.
    pub(crate) fn new(cell: SharedEndpoint, region: u32, memory: Arc<dyn Memory>) -> Self {
        let state = cell.borrow();
        let known = state.regions.get(region);
        let id = LocalId {
            place: region,
            serial: known.map_or(0, |region| region.serial),
        };
        let remote = RemoteMemory {
            owner: state.id,
            id: id.serial,
            bytes: memory.bytes(),
            descriptor: known
                .map(|region| region.descriptor.clone())
                .unwrap_or_default(),
        };
        drop(state);
        Self {
            cell,
            id,
            memory,
            remote,
        }
    }

    /// Returns the memory's size in bytes, which is the requested size rounded up to whole pages.
    pub fn bytes(&self) -> u64 {
        self.memory.bytes()
    }

    /// Returns the ID by which calls without a session refer to the memory.
    pub fn id(&self) -> LocalId {
        self.id
    }

    /// Returns the description that peers need to access this memory.
    pub fn remote(&self) -> &RemoteMemory {
        &self.remote
    }

    /// Returns the underlying memory.
    pub fn memory(&self) -> &Arc<dyn Memory> {
        &self.memory
    }

    /// Copies bytes out of the memory.
    ///
    /// # Errors
    /// `OutOfRange` if the range is not within the memory, or if the device cannot read it.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> TransferResult<()> {
        let read = self.memory.read(offset, bytes);
        read.map_err(|error| self.error("reading the local memory", &error))
    }

    /// Copies bytes into the memory.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn write(&self, offset: u64, bytes: &[u8]) -> TransferResult<()> {
        let written = self.memory.write(offset, bytes);
        written.map_err(|error| self.error("writing the local memory", &error))
    }

    fn error(&self, operation: &'static str, error: &Error) -> TransferError {
        let subject = self.cell.borrow().subject.with_operation(operation, None);
        TransferError::from_error(TransferErrorKind::OutOfRange, subject, error)
    }

    /// Returns whether the memory is registered with this endpoint.
    pub(crate) fn is_registered_with(&self, cell: &SharedEndpoint) -> bool {
        self.cell.is_same(cell)
    }
}

impl Drop for LocalMemory {
    fn drop(&mut self) {
        self.cell.borrow().close_memory(self.id.place);
    }
}

impl fmt::Debug for LocalMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalMemory")
            .field("id", &self.id.serial)
            .field("bytes", &self.bytes())
            .finish()
    }
}

/// Wraps bytes that the caller owns.
///
/// The caller must keep the contract of [`Arena::over`], which creates an arena over its bytes; [`Arena::over_atomics`]
/// has no contract. Engines that let peers map memory (`shm`) refuse this memory.
pub fn caller_memory(arena: Arena) -> Arc<dyn Memory> {
    tonnage_engines::memory::from_arena(arena, "caller")
}

/// Device memory identified by a dmabuf. The CPU cannot address it, so engines that copy with the CPU refuse it.
/// Functions of this library that read its bytes fail.
#[derive(Debug)]
pub struct DmabufMemory {
    file: OwnedFd,
    offset: u64,
    bytes: u64,
    interface: &'static str,
    device: u32,
    address: u64,
}

impl DmabufMemory {
    /// Wraps `bytes` bytes of the dmabuf `file`, starting at the offset. `interface` ("cuda", "hip", …) and `device`
    /// identify the device. `address` is the device's own address of the memory, or 0 if it has none.
    pub fn new(
        file: OwnedFd,
        (offset, bytes): (u64, u64),
        interface: &'static str,
        device: u32,
        address: u64,
    ) -> Self {
        Self {
            file,
            offset,
            bytes,
            interface,
            device,
            address,
        }
    }
}

impl Memory for DmabufMemory {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn host(&self) -> Option<&Arc<Arena>> {
        None
    }

    fn device(&self) -> Option<DeviceMemory<'_>> {
        Some(DeviceMemory {
            interface: self.interface,
            device: self.device,
            address: self.address,
            dmabuf: Some(Dmabuf {
                file: self.file.as_fd(),
                offset: self.offset,
            }),
        })
    }

    fn report(&self) -> MemoryReport {
        MemoryReport {
            kind: "dmabuf".to_owned(),
            bytes: self.bytes,
            device: Some(format!("{} {}", self.interface, self.device)),
            ..MemoryReport::default()
        }
    }
}
