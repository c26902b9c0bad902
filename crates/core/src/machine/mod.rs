//! What this host is made of.

use serde::{Deserialize, Serialize};

/// The environment of one host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {}
