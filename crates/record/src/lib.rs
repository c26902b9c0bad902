//! A record: one line of results, with everything that a reader needs to understand a figure a year later.
//!
//! A [`Record`] is an envelope (run, program, outcome, hosts, canary, limit, proof of the path) around the [`Body`] of
//! one kind of experiment. In JSON it is one flat object: `kind` tells the body, `point` is what was asked for. The
//! types are the file format.
//!
//! | module | what lives there |
//! | --- | --- |
//! | [`envelope`] | a record around a body of any kind |
//! | [`kinds`], [`body`] | the one list of kinds, with a folder for each: its body and its figures; what a body of any kind can be asked |
//! | [`figures`] | figures of all kinds, each declared once: columns, CSV and `tonnage explain` read them |
//! | [`environment`], [`grouping`] | what was really done, and on which hosts; what many say alike is said once |
//! | [`histogram`], [`spread`], [`limit`] | samples and trials taken together, upper bounds |
//! | [`cpu_loss`], [`network_path`] | CPU time that ranks did not get; settings of the paths of their sockets |
//! | [`wire_proof`] | what devices counted while the payload should have crossed them |
//! | [`side`] | the side of a comparison, where two took turns |
//! | [`published`] | figures that others measured, beside those of a record |
//! | [`writer`], [`read`], [`checksum`] | files of records: written, interrupted, read, taken up again; lines that were changed |
//! | [`links`] | links at the end of a path that is written to |
//! | `schema` | docs/record.schema.json, from the types; with the feature of that name |
//! | [`host_limits`] | what a host can do at most, which is in no record |
//!
//! Nothing here measures, and nothing draws: records come from the crate `bench` and go to the crate `report`.

#![forbid(unsafe_code)]

pub mod body;
pub mod checksum;
pub mod cpu_loss;
pub mod envelope;
pub mod environment;
pub mod figures;
pub mod grouping;
pub mod histogram;
pub mod host_limits;
pub mod kinds;
pub mod limit;
pub mod links;
pub mod network_path;
pub mod outcome;
mod place;
pub mod published;
pub mod read;
#[cfg(feature = "schema")]
pub mod schema;
pub mod side;
pub mod spread;
#[cfg(test)]
mod tests;
pub mod wire_proof;
pub mod writer;

pub use cpu_loss::CpuLoss;
pub use envelope::*;
pub use environment::{Effective, HostGroup, Placed};
pub use histogram::{HistogramData, Latency, LatencyKind};
pub use kinds::*;
pub use limit::{Limit, Links};
pub use network_path::NetworkPath;
pub use outcome::Outcome;
pub use place::RecordPlace;
pub use side::{Side, SideName};
pub use spread::Spread;
pub use wire_proof::WireProof;
