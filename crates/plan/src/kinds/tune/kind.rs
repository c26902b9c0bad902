//! A search as a kind.

use super::expand::expand;
use super::options::{TRIAL_TIME_DEFAULT, Tune};
use super::point::TunePoint;
use crate::cells::Cell;
use crate::kind::{AnyExperiment, Kind, Scale};
use crate::point::Reading;
use tonnage_engine::Lists;
use tonnage_units::{Nanos, Result};

impl Kind for Tune {
    type Point = TunePoint;

    const ABOUT: &'static str = "Search the options of a transfer that serve a goal best";
    const AFTER_HELP: &'static str = "Window or batch, queue pairs, chunk, rails and the engine's own options compete, \
    one after the other, in rounds of short trials. An option that is given is fixed; a list is what is searched. The \
    cheapest value wins that is surely as good as the best, within 3 %; where that cannot be told, the best one wins, and \
    it is said how much better others may be. The last line is the winner's command line.\n\n\
    Examples:\n  \
    tonnage tune --engine fabric:tcp --op write --sizes 64k --goal bandwidth --ranks 2\n  \
    tonnage tune --engine shm --op read --sizes 8 --goal rate --window 1,16,256 --ranks 2";

    fn expand(
        &self,
        ranks: u32,
        lists: &Lists,
        points_max: usize,
    ) -> Result<(Vec<Cell<TunePoint>>, Reading)> {
        Ok((expand(self, ranks, lists, points_max)?, Reading::default()))
    }
}

impl AnyExperiment for Tune {
    fn label(&self) -> Option<&str> {
        self.what.label.as_deref()
    }

    fn use_engines(&mut self, engines: &[String]) -> bool {
        self.what.engine = Some(engines.to_vec().into());
        true
    }

    /// Multiplies the time of a trial.
    fn scale(&mut self, scale: Scale) {
        let Nanos(trial_ns) = self.search.trial_time.unwrap_or(TRIAL_TIME_DEFAULT);
        // Precise enough below 2^53, and casts of floats saturate.
        let scaled = (trial_ns as f64 * scale.time).round() as u64;
        self.search.trial_time = Some(Nanos(scaled.max(1)));
    }
}
