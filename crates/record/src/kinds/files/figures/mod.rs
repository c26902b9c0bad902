//! Figures of file experiments. A record has a row for each phase, and for one that both reads and writes two more,
//! with the latencies of each. Where a phase has several trials, a figure is of all of them; no figure needs a row for
//! each, because records have them and tables read [`Figure::trials`](super::Figure::trials).

mod asked;
mod phase;
mod ranks;

use crate::figures::Figures;
use crate::figures::common::{ASKED, IN_FLIGHT, OUTCOME};
use crate::figures::engine::ENGINE;
use crate::figures::latency::LATENCY;
use crate::figures::moved::{AMOUNTS, BANDWIDTH, CPU, LIMIT};

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
    LIMIT,
    CPU,
    phase::CPU_OF_BYTES,
    AMOUNTS,
    ranks::RANKS,
    ranks::EVENTS,
    OUTCOME,
];
