//! Facts that every rank knows about every rank. A rank's introduction carries its own facts, and [`crate::rank_list`]
//! carries those of all ranks.
//!
//! Names are shared `Arc`s, because each rank stores the names of all ranks, and many ranks have the same.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::channel::message::EndCause;
use tonnage_units::Error;

/// Facts that every rank knows about every rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RankInfo {
    /// The rank's number, 0 .. size.
    pub rank: u32,
    /// Host name.
    #[serde(with = "shared_text")]
    pub host: Arc<str>,
    /// Process ID in the rank's own PID namespace.
    pub pid: u32,
    /// Identifier of the machine's current boot. It and the two namespaces are empty if the system does not provide
    /// them.
    #[serde(with = "shared_text")]
    pub boot_id: Arc<str>,
    /// Distinguishes the networks of one machine.
    #[serde(with = "shared_text")]
    pub network_namespace: Arc<str>,
    /// Distinguishes the containers of one machine.
    #[serde(with = "shared_text")]
    pub pid_namespace: Arc<str>,
    /// Index among the ranks of its host. It comes from the launcher, or else [`crate::Hosts`] counts the ranks.
    pub local_rank: u32,
    /// Number of ranks on its host. Always `Some` once all ranks have joined.
    pub local_size: Option<u32>,
}

impl RankInfo {
    /// Converts an error of this rank to the cause that the other ranks receive.
    pub(crate) fn failure_cause(&self, error: &Error) -> EndCause {
        EndCause::from_error(error, self.rank, &self.host)
    }

    /// Returns the error for a failure of this rank.
    pub(crate) fn failure(&self, message: String) -> Error {
        Error::Rank {
            rank: self.rank,
            host: self.host.to_string(),
            message,
        }
    }

    /// Returns whether the names of two ranks are the same allocations. Their texts then need no comparison.
    pub(crate) fn shares_allocations(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.host, &other.host)
            && Arc::ptr_eq(&self.boot_id, &other.boot_id)
            && Arc::ptr_eq(&self.network_namespace, &other.network_namespace)
            && Arc::ptr_eq(&self.pid_namespace, &other.pid_namespace)
    }
}

/// Serde functions for shared text. Each message carries the full text. In memory, several ranks may share it.
pub(crate) mod shared_text {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(text: &Arc<str>, into: S) -> Result<S::Ok, S::Error> {
        into.serialize_str(text)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<str>, D::Error> {
        String::deserialize(from).map(Arc::from)
    }
}
