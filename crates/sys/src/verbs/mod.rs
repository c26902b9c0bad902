//! libibverbs and libmlx5, loaded at run time: devices, queue pairs, posting and polling; and librdmacm, which connects
//! queue pairs.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `abi` | declarations of the library's header |
//! | `loaded` | the library and the calls that it exports |
//! | `context` | an open device, its limits and its ports |
//! | `queues` | what one worker owns on a device: completion queue, registrations, queue pairs |
//! | `pieces` | keys of memory that is registered in one piece or in several |
//! | `queue_pair` | making a queue pair and taking it to its states |
//! | `thread_domain` | queue pairs that are handed work without a lock |
//! | `handles` | handles of those, and sizes of queue pairs |
//! | `chain` | work requests that wait for one doorbell |
//! | `cm_abi`, `cm_loaded` | declarations of librdmacm's header; that library and the calls that it exports |
//! | `cm`, `cm_event` | its event channel with its identifiers; what it tells |
//! | `post` | handing over work requests and taking completions: the part inside the timed loops |
//! | `mlx5_abi`, `mlx5` | declarations of libmlx5's header; that library, and what it says of a device |
//! | `dc_pair`, `dc_post` | queue pairs of DC and addresses of their targets; handing over work requests to them |
//!
//! Purposes of queue pairs, advice about failures and names of options are `tonnage_engines::verbs`'.

mod abi;
mod chain;
mod cm;
mod cm_abi;
mod cm_event;
mod cm_loaded;
mod context;
mod dc_pair;
mod dc_post;
mod handles;
mod loaded;
mod mlx5;
mod mlx5_abi;
mod pieces;
mod post;
mod queue_pair;
mod queues;
mod thread_domain;

pub use cm::{CmChannel, CmTerms};
pub use cm_event::{CmEvent, CmEventKind, CmHandle};
pub use cm_loaded::Librdmacm;
pub use context::{Context, DeviceLimits, Gid, LinkLayer, PortState};
pub use dc_pair::probe_dc;
pub use handles::{
    AddressHandle, KeyedRegion, PairHandle, PairLimits, QueueDepths, RegistrationHandle,
};
pub use loaded::Libibverbs;
pub use mlx5::{DcReads, Libmlx5};
pub use pieces::{RegionKeys, piece_stride};
pub use post::{WorkEvent, WorkRequest, WorkTarget};
pub use queue_pair::{PathTo, Patience};
pub use queues::{Queues, RegionAccess};

use crate::error::LibraryError;

/// The action of a work request of the send queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkAction {
    /// RDMA write.
    Write,
    /// RDMA write with an immediate.
    WriteImm,
    /// RDMA read.
    Read,
    /// Send.
    Send,
    /// Fetch and add.
    FetchAdd,
    /// Compare and swap.
    CompareSwap,
}

/// The library's short name for the state that a work request ended with, such as "RETRY_EXC_ERR"; `None` for numbers
/// that the header does not have.
pub fn status_name(status: u32) -> Option<&'static str> {
    const NAMES: [&str; 24] = [
        "SUCCESS",
        "LOC_LEN_ERR",
        "LOC_QP_OP_ERR",
        "LOC_EEC_OP_ERR",
        "LOC_PROT_ERR",
        "WR_FLUSH_ERR",
        "MW_BIND_ERR",
        "BAD_RESP_ERR",
        "LOC_ACCESS_ERR",
        "REM_INV_REQ_ERR",
        "REM_ACCESS_ERR",
        "REM_OP_ERR",
        "RETRY_EXC_ERR",
        "RNR_RETRY_EXC_ERR",
        "LOC_RDD_VIOL_ERR",
        "REM_INV_RD_REQ_ERR",
        "REM_ABORT_ERR",
        "INV_EECN_ERR",
        "INV_EEC_STATE_ERR",
        "FATAL_ERR",
        "RESP_TIMEOUT_ERR",
        "GENERAL_ERR",
        "TM_ERR",
        "TM_RNDV_INCOMPLETE",
    ];
    NAMES.get(status as usize).copied()
}

/// Does what a device may refuse, with half as much, a quarter and so on, down to `least`; returns what was granted
/// too.
fn halving<N, T>(
    wanted: N,
    least: N,
    mut ask: impl FnMut(N) -> Result<T, LibraryError>,
) -> Result<(N, T), LibraryError>
where
    N: Copy + PartialOrd + std::ops::Div<Output = N> + From<u8>,
{
    let mut amount = wanted;
    loop {
        match ask(amount) {
            Ok(done) => return Ok((amount, done)),
            Err(_) if amount > least => amount = amount / N::from(2),
            Err(why) => return Err(why),
        }
    }
}

/// The error of a failed call, from errno.
#[cold]
fn last_error(call: &'static str) -> LibraryError {
    failed(call, std::io::Error::last_os_error())
}

#[cold]
fn failed(call: &'static str, error: std::io::Error) -> LibraryError {
    LibraryError::call(call, error.raw_os_error().unwrap_or(0), error)
}

/// The outcome of a call that returns an error number.
fn check(call: &'static str, code: i32) -> Result<(), LibraryError> {
    match code {
        0 => Ok(()),
        -1 => Err(last_error(call)),
        // Some drivers give it negative.
        _ => Err(failed(
            call,
            std::io::Error::from_raw_os_error(code.saturating_abs()),
        )),
    }
}
