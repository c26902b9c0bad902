//! `verbs`: RDMA devices, directly through libibverbs. Its transports are reliable connections (`verbs:rc`), the
//! dynamically connected transport of mlx5 NICs (`verbs:dc`), and reads and writes posted by the kernel
//! (`verbs:kernel`).
//!
//! | file | contents |
//! | --- | --- |
//! | `options` | names of options and libraries, and the requested values |
//! | `choose`, `port` | the library, devices, ports and addresses, and the errors if one is missing |
//! | `domain` | one port of a device |
//! | `worker`, `send_queue` | lanes, posting and completions; pending work requests of a queue pair |
//! | `completions` | completions that were taken from the device and not yet returned by a poll |
//! | `memories` | registered host and GPU memories, and the page of first contact |
//! | `peers` | the queue pairs to each peer: creating them, endpoint addresses, connecting |
//! | `cm`, `cm_terms` | connecting by rdma_cm: its steps, and checks of the granted path |
//! | `cm_port`, `cm_private` | the prerequisites of rdma_cm; the private data that both sides exchange |
//! | `transport` | the supported transports, and the errors for others |
//! | `dc` | DC: the device, a worker's initiators and its target, endpoint addresses |
//! | `kernel_session` | the session of the kernel module |
//! | `kernel_worker`, `kernel_carrier` | a worker over that session, and its trials |
//! | `contact` | first contact |
//! | `causes` | usual causes of failures |
//!
//! Each worker has its own completion queue, and one queue pair per peer. If a run uses both sends and write-imms, a
//! second queue pair carries the sends, because both consume receives. For more queue pairs per peer,
//! `tonnage_engine::paths` opens more of these engines. Over DC, a worker has a few initiators for all peers, and one
//! target. Calls into the library are in `tonnage_sys::verbs`.

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
use tonnage_engine::{Domain, Domains, Entry, Library, NameVariant, OpenRequest, Verb};
use tonnage_units::Result;
use transport::{DC, KERNEL, RC, VerbsTransport, check_transport};

use crate::staged::open_staged;

/// This engine's row in the list of engines.
pub const ENTRY: Entry = Entry {
    variant: Some(NameVariant {
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
        "transfers over RDMA devices with libibverbs: reliable connections (verbs:rc), reads and writes over dynamic \
         connections of mlx5 NICs (verbs:dc), and reads and writes posted by the kernel module tonnage_kread \
         (verbs:kernel)",
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
    domains.map_err(|error| VerbsTransport::from_variant(request.variant).named(error))
}
