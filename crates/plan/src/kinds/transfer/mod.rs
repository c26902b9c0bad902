//! Experiments between memories: `[[transfer]]` tables and `tonnage transfer`, and the points that they expand to.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `options` | the options of a transfer |
//! | [`point`] | one cell of a sweep, with everything fixed |
//! | `expand` | the points of a transfer, the checks of engines and verbs, and what makes it a kind |
//! | `roles`, `pacing`, `batching`, `issuing`, `library`, `length`, `layout` | the combined meaning of one group of
//! options |
//! | `loads`, `executions` | traffic files, and how they combine with other options |
//! | `paced` | operations at a rate |
//! | `background` | background load during a latency measurement |
//! | `atomics` | operations on single words |
//! | `memories` | kinds of memory at both ends |
//! | `verification` | how much of the moved data is compared, and options that cannot be combined with it |
//! | `landings` | whether the final data of a slot is known |
//!
//! `tonnage_bench` measures the points.

mod atomics;
mod background;
mod batching;
mod executions;
mod expand;
mod issuing;
mod landings;
mod layout;
mod length;
mod library;
mod loads;
mod memories;
mod options;
mod paced;
mod pacing;
pub mod point;
mod roles;
mod slots;
mod verification;

pub use crate::bounds::DEPTH_MAX;
pub use background::{Background, BackgroundOptions, BackgroundPair, BackgroundRate};
pub use batching::{BatchMerge, BatchOf, Batching, BatchingOptions, CallsPerBatch};
pub use issuing::IssuingOptions;
pub(crate) use length::CONFLICTS as LENGTH_CONFLICTS;
pub use length::{LengthOptions, PointLength, TrialLength};
pub(crate) use length::{length as point_length, scale as scale_length};
pub use library::LibraryOptions;
#[cfg(test)]
pub(crate) use loads::tests::files as traffic_files;
pub use loads::{PairLoads, TrafficFile};
pub use memories::Memories;
pub use options::{MeasureOptions, MemoryOptions, OperationOptions, Transfer};
pub(crate) use paced::CONFLICTS as PACED_CONFLICTS;
pub use paced::{AskedRate, PacedOptions, Rate};
pub(crate) use pacing::CONFLICTS as PACING_CONFLICTS;
pub use pacing::{DEPTH_DEFAULT, PacingOptions};
pub use point::{CqMode, Pacing, PacingAim, SessionUse, TransferApi, TransferPoint};
pub use slots::{Access, Slots, TargetFootprint};
pub use verification::{Verification, compares_each};
