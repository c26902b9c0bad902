//! `fabric:PROVIDER`: reliable datagram endpoints of any libfabric provider, such as shm, tcp, efa, cxi or
//! verbs;ofi_rxm.
//!
//! | file | contents |
//! | --- | --- |
//! | `arrival` | the proof that a write has arrived |
//! | `choose` | choice of library, provider and device, and the errors if one is missing |
//! | `contact` | endpoint addresses, compatibility of workers, and first contact by mailboxes |
//! | `queue_sizes` | queue sizes of an endpoint |
//! | `options` | names of engine options, libraries and providers |
//! | `domain` | one device of a provider |
//! | `worker` | registrations, peers and lanes; posting and polling; usual causes of errors |
//! | `files` | files that the provider shm leaves in /dev/shm |
//!
//! Each worker opens its own domain and endpoint, so threads share nothing (FI_THREAD_DOMAIN). All calls into the
//! library, and all `unsafe`, are in `tonnage_sys::libfabric`.

mod arrival;
mod choose;
mod contact;
mod domain;
mod files;
mod options;
mod queue_sizes;
#[cfg(test)]
mod tests;
mod worker;

use std::sync::Arc;

use domain::FabricDomain;
use options::{LIBRARY, OPTIONS, core_provider};
use tonnage_engine::{
    Domain, Domains, Entry, Facts, Library, Lifecycle, NameVariant, OpenRequest, Verb, fact_names,
};
use tonnage_machine::fabric::LIBFABRIC_VARIABLE;
use tonnage_sys::libfabric::Info;
use tonnage_sys::process::{allow_to_attach, common_ancestor};
use tonnage_units::Result;

use crate::staged::open_staged;

/// This engine's row in the list of engines.
pub const ENTRY: Entry = Entry {
    variant: Some(NameVariant {
        what: "PROVIDER",
        everywhere: &["shm", "tcp"],
        with_device: &[],
        one_sided: &[],
        required: true,
    }),
    options: &OPTIONS,
    has_devices: true,
    libraries: &[Library {
        name: LIBRARY,
        variable: LIBFABRIC_VARIABLE,
        about: "the library of an EFA installation, else the system's, else the one inside this program (\"embedded\")",
    }],
    lifecycle: Lifecycle {
        before_open: files::check_room,
        clean_up: files::clean_up_after,
        ..Lifecycle::NONE
    },
    ordered_writes: true,
    ..Entry::new(
        "fabric",
        "transfers over any libfabric provider, such as tcp, shm, efa, cxi or verbs;ofi_rxm",
        &Verb::COPYING,
        |request| open_staged(request, &OPTIONS, open),
    )
};

fn open(request: &OpenRequest<'_>) -> Result<Domains> {
    if core_provider(request.variant) == "shm" {
        // Large messages are copied directly between processes. Yama permits this to descendants of one process, so the
        // ranks' common ancestor is chosen: the supervisor, or the process that their launcher started on this host.
        allow_to_attach(common_ancestor(request.processes));
    }
    let chosen = choose::choose(request)?;
    let facts = Facts::default()
        .with_optional_fact("why_embedded", chosen.why_embedded)
        .with_optional_fact("device_chosen_because", chosen.why_device)
        .with_optional_fact(
            fact_names::DEVICES_LEFT_OUT,
            Some(chosen.left_out).filter(|words| !words.is_empty()),
        );
    let domain = |info: Info| -> Result<Arc<dyn Domain>> {
        let domain = FabricDomain::new(request, info, chosen.delivery, facts.clone())?;
        Ok(Arc::new(domain))
    };
    chosen.infos.into_iter().map(domain).collect()
}
