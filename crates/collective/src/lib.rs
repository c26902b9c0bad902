//! Collectives, apart from whoever carries them out: operations, element types, sizes, algorithms as steps, and data
//! whose result is known exactly.
//!
//! | file | what lives there |
//! | --- | --- |
//! | [`op`] | operations and what each asks of its ranks |
//! | [`element`] | types of elements, and reductions over them |
//! | [`shape`] | elements that each rank gives and gets, from a size |
//! | [`data`] | inputs whose result is known exactly, and the comparison with it |
//! | [`steps`] | algorithms as steps of each rank |
//! | [`bus`] | factors between the bandwidth of an algorithm and that of the bus |
//!
//! Rows of those who carry operations out are in `tonnage_engine`; carrying steps out over an engine, and timing them,
//! is in `tonnage_bench`. Ranks, plans and engines are not known here.

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
