//! The [`Memory`] trait: where bytes live, and how they are filled, compared and copied there.
//!
//! The data written for verification is in [`crate::pattern`]. The memories themselves are in
//! `tonnage_engines::memory`, one [`MemoryEntry`] each. This module does not know which rank or flow uses which part of
//! a memory.

use std::any::Any;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tonnage_sys::clock::Clock;
use tonnage_sys::mapping::Arena;
use tonnage_units::number_list;
use tonnage_units::{Error, Result};

use crate::library::{Libraries, Library};
use crate::name::NameVariant;
use crate::options::{EngineOption, EngineOptions, OptionsOwner, check_options, find_option};
use crate::pattern::{self, Key, Mismatches};

/// One row of the list of memories.
pub struct MemoryEntry {
    /// The name that `--memory` takes, up to a colon.
    pub name: &'static str,
    /// One line for help and `tonnage engines`.
    pub about: &'static str,
    /// The part that may follow the name after a colon, such as "DEVICE" in `gpu:DEVICE`; `None` for memories without
    /// variants.
    pub variant: Option<NameVariant>,
    /// True if the CPU can address the memory. If false, options that read or write single bytes are refused before any
    /// rank starts.
    pub host_addressable: bool,
    /// True if it is GPU memory, or memory pinned for a GPU; it can then use the GPU assigned to the rank.
    pub takes_gpu: bool,
    /// The memory's own options, set by `--memory-option NAME=VALUE`.
    pub options: &'static [EngineOption],
    /// Allocates the memory and touches every page, so that the first access is not slower than later ones.
    pub allocate: fn(&Request<'_>) -> Result<Arc<dyn Memory>>,
    /// Bytes still available, given the part of the name after the colon; `None` if unknown. Asked before any rank
    /// allocates, so that a request that is too large is refused before pages are touched.
    pub available: fn(&str) -> Option<AvailableMemory>,
    /// The device that will hold the memory. `None` for host memory, or if the device is unknown; the allocation then
    /// reports why. Asked before engines are opened, so that each engine also knows its peers' devices.
    pub device: fn(&Request<'_>) -> Option<BusDevice>,
    /// Libraries that the memory loads at run time, chosen by `--library` or environment variables.
    pub libraries: &'static [Library],
}

impl MemoryEntry {
    /// Checks options against the memory's own, and returns those that differ from the defaults.
    ///
    /// # Errors
    /// `Usage` for an unknown name or value, listing the known ones.
    pub fn check_options(&self, asked: &EngineOptions) -> Result<EngineOptions> {
        check_options(OptionsOwner::Memory(self.name), self.options, asked, "")
    }

    /// Keeps only the requested options that this memory has.
    pub fn known_options(&self, asked: &EngineOptions) -> EngineOptions {
        let known = |(name, _): &(&String, &String)| find_option(self.options, name).is_some();
        let own = asked.iter().filter(known);
        own.map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    }
}

/// A device on a machine's bus that has its own memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BusDevice {
    /// The device's name in the process that reports it, such as "cuda:0". Another process may number the device
    /// differently.
    pub name: String,
    /// The device's PCI address, the same for all processes of the machine, and for all slices of a device.
    pub pci_address: String,
    /// The device's UUID, from its driver. Slices of one device may have the same UUID.
    pub uuid: String,
    /// The link between the device and the rest of the machine; `None` if its speed is unknown.
    pub link: Option<BusLink>,
    /// Why some of the device's links are unknown.
    pub links_unknown: Option<String>,
    /// Nominal speed of the device's memory, reads and writes together; `None` if unknown.
    pub memory_bytes_per_s: Option<u64>,
    /// The mechanism by which several processes can use the device concurrently. `None` if the device serves processes
    /// one after the other.
    pub shared_by: Option<String>,
}

/// A link of a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BusLink {
    /// Kind of the link, such as "PCIe".
    pub kind: String,
    /// Nominal speed in one direction.
    pub bytes_per_s: u64,
}

impl BusDevice {
    /// Returns the device's name and PCI address.
    pub fn title(&self) -> String {
        format!("{} ({})", self.name, self.pci_address)
    }
}

