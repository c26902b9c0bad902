//! Rails of a transfer: what each of them carried, and the one that holds the others up.

use serde::{Deserialize, Serialize};

/// One rail of all ranks together: the devices with the same place in their lists.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Rail {
    /// Place in the lists of devices, from 0.
    pub rail: u32,
    /// Device of the initiating ranks, where all of them have one of this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Payload bytes of all trials that initiators handed to it; answers of a ping-pong are not in it.
    pub payload_bytes: u64,
    /// Rate while it was busy, all initiating workers together: `payload_bytes` / the part of the windows in which it
    /// had something in flight. Without a clock of its own: a worker counts the polls at which it had.
    pub busy_bytes_per_s: f64,
    /// Part of the windows in which it had something in flight, mean over the initiating workers.
    pub busy_fraction: f64,
}

/// A rail that was slower than the others of its worker in every trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SlowRail {
    /// The initiating rank.
    pub rank: u32,
    /// Its host.
    pub host: String,
    /// Place in its list of devices.
    pub rail: u32,
    /// Its device, where that has a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Rate while busy / mean rate of the worker's other rails that are like it: below 0.9 in every trial. The lowest.
    pub share: f64,
}
