//! A stress as a kind.

use super::expand::{expand, scaled};
use super::options::Stress;
use super::point::StressPoint;
use crate::cells::Cell;
use crate::engine_choice::choose;
use crate::kind::{AnyExperiment, Kind, Scale};
use crate::point::Reading;
use tonnage_engine::Lists;
use tonnage_units::Result;

impl Kind for Stress {
    type Point = StressPoint;

    const ABOUT: &'static str = "Draw transfers of all sorts for some time, and verify their data";
    const AFTER_HELP: &'static str = "Operation, size, window or batch, session, queue pairs, traffic, offsets and memory of each \
    transfer are drawn from the seed. A wrong byte ends its draw and not the run; the command line that repeats the \
    first one is printed at once and again at the end, and the exit code is 1.\n\n\
    Examples:\n  \
    tonnage stress --engine shm --ranks 2 --duration 1m\n  \
    tonnage stress --engine fabric:shm,fabric:tcp --ranks 3 --duration 8h --seed 7 --max-size 64M -o stress.jsonl";

    fn expand(
        &self,
        ranks: u32,
        lists: &Lists,
        points_max: usize,
    ) -> Result<(Vec<Cell<StressPoint>>, Reading)> {
        let points = expand(self, ranks, lists, points_max)?;
        Ok((
            points.into_iter().map(Cell::from).collect(),
            Reading::default(),
        ))
    }
}

impl AnyExperiment for Stress {
    fn label(&self) -> Option<&str> {
        self.what.label.as_deref()
    }

    fn use_engines(&mut self, engines: &[String]) -> bool {
        let (own, options) = (&mut self.what.engine, &self.what.engine_options);
        choose(own, engines.to_vec(), options, false)
    }

    /// Multiplies the time, within its bounds.
    fn scale(&mut self, scale: Scale) {
        self.length.duration = scaled(&self.length, scale.time);
    }
}