/// Bytes of a memory that are still available.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AvailableMemory {
    /// Available to all processes of the machine together.
    pub machine_bytes: u64,
    /// Available to the processes of this container together; `None` if the container has no limit.
    pub container_bytes: Option<u64>,
}

/// Properties of an allocation.
#[derive(Debug, Clone, Copy, Default)]
pub struct Request<'a> {
    /// The part of `--memory` after the colon; empty when there is none.
    pub variant: &'a str,
    /// Bytes for this worker. When asking whether memory suffices: bytes for all workers of the host.
    pub bytes: u64,
    /// True if peers map it.
    pub shared: bool,
    /// The NUMA node to prefer.
    pub node: Option<u32>,
    /// True if the user named the node. Failure to bind memory to it is then an error instead of a remark.
    pub node_required: bool,
    /// The GPU assigned to the rank; `None` leaves the choice to the memory's name.
    pub gpu: Option<u32>,
    /// Options that differ from the defaults, possibly including options of other memories; `None` for the defaults.
    pub options: Option<&'a EngineOptions>,
    /// Library files to load; `None` if the user had no means to choose any.
    pub libraries: Option<&'a Libraries>,
}

impl Request<'_> {
    /// Value of one of a memory's options: the requested one, or its default; empty if the memory has no such option.
    pub fn option(&self, known: &[EngineOption], name: &str) -> String {
        static NONE: EngineOptions = EngineOptions::new();
        let option = find_option(known, name);
        option.map_or_else(String::new, |option| {
            option.value(self.options.unwrap_or(&NONE))
        })
    }
}

/// Memory that engines can register and peers can reach. Bytes are identified by their offset.
///
/// All access goes through this trait: code elsewhere must not assume that the CPU can reach the bytes. An engine may
/// downcast a memory to find out whether it belongs to the engine's kind of device.
pub trait Memory: Any + Send + Sync {
    /// Number of bytes.
    fn bytes(&self) -> u64;
    /// The mapped bytes; `None` if the CPU cannot address them.
    fn host(&self) -> Option<&Arc<Arena>>;
    /// The bytes as a device sees them; `None` for host memory that no device knows.
    fn device(&self) -> Option<DeviceMemory<'_>> {
        None
    }
    /// How long this process took to load the device's driver and initialize the device. That happens once, before the
    /// first allocation. `None` if no driver is involved.
    fn driver_start_ns(&self) -> Option<u64> {
        None
    }
    /// The actual memory: kind, pages and node, and the reason for any difference from the request.
    fn report(&self) -> MemoryReport;
    /// Fills `offset..offset + len` with the data that `key` defines; `origin` is the memory offset that corresponds to
    /// the key's offset 0. The default implementations of `fill`, `verify`, `read` and `write` are for memory that the
    /// CPU can address. Other memories override them, or refuse.
    ///
    /// # Errors
    /// If the range lies outside, or the device fails.
    fn fill(&self, origin: u64, offset: u64, len: u64, key: Key) -> Result<()> {
        pattern::fill(host_arena_of(self)?, origin, offset, len, key)
    }
    /// Compares the range with the data that [`Self::fill`] would have written, and adds differences to `found`.
    ///
    /// # Errors
    /// If the range lies outside, or the device fails.
    fn verify(
        &self,
        origin: u64,
        offset: u64,
        len: u64,
        key: Key,
        found: &mut Mismatches,
    ) -> Result<()> {
        pattern::verify(host_arena_of(self)?, origin, offset, len, key, found)
    }
    /// Copies a few bytes out for inspection; never called in a loop.
    ///
    /// # Errors
    /// If the range lies outside, or the device fails.
    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let read = host_arena_of(self)?.read(offset, bytes);
        read.map_err(|error| Error::Failed(error.to_string()))
    }
    /// Copies a few changed bytes in; never called in a loop.
    ///
    /// # Errors
    /// If the range lies outside, or the device fails.
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let written = host_arena_of(self)?.write(offset, bytes);
        written.map_err(|error| Error::Failed(error.to_string()))
    }
    /// Measures the fastest copies between two areas of this memory: the bound for transfers within it. `slots` yields
    /// the source slot and destination slot of each copy.
    ///
    /// Copiers that share memory get the same `turns`, so they copy simultaneously. The sum of their rates in a turn is
    /// their combined rate.
    ///
    /// # Errors
    /// If an area lies outside, the device fails, or no copy within this memory is implemented.
    fn copy_rates(
        &self,
        stretch: &CopyRange,
        slots: &mut dyn FnMut() -> (u64, u64),
        clock: &Clock,
        turns: CopyRepetitions,
    ) -> Result<Vec<CopyRate>> {
        let _ = (stretch, slots, clock, turns);
        Err(not_addressable_error(&self.report()))
    }
}

