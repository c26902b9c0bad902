//! Expands a job to its points, and implements the traits of a kind. Every mistake that can be found before a rank
//! starts is refused here.

use super::base::{CONFLICTS, base_point, point_notes, ranks_of_node_shift};
use super::cell::{complete, depths, entries, sizes};
use super::names::ReadShift;
use super::options::{BLOCK_BYTES_DEFAULT, FileJob, TRANSFER_BYTES_DEFAULT};
use super::point::FilePoint;
use crate::bounds::RANKS_MAX;
use crate::cells::{Cell, Cells, check_total, cross_product};
use crate::conflicts;
use crate::engine_choice::choose;
use crate::kind::{AnyExperiment, Kind, Scale};
use crate::point::PointNotes;
use crate::refuse::usage_error;
use tonnage_engine::Lists;
use tonnage_units::Result;

impl Kind for FileJob {
    type Point = FilePoint;

    const ABOUT: &'static str = "Write and read files from all ranks";
    const AFTER_HELP: &'static str = "Block, transfer and depth take sweeps: one value (4096), a doubling range (8..1M), a linear range \
    (1M..32M+1M), a range with a factor (1..1000*10), or several of these joined by commas. Several sweeps multiply. \
    k, M and G are powers of two; kB, MB and GB are decimal.\n\n\
    A rank moves segments x block bytes in each phase. In a shared file a segment has a block of every rank, one after \
    the other. Files that were made are removed at the end unless --keep is given.\n\n\
    Examples:\n  \
    tonnage file --ranks 2 --path t.dat --layout per-process --block 4m --transfer 4m --segments 64 --fsync end\n  \
    tonnage file --ranks 2 --engine uring --direct --path t.dat --block 256m --transfer 4k --order shuffled --depth 32";

    fn cells(&self, ranks: u32, lists: &Lists, points_max: usize) -> Result<Vec<Cell<FilePoint>>> {
        if ranks == 0 || ranks > RANKS_MAX {
            return usage_error(format!(
                "a run of {ranks} ranks is not possible: use --ranks 1 to --ranks {RANKS_MAX}"
            ));
        }
        conflicts::check(self, &[CONFLICTS])?;
        let base = base_point(self, ranks)?;
        let engines = entries(self, lists)?;
        let depths = depths(self)?;
        let blocks = sizes("block", &self.work.block, BLOCK_BYTES_DEFAULT)?;
        let transfers = sizes("transfer", &self.work.transfer, TRANSFER_BYTES_DEFAULT)?;
        let counts = [engines.len(), blocks.len(), depths.len(), transfers.len()];
        check_total(&counts, points_max, "job")?;
        let mut cells = Cells::new();
        // Of engine, block, transfer and depth, the innermost loop's value varies fastest.
        for engine in &engines {
            let own = FilePoint {
                engine: engine.entry.name.to_owned(),
                engine_options: engine.options.clone(),
                ..base.clone()
            };
            let points = cross_product(vec![own], &blocks, |point, &block| {
                point.block_bytes = block
            });
            let points = cross_product(points, &depths, |point, &depth| point.depth = depth);
            for mut point in cross_product(points, &transfers, |point, &bytes| {
                point.transfer_bytes = bytes
            }) {
                let checked = complete(&mut point, engine);
                cells.add(point, checked)?;
            }
        }
        cells.all()
    }

    fn notes(&self) -> Result<PointNotes> {
        point_notes(self)
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
        self.limit_read_shift(ranks);
    }

    fn counts_nodes(&self) -> bool {
        matches!(self.work.read_shift, Some(ReadShift::Nodes(_)))
    }

    fn resolve_nodes(&mut self, ranks_of_node: u32, ranks: u32) -> Result<()> {
        let Some(ReadShift::Nodes(nodes)) = self.work.read_shift else {
            return Ok(());
        };
        match ranks_of_node_shift(nodes, ranks_of_node, ranks) {
            Some(shift) => {
                self.work.read_shift = Some(ReadShift::Ranks(shift.into()));
                Ok(())
            }
            None => usage_error(format!(
                "--read-shift {} leads back to a rank's own data, because it wraps around {ranks} ranks in steps of \
                 {ranks_of_node}: use --read-shift node, or start more ranks",
                ReadShift::Nodes(nodes)
            )),
        }
    }

    fn paths(&mut self) -> Option<&mut Vec<String>> {
        Some(&mut self.files.path)
    }
}
