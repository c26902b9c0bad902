//! Checks that the memories of all workers of a machine or a container fit together.

use crate::settings::Settings;
use tonnage_engine::memory::AvailableMemory;
use tonnage_engine::split_name;
use tonnage_ranks::Rank;
use tonnage_units::{Bytes, Error, Result};

/// Suggested sizes are multiples of this, or of a page if they are smaller.
const ADVICE_UNIT: u64 = 1 << 20;

const PAGE: u64 = 4096;

/// The option that determines the size of the memory, with its value.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SizedBy {
    pub(crate) option: &'static str,
    pub(crate) bytes: u64,
}

impl SizedBy {
    /// Returns a smaller value of the option, so that memory that now needs `has` bytes needs at most `fits` bytes.
    fn size_option(self, has: u64, fits: u64) -> u64 {
        let scaled = u128::from(self.bytes) * u128::from(fits) / u128::from(has.max(1));
        // Guards and rounding to pages stay the same with smaller values, so a page is subtracted.
        let scaled = u64::try_from(scaled).unwrap_or(u64::MAX);
        let scaled = scaled.saturating_sub(if self.bytes == has { 0 } else { PAGE });
        let unit = if scaled < ADVICE_UNIT {
            PAGE
        } else {
            ADVICE_UNIT
        };
        scaled / unit * unit
    }
}

/// Memory of several workers, added up.
#[derive(Debug, Clone, Copy)]
pub(super) struct MemorySum {
    /// Number of workers.
    pub(super) workers: u64,
    /// Number of bytes of the worker with the most memory.
    pub(super) most_bytes: u64,
    /// Number of bytes of all workers.
    pub(super) bytes: u64,
}

impl MemorySum {
    /// Adds up the memory of several ranks. Each item is a rank's number of bytes per worker, and each rank has
    /// `workers` workers.
    pub(super) fn for_ranks(ranks: impl Iterator<Item = u64> + Clone, workers: u64) -> Self {
        let sum = ranks.clone().fold(0, u64::saturating_add);
        Self {
            workers: workers.saturating_mul(ranks.clone().count() as u64),
            most_bytes: ranks.max().unwrap_or(0),
            bytes: sum.saturating_mul(workers),
        }
    }
}

/// Fails if the memories of all ranks on a machine or in a container together exceed the available bytes. All ranks
/// need the same size. One rank checks, before any rank allocates memory.
pub(crate) fn check_equal_memory(
    rank: &Rank,
    settings: &Settings,
    memory: &str,
    bytes: u64,
    sized_by: SizedBy,
) -> Result<()> {
    let entry = settings.lists.memory_of_point(memory)?;
    let Some(available) = (entry.available)(split_name(memory).1) else {
        return Ok(());
    };
    check_available_memory(rank, available, sized_by, |ranks| {
        let is_first = ranks.first() == Some(&rank.id());
        is_first.then(|| MemorySum::for_ranks(ranks.iter().map(|_| bytes), 1))
    })
}

/// Fails if the memories of all ranks on this machine or in this container together exceed the available bytes. One
/// rank per machine or container checks, and calls `needs` for the sum.
pub(super) fn check_available_memory(
    rank: &Rank,
    available: AvailableMemory,
    sized_by: SizedBy,
    needs: impl Fn(Vec<u32>) -> Option<MemorySum>,
) -> Result<()> {
    let (hosts, me) = (rank.hosts(), rank.id());
    let machine = (hosts.ranks_of_machine(me), Some(available.machine_bytes));
    let container = (hosts.ranks_of_container(me), available.container_bytes);
    for (place, (ranks, available_bytes)) in [("machine", machine), ("container", container)] {
        if let Some(available_bytes) = available_bytes
            && let Some(needs) = needs(ranks)
        {
            check_fits(place, available_bytes, needs, sized_by)?;
        }
    }
    Ok(())
}

