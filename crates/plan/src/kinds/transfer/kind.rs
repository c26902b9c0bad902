//! Transfers as a kind.

use super::expand::expand;
use super::length;
use super::options::Transfer;
use super::point::TransferPoint;
use super::roles::fit;
use crate::cells::Cell;
use crate::engine_choice::choose;
use crate::kind::{AnyExperiment, Kind, Scale};
use crate::point::Reading;
use crate::published;
use tonnage_engine::Lists;
use tonnage_units::Result;

impl Kind for Transfer {
    type Point = TransferPoint;

    const ABOUT: &'static str = "Move bytes between ranks and measure them";
    const AFTER_HELP: &'static str = "A sweep is one value (4096), a doubling range (8..1M), a linear range (1M..32M+1M), a range \
    with a factor (1..1000*10), or several of these joined by commas. Several sweeps multiply. k, M and G are powers \
    of two in sizes and sweeps; kB, MB and GB are decimal.\n\n\
    Examples:\n  \
    tonnage transfer --engine shm --op read --ranks 2 --sizes 8..1M --batch 128\n  \
    tonnage transfer --engine shm --op write-imm --ranks 2 --sizes 8,4k --ping-pong --duration 2s";

    fn expand(
        &self,
        ranks: u32,
        lists: &Lists,
        points_max: usize,
    ) -> Result<(Vec<Cell<TransferPoint>>, Reading)> {
        let reading = Reading {
            optional: self.skipping.optional,
            tables: published::shared(&self.measure.published)?,
            ..Reading::default()
        };
        Ok((expand(self, ranks, lists, points_max)?, reading))
    }
}

impl AnyExperiment for Transfer {
    fn label(&self) -> Option<&str> {
        self.what.label.as_deref()
    }

    fn use_engines(&mut self, engines: &[String]) -> bool {
        let (own, options) = (&mut self.what.engine, &self.what.engine_options);
        choose(own, engines.to_vec(), options, self.skipping.optional)
    }

    fn scale(&mut self, scale: Scale) {
        let trial_time = self.length.trial_time;
        length::scale(&mut self.length, scale.time);
        if self.what.traffic_file.is_some() {
            // An execution takes the time that it takes.
            self.length.trial_time = trial_time;
        }
    }

    fn fit_ranks(&mut self, ranks: u32) {
        fit(&mut self.what, ranks);
    }
}
