//! File experiments as a kind.

use super::expand::expand;
use super::options::FileJob;
use super::point::FilePoint;
use crate::cells::Cell;
use crate::engine_choice::choose;
use crate::kind::{AnyExperiment, Kind, Scale};
use crate::point::Reading;
use tonnage_engine::Lists;
use tonnage_units::Result;

impl Kind for FileJob {
    type Point = FilePoint;

    const ABOUT: &'static str = "Write and read files from all ranks and measure it";
    const AFTER_HELP: &'static str = "Block, transfer and window take sweeps: one value (4096), a doubling range (8..1M), a linear range \
    (1M..32M+1M), a range with a factor (1..1000*10), or several of these joined by commas. Several sweeps multiply. \
    k, M and G are powers of two; kB, MB and GB are decimal.\n\n\
    A rank moves segments x block bytes in each phase. In a shared file a segment has a block of every rank, one after \
    the other. Files that were made are removed at the end unless --keep is given.\n\n\
    Examples:\n  \
    tonnage file --ranks 2 --path t.dat --layout per-process --block 4m --transfer 4m --segments 64 --fsync end\n  \
    tonnage file --ranks 2 --engine uring --direct --path t.dat --block 256m --transfer 4k --order shuffled --window 32";

    fn expand(
        &self,
        ranks: u32,
        lists: &Lists,
        points_max: usize,
    ) -> Result<(Vec<Cell<FilePoint>>, Reading)> {
        expand(self, ranks, lists, points_max)
    }
}

impl AnyExperiment for FileJob {
    fn label(&self) -> Option<&str> {
        self.files.label.as_deref()
    }

    fn use_engines(&mut self, engines: &[String]) -> bool {
        let (own, options) = (&mut self.how.engine, &self.how.engine_options);
        choose(own, engines.to_vec(), options, self.skipping.optional)
    }

    fn scale(&mut self, scale: Scale) {
        self.scale_bytes(scale.share_of_rank);
    }

    fn fit_ranks(&mut self, ranks: u32) {
        self.read_within(ranks);
    }

    fn counts_nodes(&self) -> bool {
        self.has_nodes()
    }

    fn resolve_nodes(&mut self, ranks_of_node: u32, ranks: u32) -> Result<()> {
        self.nodes_to_ranks(ranks_of_node, ranks)
    }

    fn paths(&mut self) -> Option<&mut Vec<String>> {
        Some(&mut self.files.path)
    }
}
