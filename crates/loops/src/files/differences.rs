//! Differences between read and expected data, and the likely origin of wrong sectors.

use super::stamp::{FileKey, SECTOR_BYTES, STAMP_BYTES, words};

/// Files that a wrong sector may belong to instead.
pub struct CandidateFiles<'a> {
    /// The file being checked.
    pub path: &'a std::path::Path,
    /// Number of files.
    pub count: u32,
    /// Length of the longest file.
    pub bytes: u64,
}

/// Differences found by a check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DataDifferences {
    /// Bytes compared.
    pub checked_bytes: u64,
    /// Bytes that differ.
    pub wrong_bytes: u64,
    /// Sectors with at least one wrong byte.
    pub wrong_sectors: u64,
    /// Descriptions of the first wrong sectors.
    pub first: Vec<String>,
}

impl DataDifferences {
    /// Maximum number of described sectors.
    const FIRST: usize = 4;

    /// Compares a range of a file that begins at `at`, sector by sector.
    pub(super) fn compare(
        &mut self,
        files: &CandidateFiles<'_>,
        key: FileKey,
        at: u64,
        is: &[u8],
        should: &[u8],
    ) {
        let mut begin = 0;
        while begin < is.len() {
            let left = SECTOR_BYTES - (at + begin as u64) % SECTOR_BYTES;
            let end = is.len().min(begin + left as usize);
            let differ = |index: &usize| is[*index] != should[*index];
            let wrong = (begin..end).filter(differ).count() as u64;
            if let Some(first) = (begin..end).find(differ) {
                self.wrong_bytes += wrong;
                self.wrong_sectors += 1;
                if self.first.len() < Self::FIRST {
                    let show = |bytes: &[u8]| hex(&bytes[first..end.min(first + 8)]);
                    let whole = (at + begin as u64).is_multiple_of(SECTOR_BYTES)
                        && end - begin >= STAMP_BYTES;
                    let why = if whole {
                        origin(files, key, at + begin as u64, &is[begin..end])
                    } else {
                        String::new()
                    };
                    self.first.push(format!(
                        "{} at offset {}: expected {}, found {}{why}",
                        files.path.display(),
                        at + first as u64,
                        show(should),
                        show(is)
                    ));
                }
            }
            begin = end;
        }
    }

    /// Adds the findings of another thread or rank.
    pub fn merge(&mut self, other: &Self) {
        self.checked_bytes += other.checked_bytes;
        self.wrong_bytes += other.wrong_bytes;
        self.wrong_sectors += other.wrong_sectors;
        let room = Self::FIRST.saturating_sub(self.first.len());
        self.first.extend(other.first.iter().take(room).cloned());
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Describes the sector's origin according to its stamp.
fn origin(files: &CandidateFiles<'_>, key: FileKey, at: u64, sector: &[u8]) -> String {
    if sector.iter().all(|&byte| byte == 0) {
        return " (zeros: never written)".into();
    }
    let (seed, word) = words(sector);
    if seed != key.seed() {
        let known = (0..files.count)
            .any(|file| FileKey::new(seed, file).place(word, files.bytes).is_some());
        return if known {
            format!(
                " (stale: data of seed {seed} from another write, not of seed {})",
                key.seed()
            )
        } else {
            String::new()
        };
    }
    if let Some(offset) = key.place(word, files.bytes) {
        if offset == at {
            return " (the right sector, but damaged)".into();
        }
        return format!(" (these bytes belong to offset {offset} of this file)");
    }
    let other = (0..files.count).find_map(|file| {
        FileKey::new(seed, file)
            .place(word, files.bytes)
            .map(|offset| (file, offset))
    });
    other.map_or_else(String::new, |(file, offset)| {
        format!(" (these bytes belong to offset {offset} of the file of rank {file})")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Findings for `len` zeros at `at` where 0x11 is expected, except that the bytes in `right` are correct.
    fn compared(at: u64, len: usize, right: std::ops::Range<usize>) -> DataDifferences {
        let files = CandidateFiles {
            path: std::path::Path::new("t"),
            count: 1,
            bytes: 1 << 20,
        };
        let (mut is, should) = (vec![0; len], vec![0x11; len]);
        is[right].fill(0x11);
        let mut found = DataDifferences::default();
        found.compare(&files, FileKey::new(1, 0), at, &is, &should);
        found
    }

    #[test]
    fn sectors_are_counted_from_the_start_of_the_file() {
        // The wrong bytes are the last byte of one sector and the first 76 bytes of the next.
        let found = compared(1000, 100, 0..23);
        assert_eq!((found.wrong_bytes, found.wrong_sectors), (77, 2));
        assert_eq!(found.first[0], "t at offset 1023: expected 11, found 00");
        let next = "t at offset 1024: expected 1111111111111111, found 0000000000000000";
        assert_eq!(found.first[1], format!("{next} (zeros: never written)"));
    }

    #[test]
    fn an_origin_is_searched_only_if_a_whole_stamp_was_read() {
        let is_looked_for = |at, len| {
            compared(at, len, 0..0)
                .first
                .pop()
                .unwrap()
                .contains("never written")
        };
        assert!(is_looked_for(512, 16));
        // No stamp is looked for here: the sector is cut within its stamp, alone or after a whole sector, or the range
        // begins within a sector.
        assert!(!is_looked_for(512, 15) && !is_looked_for(0, 512 + 15) && !is_looked_for(513, 100));
    }

    #[test]
    fn all_are_counted_and_the_first_four_described() {
        let mut found = compared(0, 5 * 512, 0..0);
        assert_eq!((found.wrong_bytes, found.wrong_sectors), (2560, 5));
        assert_eq!(found.first.len(), 4);
        assert!(found.first[3].contains("offset 1536"), "{found:?}");
        let one = || DataDifferences {
            checked_bytes: 600,
            ..compared(0, 512, 0..510)
        };
        found.merge(&one());
        assert_eq!((found.checked_bytes, found.wrong_bytes), (600, 2562));
        assert_eq!((found.wrong_sectors, found.first.len()), (6, 4));
        let mut few = one();
        few.merge(&one());
        assert_eq!((few.checked_bytes, few.first.len()), (1200, 2));
    }
}
