//! Memory of a device as a network card takes it, and the doubt whether it is still on the device then.

use std::sync::Arc;

use tonnage_engine::memory::Memory;
use tonnage_machine::devices::{AmdMemoryUse, amd_dmabuf_doubt};
use tonnage_machine::kernel_files::Tree;
use tonnage_sys::cuda::{CudaContext, DeviceBuffer, DmabufFile};
use tonnage_sys::libfabric::HmemInterface;
use tonnage_sys::registrable::DeviceBytes;
use tonnage_units::{Error, Result};

use super::ways::CardWay;
use crate::memory::cuda_region::DriverMemory;
use crate::memory::vendor::CardRules;
use crate::memory::vendor::vendor_of;

/// Memory of a device that is to be registered.
pub(crate) struct CardMemory {
    memory: Arc<dyn Memory>,
    /// Its allocation, where it is one of this process.
    buffer: Option<Arc<DeviceBuffer>>,
}

impl CardMemory {
    /// Memory that the CPU does not address, for an engine of some name.
    ///
    /// # Errors
    /// `Unavailable` for memory of which no card could know anything.
    pub(crate) fn of(memory: &Arc<dyn Memory>, engine: &str) -> Result<Self> {
        let buffer = match DriverMemory::of(&**memory) {
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
                why: "it registers memory of the host, of GPUs of NVIDIA and AMD, and what a dmabuf names; this is none of them"
                    .to_owned(),
                how: "Choose --memory host, or memory of a GPU such as --memory cuda or hip".to_owned(),
            });
        }
        Ok(Self {
            memory: Arc::clone(memory),
            buffer,
        })
    }

    /// Registers the bytes by a way with a device. Returns what came of it, and a doubt of where the bytes are then.
    ///
    /// # Errors
    /// The reason of the driver, or of the device, in words.
    pub(crate) fn register<T>(
        &self,
        (tree, device): (&Tree, &str),
        way: CardWay,
        register: impl FnOnce(Arc<DeviceBytes>) -> Result<T, String>,
    ) -> Result<(T, Option<String>), String> {
        let bytes = self.bytes(way)?;
        let may_move = way == CardWay::Dmabuf && self.rules().is_some_and(|rules| rules.may_move);
        let Some(context) = self.context().filter(|_| may_move) else {
            return Ok((register(bytes)?, None));
        };
        let in_use = || AmdMemoryUse::read(tree, &context.device().pci_address);
        let before = in_use();
        let made = register(bytes)?;
        let doubt = amd_dmabuf_doubt(tree, device, before, in_use(), self.memory.bytes());
        Ok((made, doubt))
    }

    /// The bytes for a registration by this way.
    ///
    /// # Errors
    /// The driver's reason, in words.
    pub(crate) fn bytes(&self, way: CardWay) -> Result<Arc<DeviceBytes>, String> {
        // Its copies and kernels have been waited for when a card is handed bytes, and a card's writes are flushed: so
        // the driver need not order its own calls after them (CU_POINTER_ATTRIBUTE_SYNC_MEMOPS is not set).
        if let (Some(buffer), Some(rules)) = (&self.buffer, self.rules())
            && buffer.granularity().is_some()
            && let Some(said) = match buffer.is_for_cards() {
                Some(true) => None,
                Some(false) => Some("is 0"),
                None => rules.mapped_if_told.then_some("is not known to it"),
            }
        {
            return Err(format!(
                "the driver does not say that network cards reach memory by virtual-memory handles of this GPU (its attribute \
                 {} {said}): leave --memory-option alloc=vmm out",
                rules.reaches_mapped
            ));
        }
        // A library that registers by address, and moves bytes on this thread later, asks for the thread's own GPU.
        if let Some(buffer) = &self.buffer {
            let made = buffer.context().make_current();
            made.map_err(|failure| failure.to_string())?;
        }
        let bytes = match (way, &self.buffer) {
            (CardWay::Dmabuf, Some(buffer)) => {
                if buffer.is_exportable() == Some(false) {
                    return Err(
                        "the runtime refuses memory by virtual-memory handles of which a file could be made: leave \
                         --memory-option alloc=vmm out"
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
            (CardWay::Dmabuf, None) => self.named_by_file()?,
            (CardWay::Peermem | CardWay::Hmem, Some(buffer)) => DeviceBytes::by_address(buffer),
            (CardWay::Peermem | CardWay::Hmem, None) => {
                return Err("the memory is known by a dmabuf alone".to_owned());
            }
        };
        Ok(Arc::new(bytes))
    }

    /// The bytes of a file that somebody else exported.
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

    /// libfabric's name of the device's interface, and the device's number in it.
    ///
    /// # Errors
    /// For an interface that libfabric is not asked about here, in words.
    pub(crate) fn interface(&self) -> Result<(HmemInterface, u32), String> {
        let device = self.memory.device().ok_or("it is of no device")?;
        match device.interface {
            "cuda" => Ok((HmemInterface::Cuda, device.device)),
            "hip" | "rocr" => Ok((HmemInterface::Rocr, device.device)),
            other => Err(format!("libfabric is not asked about memory of {other}")),
        }
    }

    /// Rules of the maker of its GPU, where that is known here.
    pub(crate) fn rules(&self) -> Option<&'static CardRules> {
        let context = self.context()?;
        Some(&vendor_of(context.driver()).cards)
    }

    /// The context that it is of, where its driver is known here.
    pub(crate) fn context(&self) -> Option<&Arc<CudaContext>> {
        self.buffer.as_ref().map(|buffer| buffer.context())
    }

    /// Its name, for messages.
    pub(crate) fn kind(&self) -> String {
        self.memory.report().kind
    }
}
