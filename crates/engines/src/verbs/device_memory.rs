//! Registering memory, that of a GPU too: which way the device grants, and what the CPU must not do with it then.

use std::sync::Arc;

use tonnage_engine::memory::Memory;
use tonnage_engine::{Completion, Lane, LaneKind, Region, RegionId, Verb};
use tonnage_machine::kernel_files::Tree;
use tonnage_sys::verbs::{RegionAccess, RegistrationHandle};
use tonnage_units::{Error, Result};

use super::options::{CARD_WAYS, INLINE};
use super::pairs::FarBytes;
use super::transport::VerbsTransport;
use super::worker::{VerbsWorker, not_registered};
use crate::memory::vendor::CardRules;
use crate::registration::{CardMemory, CardWay, first_granted, not_granted};
use crate::staged::INSTEAD;

impl VerbsWorker {
    /// Registers a memory of the host, or of a GPU.
    pub(super) fn register_memory(&mut self, memory: &Arc<dyn Memory>) -> Result<Region> {
        let bytes = usize::try_from(memory.bytes()).unwrap_or(usize::MAX);
        let locked = self.bytes_to_lock(bytes)?;
        let access = RegionAccess {
            relaxed: self.port.asked.relaxed,
            atomics: self.port.atomics,
        };
        let handle = match memory.host() {
            Some(arena) => {
                let registered = self.queues.register(Arc::clone(arena), access);
                registered.map_err(|why| self.about_device(not_registered(locked, &why)))?
            }
            None => self.register_card_memory(memory, access)?,
        };
        let remote = self.queues.remote(handle);
        let remote = remote.ok_or_else(|| Error::Failed("a region has no address".into()))?;
        let number = self.region_next;
        self.region_next += 1;
        self.regions.insert(number, handle);
        Ok(Region {
            id: RegionId(number),
            descriptor: FarBytes::from(&remote).descriptor(),
        })
    }

    fn register_card_memory(
        &mut self,
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
        let card = CardMemory::of(memory, engine)?;
        let what = || {
            format!(
                "memory {} with engine {engine} on {}",
                card.kind(),
                self.port.in_words()
            )
        };
        self.check_untouched(&what())?;
        let what = what();
        let asked = &self.port.asked.registration;
        let (tree, device) = (Tree::host(), self.port.chosen.context.name());
        let queues = &mut self.queues;
        let tried = first_granted(asked, &CARD_WAYS, |way| {
            card.register((&tree, device), way, |bytes| {
                let registered = queues.register_device(bytes, access);
                registered.map_err(|why| {
                    let lacking = without_peer_memory(way, card.rules(), &tree);
                    format!("{why}{lacking}")
                })
            })
        });
        let (way, (handle, doubt), before) =
            tried.map_err(|all| not_granted((what, card.rules()), &all, staging))?;
        let region = RegionId(self.region_next);
        (self.card_regions).keep(region, (way, &before), card.context());
        self.card_regions.keep_doubt(region, doubt);
        Ok(handle)
    }

    /// Refuses what the CPU would do with bytes that it does not address.
    fn check_untouched(&self, what: &str) -> Result<()> {
        let refused = |why: String, how: &str| {
            Err(Error::Unavailable {
                what: what.to_owned(),
                why,
                how: how.to_owned(),
            })
        };
        if self.port.atomics {
            return refused(
                "the CPU writes and reads the words of atomic operations, and cannot address this memory".to_owned(),
                "Choose --memory host for fetch-add and compare-swap",
            );
        }
        match copied_bytes(self.port.asked.inline_bytes, self.port.sends_payload) {
            None => Ok(()),
            Some(bytes) => refused(
                format!(
                    "{INLINE}={bytes} has the CPU copy payloads into work requests, and it cannot address this memory"
                ),
                "Leave the option out, or choose inline=0",
            ),
        }
    }

    /// Waits until the GPUs see what these completions tell of.
    #[inline]
    pub(super) fn flush_arrived(&self, done: &[Completion]) -> Result<()> {
        let read = LaneKind::Initiate(Verb::Read);
        let reads = |lane: Lane| {
            let lane = self.lanes.get(lane.0 as usize);
            matches!(lane, Some(Some(lane)) if lane.asked.kind == read)
        };
        self.card_regions.flush(self.port.engine(), done, reads)
    }
}

/// Bytes of payload that the CPU was asked to copy into work requests. Whoever is only a target copies none, and reads
/// carry no payload.
fn copied_bytes(asked: Option<u32>, sends_payload: bool) -> Option<u32> {
    asked.filter(|&bytes| bytes > 0 && sends_payload)
}

/// Words about what a way needs of the kernel, where the kernel does not list it.
fn without_peer_memory(way: CardWay, rules: Option<&CardRules>, tree: &Tree) -> String {
    match rules {
        Some(rules) if way == CardWay::Peermem && !(rules.has_peer_memory)(tree) => {
            format!("; {}", rules.no_peer_memory)
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use tonnage_engine::OpenRequest;

    use super::super::domain::sends_payload;
    use super::*;
    use crate::memory::amd::AMD;
    use crate::memory::nvidia::NVIDIA;

    #[test]
    fn payload_is_refused_where_the_cpu_would_copy_it() {
        use Verb::{Read, Send, Write};
        for (initiates, verbs, inline, copied) in [
            (true, &[Write][..], Some(64), Some(64)),
            (true, &[Read, Send], Some(64), Some(64)),
            (true, &[Write], Some(0), None),
            (true, &[Write], None, None),
            (true, &[Read], Some(64), None),
            // A target's memory is no reason.
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
    fn what_the_kernel_lacks_is_named_for_each_maker() {
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
            let said = |way| without_peer_memory(way, Some(&vendor.cards), &tree);
            assert!(said(CardWay::Peermem).contains(words));
            assert_eq!(said(CardWay::Dmabuf), "");
            assert_eq!(without_peer_memory(CardWay::Peermem, None, &tree), "");
            std::fs::create_dir_all(root.path().join(path)).unwrap();
            assert_eq!(said(CardWay::Peermem), "");
        }
    }
}
