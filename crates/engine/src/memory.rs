//! The [`Memory`] trait: where bytes live, and how whoever owns them fills, compares and copies them.
//!
//! What is written to be verified is in [`crate::pattern`]; the memories themselves are in `tonnage_engines::memory`, a
//! [`MemoryEntry`] each. Which part of a memory belongs to whom is not known here.

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
use crate::name::Variant;
use crate::options::{EngineOption, EngineOptions, OptionsOf, check_options, find_option};
use crate::pattern::{self, Key, Mismatches};

/// One row of the list of memories.
pub struct MemoryEntry {
    /// The name that `--memory` takes, up to a colon.
    pub name: &'static str,
    /// One line for help and `tonnage devices`.
    pub about: &'static str,
    /// Part that may follow the name after a colon, such as "DEVICE" in `gpu:DEVICE`; `None` when nothing may.
    pub variant: Option<Variant>,
    /// True when the CPU can address it, so that what needs to look at single bytes is refused before any rank starts.
    pub host_addressable: bool,
    /// True when it is memory of a GPU, or pinned for one, which may be the one that the rank was given.
    pub takes_gpu: bool,
    /// Options of its own, which `--memory-option NAME=VALUE` sets.
    pub options: &'static [EngineOption],
    /// Allocates it and gives every page its place, so that nothing is left to be done when it is first touched.
    pub allocate: fn(&Request<'_>) -> Result<Arc<dyn Memory>>,
    /// Bytes that can still be had, by the part of the name after the colon; `None` where that is not known. Asked
    /// before anybody allocates, so that what is too much is refused and not half touched.
    pub available: fn(&str) -> Option<Available>,
    /// The device that its bytes will be of, and its place on the machine; `None` for memory of the host, and where
    /// nobody tells: its allocation says why. Asked before engines are opened, so that each knows its peers' too.
    pub device: fn(&Request<'_>) -> Option<BusDevice>,
    /// Libraries that it loads at run time, which `--library` and their variables choose.
    pub libraries: &'static [Library],
}

impl MemoryEntry {
    /// Checks options against what the memory knows, and returns those that differ from the defaults.
    ///
    /// # Errors
    /// `Usage` for an unknown name or value, with those that there are.
    pub fn check_options(&self, asked: &EngineOptions) -> Result<EngineOptions> {
        check_options(OptionsOf::Memory(self.name), self.options, asked, "")
    }

    /// Those of some options whose names the memory knows.
    pub fn known_of(&self, asked: &EngineOptions) -> EngineOptions {
        let known = |(name, _): &(&String, &String)| find_option(self.options, name).is_some();
        let own = asked.iter().filter(known);
        own.map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    }
}

/// A device on a machine's bus, with memory of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BusDevice {
    /// Its name in the process that tells of it, such as "cuda:0": another process may number it otherwise.
    pub name: String,
    /// Its PCI address, which is the same for all processes of the machine, and for all slices of a device.
    pub pci_address: String,
    /// Its identity as its driver tells it; slices of one device may have the same.
    pub uuid: String,
    /// The link by which the rest of the machine reaches it; `None` where its speed is not known.
    pub link: Option<BusLink>,
    /// Reason why some of its links are not known.
    pub links_unknown: Option<String>,
    /// Nominal speed of its memory, of reading and writing together; `None` where nobody tells.
    pub memory_bytes_per_s: Option<u64>,
    /// Means by which several processes work on it at once, where it has one after the other without that.
    pub shared_by: Option<String>,
}

/// A link of a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BusLink {
    /// Its kind in words, such as "PCIe".
    pub kind: String,
    /// Nominal speed in one direction.
    pub bytes_per_s: u64,
}

impl BusDevice {
    /// Its name and its address.
    pub fn title(&self) -> String {
        format!("{} ({})", self.name, self.pci_address)
    }
}

