//! Small points for the tests of file experiments.

use tonnage_plan::files::{FilePoint, Stonewall};
use tonnage_plan::point::BoundChoice;
use tonnage_plan::testing::file_point;

/// Returns a point with two segments. In each segment, a rank has a block of four transfers of 16 bytes.
pub fn point(ranks: u32) -> FilePoint {
    FilePoint {
        ranks,
        paths: vec!["t".into()],
        block_bytes: 64,
        transfer_bytes: 16,
        segments: 2,
        bound: BoundChoice::None,
        ..file_point()
    }
}

/// Returns the point with a stonewall at `after_ns`.
pub fn with_stonewall(point: FilePoint, after_ns: u64, wear_out: bool) -> FilePoint {
    FilePoint {
        stonewall: Some(Stonewall {
            after_ns,
            wear_out,
            transfers_min: 0,
        }),
        ..point
    }
}
