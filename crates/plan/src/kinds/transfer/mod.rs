//! Experiments between memories: `[[transfer]]` tables and `tonnage transfer`, and the points that they expand to.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `options` | the options of a transfer |
//! | [`point`], `point_length` | one cell of a sweep, with everything fixed |
//! | `expand` | the points of a transfer, and the checks of engines and verbs |
//! | `roles`, `pacing`, `batching`, `issuing`, `library`, `length`, `interval`, `layout` | what one group of options means together |
//! | `loads`, `executions` | traffic files, and what they mean beside other options |
//! | `background`, `background_options`, `backgrounds` | loads beside a latency |
//! | `batches` | batches of a point |
//! | `both_ways` | pairs that move bytes in both directions at once |
//! | `memories` | kinds of memory of both ends |
//! | `verification` | how much of the moved data is compared, and what that goes with |
//! | `landings` | what lands in a slot last, and whether that can be known |
//! | `kind` | what makes it a kind |
//!
//! Measuring a point is not known here; see `tonnage_bench`.

mod aim;
mod atomics;
mod background;
mod background_options;
mod backgrounds;
mod batches;
mod batching;
mod both_ways;
mod executions;
mod expand;
mod interval;
mod issuing;
mod kind;
mod landings;
mod layout;
mod length;
mod library;
mod loads;
mod memories;
mod options;
mod pacing;
pub mod point;
mod point_length;
mod roles;
mod verification;

pub use crate::bounds::DEPTH_MAX;
pub use aim::PacingAim;
pub use background::{Background, BackgroundPair};
pub use background_options::{BackgroundOptions, BackgroundRate};
pub use batches::{BatchCall, BatchMerge, BatchOf, Batching};
pub use batching::BatchingOptions;
pub use issuing::IssuingOptions;
pub use length::LengthOptions;
pub(crate) use length::{length as point_length, scale as scale_length};
pub use library::LibraryOptions;
#[cfg(test)]
pub(crate) use loads::tests::files as traffic_files;
pub use loads::{PairLoads, TrafficFile};
pub use options::{MeasureOptions, MemoryOptions, OperationOptions, Transfer};
pub(crate) use pacing::contradictions;
pub use pacing::{PacingOptions, WINDOW_DEFAULT};
pub use point::{
    Addresses, CqMode, Pacing, SessionUse, TargetFootprint, TransferApi, TransferPoint,
};
pub use point_length::{PointLength, TrialLength};
pub use verification::{Verification, compares_each};
