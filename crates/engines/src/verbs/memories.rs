//! The memories of one worker: registered memories, and the page of first contact.

use std::sync::Arc;

use tonnage_engine::memory::Memory;
use tonnage_engine::{Completion, Descriptor, Facts, Lane, Region, RegionId, RegionTable};
use tonnage_machine::kernel_files::Tree;
use tonnage_sys::error::LibraryError;
use tonnage_sys::mapping::{Arena, Pages, Sharing};
use tonnage_sys::verbs::{Queues, RegionAccess, RegistrationHandle};
use tonnage_units::{Error, Result};

use super::contact::PAGE;
use super::options::{CARD_WAYS, INLINE};
use super::peers::FarBytes;
use super::port::OpenPort;
use super::transport::VerbsTransport;
use crate::memory::vendor::NicRules;
use crate::registration::{NicMemory, NicRegions, RegistrationWay, locked_memory_advice};
use crate::staged::INSTEAD;

/// A worker's registered memories.
pub(super) struct Memories {
    port: Arc<OpenPort>,
    regions: RegionTable<RegistrationHandle>,
    /// The registered GPU memories.
    cards: NicRegions,
    /// The page of first contact, where flushes store their bytes, too.
    contact: RegistrationHandle,
}

/// Maximum number of registrations of one memory. It is limited because each peer gets all keys.
const PIECES_MAX: u64 = 4096;

impl Memories {
    /// Allocates and registers the page of first contact.
    pub(super) fn open(port: &Arc<OpenPort>, queues: &mut Queues) -> Result<Self> {
        let page = Arena::allocate(2 * PAGE, Pages::Normal, Sharing::Private, None);
        let page =
            page.map_err(|why| Error::Failed(format!("no memory for first contact: {why}")))?;
        let bytes = page.len();
        let contact = queues.register(Arc::new(page), RegionAccess::default());
        Ok(Self {
            contact: contact.map_err(|why| port.about(not_registered(bytes, &why)))?,
            port: Arc::clone(port),
            regions: RegionTable::default(),
            cards: NicRegions::default(),
        })
    }

    pub(super) fn register(
        &mut self,
        queues: &mut Queues,
        memory: &Arc<dyn Memory>,
    ) -> Result<Region> {
        let bytes = usize::try_from(memory.bytes()).unwrap_or(usize::MAX);
        let locked = self.bytes_to_lock(queues, bytes)?;
        let access = RegionAccess {
            relaxed: self.port.asked.relaxed,
            atomics: self.port.atomics,
        };
        let handle = match memory.host() {
            Some(arena) => {
                let registered = queues.register(Arc::clone(arena), access);
                registered.map_err(|why| self.port.about(not_registered(locked, &why)))?
            }
            None => self.register_card_memory(queues, memory, access)?,
        };
        let remote = queues.remote(handle);
        let remote = remote.ok_or_else(|| Error::Failed("a region has no address".into()))?;
        Ok(Region {
            id: self.regions.put(handle),
            descriptor: Descriptor::encode(&FarBytes::from(&remote)),
        })
    }

    /// Deregisters a memory, which no lane may use any more.
    pub(super) fn deregister(&mut self, queues: &mut Queues, region: RegionId) -> Result<()> {
        let handle = self.regions.take(region)?;
        self.cards.forget(region);
        let closed = queues.deregister(handle);
        closed.map_err(|why| self.port.about(why))
    }

    pub(super) fn get(&self, region: RegionId) -> Result<RegistrationHandle> {
        self.regions.get(region).copied()
    }

    /// Returns the registration of the page of first contact.
    pub(super) fn contact(&self) -> RegistrationHandle {
        self.contact
    }

    /// Returns the bytes of this worker that peers read in first contact.
    pub(super) fn mailbox(&self, queues: &Queues) -> Result<FarBytes> {
        let mailbox = queues.remote(self.contact);
        let mailbox =
            mailbox.ok_or_else(|| Error::Failed("the mailbox is not registered".into()))?;
        Ok(FarBytes::from(&mailbox))
    }

    /// Waits until the GPUs see the data of these completions. `reads` returns whether a lane reads.
    #[inline]
    pub(super) fn flush_arrived(
        &self,
        done: &[Completion],
        reads: impl Fn(Lane) -> bool,
    ) -> Result<()> {
        self.cards.flush(self.port.engine(), done, reads)
    }

    /// Waits until the GPUs see the data that peers have written. Returns whether this was necessary.
    pub(super) fn flush_incoming(&self) -> Result<bool> {
        self.cards.flush_all(self.port.engine())
    }

    /// Begins a point: see [`NicRegions::begin_point`].
    pub(super) fn begin_point(&self, may_try_methods: bool) {
        self.cards.begin_point(may_try_methods);
    }

    /// Whether the CPU can copy the payload, because no memory is GPU memory.
    pub(super) fn cpu_copies(&self) -> bool {
        self.cards.is_empty()
    }

    /// Adds facts about GPU memories.
    pub(super) fn add_granted(&self, facts: Facts) -> Facts {
        self.cards.add_granted(facts)
    }

    /// Number of registrations; `None` if each memory has only one.
    pub(super) fn pieces(&self, queues: &Queues) -> Option<u64> {
        let registrations = queues.registrations();
        // The page of first contact has one registration, too.
        let in_pieces = registrations > self.regions.len() + 1;
        in_pieces.then_some(registrations as u64)
    }

