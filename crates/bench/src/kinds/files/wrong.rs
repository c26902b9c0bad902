//! Wrong bytes that were read, and where they say that they come from.

use super::stamp::{FileKey, SECTOR_BYTES, STAMP_BYTES, words};

/// Files that a wrong sector may belong to instead.
pub struct CandidateFiles<'a> {
    /// The file that is looked at.
    pub path: &'a std::path::Path,
    /// Number of files.
    pub count: u32,
    /// The longest file.
    pub bytes: u64,
}

/// Differences that a check found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wrong {
    /// Bytes compared.
    pub checked_bytes: u64,
    /// Bytes that differ.
    pub wrong_bytes: u64,
    /// Sectors with at least one such byte.
    pub wrong_sectors: u64,
    /// The first of them, in words.
    pub first: Vec<String>,
}

impl Wrong {
    /// Number of sectors that are described.
    const FIRST: usize = 4;

    /// Compares a stretch of a file that begins at `at`, sector by sector.
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

    /// Adds what another thread or rank found.
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

/// Describes the origin that a sector states.
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
            return " (the sector is the right one, and was damaged)".into();
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
