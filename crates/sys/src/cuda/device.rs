//! Properties of a GPU and of its access to another GPU's memory, as the driver reports them. Reading them opens no
//! GPU.

use std::ffi::{c_char, c_int};

use super::abi::{Attribute, Code, Ordinal};
use super::driver::Introduced;
use super::failure::CudaFailure;
use super::loaded::Libcuda;
use crate::library::{functions, text};

/// Buffer size for a name or an address.
const TEXT_BYTES: usize = 256;

/// A GPU as the driver describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CudaDevice {
    /// The driver's number among the GPUs that this process may see.
    pub number: u32,
    /// Model.
    pub name: String,
    /// Identifier that is unique in the machine and survives restarts: in hexadecimal groups, or in the format of the
    /// driver's own tools.
    pub uuid: String,
    /// Total memory in bytes.
    pub memory_bytes: u64,
    /// Address on the PCI bus as the kernel writes it, such as "0000:1b:00.0".
    pub pci_address: String,
    /// Architecture, such as "9.0" or "gfx90a".
    pub compute: String,
    /// Number of multiprocessors.
    pub multiprocessors: u32,
    /// Number of copy engines; `None` if the driver does not report it.
    pub copy_engines: Option<u32>,
    /// Nominal memory bandwidth in bytes per second; `None` if the driver does not report the memory clock.
    pub memory_bytes_per_s: Option<u64>,
    /// Size of the last-level cache in bytes; `None` if the driver does not report it.
    pub cache_bytes: Option<u64>,
    /// Whether its memory can be exported as a dmabuf; `None` if the driver does not know the attribute.
    pub dmabuf: Option<bool>,
}

impl Libcuda {
    /// Returns the GPUs that this process may see, in the driver's order.
    ///
    /// # Errors
    /// The driver's reason.
    pub fn devices(&self) -> Result<Vec<CudaDevice>, CudaFailure> {
        let count = self.device_count()?;
        (0..count).map(|number| self.describe(number)).collect()
    }

    /// Returns the GPUs that the driver can describe.
    pub(super) fn described(&self) -> Vec<CudaDevice> {
        (0..self.device_count().unwrap_or(0))
            .filter_map(|number| self.describe(number).ok())
            .collect()
    }

    fn device_count(&self) -> Result<u32, CudaFailure> {
        let mut count = 0;
        // SAFETY: the number is valid for the write of an int.
        let code = unsafe { (self.calls.device_count)(&raw mut count) };
        self.check("cuDeviceGetCount", code)?;
        Ok(u32::try_from(count).unwrap_or(0))
    }

    /// Returns the driver's handle of the GPU with this number.
    pub(super) fn ordinal(&self, number: u32) -> Result<Ordinal, CudaFailure> {
        let mut ordinal = 0;
        let wanted = c_int::try_from(number).unwrap_or(c_int::MAX);
        // SAFETY: the handle is valid for the write; a number that no GPU has is an error of the call.
        let code = unsafe { (self.calls.device)(&raw mut ordinal, wanted) };
        self.check("cuDeviceGet", code).map(|()| ordinal)
    }

    /// Returns the properties of the GPU with this number.
    ///
    /// # Errors
    /// The driver's reason.
    pub fn describe(&self, number: u32) -> Result<CudaDevice, CudaFailure> {
        let device = self.ordinal(number)?;
        let mut uuid = [0; 16];
        // SAFETY: the array has the 16 bytes that the call writes.
        let code = unsafe { (self.calls.device_uuid)(&raw mut uuid, device) };
        self.check("cuDeviceGetUuid", code)?;
        let mut memory_bytes = 0;
        // SAFETY: the number is valid for the write of a size.
        let code = unsafe { (self.calls.device_memory)(&raw mut memory_bytes, device) };
        self.check("cuDeviceTotalMem_v2", code)?;
        let attribute = |which| self.attribute(device, which).unwrap_or(0);
        let (clock_khz, bus_bits) = (
            u64::from(attribute(Attribute::MemoryClockKhz)),
            u64::from(attribute(Attribute::MemoryBusBits)),
        );
        // The memory makes two transfers per clock.
        let nominal = clock_khz * 1000 * 2 * (bus_bits / 8);
        let texts = [
            ("cuDeviceGetName", self.calls.device_name),
            ("cuDeviceGetPCIBusId", self.calls.device_pci),
        ];
        let [name, pci] = texts.map(|(call, of)| self.text_of(device, call, of));
        // The kernel writes PCI addresses in lower case.
        let pci_address = pci?.to_ascii_lowercase();
        Ok(CudaDevice {
            number,
            name: name?,
            uuid: (self.driver().identity)(&uuid, &pci_address),
            memory_bytes: memory_bytes as u64,
            pci_address,
            compute: self.own.generation(device).unwrap_or_else(|| {
                let [major, minor] =
                    [Attribute::ComputeMajor, Attribute::ComputeMinor].map(attribute);
                format!("{major}.{minor}")
            }),
            multiprocessors: attribute(Attribute::Multiprocessors),
            copy_engines: self.attribute(device, Attribute::CopyEngines).ok(),
            memory_bytes_per_s: Some(nominal).filter(|&nominal| nominal > 0),
            cache_bytes: self
                .attribute(device, Attribute::CacheBytes)
                .ok()
                .map(u64::from),
            dmabuf: self
                .attribute(device, Attribute::Dmabuf)
                .ok()
                .map(|value| value != 0),
        })
    }

