//! `tonnage ior`: IOR's command lines, and IOR's result block.
//!
//! | module | contents |
//! | --- | --- |
//! | [`options`] | IOR's options, parsed as IOR does |
//! | [`translate`] | from these options to a plan |
//! | [`hints`] | hints for MPI-IO in the environment and in files |
//! | [`help`] | the table of options |
//! | [`block`] | IOR's result block, drawn from records |
//!
//! Nothing is measured here. A command line becomes a plan like any other (`tonnage_plan`), and `tonnage_bench` runs
//! the plan. The result block is drawn from the run's record (`tonnage_record`).

#![forbid(unsafe_code)]

pub mod block;
pub mod help;
pub mod hints;
pub mod options;
pub mod translate;
