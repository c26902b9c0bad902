//! The points of a job. Everything that can be known to be wrong is refused here, before a rank starts.

use super::options::FileJob;
use super::point::FilePoint;
use super::{base, cell};
use crate::bounds::{POINTS_MAX, RANKS_MAX};
use crate::cells::{Cell, Cells};
use crate::point::Reading;
use crate::refuse::usage;
use tonnage_engine::Lists;
use tonnage_units::Result;

/// The cells of one job, in each engine, block, window and transfer, the last of these varying fastest; at most
/// `points_max`. And what stands beside the results of all of them.
///
/// # Errors
/// `Usage` for everything that can be found wrong without starting a rank, unless only some cells are.
pub(super) fn expand(
    job: &FileJob,
    ranks: u32,
    lists: &Lists,
    points_max: usize,
) -> Result<(Vec<Cell<FilePoint>>, Reading)> {
    if ranks == 0 || ranks > RANKS_MAX {
        return usage(format!(
            "a run of {ranks} ranks is not possible: use --ranks 1 to --ranks {RANKS_MAX}"
        ));
    }
    let base = base::base(job, ranks)?;
    let reading = base::reading(job, &base)?;
    let entries = cell::entries(job, lists)?;
    let axes = cell::Axes::of(job)?;
    let total = axes.count(entries.len());
    if total > points_max {
        return usage(format!(
            "the plan has more than {POINTS_MAX} points, and this job alone has {total}: use coarser sweeps, or \
             several plans"
        ));
    }
    let mut cells = Cells::new();
    for named in &entries {
        for sizes in axes.cells() {
            let (point, checked) = cell::point(&base, named, sizes);
            cells.add(point, checked)?;
        }
    }
    Ok((cells.all()?, reading))
}