    /// Returns the value of an attribute.
    ///
    /// # Errors
    /// `NotOffered`, or the driver's reason, such as `CUDA_ERROR_INVALID_VALUE` for an attribute newer than the driver.
    pub(super) fn attribute(&self, device: Ordinal, which: Attribute) -> Result<u32, CudaFailure> {
        let mut value = 0;
        let driver = self.driver();
        let number = driver.attribute(which);
        // Without a number, this driver does not define the attribute, so it cannot be queried.
        let number = number.ok_or_else(|| CudaFailure::NotOffered {
            interface: driver.interface,
            call: format!("attribute {which:?} of cuDeviceGetAttribute"),
            why: "",
        })?;
        // SAFETY: the value is valid for the write of an int.
        let code = unsafe { (self.calls.device_attribute)(&raw mut value, number, device) };
        self.check("cuDeviceGetAttribute", code)
            .map(|()| u32::try_from(value).unwrap_or(0))
    }

    fn text_of(
        &self,
        device: Ordinal,
        call: &'static str,
        of: unsafe extern "C" fn(*mut c_char, c_int, Ordinal) -> c_int,
    ) -> Result<String, CudaFailure> {
        let mut room: [c_char; TEXT_BYTES] = [0; TEXT_BYTES];
        // SAFETY: the array has one byte more than the call may write, which keeps the text NUL-terminated.
        let code = unsafe { of(room.as_mut_ptr(), TEXT_BYTES as c_int - 1, device) };
        self.check(call, code)?;
        // SAFETY: the array is NUL-terminated, and nothing else refers to it.
        Ok(unsafe { text(room.as_ptr()) }.unwrap_or_default())
    }
}

functions! { pub(super) PeerCalls by Introduced:
    attribute = (c"cuDeviceGetP2PAttribute", 8, 0) => (*mut c_int, c_int, Ordinal, Ordinal) -> Code;
}

/// Attributes of a pair of GPUs, as offsets from the driver's first such attribute.
const PERFORMANCE_RANK: c_int = 0;
const ACCESS: c_int = 1;
const NATIVE_ATOMICS: c_int = 2;

/// Access of one GPU to the memory of another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CudaPeer {
    /// Whether the GPU can access that memory.
    pub access: bool,
    /// Whether atomics on that memory work as on the GPU's own.
    pub native_atomics: bool,
    /// The driver's ranking of such paths: 0 is the fastest.
    pub performance_rank: u32,
}

impl Libcuda {
    /// Returns the access of the GPU `gpu` to the memory of the GPU `peer`.
    ///
    /// # Errors
    /// `TooOld`; or the driver's reason, which is `CUDA_ERROR_INVALID_DEVICE` for a GPU with itself.
    pub fn peer(&self, gpu: u32, peer: u32) -> Result<CudaPeer, CudaFailure> {
        let calls = PeerCalls::look_up(|call| self.library.symbol(call))?;
        let (from, to) = (self.ordinal(gpu)?, self.ordinal(peer)?);
        let attribute = |distance| {
            let which = self.driver().peer_attributes_from + distance;
            let mut value = 0;
            // SAFETY: the number is valid for the write of an int; both ordinals came from the library.
            let code = unsafe { (calls.attribute)(&raw mut value, which, from, to) };
            self.check("cuDeviceGetP2PAttribute", code).map(|()| value)
        };
        Ok(CudaPeer {
            access: attribute(ACCESS)? != 0,
            native_atomics: attribute(NATIVE_ATOMICS)? != 0,
            // A negative rank is not valid; it becomes the last, so that it is not taken for the fastest.
            performance_rank: u32::try_from(attribute(PERFORMANCE_RANK)?).unwrap_or(u32::MAX),
        })
    }
}
