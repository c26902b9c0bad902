//! Memory of a GPU: registering it by the way that the provider grants, what arrives in it, and the refusal of a
//! provider that takes none.

use std::collections::BTreeSet;
use std::sync::Arc;

use tonnage_engine::memory::Memory;
use tonnage_engine::{Completion, Facts, Lane, LaneKind, RegionId, Verb, fact_names};
use tonnage_machine::kernel_files::Tree;
use tonnage_sys::libfabric::{Hints, Info, Libfabric, PeerToPeer, RegionHandle};
use tonnage_units::{Error, Result};

use super::options::{CARD_WAYS, UNTOLD};
use super::worker::FabricWorker;
use crate::memory::vendors::vendor_of_memory;
use crate::registration::{CardMemory, first_granted, not_granted};
use crate::staged::INSTEAD;

impl FabricWorker {
    /// Registers memory of a GPU under a key.
    pub(super) fn register_card_memory(
        &mut self,
        memory: &Arc<dyn Memory>,
        key: u64,
    ) -> Result<RegionHandle> {
        let card = CardMemory::of(memory, &self.name)?;
        let device = &self.attributes.domain;
        let what = format!(
            "memory {} with engine {} on {device}",
            card.kind(),
            self.name
        );
        let Some(asked) = &self.registration else {
            return Err(Error::Unavailable {
                what,
                why: "the provider was opened for memory of the host".to_owned(),
                how: format!("Name a memory of a GPU when the engine is opened; or {INSTEAD}"),
            });
        };
        let endpoint = &mut self.endpoint;
        let tried = first_granted(asked, &CARD_WAYS, |way| {
            let interface = card.interface()?;
            card.register((&Tree::host(), device), way, |bytes| {
                endpoint.register_device(bytes, interface, key)
            })
        });
        let (way, (handle, doubt), before) =
            tried.map_err(|all| not_granted((what, card.rules()), &all, INSTEAD))?;
        let region = RegionId(self.region_next);
        (self.card_regions).keep(region, (way, &before), card.context());
        self.card_regions.keep_doubt(region, doubt);
        Ok(handle)
    }

    /// Facts about memory of GPUs, and how many bytes are injected.
    pub(super) fn card_facts(&self) -> Facts {
        let regions = &self.card_regions;
        let untold = self.endpoint.peer_to_peer() == Some(PeerToPeer::Untold);
        let mut facts = regions.add_granted(Facts::default());
        if untold {
            facts = facts.with("peer_to_peer", UNTOLD);
            if !regions.is_empty() {
                let mut remarks: Vec<_> = facts.texts(fact_names::REMARKS);
                let doubt = format!(
                    "{} reaches memory of the GPU by a way that is {UNTOLD}",
                    self.name
                );
                remarks.push(&doubt);
                let remarks: Vec<String> = remarks.into_iter().map(str::to_owned).collect();
                facts = facts.with(fact_names::REMARKS, remarks);
            }
        }
        // The endpoint can allow less for writes than the provider's attributes say of all messages. What the CPU does
        // not address is not injected.
        let injects = regions.is_empty();
        facts.with(
            "inject_bytes_max",
            if injects { self.inject_bytes_max } else { 0 },
        )
    }

    /// Waits until the GPUs see what these completions tell of.
    #[inline]
    pub(super) fn flush_arrived(&self, done: &[Completion]) -> Result<()> {
        let read = LaneKind::Initiate(Verb::Read);
        let reads = |lane: Lane| {
            let lane = self.lanes.get(lane.0 as usize);
            matches!(lane, Some(Some(lane)) if lane.spec.kind == read)
        };
        self.card_regions.flush(&self.name, done, reads)
    }
}

/// The refusal of memory of a device where the provider does without FI_HMEM what else was asked of it; `None` where it
/// does not do that either.
pub(super) fn without_hmem(
    library: &Arc<Libfabric>,
    hints: &Hints<'_>,
    (memory, why_embedded): (&str, Option<&str>),
) -> Option<Error> {
    let provider = hints.provider;
    let of_host = Hints {
        device_memory: false,
        ..hints.clone()
    };
    let offers = |hints: &Hints<'_>| Info::query(library, hints).unwrap_or_default();
    if offers(&of_host).is_empty() {
        return None;
    }
    let any = Hints {
        provider: "",
        ..hints.clone()
    };
    let names: BTreeSet<String> = offers(&any)
        .into_iter()
        .map(|info| info.attributes().provider.clone())
        .collect();
    let names: Vec<_> = names.into_iter().collect();
    let who = match names.as_slice() {
        [] => "no provider of this library has it here".to_owned(),
        names => format!(
            "those of this library that have it here: {}",
            names.join(", ")
        ),
    };
    // Memory that is no maker's here is that of an engine's caller.
    let (built_with, providers) = vendor_of_memory(memory)
        .map_or(("CUDA or ROCm", "verbs;ofi_rxm"), |maker| {
            (maker.cards.built_with, maker.cards.providers)
        });
    let used = why_embedded.map_or_else(String::new, |why| {
        format!("; this library is used because {why}")
    });
    Some(Error::Unavailable {
        what: format!("memory {memory} with engine fabric:{provider}"),
        why: format!(
            "provider {provider} of libfabric {} ({}) does not register memory of devices (FI_HMEM); {who}{used}",
            library.release(),
            library.path()
        ),
        how: format!(
            "Name a libfabric that was built with {built_with} with --libfabric, and a provider that has it, such as \
             {providers}; or {INSTEAD}"
        ),
    })
}
