//! Native collectives: the steps of a call, carried out over any engine with write-imm. The loops that time calls, of
//! whichever backend, are in [`super::calls`].
//!
//! | file | what lives there |
//! | --- | --- |
//! | [`layout`] | division of a rank's memory |
//! | [`script`] | steps with lanes and kernels resolved |
//! | [`executor`], [`immediate`] | the steps carried out, and what immediates say |
//!
//! Which steps there are, and why they are right, is in `tonnage_collective::steps`.

pub mod executor;
pub mod immediate;
pub mod layout;
pub mod script;
