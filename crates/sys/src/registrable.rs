//! Memory that a NIC registers: of the host, or of a device. [`crate::verbs`] and [`crate::libfabric`]
//! register it.

use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::cuda::{CudaFailure, DeviceBuffer, DmabufFile};
use crate::mapping::{Arena, OutOfRange};

/// Stores a value in a free entry, or appends it, and returns its index.
pub(crate) fn put<T>(all: &mut Vec<Option<T>>, value: T) -> usize {
    let free = all.iter().position(Option::is_none);
    match free.and_then(|index| all.get_mut(index)) {
        Some(place) => *place = Some(value),
        None => all.push(Some(value)),
    }
    free.unwrap_or(all.len() - 1)
}

/// Device memory to be registered by a NIC: by its file, or by its address.
#[derive(Debug)]
pub struct DeviceBytes {
    address: u64,
    bytes: u64,
    file: Option<DmabufFile>,
    // Keeps the memory alive as long as its registration. Memory of another process is kept alive by its file.
    owner: Option<Arc<DeviceBuffer>>,
}

impl DeviceBytes {
    /// Describes GPU memory by its address. The kernel must be able to find the memory for the NIC.
    pub fn by_address(buffer: &Arc<DeviceBuffer>) -> Self {
        Self {
            address: buffer.address(),
            bytes: buffer.bytes(),
            file: None,
            owner: Some(Arc::clone(buffer)),
        }
    }

    /// Describes GPU memory by a file that its driver makes now.
    ///
    /// # Errors
    /// As [`DeviceBuffer::export_dmabuf`].
    pub fn exported(buffer: &Arc<DeviceBuffer>) -> Result<Self, CudaFailure> {
        Ok(Self {
            file: Some(buffer.export_dmabuf()?),
            ..Self::by_address(buffer)
        })
    }

    /// Describes `bytes` of a file that another process exported. `address` only identifies these bytes in operations.
    /// The kernel requires that the address and the file offset have the same offset within a page. If they do not, the
    /// file offset replaces the address.
    pub fn of_file(file: DmabufFile, address: u64, bytes: u64) -> Self {
        let page = rustix::param::page_size() as u64;
        let agrees = address % page == file.offset % page;
        let address = if agrees { address } else { file.offset };
        Self {
            address,
            bytes,
            file: Some(file),
            owner: None,
        }
    }

    /// Whether this process allocated the memory.
    pub(crate) fn is_owned(&self) -> bool {
        self.owner.is_some()
    }

    /// Whether the memory is described by a file.
    pub fn has_file(&self) -> bool {
        self.file.is_some()
    }

    /// Returns the file descriptor and the offset of the memory in it, if described by a file.
    pub(crate) fn file(&self) -> Option<(i32, u64)> {
        let file = self.file.as_ref()?;
        Some((file.file.as_raw_fd(), file.offset))
    }
}

/// Memory of a registration.
#[derive(Debug, Clone)]
pub(crate) enum RegisteredMemory {
    Host(Arc<Arena>),
    Device(Arc<DeviceBytes>),
}

impl RegisteredMemory {
    /// Whether both are the same memory.
    pub(crate) fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Host(one), Self::Host(other)) => Arc::ptr_eq(one, other),
            // Each registration has its own value. Values with the same owner are the same memory.
            (Self::Device(one), Self::Device(other)) => match (&one.owner, &other.owner) {
                (Some(one), Some(other)) => Arc::ptr_eq(one, other),
                _ => Arc::ptr_eq(one, other),
            },
            _ => false,
        }
    }

    /// Returns the memory to keep after its registration is removed; `None` if only the file kept the memory alive.
    pub(crate) fn without_file(self) -> Option<Self> {
        match self {
            Self::Host(_) => Some(self),
            Self::Device(device) => {
                let bytes = DeviceBytes::by_address(device.owner.as_ref()?);
                Some(Self::Device(Arc::new(bytes)))
            }
        }
    }
}

/// Registered memory with its address and length, so that the timed loops need not query them.
#[derive(Debug)]
pub(crate) struct RegisteredBytes {
    address: u64,
    len: u64,
    pub(crate) memory: RegisteredMemory,
}

impl RegisteredBytes {
    pub(crate) fn new(memory: RegisteredMemory) -> Self {
        let (address, len) = match &memory {
            RegisteredMemory::Host(arena) => (arena.address(), arena.len() as u64),
            RegisteredMemory::Device(device) => (device.address, device.bytes),
        };
        Self {
            address,
            len,
            memory,
        }
    }

    /// Returns the address of a range, for a NIC. The CPU may not be able to access it.
    #[inline]
    pub(crate) fn at(&self, offset: u64, len: u64) -> Result<u64, OutOfRange> {
        OutOfRange::check(offset, len, self.len).map(|()| self.address.wrapping_add(offset))
    }

    /// Returns the aligned word at an offset; also `None` if the CPU cannot address it.
    #[inline]
    pub(crate) fn word(&self, offset: u64) -> Option<&AtomicU64> {
        match &self.memory {
            RegisteredMemory::Host(arena) => arena.word(offset),
            RegisteredMemory::Device(_) => None,
        }
    }

    /// Whether the CPU can address the bytes.
    #[inline]
    pub(crate) fn is_of_host(&self) -> bool {
        matches!(self.memory, RegisteredMemory::Host(_))
    }

    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::{Pages, Sharing};

    #[test]
    fn ranges_are_checked_for_either_sort_of_memory() {
        let arena = Arena::allocate(4096, Pages::Normal, Sharing::Private, None).unwrap();
        let file = DmabufFile {
            file: std::fs::File::open("/dev/null").unwrap().into(),
            offset: 64,
        };
        let device = DeviceBytes::of_file(file, 1 << 40, 4096);
        assert_eq!((device.file().unwrap().1, device.address), (64, 64));
        let host = RegisteredBytes::new(RegisteredMemory::Host(Arc::new(arena)));
        let device = RegisteredBytes::new(RegisteredMemory::Device(Arc::new(device)));
        for bytes in [&host, &device] {
            assert_eq!(bytes.at(4000, 96).unwrap(), bytes.address() + 4000);
            assert_eq!(bytes.at(4096, 0).unwrap(), bytes.address() + 4096);
            for (offset, len) in [(4000, 97), (4097, 0), (u64::MAX, 2)] {
                assert!(bytes.at(offset, len).is_err(), "{offset} {len}");
            }
        }
        assert!(host.word(8).is_some() && device.word(8).is_none());
        assert!(host.is_of_host() && !device.is_of_host());
        assert!(host.memory.is(&host.memory) && !host.memory.is(&device.memory));
    }
}
