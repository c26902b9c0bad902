//! The name of a device that payload crosses, shared by engines, counters and records.

use serde::{Deserialize, Serialize};

/// A kind of device that counts the bytes which pass through it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum WireKind {
    /// A network interface, as /proc/net/dev lists it.
    Interface,
    /// A port of an RDMA device, as /sys/class/infiniband lists it.
    RdmaPort,
}

/// A device that payload has to cross on its way.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct WireDevice {
    /// Interface or RDMA port.
    pub kind: WireKind,
    /// The kernel's name, such as "eth0" or "mlx5_0".
    pub name: String,
    /// The port of an RDMA device, from 1; 0 for an interface.
    pub port: u32,
}
