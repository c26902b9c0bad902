//! The memory that a worker and its peers have for what the engine does by itself: first contact, and flushes.

use std::sync::Arc;

use tonnage_sys::mapping::{Arena, Pages, Sharing};
use tonnage_units::{Error, Result};

/// Bytes that peers read, and behind them as many that this side's reads land in: a packet at most.
pub(super) const PAGE: usize = 4096;

/// Place of the byte that a flush reads, and of what first contact does.
pub(super) const SCRATCH: u64 = PAGE as u64;

/// The memory of first contact.
pub(super) fn page() -> Result<Arc<Arena>> {
    let arena = Arena::allocate(2 * PAGE, Pages::Normal, Sharing::Private, None);
    let arena =
        arena.map_err(|why| Error::Failed(format!("no memory for first contact: {why}")))?;
    Ok(Arc::new(arena))
}
