//! Starting the ranks of a run, and looking after them until they have ended.

pub mod local;
