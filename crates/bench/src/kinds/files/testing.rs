//! Small points for tests of files.

use tonnage_plan::files::{FilePoint, Stonewall};
use tonnage_plan::point::LimitChoice;
use tonnage_plan::testing::file_point;

/// A point with blocks of four transfers of 16 bytes, two segments.
pub fn point(ranks: u32) -> FilePoint {
    FilePoint {
        ranks,
        paths: vec!["t".into()],
        block_bytes: 64,
        transfer_bytes: 16,
        segments: 2,
        limit: LimitChoice::None,
        ..file_point()
    }
}

/// The point with a stonewall that comes after so many nanoseconds.
pub fn walled(point: FilePoint, after_ns: u64, wear_out: bool) -> FilePoint {
    FilePoint {
        stonewall: Some(Stonewall {
            after_ns,
            wear_out,
            transfers_min: 0,
        }),
        ..point
    }
}
