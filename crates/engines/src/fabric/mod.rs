//! `fabric:PROVIDER`: reliable datagram endpoints of any provider of libfabric, such as shm, tcp, efa, cxi or
//! verbs;ofi_rxm.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `arrival` | proof that written bytes have arrived |
//! | `choose` | choice of library, provider and device; the errors of those that are not there |
//! | `contact` | what workers tell their peers, comparing it, and first contact by mailboxes |
//! | `queue_sizes` | queue sizes of an endpoint |
//! | `options` | the names that a user may give |
//! | `domain` | one device of a provider |
//! | `worker` | registrations, peers and lanes; posting and polling; what usually causes an error |
//! | `files` | files that the provider shm leaves in /dev/shm |
//!
//! Each worker opens a domain and an endpoint of its own, so that threads share nothing (FI_THREAD_DOMAIN). Calls into
//! the library and everything `unsafe` are in `tonnage_sys::libfabric`.

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
use options::{LIBRARY, OPTIONS, core_of};
use tonnage_engine::{
    Domain, Domains, Entry, Facts, Library, Lifecycle, OpenRequest, Variant, Verb, fact_names,
};
use tonnage_machine::fabric::LIBFABRIC_VARIABLE;
use tonnage_sys::libfabric::Info;
use tonnage_sys::process::{allow_to_attach, common_ancestor};
use tonnage_units::Result;

use crate::staged::open_staged;

/// The row of the list of engines.
pub const ENTRY: Entry = Entry {
    variant: Some(Variant {
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
        "one-sided transfers by any provider of libfabric, such as tcp, shm, efa, cxi or verbs;ofi_rxm",
        &Verb::COPYING,
        |request| open_staged(request, &OPTIONS, open),
    )
};

fn open(request: &OpenRequest<'_>) -> Result<Domains> {
    if core_of(request.variant) == "shm" {
        // Large messages are copied from one process's memory to the other's. Yama names one process, whose descendants
        // may: ranks of a run have the supervisor, or what their launcher started here, in common.
        allow_to_attach(common_ancestor(request.processes));
    }
    let chosen = choose::choose(request)?;
    let facts = Facts::default()
        .maybe("why_embedded", chosen.why_embedded)
        .maybe("device_chosen_because", chosen.why_device)
        .maybe(
            fact_names::DEVICES_LEFT_OUT,
            Some(chosen.left_out).filter(|words| !words.is_empty()),
        );
    let domain = |info: Info| -> Result<Arc<dyn Domain>> {
        let domain = FabricDomain::new(request, info, chosen.delivery, facts.clone())?;
        Ok(Arc::new(domain))
    };
    chosen.infos.into_iter().map(domain).collect()
}