/// Bytes of a memory that can still be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Available {
    /// By all processes of the machine together.
    pub machine_bytes: u64,
    /// By those of this container together; `None` where it has no limit of its own.
    pub container_bytes: Option<u64>,
}

/// Properties of an allocation.
#[derive(Debug, Clone, Copy, Default)]
pub struct Request<'a> {
    /// The part of `--memory` after the colon; empty when there is none.
    pub variant: &'a str,
    /// Bytes of this worker; of all workers of the host where it is asked whether they fit.
    pub bytes: u64,
    /// True when peers map it.
    pub shared: bool,
    /// The NUMA node to prefer.
    pub node: Option<u32>,
    /// True when the user named that node: then memory that cannot be bound to it is an error, and not only a remark.
    pub node_required: bool,
    /// The GPU that the rank was given; `None` leaves it to the memory's name.
    pub gpu: Option<u32>,
    /// Options that differ from the defaults, also those of other memories; `None` for the defaults.
    pub options: Option<&'a EngineOptions>,
    /// Files of libraries to load; `None` where nobody could choose one.
    pub libraries: Option<&'a Libraries>,
}

impl Request<'_> {
    /// The value of one of a memory's options: what was asked for, or its default; empty for an option that it lacks.
    pub fn option(&self, known: &[EngineOption], name: &str) -> String {
        static NONE: EngineOptions = EngineOptions::new();
        let option = find_option(known, name);
        option.map_or_else(String::new, |option| {
            option.value(self.options.unwrap_or(&NONE))
        })
    }
}

/// Memory that engines can register and peers can reach. Bytes are named by their offset.
///
/// Whoever owns the memory carries out everything that touches it, for only they know how: nothing outside may assume
/// that the CPU can. An engine that has a device of its own kind move the bytes finds out by its type whether a memory
/// is of that kind.
pub trait Memory: Any + Send + Sync {
    /// Number of its bytes.
    fn bytes(&self) -> u64;
    /// The mapped bytes; `None` where the CPU cannot address them.
    fn host(&self) -> Option<&Arc<Arena>>;
    /// The bytes as a device knows them; `None` for memory of the host that no device knows.
    fn device(&self) -> Option<DeviceMemory<'_>> {
        None
    }
    /// Time that this process took to start the driver of its device and to take the device into use, once, before it
    /// allocated any memory of it; `None` where there is none.
    fn driver_start_ns(&self) -> Option<u64> {
        None
    }
    /// The real memory: kind, pages, node, and why it is less than what was asked for.
    fn report(&self) -> MemoryReport;
    /// Writes the bytes that `key` says belong at `offset..offset + len`; `origin` is where the key's own offset 0
    /// lies. This and the next three are written for memory that the CPU addresses; any other has its own, or refuses.
    ///
    /// # Errors
    /// When the range lies outside, or the device fails.
    fn fill(&self, origin: u64, offset: u64, len: u64, key: Key) -> Result<()> {
        pattern::fill(addressed(self)?, origin, offset, len, key)
    }
    /// Compares the range with what [`Self::fill`] would have written, and adds what differs to `found`.
    ///
    /// # Errors
    /// When the range lies outside, or the device fails.
    fn verify(
        &self,
        origin: u64,
        offset: u64,
        len: u64,
        key: Key,
        found: &mut Mismatches,
    ) -> Result<()> {
        pattern::verify(addressed(self)?, origin, offset, len, key, found)
    }
    /// Copies bytes out, for looking at a few of them; no loop calls it.
    ///
    /// # Errors
    /// When the range lies outside, or the device fails.
    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let read = addressed(self)?.read(offset, bytes);
        read.map_err(|error| Error::Failed(error.to_string()))
    }
    /// Copies bytes in, for changing a few of them; no loop calls it.
    ///
    /// # Errors
    /// When the range lies outside, or the device fails.
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let written = addressed(self)?.write(offset, bytes);
        written.map_err(|error| Error::Failed(error.to_string()))
    }
    /// Measures the fastest copies between two stretches of it: the limit of what stays in this memory. `slots` gives
    /// the next slots, of the source and of the destination, for each copy.
    ///
    /// Copiers that share memory are given the same `turns`, so that their rates in a turn add up to what all of them
    /// reach together.
    ///
    /// # Errors
    /// When a stretch lies outside, the device fails, or nothing here copies within this memory.
    fn copy_rates(
        &self,
        stretch: &Stretch,
        slots: &mut dyn FnMut() -> (u64, u64),
        clock: &Clock,
        turns: CopyTurns,
    ) -> Result<Vec<CopyRate>> {
        let _ = (stretch, slots, clock, turns);
        Err(not_addressed(&self.report()))
    }
}

