//! An engine's list row, which describes the engine before it is opened, and the arguments for opening it.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use tonnage_units::Result;

use crate::library::{Libraries, Library, Lifecycle};
use crate::memory::BusDevice;
use crate::name::{NameVariant, split_name};
use crate::options::{EngineOption, EngineOptions, OptionsOwner, check_options, find_option};
use crate::{Domain, Verb};

/// The opened devices of an engine on one host.
pub type Domains = Vec<Arc<dyn Domain>>;

/// One row of the list of engines between memories.
pub struct Entry {
    /// The name that `--engine` takes, up to a colon.
    pub name: &'static str,
    /// One line for `--help` and `tonnage engines`.
    pub about: &'static str,
    /// The part that must follow the name after a colon, such as "PROVIDER" in `fabric:PROVIDER`; `None` for engines
    /// without variants.
    pub variant: Option<NameVariant>,
    /// The engine's own options, set by `--engine-option NAME=VALUE`.
    pub options: &'static [EngineOption],
    /// True if `--devices` has an effect.
    pub has_devices: bool,
    /// Libraries that the engine loads at run time and that `--library NAME=PATH` can choose.
    pub libraries: &'static [Library],
    /// Hooks for libraries with process-wide state.
    pub lifecycle: Lifecycle,
    /// Name of the device memory that the engine uses by default. Machines without that device cannot run the engine.
    /// `None` for an engine that works with host memory.
    pub device_memory: Option<&'static str>,
    /// True if the engine moves bytes within one process. The ranks of its points are then threads of rank 0's process.
    pub one_process: bool,
    /// The supported verbs, so that a wrong request is refused before any rank starts.
    pub verbs: &'static [Verb],
    /// True if the engine supports `--op write --ping-pong` (see
    /// [`Caps::ordered_writes`](crate::Caps::ordered_writes)).
    pub ordered_writes: bool,
    /// True if the engine really moves bytes, so that they can be verified.
    pub moves_bytes: bool,
    /// Opens the engine's domains on this machine: one for each requested device, or one on a device that the engine
    /// chooses.
    pub open: fn(&OpenRequest<'_>) -> Result<Domains>,
}

/// Devices that an engine is asked to open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceRequest<'a> {
    /// One device that the engine chooses.
    Own,
    /// All devices that can reach the other ranks.
    All,
    /// These devices, in this order. A device may be named twice.
    Named(&'a [String]),
}

/// Arguments for opening an engine on one rank.
#[derive(Debug, Clone)]
pub struct OpenRequest<'a> {
    /// The part of `--engine` after the colon; empty when there is none.
    pub variant: &'a str,
    /// Options that differ from the defaults; checked against [`Entry::options`].
    pub options: &'a EngineOptions,
    /// `--devices` and `--devices-of`.
    pub devices: DeviceRequest<'a>,
    /// `--library`: files to load instead of the ones that the engine would find.
    pub libraries: &'a Libraries,
    /// True if all ranks reach each other through the loopback interface.
    pub one_network: bool,
    /// NUMA node of the first CPU that this rank may use. The engine prefers a device near it. `None`: the calling
    /// thread's node.
    pub near_node: Option<u32>,
    /// PIDs of this container's ranks, including this one; empty if unknown.
    pub processes: &'a [u32],
    /// This host's address on the control channel, if there are several ranks.
    pub address: Option<IpAddr>,
    /// The verbs that the points need.
    pub verbs: &'a [Verb],
    /// True if this rank initiates operations; false if it is only their target.
    pub initiates: bool,
    /// This rank's memory, and the memories of the ranks that it exchanges bytes with.
    pub memories: (PlannedMemory<'a>, &'a [PlannedMemory<'a>]),
}

/// Memory of a rank, before it is allocated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PlannedMemory<'a> {
    /// The memory's name in the list of memories, with the variant.
    pub name: &'a str,
    /// The GPU assigned to the rank; `None` if none was assigned.
    pub gpu: Option<u32>,
    /// The device that will hold the memory, as that rank reports it. `None` for host memory, or if the rank was not
    /// asked.
    pub device: Option<&'a BusDevice>,
}

impl Default for OpenRequest<'_> {
    /// A request by a rank that uses every verb and shares its network with all other ranks.
    fn default() -> Self {
        static NO_OPTIONS: EngineOptions = EngineOptions::new();
        static NO_LIBRARIES: Libraries = Libraries::new();
        Self {
            variant: "",
            options: &NO_OPTIONS,
            devices: DeviceRequest::Own,
            libraries: &NO_LIBRARIES,
            one_network: true,
            near_node: None,
            processes: &[],
            address: None,
            verbs: &Verb::ALL,
            initiates: true,
            memories: (PlannedMemory::default(), &[]),
        }
    }
}

