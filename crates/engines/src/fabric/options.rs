//! Names on the command line: the engine's options, its library and providers.

use tonnage_engine::EngineOption;

use crate::registration;
use crate::registration::{AUTO, RegistrationWay};

/// Name of the library for `--library`.
pub(super) const LIBRARY: &str = "libfabric";

/// Option for the meaning of a completed write.
pub(super) const COMPLETION: &str = "completion";
/// Option for how the provider shm transfers writes.
pub(super) const SHM_WRITES: &str = "shm-writes";
/// Option for copying small messages while they are posted.
pub(super) const INJECT: &str = "inject";

/// Methods of registering GPU memory, in the order in which they are tried. A provider that knows the GPU's driver
/// decides itself when to use a dmabuf.
pub(super) const CARD_WAYS: [RegistrationWay; 2] = [RegistrationWay::Hmem, RegistrationWay::Dmabuf];

/// Recorded if the provider does not support FI_OPT_FI_HMEM_P2P.
pub(super) const UNTOLD: &str = "not reported by the provider: it may copy through the host";

/// Advice if an endpoint for GPU memory cannot be opened.
pub(super) const OR_INSTEAD: &str =
    "; --engine-option staging=pinned needs no GPU memory in the endpoint";

/// All options of this engine.
pub(super) static OPTIONS: [EngineOption; 5] = [
    EngineOption::choice(
        COMPLETION,
        &["auto", "delivery", "transmit"],
        "meaning of a completed write: delivery to the peer's memory, transmit (its buffer may be reused), or auto: \
         delivery for batches and paced operations, transmit for streams, which end with a read of their last byte",
    ),
    EngineOption::choice(
        SHM_WRITES,
        &["ordered", "cma"],
        "how the shm provider writes: ordered (through its queue, fast for small messages) or cma (each plain write is \
         a process_vm_writev by the initiator; write-imm still goes through the queue)",
    ).on(&["shm"]),
    EngineOption::choice(
        INJECT,
        &["auto", "off"],
        "auto: writes and sends below the provider's inject size are copied and complete at once; off: never",
    ),
    registration::option(
        &[AUTO, CARD_WAYS[1].name(), CARD_WAYS[0].name()],
        &[],
        "how to register GPU memory if the provider has FI_HMEM: hmem (by address, declared as GPU memory), dmabuf (a \
         file that the GPU's driver exports, since libfabric 1.20), or auto: hmem, else dmabuf",
    ),
    crate::staged::option(&[]),
];

/// Core provider of a layered provider: "tcp" of "tcp;ofi_rxm".
pub(super) fn core_provider(provider: &str) -> &str {
    provider.split(';').next().unwrap_or(provider)
}