fn addressed<M: Memory + ?Sized>(memory: &M) -> Result<&Arc<Arena>> {
    memory.host().ok_or_else(|| not_addressed(&memory.report()))
}

fn not_addressed(memory: &MemoryReport) -> Error {
    let device = memory.device.as_ref();
    let of_device = device.map_or_else(String::new, |device| format!(" of {device}"));
    Error::Unavailable {
        what: format!("memory {}{of_device}", memory.kind),
        why: "the CPU does not address it, and its bytes are not looked at by other means"
            .to_owned(),
        how: "Look at it by the device's own library, or transfer it into memory of the host"
            .to_owned(),
    }
}

impl dyn Memory {
    /// The mapped bytes, for an engine that reads and writes them by the CPU.
    ///
    /// # Errors
    /// [`Error::Unavailable`] where the CPU cannot address them.
    pub fn mapped(&self, engine: &str) -> Result<&Arc<Arena>> {
        self.host().ok_or_else(|| Error::Unavailable {
            what: format!("memory {} with engine {engine}", self.report().kind),
            why: "the engine moves bytes by the CPU, which cannot address this memory".to_owned(),
            how: "Choose another --engine, or a memory of the host such as --memory host"
                .to_owned(),
        })
    }
}

/// Bytes as a device knows them.
#[derive(Debug, Clone, Copy)]
pub struct DeviceMemory<'a> {
    /// The interface that the device's driver offers: "cuda", "hip", …
    pub interface: &'static str,
    /// The device's number in that interface.
    pub device: u32,
    /// Address of the bytes for the device.
    pub address: u64,
    /// A file through which another device can reach the bytes, where they can be exported.
    pub dmabuf: Option<Dmabuf<'a>>,
}

/// Exported memory of a device.
#[derive(Debug, Clone, Copy)]
pub struct Dmabuf<'a> {
    /// The buffer.
    pub file: BorrowedFd<'a>,
    /// Offset in it of the memory's beginning.
    pub offset: u64,
}

/// The real memory of an allocation, for the record.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct MemoryReport {
    /// The name in the list of memories.
    pub kind: String,
    /// Bytes, a whole number of pages.
    pub bytes: u64,
    /// Pages that host memory has: "normal", "transparent 2 MiB", "2 MiB" or "1 GiB".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pages: Option<String>,
    /// Bytes that the kernel backs with transparent huge pages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transparent_huge_bytes: Option<u64>,
    /// Way in which it was allocated, where it has several: the value of the option and what that is; of mapped memory
    /// of a GPU the bytes that allocations are multiples of, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocated: Option<String>,
    /// True when peers can map it.
    pub shared: bool,
    /// NUMA node that its pages are on, read back from the kernel: of several the one with most; `null` where the
    /// kernel does not tell.
    pub numa_node: Option<u32>,
    /// All nodes that its pages are on, such as "0-1"; absent where that is one, or is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa_nodes: Option<String>,
    /// NUMA node that was asked for; absent where it was left to the kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa_asked: Option<u32>,
    /// Reason why it is not bound to the node that was chosen.
    pub why_not_bound: Option<String>,
    /// Reasons why its pages are not larger, one for each kind of page.
    pub why_not_larger_pages: Vec<String>,
    /// The device that it belongs to, or that pinned it; absent for memory that no device knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Reason why its device does not fill and compare it by itself, so that its bytes are copied through the host for
    /// that, outside of every measurement; absent where the device does, and for memory of the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why_filled_by_copies: Option<String>,
}

