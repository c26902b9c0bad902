//! `verbs`: RDMA devices, straight by libibverbs: reliable connections (`verbs:rc`), and dynamically connected ones
//! of mlx5 cards (`verbs:dc`); and reads and writes that the kernel posts (`verbs:kernel`).
//!
//! | file | what lives there |
//! | --- | --- |
//! | `options` | names that a user may give, and the values that were asked for |
//! | `choose`, `port` | the library, devices, ports and addresses; the errors of those that are not there |
//! | `domain` | one port of a device |
//! | `worker`, `send_queue` | lanes, posting, completions; what a queue pair was given and has not completed |
//! | `completions` | what was taken from the device and not yet returned by a poll |
//! | `memories` | registered memories, of the host and of GPUs, and the page of first contact |
//! | `peers` | the queue pairs to each peer: making, cards, connecting |
//! | `cm`, `cm_terms` | connecting by rdma_cm: its steps, what is agreed upon and granted |
//! | `cm_port`, `cm_private` | what that needs of a port; what the sides prove to each other |
//! | `transport` | the transports, and the refusals of others |
//! | `dc` | DC: the device, a worker's initiators and its target, what peers are told |
//! | `kernel_session` | the session of the kernel's module |
//! | `kernel_worker`, `kernel_carrier` | a worker over it, with single reads; carrying its trials out |
//! | `contact` | first contact |
//! | `causes` | what usually causes a failure |
//!
//! Each worker has a completion queue of its own, and for each peer one queue pair; a second one for messages where
//! both sends and write-imms are asked for, since both use up receives. More queue pairs to a peer are more engines
//! like this one, which `tonnage_engine::paths` makes. Over DC it has a few initiators for all peers, and one target.
//! Calls into the library are in `tonnage_sys::verbs`.

mod causes;
mod choose;
mod cm;
mod cm_port;
mod cm_private;
mod cm_terms;
mod completions;
mod contact;
mod dc;
mod domain;
mod kernel_carrier;
mod kernel_session;
mod kernel_worker;
mod memories;
mod options;
mod peers;
mod port;
mod send_queue;
#[cfg(test)]
mod tests;
mod transport;
mod worker;

use std::sync::Arc;

use domain::PortDomain;
use options::{LIBIBVERBS_VARIABLE, LIBRARY, LIBRDMACM, LIBRDMACM_VARIABLE, OPTIONS};
use tonnage_engine::{Domain, Domains, Entry, Library, OpenRequest, Variant, Verb};
use tonnage_units::Result;
use transport::{DC, KERNEL, RC, VerbsTransport, check_transport};

use crate::staged::open_staged;

/// The row of the list of engines.
pub const ENTRY: Entry = Entry {
    variant: Some(Variant {
        what: "TRANSPORT",
        everywhere: &[],
        with_device: &[RC, DC, KERNEL],
        one_sided: &[DC, KERNEL],
        required: true,
    }),
    options: &OPTIONS,
    has_devices: true,
    libraries: &[
        Library {
            name: LIBRARY,
            variable: LIBIBVERBS_VARIABLE,
            about: "the libibverbs of an OFED installation, else the system's",
        },
        Library {
            name: LIBRDMACM,
            variable: LIBRDMACM_VARIABLE,
            about: "the librdmacm of an OFED installation, else the system's; only for connect=cm",
        },
    ],
    ordered_writes: true,
    ..Entry::new(
        "verbs",
        "one-sided transfers and messages by RDMA devices: reliable connections (verbs:rc) of libibverbs, dynamically \
         connected (verbs:dc), without messages, of mlx5 cards, and reads and writes that the kernel posts \
         (verbs:kernel), by its module tonnage_kread",
        &Verb::ALL,
        |request| open_staged(request, &OPTIONS, open),
    )
};

fn open(request: &OpenRequest<'_>) -> Result<Domains> {
    check_transport(request.variant)?;
    let domain =
        |port| -> Result<Arc<dyn Domain>> { Ok(Arc::new(PortDomain::new(request, port)?)) };
    let ports = choose::choose(request);
    let domains = ports.and_then(|ports| ports.into_iter().map(domain).collect());
    domains.map_err(|error| VerbsTransport::of(request.variant).named(error))
}
