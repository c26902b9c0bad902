//! The memories of tonnage, one file each. What a memory is, is in [`tonnage_engine::memory`].

mod host;

pub use host::{allocate, check_fits};

use tonnage_engine::memory::Memories;

/// The memories of this program.
pub static MEMORIES: Memories = Memories {
    allocate,
    check_fits,
};
