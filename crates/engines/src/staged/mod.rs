//! Staging: an engine that wraps an engine without access to GPU memory. Bytes are cut into pieces, which go through a
//! ring of pinned memory at each end. So copies by the GPU overlap with transfers by the wrapped engine. This
//! documentation calls it the engine below.
//!
//! [`open_staged`] wraps the domains of an engine, like `tonnage_engine::paths`, and knows no engine by name. Staging
//! is used only on request (`staging=pinned`); the title, the options and the facts of a record then show it.
//!
//! | file | contents |
//! | --- | --- |
//! | `mod` | the option, and the domain |
//! | `message` | the header of a piece |
//! | `ring` | slots for pieces in pinned memory, and copies between these slots and registered memory |
//! | `channel` | one peer: filling slots, sending them, handling arrived messages |
//! | `worker` | registering, connecting, lanes, posting, polling |
//!
//! Staging uses only sends of the engine below; they fill receives that are slots in the peer's ring. An arrived piece
//! is copied to its destination, and acknowledged after the GPU has copied it. An operation is done when all its pieces
//! are acknowledged. So a completed write is visible to the peer, even if the engine below and its network do not
//! guarantee this. NICs never write into GPU memory, so no flush is needed.

mod channel;
mod message;
mod ring;
mod worker;

use std::net::IpAddr;
use std::sync::Arc;

use tonnage_engine::{
    Caps, DeviceMemoryAccess, Domain, Domains, Engine, EngineOption, EngineReport, OpenRequest,
    OptionKind, PlannedMemory, Verb, WorkerConfig,
};
use tonnage_units::{Error, Result, WireDevice};

use crate::registration::check_registration;
use ring::{DEPTH_MAX, STAGING};
use worker::StagedWorker;

/// Returns the option for an engine. The option applies to these variants, or to all if the list is empty.
pub(crate) const fn option(variants: &'static [&'static str]) -> EngineOption {
    EngineOption {
        name: STAGING,
        kind: OptionKind::Choice(&["off", "pinned"]),
        variants,
        about: ABOUT,
    }
}

/// Depth of a lane of the engine below: all outgoing pieces and acknowledgements. It also suffices for the receives,
/// one per incoming slot.
const BELOW_DEPTH: u32 = ring::SLOTS + ring::ACKS;
const _: () = assert!(BELOW_DEPTH >= ring::INCOMING_SLOTS);

const ABOUT: &str = "pinned: bytes go through a ring of pinned host memory at both ends, for GPU memory that the \
                     engine cannot register; never chosen automatically";

/// Opens an engine's domains. If staging was requested, wraps each of them.
///
/// # Errors
/// The engine's errors; `Unavailable` if the engine has no sends.
pub(crate) fn open_staged(
    request: &OpenRequest<'_>,
    options: &[EngineOption],
    open: fn(&OpenRequest<'_>) -> Result<Domains>,
) -> Result<Domains> {
    let is_staged = request.option(options, STAGING) == "pinned";
    check_registration(request, options, is_staged)?;
    if !is_staged {
        return open(request);
    }
    // The engine below needs only sends: reads arrive as sends, too. Even targets send, because they answer. The engine
    // below registers only the ring.
    staged(open(&OpenRequest {
        verbs: &[Verb::Send],
        initiates: true,
        memories: (PlannedMemory::default(), &[]),
        ..request.clone()
    })?)
}

/// Advice for GPU memory that no NIC can register: the end of a sentence.
pub(crate) const INSTEAD: &str = "add --engine-option staging=pinned, which moves the bytes through pinned host memory \
                                  and records it, or choose host memory such as --memory host";

fn staged(domains: Domains) -> Result<Domains> {
    let staged = |inner: Arc<dyn Domain>| -> Result<Arc<dyn Domain>> {
        let below = *inner.caps();
        if !below.verbs.contains(&Verb::Send) {
            return Err(Error::Unavailable {
                what: format!("{STAGING}=pinned over {}", inner.report().name),
                why: "pieces are moved by sends, which this engine lacks with these options"
                    .to_owned(),
                how: "Leave the option out, or choose an engine with sends".to_owned(),
            });
        }
        check_below(&inner.report().name, &below)?;
        let caps = Caps {
            verbs: &Verb::COPYING,
            immediate_bits: 32,
            depth: DEPTH_MAX,
            message_bytes_max: u32::MAX.into(),
            delivered: true,
            delivery_on_request: true,
            sends_taken: true,
            passive_target: false,
            arrivals_named: true,
            arrives_by_polling: true,
            ordered_writes: false,
            shared_memory: false,
            ..below
        };
        Ok(Arc::new(StagedDomain { inner, caps }))
    };
    domains.into_iter().map(staged).collect()
}

/// Refuses an engine below that does not fulfill the needs of staging. A piece must fit into one message, and all
/// messages of the ring must be in flight at once.
fn check_below(name: &str, below: &Caps) -> Result<()> {
    let wants = [
        (
            "bytes per message",
            below.message_bytes_max,
            ring::SLOT_BYTES,
        ),
        (
            "operations in flight",
            below.depth.into(),
            BELOW_DEPTH.into(),
        ),
    ];
    match wants.into_iter().find(|(_, has, needs)| has < needs) {
        None => Ok(()),
        Some((of_what, has, needs)) => Err(Error::Unavailable {
            what: format!("{STAGING}=pinned over {name}"),
            why: format!("it needs {needs} {of_what}, but the engine below has {has}"),
            how: "Leave the option out, or choose an engine or engine options that allow this"
                .to_owned(),
        }),
    }
}

struct StagedDomain {
    inner: Arc<dyn Domain>,
    caps: Caps,
}

impl Domain for StagedDomain {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn report(&self) -> EngineReport {
        let mut report = self.inner.report();
        report.facts = std::mem::take(&mut report.facts)
            .with_fact(STAGING, "pinned: copied through the host at both ends")
            .with_fact("staging_piece_bytes", ring::PIECE_BYTES)
            .with_fact("staging_pieces", ring::SLOTS)
            .with_fact("depth", DEPTH_MAX)
            .with_fact(
                "completion",
                "delivered: the peer has copied the bytes into its memory",
            );
        report
    }

    fn bound_place(&self) -> Option<&str> {
        self.inner.bound_place()
    }

    fn device_memory_by(&self) -> DeviceMemoryAccess {
        DeviceMemoryAccess::Staging
    }

    fn stream_address(&self) -> Option<IpAddr> {
        self.inner.stream_address()
    }

    fn wire_devices(&self) -> Vec<WireDevice> {
        self.inner.wire_devices()
    }

    fn worker(&self, config: &WorkerConfig) -> Result<Box<dyn Engine + Send>> {
        let below = self.inner.worker(&WorkerConfig {
            depth: BELOW_DEPTH,
            sleeps: false,
            ..config.clone()
        })?;
        Ok(Box::new(StagedWorker::new(
            (below, self.inner.report().name),
            config,
        )))
    }
}
