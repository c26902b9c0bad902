//! An endpoint with its domain, completion queue, address vector and registered memory.
//!
//! This module opens and closes these parts in the right order, and handles addresses, peers and registration.
//! [`super::open`] has the calls that open each part; [`super::post`] posts and polls.

use std::ffi::{c_int, c_void};
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::Arc;

use super::calls::EndpointCalls;
use super::handles::{PeerAddress, RegionHandle, RemoteRegion};
use super::open::{Fid, NAME_BYTES_MAX, Opener, QueueSizes, check};
use super::peer_to_peer::PeerToPeer;
use super::slots::Slots;
use super::{Info, Libfabric, Release, abi};
use crate::error::LibraryError;
use crate::mapping::Arena;
use crate::registrable::{DeviceBytes, RegisteredBytes, RegisteredMemory, put};

/// How to wait for completions.
#[derive(Debug, Clone, Copy)]
pub enum Wait<'a> {
    /// Poll now, without sleeping.
    Ready,
    /// Sleep until this descriptor is readable.
    Sleep(BorrowedFd<'a>),
    /// The endpoint was not opened for sleeping, or its provider has no descriptor.
    Unsupported,
}

/// Interface of a device with memory to register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HmemInterface {
    /// NVIDIA's CUDA.
    Cuda,
    /// AMD's ROCr.
    Rocr,
}

/// The first release that registers memory by a file (a dmabuf).
const FILES_SINCE: Release = Release(1 << 16 | 20);

pub(super) struct FabricRegistration {
    mr: Option<Fid>,
    pub(super) desc: *mut c_void,
    key: u64,
    pub(super) bytes: RegisteredBytes,
}

/// An endpoint. Its domain is not shared with other endpoints, so FI_THREAD_DOMAIN only requires that one thread at a
/// time uses it.
pub struct Endpoint {
    pub(super) calls: EndpointCalls,
    pub(super) slots: Slots,
    /// The library's addresses of the inserted peers.
    pub(super) peers: Vec<abi::fi_addr_t>,
    /// Registered regions. The entry of a deregistered region is reused.
    pub(super) regions: Vec<Option<FabricRegistration>>,
    /// Deregistered memory, kept because a provider may still be executing a peer's operation on it.
    retired: Vec<RegisteredMemory>,
    virtual_addresses: bool,
    bind_regions: bool,
    /// `None` if device memory was not requested.
    peer_to_peer: Option<PeerToPeer>,
    name: Vec<u8>,
    /// The queue's descriptor, open as long as the queue is.
    wake_up: Option<RawFd>,
    // Closed in this order by `drop`.
    endpoint: Option<Fid>,
    queue: Option<Fid>,
    vector: Option<Fid>,
    domain: Option<Fid>,
    fabric: Option<Fid>,
    info: Info,
}

// SAFETY: every object behind the pointers, including the domain, belongs to this value alone, and none is bound to a
// thread. FI_THREAD_DOMAIN requires only that one thread at a time uses them, which `&mut self` ensures.
unsafe impl Send for Endpoint {}

impl Endpoint {
    /// Opens the fabric, domain and endpoint of an offer, with its own completion queue and address vector. With
    /// `sleeps`, [`Self::arm`] can return a descriptor to wait for.
    ///
    /// # Errors
    /// The failed call, with the library's reason.
    pub fn open(info: Info, sizes: QueueSizes, sleeps: bool) -> Result<Self, LibraryError> {
        let library = Arc::clone(info.library());
        let opener = Opener {
            library: &library,
            info: &info,
        };
        let fabric = opener.fabric()?;
        let domain = opener.domain(&fabric)?;
        // The endpoint comes last, so that it is closed first if a later step fails: the objects bound to it cannot be
        // closed before it.
        let (queue, wake_up) = opener.queue(&domain, sizes, sleeps)?;
        let vector = opener.vector(&domain, sizes)?;
        let endpoint = opener.endpoint(&domain)?;
        opener.check(
            "fi_ep_bind of the address vector",
            endpoint.bind(&vector, 0),
        )?;
        let both = abi::FI_TRANSMIT | abi::FI_RECV;
        opener.check(
            "fi_ep_bind of the completion queue",
            endpoint.bind(&queue, both),
        )?;
        let peer_to_peer = if info.has_device_memory() {
            Some(PeerToPeer::require(&library, &endpoint)?)
        } else {
            None
        };
        opener.check("fi_enable", endpoint.enable())?;
        let name = opener.name(&endpoint)?;
        // SAFETY: the info is live, and so is its domain attribute.
        let mr_mode = unsafe { (*(*info.as_ptr()).domain_attr).mr_mode };
        // SAFETY: endpoint and queue are open and enabled, and closed only when this value is dropped.
        let calls = unsafe { EndpointCalls::new(endpoint.cast(), queue.cast()) };
        Ok(Self {
            calls,
            slots: Slots::new(sizes.operations, sizes.receives),
            peers: Vec::new(),
            regions: Vec::new(),
            retired: Vec::new(),
            virtual_addresses: mr_mode & abi::FI_MR_VIRT_ADDR != 0,
            bind_regions: mr_mode & abi::FI_MR_ENDPOINT != 0,
            peer_to_peer,
            name,
            wake_up,
            endpoint: Some(endpoint),
            queue: Some(queue),
            vector: Some(vector),
            domain: Some(domain),
            fabric: Some(fabric),
            info,
        })
    }

