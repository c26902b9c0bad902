//! [`KreadSession`]: the calls of `/dev/tonnage_kread`, the module of `kernel/tonnage_kread` that posts one-sided
//! operations in the kernel.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `abi` | declarations of the module's header |
//! | `session` | an open session: lanes, runs, landing memory, latencies |
//!
//! `tonnage_engines::verbs` connects lanes, and gives advice about missing parts.

mod abi;
mod session;

pub use abi::TKR_ABI as KREAD_ABI;
pub use session::{
    KREAD_DEPTH_MAX, KREAD_DEVICE, KREAD_LANES_MAX, KREAD_SLOT_BYTES_MAX, KREAD_SLOT_BYTES_MIN,
    KREAD_SLOTS_MAX, KreadFlow, KreadLatencies, KreadOrder, KreadOutcome, KreadPath, KreadPosting,
    KreadRefused, KreadSession, KreadSetup, KreadSlotOrder, KreadVerb,
};
