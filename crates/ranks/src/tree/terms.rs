//! Terms of a collective: what all who enter it must agree on.

use crate::channel::message::{CallNumber, CollectiveKind};
use crate::rank_set::RankSet;

/// Number of a collective, what it is, and who enters it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Terms {
    pub(crate) call: CallNumber,
    pub(crate) kind: CollectiveKind,
    pub(crate) what: String,
    pub(crate) members: RankSet,
}