fn host_arena_of<M: Memory + ?Sized>(memory: &M) -> Result<&Arc<Arena>> {
    memory
        .host()
        .ok_or_else(|| not_addressable_error(&memory.report()))
}

fn not_addressable_error(memory: &MemoryReport) -> Error {
    let device = memory.device.as_ref();
    let of_device = device.map_or_else(String::new, |device| format!(" of {device}"));
    Error::Unavailable {
        what: format!("memory {}{of_device}", memory.kind),
        why: "the CPU cannot address it, and no other access to its bytes is implemented"
            .to_owned(),
        how: "Read it with the device's own library, or transfer it to host memory".to_owned(),
    }
}

impl dyn Memory {
    /// Returns the mapped bytes, for access with the CPU. `engine` is the name of the engine that asks.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the CPU cannot address them.
    pub fn mapped(&self, engine: &str) -> Result<&Arc<Arena>> {
        self.host().ok_or_else(|| Error::Unavailable {
            what: format!("memory {} with engine {engine}", self.report().kind),
            why: "the engine moves bytes with the CPU, which cannot address this memory".to_owned(),
            how: "Choose another --engine, or host memory such as --memory host".to_owned(),
        })
    }
}

/// Bytes as a device sees them.
#[derive(Debug, Clone, Copy)]
pub struct DeviceMemory<'a> {
    /// The programming interface of the device's driver: "cuda", "hip", …
    pub interface: &'static str,
    /// The device's number in this interface.
    pub device: u32,
    /// The device's address of the bytes.
    pub address: u64,
    /// The dmabuf through which another device can reach the bytes; `None` if they cannot be exported.
    pub dmabuf: Option<Dmabuf<'a>>,
}

/// Exported memory of a device.
#[derive(Debug, Clone, Copy)]
pub struct Dmabuf<'a> {
    /// The dmabuf file.
    pub file: BorrowedFd<'a>,
    /// Offset of the memory's first byte in the file.
    pub offset: u64,
}

/// The actual memory of an allocation, as recorded.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct MemoryReport {
    /// The memory's name in the list of memories.
    pub kind: String,
    /// Size in bytes, a whole number of pages.
    pub bytes: u64,
    /// Page size of host memory: "normal", "transparent 2 MiB", "2 MiB" or "1 GiB".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pages: Option<String>,
    /// Bytes that the kernel backs with transparent huge pages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transparent_huge_bytes: Option<u64>,
    /// The allocation method, if there are several: the option's value and its meaning. For mapped GPU memory also the
    /// allocation granularity in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocated: Option<String>,
    /// True if peers can map it.
    pub shared: bool,
    /// NUMA node that its pages are on, read back from the kernel. If there are several nodes: the one with the most
    /// pages. `null` if the kernel does not report it.
    pub numa_node: Option<u32>,
    /// All nodes that its pages are on, such as "0-1"; absent if there is only one, or if they are unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa_nodes: Option<String>,
    /// The requested NUMA node; absent if the choice was left to the kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa_asked: Option<u32>,
    /// Why the memory is not bound to the chosen node.
    pub why_not_bound: Option<String>,
    /// Why the pages are not larger: one reason for each larger page size.
    pub why_not_larger_pages: Vec<String>,
    /// The device that holds or pinned the memory; absent for memory that no device knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Why the device does not fill and compare the memory itself. Bytes are then copied through the host, outside of
    /// every measurement. Absent if the device does both, and for host memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why_filled_by_copies: Option<String>,
}

impl MemoryReport {
    /// Sets the requested node, and the nodes that hold its pages, from the number of pages on each node.
    pub fn on_nodes(mut self, asked: Option<u32>, pages: &BTreeMap<u32, u64>) -> Self {
        self.numa_asked = asked;
        // On a tie, the lower node is reported.
        let most = pages
            .iter()
            .max_by_key(|&(&node, &count)| (count, Reverse(node)));
        self.numa_node = most.map(|(&node, _)| node);
        let nodes: Vec<u32> = pages.keys().copied().collect();
        self.numa_nodes = (nodes.len() > 1).then(|| number_list::format(&nodes));
        self
    }
}

