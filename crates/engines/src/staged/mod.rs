//! Staging: an engine over another one that cannot reach memory of a GPU. Bytes go through a ring of pinned memory at
//! each end, in pieces, so that copies by the GPU and transfers by the engine below overlap.
//!
//! [`open_staged`] makes of an engine's domains others, as `tonnage_engine::paths` does; it knows no engine by name. It
//! is there only where it was asked for (`staging=pinned`), which title, options and facts of a record then say.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `mod` | the option, the domain |
//! | `message` | the header of a piece |
//! | `ring` | the places of pieces in pinned memory, and copies between them and the registered memory |
//! | `channel` | one peer: filling places, sending them, taking what arrived |
//! | `worker` | registering, connecting, lanes, posting, polling |
//!
//! The engine below is only asked for sends, whose receives are places of the peer's ring. A piece that has arrived is
//! copied into the memory that it is for, and only when the GPU has done so is it acknowledged; an operation is done
//! when all of its pieces are. So a completed write is visible to the peer, by whatever way the engine below and its
//! network carried it, and no write of a network card into memory of a GPU has to be flushed: there are none.

mod channel;
mod message;
mod ring;
mod worker;

use std::net::IpAddr;
use std::sync::Arc;

use tonnage_engine::{
    Caps, DeviceMemoryBy, Domain, Domains, Engine, EngineOption, EngineReport, OpenRequest,
    OptionKind, RankMemory, Verb, WorkerConfig,
};
use tonnage_units::{Error, Result, WireDevice};

use crate::registration::check_registration;
use ring::{DEPTH_MAX, STAGING};
use worker::StagedWorker;

/// The option, for the row of an engine of which these variants can be staged; all where none is named.
pub(crate) const fn option(variants: &'static [&'static str]) -> EngineOption {
    EngineOption {
        name: STAGING,
        kind: OptionKind::Choice(&["off", "pinned"]),
        variants,
        about: ABOUT,
    }
}

/// Operations of the engine below in flight on a lane: pieces and acknowledgements that leave, which are more than the
/// places for what arrives.
const BELOW_DEPTH: u32 = ring::PLACES + ring::NOTES;
const _: () = assert!(BELOW_DEPTH >= ring::ARRIVING);

/// Help for the option.
const ABOUT: &str = "pinned: bytes go through a ring of pinned memory of the host at both ends, for memory of a GPU that \
                     the engine cannot register; never chosen by itself";

/// Opens an engine's domains as it opens them itself, and makes of each one whose bytes go through pinned memory where
/// that is asked for.
///
/// # Errors
/// Those of the engine; `Unavailable` for one without sends.
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
    // A target answers, and reads come as sends. What the engine registers is the ring.
    staged(open(&OpenRequest {
        verbs: &[Verb::Send],
        initiates: true,
        memories: (RankMemory::default(), &[]),
        ..request.clone()
    })?)
}

/// The way that is left for memory of a GPU that no card registers, as the end of a sentence.
pub(crate) const INSTEAD: &str = "add --engine-option staging=pinned, which moves the bytes through pinned memory of the \
                                  host and says so, or choose a memory of the host such as --memory host";

fn staged(domains: Domains) -> Result<Domains> {
    let staged = |inner: Arc<dyn Domain>| -> Result<Arc<dyn Domain>> {
        let below = *inner.caps();
        if !below.verbs.contains(&Verb::Send) {
            return Err(Error::Unavailable {
                what: format!("{STAGING}=pinned over {}", inner.report().name),
                why: "pieces go by sends, which this engine has none of as it was opened"
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

/// Refuses an engine below that cannot take what both ends count on: a piece in one message, and all that the ring has
/// room for.
fn check_below(name: &str, below: &Caps) -> Result<()> {
    let wants = [
        (
            "bytes of a message",
            below.message_bytes_max,
            ring::PLACE_BYTES,
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
            why: format!("it needs {needs} {of_what}, and the engine below has {has}"),
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
            .with(STAGING, "pinned: copied through the host at both ends")
            .with("staging_piece_bytes", ring::PIECE_BYTES)
            .with("staging_pieces", ring::PLACES)
            .with("depth", DEPTH_MAX)
            .with(
                "completion",
                "delivered: the peer has copied the bytes into its memory",
            );
        report
    }

    fn bound_place(&self) -> Option<&str> {
        self.inner.bound_place()
    }

    fn device_memory_by(&self) -> DeviceMemoryBy {
        DeviceMemoryBy::Staging
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
