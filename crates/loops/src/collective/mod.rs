//! Native collectives: carries out the steps of a call over any engine with write-imm. [`super::calls`] has the loops
//! that time calls of any backend.
//!
//! | file | what lives there |
//! | --- | --- |
//! | [`layout`] | layout of a rank's memory |
//! | [`script`] | steps with lanes and kernels resolved |
//! | [`executor`], [`immediate`] | carrying out steps; encoding of immediates |
//!
//! `tonnage_collective::steps` defines the steps and explains why they are correct.

pub mod executor;
pub mod immediate;
pub mod layout;
pub mod script;