/// Fails if the memories of workers together exceed the available bytes.
fn check_fits(
    place: &str,
    available_bytes: u64,
    MemorySum {
        workers,
        most_bytes,
        bytes,
    }: MemorySum,
    sized_by: SizedBy,
) -> Result<()> {
    if bytes <= available_bytes {
        return Ok(());
    }
    let alike = workers.saturating_mul(most_bytes) == bytes;
    let (shown, of_all) = match workers {
        1 => (bytes, "one thread".to_owned()),
        several if alike => (most_bytes, format!("each of {several} threads")),
        several => (bytes, format!("{several} threads together")),
    };
    // If all memories are equal, computes per worker. Then an option that is exactly the size of a worker's memory is
    // recognized.
    let parts = if alike { workers.max(1) } else { 1 };
    let smaller = match sized_by.size_option(bytes / parts, available_bytes / parts) {
        0 => String::new(),
        fits => format!("{} {} or less, ", sized_by.option, Bytes(fits)),
    };
    Err(Error::Unavailable {
        what: format!("{} of memory for {of_all}", Bytes(shown)),
        why: format!("this {place} has {available_bytes} bytes of memory available"),
        how: format!("Choose {smaller}fewer --threads or fewer ranks on this {place}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const REGISTER: SizedBy = SizedBy {
        option: "--register",
        bytes: 2 << 30,
    };

    fn alike(workers: u64, most_bytes: u64) -> MemorySum {
        MemorySum {
            workers,
            most_bytes,
            bytes: workers.saturating_mul(most_bytes),
        }
    }

    #[test]
    fn different_memories_are_added_up() {
        let gib = 1 << 30;
        let needs = MemorySum {
            workers: 4,
            most_bytes: 6 * gib,
            bytes: 12 * gib,
        };
        let footprint = SizedBy {
            option: "--footprint",
            bytes: gib,
        };
        assert!(check_fits("machine", 12 * gib, needs, footprint).is_ok());
        let refused = check_fits("machine", 6 * gib, needs, footprint).unwrap_err();
        let refused = refused.to_string();
        assert!(
            refused.starts_with("12G of memory for 4 threads together cannot")
                && refused.contains("--footprint 511M or less"),
            "{refused}"
        );
    }

    #[test]
    fn the_suggested_size_fits() {
        let gib = 1 << 30;
        assert!(check_fits("machine", 8 * gib, alike(4, 2 * gib), REGISTER).is_ok());
        let refused = check_fits("machine", 8 * gib - 1, alike(4, 2 * gib), REGISTER).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "2G of memory for each of 4 threads cannot be used here: this machine has 8589934591 bytes of memory available. \
             Choose --register 2047M or less, fewer --threads or fewer ranks on this machine"
        );
        assert!(check_fits("machine", 8 * gib - 1, alike(4, 2047 << 20), REGISTER).is_ok());
    }

    #[test]
    fn an_option_for_part_of_the_memory_is_scaled() {
        let footprint = SizedBy {
            option: "--footprint",
            bytes: 1 << 30,
        };
        // Each memory has two slices with a guard page each.
        let bytes = 2 * ((1 << 30) + PAGE);
        let refused = check_fits("container", 512 << 20, alike(2, bytes), footprint).unwrap_err();
        assert!(
            refused.to_string().contains("--footprint 127M or less"),
            "{refused}"
        );
        let none = check_fits("container", 1024, alike(2, bytes), footprint).unwrap_err();
        assert!(
            none.to_string()
                .ends_with("Choose fewer --threads or fewer ranks on this container"),
            "{none}"
        );
        let one = check_fits("container", 1 << 20, alike(1, bytes), footprint).unwrap_err();
        assert!(
            one.to_string().contains("for one thread")
                && one.to_string().contains("--footprint 504k"),
            "{one}"
        );
    }

    #[test]
    fn overflowing_sizes_are_rejected() {
        assert!(check_fits("machine", u64::MAX - 1, alike(u64::MAX, u64::MAX), REGISTER).is_err());
    }
}
