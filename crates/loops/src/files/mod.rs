//! The loops over files, and the content that they write and verify.
//!
//! | file | content |
//! | --- | --- |
//! | [`drive`] | the timed loops |
//! | [`sequence`] | the sequence of a thread's transfers |
//! | [`stamp`], [`data`], [`differences`] | stamps of sectors, content of files, and descriptions of wrong data |
//! | [`timeline`] | bytes over time, in bounded memory |

pub mod data;
pub mod differences;
pub mod drive;
pub mod sequence;
pub mod stamp;
pub mod timeline;
