//! Path and number of the file that a rank uses. Names are the same as IOR's, so that each program finds the other's
//! files: `NAME.00000007` for rank 7, `NAME.2` for repetition 2.

use std::path::PathBuf;

use tonnage_loops::permutation::Permutation;
use tonnage_plan::files::{FileLayout, FilePoint, ReadFrom};

/// Returns the path of the file that rank `writer` writes in repetition `trial`.
pub fn path_of(point: &FilePoint, writer: u32, trial: u32) -> PathBuf {
    let mut name = match point.layout {
        FileLayout::Shared => point.paths.first().cloned().unwrap_or_default(),
        FileLayout::PerProcess => {
            let paths = point.paths.len().max(1);
            let path = point.paths.get(writer as usize % paths);
            let path = PathBuf::from(path.cloned().unwrap_or_default());
            let base = match (point.directory_per_rank, path.file_name()) {
                (true, Some(name)) => path.with_file_name(writer.to_string()).join(name),
                _ => path,
            };
            format!("{}.{writer:08}", base.display())
        }
    };
    if point.file_per_trial {
        name = format!("{name}.{trial}");
    }
    PathBuf::from(name)
}

/// Returns the number of a file, which is part of the key of its data. It is the rank that writes the file, or 0 for a
/// shared file.
pub fn number_of(point: &FilePoint, writer: u32) -> u32 {
    match point.layout {
        FileLayout::Shared => 0,
        FileLayout::PerProcess => writer,
    }
}

/// Returns the rank that wrote the data that `reader` reads.
pub fn source_of(point: &FilePoint, reader: u32) -> u32 {
    let ranks = u64::from(point.ranks.max(1));
    let source = match point.read_from {
        ReadFrom::Own => u64::from(reader),
        ReadFrom::Shift { ranks: shift } => (u64::from(reader) + u64::from(shift)) % ranks,
        ReadFrom::Shuffled { seed } => Permutation::new(ranks, seed).permute(u64::from(reader)),
    };
    source as u32
}

/// Returns the size of a file after all data are written.
pub fn bytes_of_file(point: &FilePoint) -> u64 {
    match point.layout {
        FileLayout::Shared => point.bytes_of_rank() * u64::from(point.ranks),
        FileLayout::PerProcess => point.bytes_of_rank(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::files::testing::point;

    #[test]
    fn names_follow_ior() {
        let mut point = point(4);
        point.paths = vec!["/a/t".into(), "/b/t".into()];
        point.layout = FileLayout::PerProcess;
        assert_eq!(path_of(&point, 0, 0), PathBuf::from("/a/t.00000000"));
        assert_eq!(path_of(&point, 2, 0), PathBuf::from("/a/t.00000002"));
        assert_eq!(path_of(&point, 3, 0), PathBuf::from("/b/t.00000003"));
        point.directory_per_rank = true;
        point.file_per_trial = true;
        assert_eq!(path_of(&point, 3, 2), PathBuf::from("/b/3/t.00000003.2"));
        point.layout = FileLayout::Shared;
        assert_eq!(path_of(&point, 3, 2), PathBuf::from("/a/t.2"));
    }

    #[test]
    fn data_of_separate_files_are_keyed_by_their_writer() {
        let mut point = point(4);
        assert_eq!(number_of(&point, 3), 0);
        point.layout = FileLayout::PerProcess;
        assert_eq!(number_of(&point, 3), 3);
    }

    #[test]
    fn a_shift_selects_the_rank_that_many_further() {
        let mut point = point(7);
        point.read_from = ReadFrom::Shift { ranks: 3 };
        assert_eq!((source_of(&point, 1), source_of(&point, 5)), (4, 1));
    }

    #[test]
    fn every_rank_is_read_once() {
        let mut point = point(7);
        for from in [
            ReadFrom::Own,
            ReadFrom::Shift { ranks: 3 },
            ReadFrom::Shuffled { seed: 5 },
        ] {
            point.read_from = from;
            let mut sources: Vec<u32> = (0..7).map(|rank| source_of(&point, rank)).collect();
            sources.sort_unstable();
            assert_eq!(sources, [0, 1, 2, 3, 4, 5, 6], "{from:?}");
        }
    }
}
