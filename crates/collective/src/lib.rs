//! Collectives, independent of the backend: operations, element types, sizes, algorithms as steps, and inputs with
//! exactly known results.
//!
//! | file | contents |
//! | --- | --- |
//! | [`op`] | operations, and what each requires of its ranks |
//! | [`element`] | element types and reductions |
//! | [`shape`] | elements that each rank provides and receives, computed from a size |
//! | [`data`] | inputs with exactly known results, and comparison with them |
//! | [`steps`] | algorithms as steps of each rank |
//! | [`bus`] | factors between algorithm bandwidth and bus bandwidth |
//!
//! The list rows of backends are in `tonnage_engine`. Running steps over an engine is in `tonnage_loops`, and timing
//! them in `tonnage_bench`. This crate does not know ranks, plans or engines.

#![forbid(unsafe_code)]

pub mod bus;
pub mod data;
pub mod element;
pub mod op;
pub mod shape;
pub mod steps;

pub use element::{Dtype, Reduction};
pub use op::Collective;
pub use shape::Shape;
pub use steps::Algorithm;