impl OpenRequest<'_> {
    /// Value of one of an engine's options: the requested one, or its default; empty if the engine has no such option.
    pub fn option(&self, known: &[EngineOption], name: &str) -> String {
        let option = find_option(known, name);
        option.map_or_else(String::new, |option| option.value(self.options))
    }

    /// Value of one of an engine's numeric options; 0 if the engine has no such option.
    pub fn number(&self, known: &[EngineOption], name: &str) -> u64 {
        let option = find_option(known, name);
        option.map_or(0, |option| option.number(self.options))
    }

    /// The file that the user chose for a library.
    pub fn library(&self, name: &str) -> Option<&Path> {
        self.libraries.get(name).map(AsRef::as_ref)
    }
}

impl Entry {
    /// A row for an engine that moves bytes, without variants, options, devices and libraries. Callers then set the
    /// fields that differ.
    pub const fn new(
        name: &'static str,
        about: &'static str,
        verbs: &'static [Verb],
        open: fn(&OpenRequest<'_>) -> Result<Domains>,
    ) -> Self {
        Self {
            name,
            about,
            variant: None,
            options: &[],
            has_devices: false,
            libraries: &[],
            lifecycle: Lifecycle::NONE,
            device_memory: None,
            one_process: false,
            verbs,
            ordered_writes: false,
            moves_bytes: true,
            open,
        }
    }

    /// Checks options against the engine's own, and returns those that differ from the defaults. `variant` is the text
    /// after the engine's name. In a layered variant ("tcp;ofi_rxm"), the lowest layer decides which options have an
    /// effect.
    ///
    /// # Errors
    /// `Usage` for an unknown name or value, listing the known ones, and for an option that has no effect on this
    /// variant.
    pub fn check_options(&self, asked: &EngineOptions, variant: &str) -> Result<EngineOptions> {
        check_options(
            OptionsOwner::Engine(self.name),
            self.options,
            asked,
            variant,
        )
    }

    /// Full names of the engine's variants that exist on every machine, or just the engine's name if it has no
    /// variants.
    pub fn names_everywhere(&self) -> Vec<String> {
        if self.device_memory.is_some() {
            return Vec::new();
        }
        match self.variant {
            None => vec![self.name.to_owned()],
            Some(variant) => {
                let all = variant.everywhere.iter();
                all.map(|text| format!("{}:{text}", self.name)).collect()
            }
        }
    }

    /// The verbs that the engine supports under this name, which may include a variant after a colon.
    pub fn verbs_for(&self, name: &str) -> &'static [Verb] {
        let (_, variant) = split_name(name);
        let known = self.variant.map_or(&[][..], |known| known.one_sided);
        match known.contains(&variant) {
            true => &Verb::ONE_SIDED,
            false => self.verbs,
        }
    }

    /// Whether native collectives can use the engine. They need write-imms that really move bytes.
    pub fn carries_collectives(&self) -> bool {
        self.moves_bytes && self.verbs.contains(&Verb::WriteImm)
    }
}