impl MemoryReport {
    /// Adds the node that was asked for, and those that pages are on: so many of them on each.
    pub fn on_nodes(mut self, asked: Option<u32>, pages: &BTreeMap<u32, u64>) -> Self {
        self.numa_asked = asked;
        // Of two with as many, the lower one.
        let most = pages
            .iter()
            .max_by_key(|&(&node, &count)| (count, Reverse(node)));
        self.numa_node = most.map(|(&node, _)| node);
        let nodes: Vec<u32> = pages.keys().copied().collect();
        self.numa_nodes = (nodes.len() > 1).then(|| number_list::format(&nodes));
        self
    }
}

/// Two stretches of one memory between which is copied, piece by piece.
#[derive(Debug, Clone, Copy)]
pub struct Stretch {
    /// Offset of the source.
    pub from: u64,
    /// Offset of the destination.
    pub to: u64,
    /// Bytes of one copy, unless it is the last of a slice.
    pub piece_bytes: u64,
    /// Bytes of the last copy of a slice, which ends where the footprint does.
    pub last_piece_bytes: u64,
    /// Distance between the starts of two pieces.
    pub stride_bytes: u64,
    /// Pieces of one slice, 1 or more.
    pub pieces: u64,
    /// Slices, each with its source and its destination.
    pub slices: u64,
    /// Distance between the starts of two slices; of no account where there is one.
    pub slice_bytes: u64,
}

impl Stretch {
    /// Slots that a walk over it has: one for each piece of each slice.
    pub fn slots(&self) -> u64 {
        self.slices * self.pieces
    }

    /// Bytes of all pieces of all slices.
    pub fn pass_bytes(&self) -> u64 {
        self.slices * ((self.pieces - 1) * self.piece_bytes + self.last_piece_bytes)
    }

    /// Offsets of the pieces of two slots from the starts of source and destination, and the bytes that both have.
    #[inline]
    pub fn copy(&self, (from, to): (u64, u64)) -> (u64, u64, u64) {
        let ((from, whole), (to, room)) = (self.piece(from), self.piece(to));
        (from, to, whole.min(room))
    }

    /// Offset of a slot's piece from the start of source and destination, and its bytes.
    #[inline]
    pub fn piece(&self, slot: u64) -> (u64, u64) {
        let (slice, piece) = (slot / self.pieces, slot % self.pieces);
        let offset = slice * self.slice_bytes + piece * self.stride_bytes;
        if piece + 1 == self.pieces {
            (offset, self.last_piece_bytes)
        } else {
            (offset, self.piece_bytes)
        }
    }
}

/// Turns that all copiers share. The default is for a copier that is alone: it starts at once.
#[derive(Debug, Clone, Copy, Default)]
pub struct CopyTurns {
    /// Start of the first turn, by the copier's clock; 0 is at once.
    pub start_ns: u64,
    /// The most bytes that one of them copies in a pass, which sets the length of a turn for all.
    pub pass_bytes: u64,
}

/// Rates of one way of copying.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CopyRate {
    /// The way, such as "memcpy".
    pub method: String,
    /// True for further turns of the way that was this copier's fastest in the turns of all ways.
    pub is_choice: bool,
    /// Bytes copied per second in each turn.
    pub turns_bytes_per_s: Vec<f64>,
}

impl CopyRate {
    /// The best turn, in bytes per second.
    pub fn bytes_per_s(&self) -> f64 {
        self.turns_bytes_per_s.iter().copied().fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages are where the kernel says, whatever was asked for.
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
