//! Facts that every rank knows of every rank. All of them travel in [`crate::rank_list`], each rank's own in its
//! introduction.
//!
//! Names are shared: a rank keeps those of all others, and most of these are on hosts with several.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::channel::message::Cause;
use tonnage_units::Error;

/// Facts that every rank knows of every rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RankInfo {
    /// 0 .. size.
    pub rank: u32,
    /// Its host's name.
    #[serde(with = "shared_text")]
    pub host: Arc<str>,
    /// Its process, as its host counts.
    pub pid: u32,
    /// Changes when its machine starts anew. Empty where the system does not say it, as the next two.
    #[serde(with = "shared_text")]
    pub boot_id: Arc<str>,
    /// Differs between networks of one machine.
    #[serde(with = "shared_text")]
    pub network_namespace: Arc<str>,
    /// Differs between containers of one machine.
    #[serde(with = "shared_text")]
    pub pid_namespace: Arc<str>,
    /// Its place among the ranks of its host: what the launcher says, else by [`crate::Hosts`].
    pub local_rank: u32,
    /// Number of ranks of its host; always there once all have joined.
    pub local_size: Option<u32>,
}

impl RankInfo {
    /// The cause that an error of this rank is for the others.
    pub(crate) fn cause(&self, error: &Error) -> Cause {
        Cause::of(error, self.rank, &self.host)
    }

    /// A failure of this rank.
    pub(crate) fn error(&self, message: String) -> Error {
        Error::Rank {
            rank: self.rank,
            host: self.host.to_string(),
            message,
        }
    }

    /// Returns whether two ranks were told of with the very same names, so that they need not be compared.
    pub(crate) fn shares_names(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.host, &other.host)
            && Arc::ptr_eq(&self.boot_id, &other.boot_id)
            && Arc::ptr_eq(&self.network_namespace, &other.network_namespace)
            && Arc::ptr_eq(&self.pid_namespace, &other.pid_namespace)
    }
}

/// Serde functions for a shared text: each message carries it whole, and in memory several may share it.
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
