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
//! Nothing is measured here: a command line becomes a plan like any other (`tonnage_plan`), `tonnage_bench` runs the
//! plan, and the result block is drawn from its record (`tonnage_record`). Next: [`options`].

#![forbid(unsafe_code)]

pub mod block;
pub mod help;
pub mod hints;
pub mod options;
pub mod translate;
