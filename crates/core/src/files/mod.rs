//! What is where in the files of an experiment, and in which order. Pure computations: nothing here opens a file.
//!
//! | file | what lives there |
//! | --- | --- |
//! | [`names`] | which file a rank works on, and where it is |
//! | [`order`] | a permutation without a table |
//! | [`places`] | the sequence of a thread's transfers: offset and direction of each |
//! | [`data`] | what the bytes are, and what it means when they are others |
//! | [`wrong`] | what is wrong with bytes that were read |
//! | [`timeline`] | bytes over time, in bounded memory |
//!
//! Engines are in `tonnage_engines`, the loops in [`crate::drive`], and what ranks do together in
//! [`crate::run::files`].

pub mod data;
pub mod names;
pub mod order;
pub mod places;
pub mod timeline;
pub mod wrong;
