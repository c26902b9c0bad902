//! The loops over files, and the content that they write and compare.
//!
//! | file | what lives there |
//! | --- | --- |
//! | [`drive`] | the timed loops |
//! | [`sequence`] | the sequence of a thread's transfers |
//! | [`stamp`], [`data`], [`wrong`] | what marks a sector, content of files, and wrong bytes that were read |
//! | [`timeline`] | bytes over time, in bounded memory |

pub mod data;
pub mod drive;
pub mod sequence;
pub mod stamp;
pub mod timeline;
pub mod wrong;
