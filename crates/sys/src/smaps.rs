//! The kernel's statistics of this process's mappings, `/proc/self/smaps`.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::ops::Range;

/// The smallest transparent huge page.
const HUGE_BYTES_MIN: u64 = 2 << 20;

/// Returns the bytes backed with transparent huge pages in mappings that touch `addresses`.
///
/// # Errors
/// If the file cannot be read.
pub(crate) fn huge_bytes(addresses: Range<u64>) -> io::Result<u64> {
    // Reading the file is slow, because the kernel walks through every earlier mapping, and each thread has two
    // mappings.
    if !has_room(&addresses) {
        return Ok(0);
    }
    huge_bytes_of(BufReader::new(File::open("/proc/self/smaps")?), &addresses)
}

/// Whether a huge page fits into the range.
fn has_room(addresses: &Range<u64>) -> bool {
    let first = addresses.start.next_multiple_of(HUGE_BYTES_MIN);
    first.saturating_add(HUGE_BYTES_MIN) <= addresses.end
}

fn huge_bytes_of(smaps: impl BufRead, addresses: &Range<u64>) -> io::Result<u64> {
    let (mut inside, mut bytes) = (false, 0);
    for line in smaps.lines() {
        let line = line?;
        if let Some(mapping) = address_range(&line) {
            // Mappings are in address order.
            if mapping.start >= addresses.end {
                break;
            }
            inside = mapping.end > addresses.start;
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
    Ok(bytes)
}

/// Parses the address range at the beginning of an entry; `None` for other lines.
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
        let of = |addresses| huge_bytes_of(smaps.as_bytes(), &addresses).unwrap();
        assert_eq!(of(0x3000..0x4000), 4 << 20);
        assert_eq!(of(0x2fff..0x3001), 6 << 20);
        assert_eq!(of(0x5000..0x6000), 0);
    }

    #[test]
    fn entries_after_the_range_are_not_read() {
        let text = b"1000-3000 rw-p 0 00:00 0\nAnonHugePages: 2048 kB\n3000-4000 rw-p\n\xff\n";
        assert_eq!(
            huge_bytes_of(&text[..], &(0x1000..0x3000)).unwrap(),
            2 << 20
        );
        assert!(huge_bytes_of(&text[..], &(0x1000..0x3001)).is_err());
    }

    #[test]
    fn a_range_without_room_for_a_huge_page_has_none() {
        const MIB: u64 = 1 << 20;
        assert!(has_room(&(2 * MIB..4 * MIB)));
        assert!(has_room(&(2 * MIB + 1..6 * MIB)));
        assert!(!has_room(&(2 * MIB + 1..6 * MIB - 1)) && !has_room(&(0..MIB)));
    }
}
