//! Records: one line of results per point, with all facts that a reader needs to understand the point a year later.
//!
//! A [`Record`] is an envelope (run, program, outcome, hosts, canary, bound, proof of path) around the [`Body`] of one
//! kind of experiment. In JSON it is one flat object: `kind` selects the body type, and `point` is the requested point.
//! The types define the file format.
//!
//! | module | content |
//! | --- | --- |
//! | [`envelope`] | a record around a body of any kind |
//! | [`kinds`], [`body`] | the list of kinds, with a folder for the body and figures of each; the common interface of bodies |
//! | [`figures`] | figures of all kinds, each declared once; used by tables, CSV and `tonnage explain` |
//! | [`environment`], [`grouping`] | actual configuration and hosts; identical answers are listed once |
//! | [`histogram`], [`spread`], [`bound`] | latencies, statistics over trials, upper bounds |
//! | [`cpu_loss`], [`network_path`] | CPU time that ranks did not get; settings of the paths of their sockets |
//! | [`wire_proof`] | counters of the devices that the payload should have crossed |
//! | [`side`] | the side that a record belongs to, if two sides were compared |
//! | [`published`] | published figures for comparison with a record |
//! | [`writer`], [`read`], [`checksum`] | files of records: writing, reading, resuming after an interruption, detecting changes |
//! | [`links`] | symbolic links at the end of an output path |
//! | `schema` | docs/record.schema.json, generated from the types; with the feature of that name |
//! | [`host_bounds`] | upper bounds of a host, which are not in records |
//!
//! Nothing here measures or prints: records come from the crate `bench` and go to the crate `report`.

#![forbid(unsafe_code)]

pub mod body;
pub mod bound;
pub mod checksum;
pub mod cpu_loss;
pub mod envelope;
pub mod environment;
pub mod figures;
pub mod grouping;
pub mod histogram;
pub mod host_bounds;
pub mod kinds;
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

pub use bound::{Bound, Links};
pub use cpu_loss::CpuLoss;
pub use envelope::*;
pub use environment::{Effective, HostGroup, Placed};
pub use histogram::{HistogramData, Latency, LatencyKind};
pub use kinds::*;
pub use network_path::NetworkPath;
pub use outcome::Outcome;
pub use place::RecordPlace;
pub use side::{Side, SideName};
pub use spread::Spread;
pub use wire_proof::WireProof;
