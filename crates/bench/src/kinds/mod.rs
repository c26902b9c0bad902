//! The kinds of experiments, a folder each.

pub mod files;
pub mod transfer;
