//! The kernel's account of this process's mappings, `/proc/self/smaps`.

use std::io;
use std::ops::Range;

/// Bytes of the mappings that touch `addresses` which the kernel backs with transparent huge pages.
///
/// # Errors
/// When the file cannot be read.
pub(crate) fn huge_bytes(addresses: Range<u64>) -> io::Result<u64> {
    Ok(huge_bytes_of(
        &std::fs::read_to_string("/proc/self/smaps")?,
        &addresses,
    ))
}

fn huge_bytes_of(smaps: &str, addresses: &Range<u64>) -> u64 {
    let (mut inside, mut bytes) = (false, 0);
    for line in smaps.lines() {
        if let Some(mapping) = address_range(line) {
            inside = mapping.start < addresses.end && mapping.end > addresses.start;
        } else if inside
            && ["AnonHugePages:", "ShmemPmdMapped:"]
                .iter()
                .any(|name| line.starts_with(name))
            && let Some(kib) = line
                .split_whitespace()
                .nth(1)
                .and_then(|word| word.parse::<u64>().ok())
        {
            bytes += kib << 10;
        }
    }
    bytes
}

/// The address range that opens an entry, or `None` for the other lines.
fn address_range(line: &str) -> Option<Range<u64>> {
    let (start, end) = line.split_whitespace().next()?.split_once('-')?;
    Some(u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_mappings_that_touch_the_range_count() {
        let smaps = "1000-3000 rw-p 0 00:00 0\nAnonHugePages:  2048 kB\n\
                     3000-5000 rw-s 0 00:00 0 /memfd\nRss: 4 kB\nShmemPmdMapped: 4096 kB\n";
        assert_eq!(huge_bytes_of(smaps, &(0x3000..0x4000)), 4 << 20);
        assert_eq!(huge_bytes_of(smaps, &(0x2fff..0x3001)), 6 << 20);
        assert_eq!(huge_bytes_of(smaps, &(0x5000..0x6000)), 0);
    }
}
