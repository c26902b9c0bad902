//! libibverbs and libmlx5, loaded at run time: devices, queue pairs, posting and polling. A third library, librdmacm,
//! connects queue pairs.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `abi` | declarations of the library's header |
//! | `loaded` | the library and its exported calls |
//! | `context` | an open device, its limits and its ports |
//! | `queues` | one worker's objects on a device: completion queue, registrations, queue pairs |
//! | `pieces` | keys of memory that is registered in one piece or in several |
//! | `queue_pair` | making a queue pair and moving it to its states |
//! | `thread_domain` | queue pairs without a lock for posting |
//! | `handles` | handles of a worker's objects, and sizes of queue pairs |
//! | `chain` | work requests that wait for one doorbell |
//! | `cm_abi`, `cm_loaded` | declarations of librdmacm's header; that library and its exported calls |
//! | `cm`, `cm_event` | librdmacm's event channel with its identifiers; its events |
//! | `post` | posting work requests and taking completions: the part inside the timed loops |
//! | `mlx5_abi`, `mlx5` | declarations of libmlx5's header; that library, and its device queries |
//! | `dc_pair`, `dc_post` | DC queue pairs and addresses of their targets; posting work requests to them |
//!
//! `tonnage_engines::verbs` decides what queue pairs are used for, gives advice about failures and names options.

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
pub use mlx5::{DcReadsMax, Libmlx5};
pub use pieces::{RegionKeys, piece_stride};
pub use post::{WorkEvent, WorkRequest, WorkTarget};
pub use queue_pair::{PathTo, Patience};
pub use queues::{Queues, RegionAccess};

use crate::error::LibraryError;

/// Kind of a work request of the send queue.
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

/// Returns the library's short name for the completion status of a work request, such as "RETRY_EXC_ERR"; `None` for
/// numbers that the header does not define.
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

/// Makes a request that a device may refuse, first with `wanted`, then with half of it, a quarter and so on, down to
/// `least`. Also returns the granted amount.
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

/// Makes the error of a failed call from errno.
#[cold]
fn last_error(call: &'static str) -> LibraryError {
    failed(call, std::io::Error::last_os_error())
}

#[cold]
fn failed(call: &'static str, error: std::io::Error) -> LibraryError {
    LibraryError::call(call, error.raw_os_error().unwrap_or(0), error)
}

/// Converts the result of a call that returns an error number.
fn check(call: &'static str, code: i32) -> Result<(), LibraryError> {
    match code {
        0 => Ok(()),
        -1 => Err(last_error(call)),
        // Some drivers return the number negative.
        _ => Err(failed(
            call,
            std::io::Error::from_raw_os_error(code.saturating_abs()),
        )),
    }
}
