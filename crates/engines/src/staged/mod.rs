//! Staging: an engine over another one that cannot reach GPU memory. Bytes go through a ring of pinned memory at each
//! end, in pieces, so that GPU copies and transfers by the engine below overlap.
//!
//! [`open_staged`] wraps the domains of an engine, as `tonnage_engine::paths` does, and knows no engine by name. It is
//! active only if it was requested (`staging=pinned`), which title, options and facts of a record then show.
//!
//! | file | contents |
//! | --- | --- |
//! | `mod` | the option, the domain |
//! | `message` | the header of a piece |
//! | `ring` | the slots for pieces in pinned memory, and copies between them and the registered memory |
//! | `channel` | one peer: filling slots, sending them, handling arrived messages |
//! | `worker` | registering, connecting, lanes, posting, polling |
//!
//! Only sends of the engine below are used, and their receives are slots of the peer's ring. An arrived piece is copied
//! into its memory, and acknowledged once the GPU has copied it. An operation is done when all of its pieces are. So a
//! completed write is visible to the peer, independent of the engine below and its network. NICs never write
//! into GPU memory, so no flush is needed.

mod channel;
mod message;
mod ring;
mod worker;

use std::net::IpAddr;
use std::sync::Arc;

use tonnage_engine::{
    Caps, DeviceMemoryAccess, Domain, Domains, Engine, EngineOption, EngineReport, OpenRequest,
    OptionKind, RankMemory, Verb, WorkerConfig,
};
use tonnage_units::{Error, Result, WireDevice};

use crate::registration::check_registration;
use ring::{DEPTH_MAX, STAGING};
use worker::StagedWorker;

/// Returns the option for an engine; it applies to these variants, or to all if the list is empty.
pub(crate) const fn option(variants: &'static [&'static str]) -> EngineOption {
    EngineOption {
        name: STAGING,
        kind: OptionKind::Choice(&["off", "pinned"]),
        variants,
        about: ABOUT,
    }
}

/// Depth of the engine below on a lane: outgoing pieces and acknowledgements. It exceeds the number of incoming slots.
const BELOW_DEPTH: u32 = ring::SLOTS + ring::ACKS;
const _: () = assert!(BELOW_DEPTH >= ring::INCOMING_SLOTS);

const ABOUT: &str = "pinned: bytes go through a ring of pinned memory of the host at both ends, for memory of a GPU that \
                     the engine cannot register; never chosen by itself";

/// Opens an engine's domains, and wraps each so that its bytes go through pinned memory if that was requested.
///
/// # Errors
/// Those of the engine; `Unavailable` for an engine without sends.
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
    // Targets answer too, and reads arrive as sends. The engine registers only the ring.
    staged(open(&OpenRequest {
        verbs: &[Verb::Send],
        initiates: true,
        memories: (RankMemory::default(), &[]),
        ..request.clone()
    })?)
}

/// Advice for GPU memory that no NIC registers, as the end of a sentence.
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

/// Refuses an engine below that cannot meet the requirements of both ends: a piece in one message, and all messages of
/// the ring in flight.
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
            how: "Leave the option out, or choose an engine, or options of this one, with as many"
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
