//! The row of the list of engines: what can be known of an engine before it is opened, and what it is opened with.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use tonnage_units::Result;

use crate::library::{Libraries, Library, Lifecycle};
use crate::memory::BusDevice;
use crate::name::{Variant, split_name};
use crate::options::{EngineOption, EngineOptions, OptionsOf, check_options, find_option};
use crate::{Domain, Verb};

/// The devices of an engine that were opened on one host.
pub type Domains = Vec<Arc<dyn Domain>>;

/// One row of the list of engines between memories.
pub struct Entry {
    /// The name that `--engine` takes, up to a colon.
    pub name: &'static str,
    /// One line for `--help` and `tonnage devices`.
    pub about: &'static str,
    /// Part that must follow the name after a colon, such as "PROVIDER" in `fabric:PROVIDER`; `None` when nothing may.
    pub variant: Option<Variant>,
    /// Options of its own, which `--engine-option NAME=VALUE` sets.
    pub options: &'static [EngineOption],
    /// True when `--devices` means something to it.
    pub has_devices: bool,
    /// Libraries that it loads at run time and that `--library NAME=PATH` can choose.
    pub libraries: &'static [Library],
    /// Start and end of a library that lives as long as its process.
    pub lifecycle: Lifecycle,
    /// Memory of a device that its bytes are in where nobody names one, and without which there is nothing to move: not
    /// every machine has it. `None` for an engine that memory of the host will do.
    pub device_memory: Option<&'static str>,
    /// True when it moves bytes within one process, so that the ranks of its points are threads of rank 0's process.
    pub one_process: bool,
    /// The verbs it knows, so that a wrong request is refused before any rank starts.
    pub verbs: &'static [Verb],
    /// True when `--op write --ping-pong` can be asked for (see [`Caps::ordered_writes`](crate::Caps::ordered_writes)).
    pub ordered_writes: bool,
    /// True when bytes really move, so that they can be verified.
    pub moves_bytes: bool,
    /// Opens its domains on this machine: one for each device that was asked for, or one that it chooses itself.
    pub open: fn(&OpenRequest<'_>) -> Result<Domains>,
}

/// Devices that an engine is asked to open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceRequest<'a> {
    /// One of the engine's own choice.
    Own,
    /// All by which the other ranks can be reached.
    All,
    /// These, in this order; one may be named twice.
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
    /// `--library`: files to load instead of those that the engine finds.
    pub libraries: &'a Libraries,
    /// True when all ranks reach each other by the loopback.
    pub one_network: bool,
    /// NUMA node of the first CPU that this rank may use, for the choice of a near device. `None` for the calling
    /// thread's.
    pub near_node: Option<u32>,
    /// Processes of the ranks of this container, itself included; empty where they are not known.
    pub processes: &'a [u32],
    /// This host's address on the control channel, where there are several ranks.
    pub address: Option<IpAddr>,
    /// The verbs that the points need.
    pub verbs: &'a [Verb],
    /// True when this rank initiates operations, and is not only their target.
    pub initiates: bool,
    /// This rank's memory, and those of the ranks that it exchanges bytes with.
    pub memories: (RankMemory<'a>, &'a [RankMemory<'a>]),
}

/// Memory of a rank, before it is allocated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RankMemory<'a> {
    /// Its name in the list of memories, with the variant.
    pub name: &'a str,
    /// The GPU that the rank was given; `None` where none was named.
    pub gpu: Option<u32>,
    /// The device that its bytes will be of, as that rank tells of it; `None` for memory of the host, and where nobody
    /// was asked.
    pub device: Option<&'a BusDevice>,
}

impl Default for OpenRequest<'_> {
    /// Returns a request for an engine that can do everything.
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
            memories: (RankMemory::default(), &[]),
        }
    }
}

impl OpenRequest<'_> {
    /// The value of one of an engine's options: what was asked for, or its default; empty for an option that it lacks.
    pub fn option(&self, known: &[EngineOption], name: &str) -> String {
        let option = find_option(known, name);
        option.map_or_else(String::new, |option| option.value(self.options))
    }

    /// The value of one of an engine's options that are numbers; 0 for an option that it lacks.
    pub fn number(&self, known: &[EngineOption], name: &str) -> u64 {
        let option = find_option(known, name);
        option.map_or(0, |option| option.number(self.options))
    }

    /// The file that was asked for of a library.
    pub fn library(&self, name: &str) -> Option<&Path> {
        self.libraries.get(name).map(AsRef::as_ref)
    }
}

impl Entry {
    /// Returns an engine that moves bytes, without variants, options, devices and libraries; rows name what differs.
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

    /// Checks options against what the engine knows, and returns those that differ from the defaults. `variant` is what
    /// followed the engine's name; of a layered one ("tcp;ofi_rxm") the lowest layer counts.
    ///
    /// # Errors
    /// `Usage` for an unknown name or value, with those that there are, and for one that has no effect on this variant.
    pub fn check_options(&self, asked: &EngineOptions, variant: &str) -> Result<EngineOptions> {
        check_options(OptionsOf::Engine(self.name), self.options, asked, variant)
    }

    /// Names of its variants that every machine has; just its own name where it has no variants.
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

    /// The verbs that can be asked for under a name of its own, with what follows the colon.
    pub fn verbs_of(&self, name: &str) -> &'static [Verb] {
        let (_, variant) = split_name(name);
        let known = self.variant.map_or(&[][..], |known| known.one_sided);
        match known.contains(&variant) {
            true => &Verb::ONE_SIDED,
            false => self.verbs,
        }
    }

    /// Returns whether native collectives can go over it: they move bytes by write-imm.
    pub fn carries_collectives(&self) -> bool {
        self.moves_bytes && self.verbs.contains(&Verb::WriteImm)
    }
}
