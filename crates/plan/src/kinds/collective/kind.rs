//! Experiments with collectives as a kind.

use super::expand::expand;
use super::options::CollectiveJob;
use super::point::CollectivePoint;
use crate::cells::Cell;
use crate::engine_choice::choose;
use crate::kind::{AnyExperiment, Kind, Scale};
use crate::point::Reading;
use crate::published;
use crate::transfer::scale_length;
use tonnage_engine::Lists;
use tonnage_units::Result;

impl Kind for CollectiveJob {
    type Point = CollectivePoint;

    const ABOUT: &'static str =
        "Measure operations that all ranks call together, such as all-reduce";
    const AFTER_HELP: &'static str = "Sizes and chunk take sweeps: one value (4), a doubling range (1..16), a range with a factor (4k..1G*16), or \
    several of these joined by commas. Several sweeps multiply. k, M and G are powers of two; MB is 1e6.\n\n\
    The time of an iteration is that of the slowest rank; bandwidth of the algorithm is size / time, that of the bus \
    what the busiest link carried if the best algorithm did it, as nccl-tests has both.\n\n\
    Examples:\n  \
    tonnage collective --backend native:shm --op all-reduce --sizes 8..64M*8 --ranks 2 --verify\n  \
    tonnage collective --backend native:shm,native:fabric:tcp --op all-to-all,all-gather --sizes 64k..16M*4 --ranks 4\n  \
    tonnage collective --backend native:shm,torch:gloo --op all-reduce --sizes 100MB --ranks 2\n  \
    mpirun -np 4 tonnage collective --backend mpi,native:fabric:tcp --op all-gather --sizes 64k..16M*4";

    fn expand(
        &self,
        ranks: u32,
        lists: &Lists,
        points_max: usize,
    ) -> Result<(Vec<Cell<CollectivePoint>>, Reading)> {
        let reading = Reading {
            optional: self.skipping.optional,
            tables: published::shared(&self.check.published)?,
            ..Reading::default()
        };
        Ok((expand(self, ranks, lists, points_max)?, reading))
    }
}

impl AnyExperiment for CollectiveJob {
    fn label(&self) -> Option<&str> {
        self.call.label.as_deref()
    }

    /// Engines of native backends.
    fn use_engines(&mut self, engines: &[String]) -> bool {
        let native = engines.iter().map(|engine| format!("native:{engine}"));
        let (own, options) = (&mut self.call.backend, &self.call.engine_options);
        choose(own, native.collect(), options, self.skipping.optional)
    }

    fn scale(&mut self, scale: Scale) {
        scale_length(&mut self.length, scale.time);
    }
}
