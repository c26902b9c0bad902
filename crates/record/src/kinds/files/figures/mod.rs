//! Figures of file experiments. A record has one row per phase. For a phase that reads and writes, two more rows have
//! the latencies of reads and of writes. A figure covers all trials of a phase. Tables take values per trial from
//! [`Figure::trials`](super::Figure::trials), so trials have no rows.

mod asked;
mod phase;
mod ranks;

use crate::figures::Figures;
use crate::figures::common::{ASKED, IN_FLIGHT, OUTCOME};
use crate::figures::engine::ENGINE;
use crate::figures::latency::LATENCY;
use crate::figures::moved::{AMOUNTS, BANDWIDTH, BOUND, CPU};

/// All figures of a record of a file experiment.
pub const FIGURES: Figures = &[
    ASKED,
    ENGINE,
    asked::FILES,
    IN_FLIGHT,
    phase::PART,
    BANDWIDTH,
    phase::TIMES,
    LATENCY,
    BOUND,
    CPU,
    phase::CPU_OF_BYTES,
    AMOUNTS,
    ranks::RANKS,
    ranks::EVENTS,
    OUTCOME,
];