/// Two areas of one memory: the source and the destination of copies. Each area consists of slices, and each slice of
/// pieces.
#[derive(Debug, Clone, Copy)]
pub struct CopyRange {
    /// Offset of the source.
    pub from: u64,
    /// Offset of the destination.
    pub to: u64,
    /// Bytes of each copy except the last one of a slice.
    pub piece_bytes: u64,
    /// Bytes of the last copy of each slice. It can be shorter, because a slice ends where the footprint ends.
    pub last_piece_bytes: u64,
    /// Distance between the starts of two neighbouring pieces.
    pub stride_bytes: u64,
    /// Pieces of one slice, 1 or more.
    pub pieces: u64,
    /// Number of slices, each with its own source and destination.
    pub slices: u64,
    /// Distance between the starts of two neighbouring slices; irrelevant if there is only one.
    pub slice_bytes: u64,
}

impl CopyRange {
    /// Number of slots: one for each piece of each slice.
    pub fn slots(&self) -> u64 {
        self.slices * self.pieces
    }

    /// Bytes of all pieces of all slices.
    pub fn pass_bytes(&self) -> u64 {
        self.slices * ((self.pieces - 1) * self.piece_bytes + self.last_piece_bytes)
    }

    /// Returns where to copy for a pair of source slot and destination slot: both offsets, each from the start of its
    /// area. The third value is the number of bytes, which is the shorter of the two pieces.
    #[inline]
    pub fn copy_offsets(&self, (from, to): (u64, u64)) -> (u64, u64, u64) {
        let ((from, whole), (to, room)) = (self.piece_range(from), self.piece_range(to));
        (from, to, whole.min(room))
    }

    /// Returns the offset of a slot's piece from the start of its area, and its length.
    #[inline]
    pub fn piece_range(&self, slot: u64) -> (u64, u64) {
        let (slice, piece) = (slot / self.pieces, slot % self.pieces);
        let offset = slice * self.slice_bytes + piece * self.stride_bytes;
        if piece + 1 == self.pieces {
            (offset, self.last_piece_bytes)
        } else {
            (offset, self.piece_bytes)
        }
    }
}

/// Timing of all copiers' turns. The default suits a single copier: its first turn starts at once.
#[derive(Debug, Clone, Copy, Default)]
pub struct CopyRepetitions {
    /// Start of the first turn, on the copier's clock; 0 means at once.
    pub start_ns: u64,
    /// The most bytes that any copier copies in a pass. This determines the length of every copier's turns.
    pub pass_bytes: u64,
}

/// Rates of one copy method.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CopyRate {
    /// The method, such as "memcpy".
    pub method: String,
    /// True for additional turns of the method that was fastest for this copier.
    pub is_choice: bool,
    /// Bytes copied per second in each turn.
    pub turns_bytes_per_s: Vec<f64>,
}

impl CopyRate {
    /// Rate of the best turn, in bytes per second.
    pub fn bytes_per_s(&self) -> f64 {
        self.turns_bytes_per_s.iter().copied().fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The node is where the kernel has placed the pages, regardless of the request.
    #[test]
    fn memory_is_on_the_node_with_most_of_its_pages() {
        let on = |asked, pages: &[(u32, u64)]| {
            let report = MemoryReport::default().on_nodes(asked, &pages.iter().copied().collect());
            assert_eq!(report.numa_asked, asked);
            (report.numa_node, report.numa_nodes)
        };
        assert_eq!(on(Some(1), &[(0, 3)]), (Some(0), None));
        assert_eq!(on(Some(1), &[]), (None, None));
        assert_eq!(on(None, &[(1, 8)]), (Some(1), None));
        let several = |node, nodes: &str| (Some(node), Some(nodes.to_owned()));
        assert_eq!(on(Some(1), &[(0, 3), (1, 3)]), several(0, "0-1"));
        assert_eq!(on(None, &[(0, 3), (1, 4), (3, 1)]), several(1, "0-1,3"));
    }
}
