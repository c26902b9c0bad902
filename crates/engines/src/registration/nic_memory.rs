//! Device memory in the forms that NICs accept. Also finds out whether the bytes may have left the device after
//! registration.

use std::sync::Arc;

use tonnage_engine::memory::Memory;
use tonnage_machine::devices::{AmdMemoryUse, amd_dmabuf_doubt};
use tonnage_machine::kernel_files::Tree;
use tonnage_sys::cuda::{CudaContext, DeviceBuffer, DmabufFile};
use tonnage_sys::libfabric::HmemInterface;
use tonnage_sys::registrable::DeviceBytes;
use tonnage_units::{Error, Result};

use super::ways::RegistrationWay;
use crate::memory::cuda_region::DriverMemory;
use crate::memory::vendor::NicRules;
use crate::memory::vendor::vendor_of;

/// Device memory to register with a NIC.
pub(crate) struct NicMemory {
    memory: Arc<dyn Memory>,
    /// The memory's allocation; `None` if other code allocated it.
    buffer: Option<Arc<DeviceBuffer>>,
}

impl NicMemory {
    /// Wraps memory that the CPU cannot address. `engine` is named in errors.
    ///
    /// # Errors
    /// `Unavailable` for memory that no NIC can access.
    pub(crate) fn new(memory: &Arc<dyn Memory>, engine: &str) -> Result<Self> {
        let buffer = match DriverMemory::from_memory(&**memory) {
            Some(DriverMemory::Gpu(buffer)) => Some(buffer),
            _ => None,
        };
        let has_file = || {
            memory
                .device()
                .is_some_and(|device| device.dmabuf.is_some())
        };
        if buffer.is_none() && !has_file() {
            return Err(Error::Unavailable {
                what: format!("memory {} with engine {engine}", memory.report().kind),
                why: "it registers host memory, NVIDIA and AMD GPU memory, and memory with a dmabuf; this is none of them"
                    .to_owned(),
                how: "Choose --memory host, or GPU memory such as --memory cuda or hip".to_owned(),
            });
        }
        Ok(Self {
            memory: Arc::clone(memory),
            buffer,
        })
    }

    /// Registers the bytes with a device by this method. Returns the registration, and any doubt whether the bytes are
    /// still on the GPU.
    ///
    /// # Errors
    /// The reason of the driver or of the device, as text.
    pub(crate) fn register<T>(
        &self,
        (tree, device): (&Tree, &str),
        way: RegistrationWay,
        register: impl FnOnce(Arc<DeviceBytes>) -> Result<T, String>,
    ) -> Result<(T, Option<String>), String> {
        let bytes = self.bytes(way)?;
        let may_move =
            way == RegistrationWay::Dmabuf && self.rules().is_some_and(|rules| rules.may_move);
        let Some(context) = self.context().filter(|_| may_move) else {
            return Ok((register(bytes)?, None));
        };
        let in_use = || AmdMemoryUse::read(tree, &context.device().pci_address);
        let before = in_use();
        let made = register(bytes)?;
        let doubt = amd_dmabuf_doubt(tree, device, before, in_use(), self.memory.bytes());
        Ok((made, doubt))
    }

    /// Returns the bytes in the form that this method registers.
    ///
    /// # Errors
    /// The driver's reason, as text.
    pub(crate) fn bytes(&self, way: RegistrationWay) -> Result<Arc<DeviceBytes>, String> {
        // All copies and kernels have completed before a NIC gets the bytes, and writes of NICs are flushed. So the
        // driver need not order its own calls (CU_POINTER_ATTRIBUTE_SYNC_MEMOPS is not set).
        if let (Some(buffer), Some(rules)) = (&self.buffer, self.rules())
            && buffer.granularity().is_some()
            && let Some(said) = match buffer.is_for_cards() {
                Some(true) => None,
                Some(false) => Some("is 0"),
                None => rules.mapped_needs_attribute.then_some("is not known to it"),
            }
        {
            return Err(format!(
                "the driver does not confirm that NICs can access this GPU's memory by virtual-memory handles (its \
                 attribute {} {said}): leave --memory-option alloc=vmm out",
                rules.reaches_mapped
            ));
        }
        // A library that registers memory by address uses the thread's current GPU, also when it later moves bytes on
        // this thread.
        if let Some(buffer) = &self.buffer {
            let made = buffer.context().make_current();
            made.map_err(|failure| failure.to_string())?;
        }
        let bytes = match (way, &self.buffer) {
            (RegistrationWay::Dmabuf, Some(buffer)) => {
                if buffer.is_exportable() == Some(false) {
                    return Err(
                        "the runtime refuses exportable memory by virtual-memory handles: leave --memory-option alloc=vmm \
                         out"
                            .to_owned(),
                    );
                }
                if let (Some(rules), Some(false)) = (self.rules(), buffer.context().device().dmabuf)
                {
                    return Err(format!(
                        "the driver exports no memory of this GPU (its attribute {} is 0)",
                        rules.exports
                    ));
                }
                DeviceBytes::exported(buffer).map_err(|failure| failure.to_string())?
            }
            (RegistrationWay::Dmabuf, None) => self.named_by_file()?,
            (RegistrationWay::Peermem | RegistrationWay::Hmem, Some(buffer)) => {
                DeviceBytes::by_address(buffer)
            }
            (RegistrationWay::Peermem | RegistrationWay::Hmem, None) => {
                return Err("the memory is known only by its dmabuf".to_owned());
            }
        };
        Ok(Arc::new(bytes))
    }

    /// Returns a handle to the bytes of a dmabuf that other code has exported.
    fn named_by_file(&self) -> Result<DeviceBytes, String> {
        let device = self.memory.device();
        let (device, file) = device
            .and_then(|device| Some((device, device.dmabuf?)))
            .ok_or("the memory has no dmabuf")?;
        let copy = file.file.try_clone_to_owned();
        let copy = copy.map_err(|error| format!("its dmabuf cannot be opened again: {error}"))?;
        let file = DmabufFile {
            file: copy,
            offset: file.offset,
        };
        Ok(DeviceBytes::of_file(
            file,
            device.address,
            self.memory.bytes(),
        ))
    }

    /// Returns libfabric's name for the interface of the device, and the device's number in that interface.
    ///
    /// # Errors
    /// If libfabric cannot use the interface: the reason, as text.
    pub(crate) fn interface(&self) -> Result<(HmemInterface, u32), String> {
        let device = self.memory.device().ok_or("it is not device memory")?;
        match device.interface {
            "cuda" => Ok((HmemInterface::Cuda, device.device)),
            "hip" | "rocr" => Ok((HmemInterface::Rocr, device.device)),
            other => Err(format!("memory of {other} is not supported with libfabric")),
        }
    }

    /// Returns the rules of the GPU's vendor; `None` if the vendor is unknown.
    pub(crate) fn rules(&self) -> Option<&'static NicRules> {
        let context = self.context()?;
        Some(&vendor_of(context.driver()).cards)
    }

    /// Returns the memory's context; `None` if this process did not allocate the memory.
    pub(crate) fn context(&self) -> Option<&Arc<CudaContext>> {
        self.buffer.as_ref().map(|buffer| buffer.context())
    }

    /// Returns the name of the memory, for messages.
    pub(crate) fn kind(&self) -> String {
        self.memory.report().kind
    }
}
