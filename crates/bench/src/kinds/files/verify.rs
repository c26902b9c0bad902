//! Reads all data back after a phase and compares them. This is not timed.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tonnage_sys::mapping::Arena;

use tonnage_loops::files::data::ContentPool;
use tonnage_loops::files::differences::{CandidateFiles, DataDifferences};
use tonnage_loops::files::drive::InspectRead;
use tonnage_loops::files::sequence::TransferPlace;
use tonnage_loops::files::stamp::FileKey;
use tonnage_units::Reduce;
use tonnage_units::Result;

/// Maximum number of mismatches that a record describes. Each rank describes its first one.
const DESCRIBED: usize = 16;

/// Compares the data that one thread reads.
pub struct Checker<'a> {
    /// Key of the expected data.
    pub key: FileKey,
    /// Content of sectors between the stamps.
    pub pool: &'a ContentPool,
    /// Path of the file that is read, and number and size of the experiment's files.
    pub files: CandidateFiles<'a>,
    /// Memory that the thread reads into.
    pub memory: Arc<Arena>,
    pub transfer_bytes: u64,
    /// Mismatches that were found so far.
    pub found: DataDifferences,
}

impl InspectRead for Checker<'_> {
    fn inspect(&mut self, local: u64, place: TransferPlace) -> Result<()> {
        let at = (&self.files, place.offset);
        self.pool.check(
            &self.memory,
            local,
            self.key,
            at,
            self.transfer_bytes,
            &mut self.found,
        )
    }
}

/// Findings of all ranks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerifyFindings {
    /// Number of bytes that were compared.
    pub checked_bytes: u64,
    wrong_bytes: u64,
    wrong_sectors: u64,
    /// Ranks with mismatches, each with a description of its first one.
    first: Vec<(u32, String)>,
}

impl VerifyFindings {
    /// Returns the findings of one rank's threads.
    pub fn from_rank(rank: u32, found: &DataDifferences) -> Self {
        Self {
            checked_bytes: found.checked_bytes,
            wrong_bytes: found.wrong_bytes,
            wrong_sectors: found.wrong_sectors,
            first: found
                .first
                .iter()
                .map(|text| (rank, text.clone()))
                .collect(),
        }
    }

    /// Describes the wrong data; `None` if all data were right.
    pub fn describe_fault(&self) -> Option<String> {
        if self.wrong_bytes == 0 {
            return None;
        }
        let first: Vec<_> = self
            .first
            .iter()
            .map(|(rank, text)| format!("rank {rank}: {text}"))
            .collect();
        Some(format!(
            "{} bytes in {} of 512 bytes differ from the data written ({} bytes were checked). {}",
            self.wrong_bytes,
            match self.wrong_sectors {
                1 => "1 sector".to_owned(),
                sectors => format!("{sectors} sectors"),
            },
            self.checked_bytes,
            first.join("; ")
        ))
    }
}

impl Reduce for VerifyFindings {
    fn merge(&mut self, other: Self) {
        self.checked_bytes += other.checked_bytes;
        self.wrong_bytes += other.wrong_bytes;
        self.wrong_sectors += other.wrong_sectors;
        self.first.extend(other.first);
        self.first.sort_by_key(|(rank, _)| *rank);
        self.first.truncate(DESCRIBED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonnage_sys::mapping::{Pages, Sharing};

    #[test]
    fn every_rank_is_counted_and_the_first_are_described() {
        let wrong = |text: &str| DataDifferences {
            checked_bytes: 1000,
            wrong_bytes: 2,
            wrong_sectors: 1,
            first: vec![text.to_owned()],
        };
        let mut all = VerifyFindings::from_rank(1, &wrong("b"));
        all.merge(VerifyFindings::from_rank(0, &wrong("a")));
        all.merge(VerifyFindings::default());
        let text = all.describe_fault().unwrap();
        assert!(text.starts_with("4 bytes in 2 sectors"), "{text}");
        assert!(text.contains("(2000 bytes were checked)"), "{text}");
        assert!(text.ends_with("rank 0: a; rank 1: b"), "{text}");
        assert_eq!(VerifyFindings::default().describe_fault(), None);
    }

    #[test]
    fn a_checker_compares_the_given_transfer() {
        let (key, pool) = (FileKey::new(3, 0), ContentPool::new(3, 0));
        let memory = Arena::allocate(8192, Pages::Normal, Sharing::Private, None).unwrap();
        pool.copy_into(&memory, 4096, 1024, 512).unwrap();
        key.stamp_all(&memory, 4096, 1024, 512).unwrap();
        let mut checker = Checker {
            key,
            pool: &pool,
            files: CandidateFiles {
                path: std::path::Path::new("t"),
                count: 1,
                bytes: 1 << 20,
            },
            memory: Arc::new(memory),
            transfer_bytes: 512,
            found: DataDifferences::default(),
        };
        let at = |offset| TransferPlace {
            offset,
            write: false,
        };
        checker.inspect(4096, at(1024)).unwrap();
        assert_eq!(
            (checker.found.checked_bytes, checker.found.wrong_bytes),
            (512, 0)
        );
        checker.inspect(4096, at(2048)).unwrap();
        assert_eq!(
            (checker.found.checked_bytes, checker.found.wrong_sectors),
            (1024, 1)
        );
    }
}