    /// The endpoint's address, for peers to insert into their address vectors.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// The provider's promise about device memory; `None` if device memory was not requested.
    pub fn peer_to_peer(&self) -> Option<PeerToPeer> {
        self.peer_to_peer
    }

    /// Returns the largest write that can be injected: the smaller of the limit for all messages and the endpoint's
    /// limit for writes, which exists since libfabric 1.22.
    pub fn inject_bytes_max(&self) -> usize {
        let stated = self.info.attributes().inject_bytes_max;
        let Some(endpoint) = &self.endpoint else {
            return 0;
        };
        let raw: *mut abi::fid_ep = endpoint.cast();
        let (mut value, mut len) = (0usize, size_of::<usize>());
        // SAFETY: the endpoint is open; the option's value is a size_t, for which there is room.
        let code = unsafe {
            ((*(*raw).ops).getopt)(
                endpoint.cast(),
                abi::FI_OPT_ENDPOINT,
                abi::FI_OPT_INJECT_RMA_SIZE,
                (&raw mut value).cast(),
                &raw mut len,
            )
        };
        match code {
            0 => value.min(stated),
            _ => stated,
        }
    }

    /// Prepares for sleeping until [`Self::poll`] has something to do.
    ///
    /// # Errors
    /// The library's reason.
    pub fn arm(&mut self) -> Result<Wait<'_>, LibraryError> {
        let (Some(descriptor), Some(fabric), Some(queue)) =
            (self.wake_up, &self.fabric, &self.queue)
        else {
            return Ok(Wait::Unsupported);
        };
        let raw: *mut abi::fid_fabric = fabric.cast();
        let mut queue: *mut abi::fid = queue.cast();
        // SAFETY: fabric and queue are open; the list has one entry.
        let code = unsafe { ((*(*raw).ops).trywait)(raw, &raw mut queue, 1) };
        if code == -abi::FI_EAGAIN {
            return Ok(Wait::Ready);
        }
        self.check("fi_trywait", code)?;
        // SAFETY: the descriptor is the open queue's, which cannot be closed while the endpoint is borrowed.
        Ok(Wait::Sleep(unsafe { BorrowedFd::borrow_raw(descriptor) }))
    }

    /// The library of the endpoint.
    pub fn library(&self) -> &Libfabric {
        self.info.library()
    }

    /// Registers an arena for all local and remote operations. `key` is requested if the provider lets its user choose
    /// keys; it must be unique among the regions of an endpoint.
    ///
    /// # Errors
    /// The library's reason.
    pub fn register(&mut self, arena: Arc<Arena>, key: u64) -> Result<RegionHandle, LibraryError> {
        self.register_bytes(RegisteredMemory::Host(arena), (abi::FI_HMEM_SYSTEM, 0), key)
    }

    /// Registers device memory, on an endpoint that was opened for device memory. Memory with a file is registered by
    /// its file, which needs libfabric 1.20; other memory by its address. Operations on device memory are never
    /// injected, because the CPU cannot access it.
    ///
    /// # Errors
    /// The library's reason.
    pub fn register_device(
        &mut self,
        device: Arc<DeviceBytes>,
        (interface, number): (HmemInterface, u32),
        key: u64,
    ) -> Result<RegionHandle, LibraryError> {
        // Without this promise, the provider may copy with the CPU, which would dereference device addresses.
        if !device.is_owned() && self.peer_to_peer != Some(PeerToPeer::Required) {
            return Err(LibraryError::unsupported(
                "the provider does not promise that the NIC accesses it directly, without host copies \
                 (FI_OPT_FI_HMEM_P2P)",
            ));
        }
        let release = self.info.library().release();
        if device.file().is_some() && release < FILES_SINCE {
            return Err(LibraryError::unsupported(format!(
                "libfabric {release} cannot register memory by its dmabuf; {FILES_SINCE} and newer can"
            )));
        }
        let interface = match interface {
            HmemInterface::Cuda => (abi::FI_HMEM_CUDA, u64::from(number)),
            // ROCr derives the device from the address, and has no field for its number.
            HmemInterface::Rocr => (abi::FI_HMEM_ROCR, 0),
        };
        self.register_bytes(RegisteredMemory::Device(device), interface, key)
    }

    fn register_bytes(
        &mut self,
        memory: RegisteredMemory,
        interface: (c_int, u64),
        key: u64,
    ) -> Result<RegionHandle, LibraryError> {
        let bytes = RegisteredBytes::new(memory);
        let mr = self.registration(&bytes, interface, key)?;
        if self.bind_regions
            && let Some(endpoint) = &self.endpoint
        {
            self.check("fi_mr_bind", mr.bind(endpoint, 0))?;
            self.check("fi_mr_enable", mr.enable())?;
        }
        let raw: *mut abi::fid_mr = mr.cast();
        // SAFETY: the registration is open, and its leading part is a fid_mr.
        let (desc, key) = unsafe { ((*raw).mem_desc, (*raw).key) };
        let registered = FabricRegistration {
            mr: Some(mr),
            desc,
            key,
            bytes,
        };
        Ok(RegionHandle(put(&mut self.regions, registered)))
    }

    /// Removes a registration. Its memory stays mapped until the endpoint is closed; its file is closed now.
    ///
    /// # Errors
    /// If operations of this side on the region are in flight, the region is not registered, or the library cannot
    /// close the registration.
    pub fn deregister(&mut self, region: RegionHandle) -> Result<(), LibraryError> {
        if self.slots.uses(region) {
            return Err(LibraryError::argument(
                "operations on the region are in flight",
            ));
        }
        let taken = self.regions.get_mut(region.0).and_then(Option::take);
        let mut registered =
            taken.ok_or_else(|| LibraryError::argument("the region is not registered"))?;
        let memory = registered.bytes.memory;
        let code = registered.mr.take().map_or(0, Fid::close);
        // Only the registration needed the file.
        let kept = if code == 0 {
            memory.without_file()
        } else {
            Some(memory)
        };
        if let Some(memory) = kept
            && !self.retired.iter().any(|kept| kept.is(&memory))
        {
            self.retired.push(memory);
        }
        if code == 0 {
            return Ok(());
        }
        Err(LibraryError::call(
            "fi_close",
            code,
            "the registration is in use",
        ))
    }

    fn registration(
        &self,
        bytes: &RegisteredBytes,
        (iface, device): (c_int, u64),
        key: u64,
    ) -> Result<Fid, LibraryError> {
        let domain: *mut abi::fid_domain = match &self.domain {
            Some(domain) => domain.cast(),
            None => return Err(LibraryError::argument("the domain is closed")),
        };
        let len = usize::try_from(bytes.len()).unwrap_or(usize::MAX);
        let iov = libc::iovec {
            iov_base: bytes.address() as *mut c_void,
            iov_len: len,
        };
        let file = match &bytes.memory {
            RegisteredMemory::Host(_) => None,
            RegisteredMemory::Device(device) => device.file(),
        };
        let dmabuf = file.map(|(fd, offset)| abi::fi_mr_dmabuf {
            fd,
            offset,
            len,
            base_addr: bytes.address().wrapping_sub(offset) as *mut c_void,
        });
        let (mr_iov, flags) = match &dmabuf {
            None => (&raw const iov, 0),
            Some(dmabuf) => (std::ptr::from_ref(dmabuf).cast(), abi::FI_MR_DMABUF),
        };
        let attr = abi::fi_mr_attr {
            mr_iov,
            iov_count: 1,
            access: abi::FI_SEND
                | abi::FI_RECV
                | abi::FI_READ
                | abi::FI_WRITE
                | abi::FI_REMOTE_READ
                | abi::FI_REMOTE_WRITE,
            requested_key: key,
            iface,
            device,
            ..abi::fi_mr_attr::ZEROED
        };
        let mut mr = std::ptr::null_mut();
        // SAFETY: the domain is open; the attribute and its pointees live through the call. The flag is set if `mr_iov`
        // is a dmabuf. The memory is kept until the registration is closed.
        let code = unsafe {
            ((*(*domain).mr).regattr)(domain.cast(), &raw const attr, flags, &raw mut mr)
        };
        self.check("fi_mr_regattr", code)?;
        Fid::new(mr)
    }

    /// Returns the description of a region for peers.
    pub fn remote(&self, region: RegionHandle) -> Option<RemoteRegion> {
        let registered = self.regions.get(region.0)?.as_ref()?;
        let address = registered.bytes.address();
        Some(RemoteRegion {
            base: if self.virtual_addresses { address } else { 0 },
            key: registered.key,
            len: registered.bytes.len(),
        })
    }

    /// Adds a peer's address to the address vector.
    ///
    /// # Errors
    /// If the name does not belong to this provider, with the library's reason.
    pub fn insert(&mut self, name: &[u8]) -> Result<PeerAddress, LibraryError> {
        // The library reads as many bytes as its own names have, so a name of another length is rejected.
        if name.len() != self.name.len() && self.name_len_is_fixed() {
            let (own, other) = (self.name.len(), name.len());
            return Err(LibraryError::argument(format!(
                "the peer's address has {other} bytes, but this side's has {own}"
            )));
        }
        let mut padded = [0u8; NAME_BYTES_MAX];
        // Keep the last byte zero, so that a name that is text always ends with a zero, regardless of the peer's bytes.
        let room = padded[..NAME_BYTES_MAX - 1]
            .get_mut(..name.len())
            .ok_or_else(|| LibraryError::argument("the peer's address is too long"))?;
        room.copy_from_slice(name);
        let vector: *mut abi::fid_av = match &self.vector {
            Some(vector) => vector.cast(),
            None => return Err(LibraryError::argument("the address vector is closed")),
        };
        let mut address: abi::fi_addr_t = 0;
        // SAFETY: the vector is open; the name lies in a buffer that is longer than any address and ends with zeros;
        // `address` is valid for the one write that inserting one address does.
        let count = unsafe {
            ((*(*vector).ops).insert)(
                vector,
                padded.as_ptr().cast(),
                1,
                &raw mut address,
                0,
                std::ptr::null_mut(),
            )
        };
        match count {
            1 => {
                self.peers.push(address);
                Ok(PeerAddress(self.peers.len() - 1))
            }
            0 => Err(LibraryError::argument(
                "fi_av_insert rejected the peer's address",
            )),
            code => {
                let reason = self.info.library().reason(code);
                Err(LibraryError::call("fi_av_insert", code, reason))
            }
        }
    }

    /// Names that are text (provider shm) vary in length. All other names are structs.
    fn name_len_is_fixed(&self) -> bool {
        !self.name.starts_with(b"fi_")
    }

    fn check(&self, call: &'static str, code: c_int) -> Result<(), LibraryError> {
        check(self.info.library(), call, code)
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        let close = |fid: &mut Option<Fid>| fid.take().is_none_or(|fid| fid.close() == 0);
        // Close regions bound to the endpoint first. Close the other regions after the endpoint, because its operations
        // in flight may still use them.
        let mut closed = true;
        if self.bind_regions {
            let mut regions = self.regions.iter_mut().flatten();
            closed &= regions.all(|region| close(&mut region.mr));
        }
        closed &= close(&mut self.endpoint);
        closed &= close(&mut self.queue);
        closed &= close(&mut self.vector);
        closed &= self
            .regions
            .iter_mut()
            .flatten()
            .fold(true, |all, region| all & close(&mut region.mr));
        closed &= close(&mut self.domain);
        closed &= close(&mut self.fabric);
        if !closed {
            // Leak this memory: if an object is still open, the library may still write to it.
            self.slots.leak();
            for region in self.regions.drain(..).flatten() {
                std::mem::forget(region.bytes);
            }
            std::mem::forget(std::mem::take(&mut self.retired));
        }
    }
}

#[cfg(test)]
mod device_tests;

#[cfg(test)]
mod tests;
