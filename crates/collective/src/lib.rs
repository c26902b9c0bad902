//! Collectives, independent of backends: operations, element types, sizes, algorithms as steps, and inputs with exactly
//! known results.
//!
//! | file | contents |
//! | --- | --- |
//! | [`op`] | the operations |
//! | [`element`] | element types and reductions |
//! | [`shape`] | the number of elements that each rank provides and receives, computed from a size |
//! | [`data`] | inputs with exactly known results, and comparison with them |
//! | [`steps`] | algorithms, as steps of each rank |
//! | [`bus`] | factors between algorithm bandwidth and bus bandwidth |
//!
//! The rows that describe backends are in `tonnage_engine`. `tonnage_loops` executes the steps over an engine, and
//! `tonnage_bench` takes the times. This crate depends on none of these crates.

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
