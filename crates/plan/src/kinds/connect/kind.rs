//! Experiments with connections as a kind.

use super::expand::{expand, scaled};
use super::options::Connect;
use super::point::ConnectPoint;
use crate::cells::Cell;
use crate::engine_choice::choose;
use crate::kind::{AnyExperiment, Kind, Scale};
use crate::point::Reading;
use tonnage_engine::Lists;
use tonnage_units::Result;

impl Kind for Connect {
    type Point = ConnectPoint;

    const ABOUT: &'static str =
        "Set up connections between ranks, take them down again, and measure each step";
    const AFTER_HELP: &'static str = "Workers and register take sweeps: one value (4), a doubling range (1..16), a range with a factor \
    (4k..1G*16), or several of these joined by commas. Several sweeps multiply. k, M and G are powers of two.\n\n\
    Examples:\n  \
    tonnage connect --engine shm,fabric:tcp --ranks 2 --workers 1..8\n  \
    tonnage connect --engine fabric:tcp --ranks 8 --traffic fan-in --register 4k..1G*16 --memory small,huge";

    fn expand(
        &self,
        ranks: u32,
        lists: &Lists,
        points_max: usize,
    ) -> Result<(Vec<Cell<ConnectPoint>>, Reading)> {
        let reading = Reading {
            optional: self.skipping.optional,
            ..Reading::default()
        };
        Ok((expand(self, ranks, lists, points_max)?, reading))
    }
}

impl AnyExperiment for Connect {
    fn label(&self) -> Option<&str> {
        self.what.label.as_deref()
    }

    fn use_engines(&mut self, engines: &[String]) -> bool {
        let (own, options) = (&mut self.what.engine, &self.what.engine_options);
        choose(own, engines.to_vec(), options, self.skipping.optional)
    }

    /// Multiplies the measured time, but not below what a trial takes at least.
    fn scale(&mut self, scale: Scale) {
        self.length.duration = scaled(&self.length, scale.time);
    }
}