    /// Returns how many bytes registering a memory would lock.
    ///
    /// # Errors
    /// If the memory would need too many registrations.
    fn bytes_to_lock(&self, queues: &Queues, bytes: usize) -> Result<usize> {
        let (pieces, locked) = queues.would_register(bytes as u64);
        if pieces > PIECES_MAX {
            return Err(self.port.about(format!(
                "a memory of {bytes} bytes would need {pieces} registrations, and all peers get their keys: choose a \
                 larger mr-size, so that at most {PIECES_MAX} are needed"
            )));
        }
        Ok(usize::try_from(locked).unwrap_or(usize::MAX))
    }

    fn register_card_memory(
        &mut self,
        queues: &mut Queues,
        memory: &Arc<dyn Memory>,
        access: RegionAccess,
    ) -> Result<RegistrationHandle> {
        let engine = self.port.engine();
        let staging = match self.port.asked.transport {
            VerbsTransport::Dc => {
                "choose verbs:rc with --engine-option staging=pinned, or --memory host"
            }
            _ => INSTEAD,
        };
        let card = NicMemory::new(memory, engine)?;
        let (kind, at) = (card.kind(), self.port.in_words());
        let what = format!("memory {kind} with engine {engine} on {at}");
        self.check_untouched(&what)?;
        let (port, region) = (&self.port, self.regions.next());
        let (tree, device) = (Tree::host(), port.chosen.context.name());
        let ways = (port.asked.registration.as_str(), &CARD_WAYS[..]);
        let regions = &mut self.cards;
        regions.register((region, &card), ways, (what, staging), |way| {
            card.register((&tree, device), way, |bytes| {
                let registered = queues.register_device(bytes, access);
                registered.map_err(|why| {
                    let lacking = without_peer_memory(way, card.rules(), &tree);
                    format!("{why}{lacking}")
                })
            })
        })
    }

    /// Refuses GPU memory if options make the CPU access the payload.
    fn check_untouched(&self, what: &str) -> Result<()> {
        let copied = copied_bytes(self.port.asked.inline_bytes, self.port.sends_payload);
        let (why, how) = match copied {
            _ if self.port.atomics => (
                "the CPU writes and reads the words of atomic operations, but cannot address this memory".to_owned(),
                "Choose --memory host for fetch-add and compare-swap",
            ),
            Some(bytes) => (
                format!("with {INLINE}={bytes}, the CPU copies payloads into work requests, but it cannot address this \
                         memory"),
                "Leave the option out, or choose inline=0",
            ),
            None => return Ok(()),
        };
        Err(Error::Unavailable {
            what: what.to_owned(),
            why,
            how: how.to_owned(),
        })
    }
}

fn not_registered(bytes: usize, why: &LibraryError) -> String {
    let advice = locked_memory_advice(bytes);
    format!("{bytes} bytes cannot be registered: {why}{advice}")
}

/// Bytes of payload that the user asked the CPU to copy into work requests; `None` for targets and reads, because they
/// copy no payload.
fn copied_bytes(asked: Option<u32>, sends_payload: bool) -> Option<u32> {
    asked.filter(|&bytes| bytes > 0 && sends_payload)
}

/// Remark if registration needs a kernel module that the kernel does not list.
fn without_peer_memory(way: RegistrationWay, rules: Option<&NicRules>, tree: &Tree) -> String {
    match rules {
        Some(rules) if way == RegistrationWay::Peermem && !(rules.has_peer_memory)(tree) => {
            format!("; {}", rules.no_peer_memory)
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use tonnage_engine::{OpenRequest, Verb};

    use super::super::domain::sends_payload;
    use super::*;
    use crate::memory::amd::AMD;
    use crate::memory::nvidia::NVIDIA;

    #[test]
    fn gpu_memory_is_refused_if_the_cpu_would_copy_payload() {
        use Verb::{Read, Send, Write};
        for (initiates, verbs, inline, copied) in [
            (true, &[Write][..], Some(64), Some(64)),
            (true, &[Read, Send], Some(64), Some(64)),
            (true, &[Write], Some(0), None),
            (true, &[Write], None, None),
            (true, &[Read], Some(64), None),
            // Targets copy nothing.
            (false, &[Write, Send], Some(64), None),
        ] {
            let request = OpenRequest {
                initiates,
                verbs,
                ..OpenRequest::default()
            };
            let found = copied_bytes(inline, sends_payload(&request));
            assert_eq!(found, copied, "{initiates} {verbs:?} {inline:?}");
        }
    }

    #[test]
    fn the_missing_kernel_module_is_named_for_each_vendor() {
        for (vendor, words, path) in [
            (
                NVIDIA,
                "nvidia_peermem is not loaded",
                "sys/module/nvidia_peermem",
            ),
            (
                AMD,
                "no amdkfd under memory_peers",
                "sys/kernel/memory_peers/amdkfd/version",
            ),
        ] {
            let root = tempfile::tempdir().unwrap();
            let tree = Tree::at(root.path());
            let remark = |way| without_peer_memory(way, Some(&vendor.cards), &tree);
            assert!(remark(RegistrationWay::Peermem).contains(words));
            assert_eq!(remark(RegistrationWay::Dmabuf), "");
            assert_eq!(
                without_peer_memory(RegistrationWay::Peermem, None, &tree),
                ""
            );
            std::fs::create_dir_all(root.path().join(path)).unwrap();
            assert_eq!(remark(RegistrationWay::Peermem), "");
        }
    }
}
