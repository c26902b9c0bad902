//! Settings of the network paths that the ranks' TCP sockets use.

use serde::{Deserialize, Serialize};

/// Maximum number of paths in a record.
pub const NETWORK_PATHS_MAX: usize = 256;

/// The TCP sockets of a host's ranks that use one path with the same settings. The values are read from the kernel
/// after the trials, from sockets that the engine still has open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NetworkPath {
    /// The host's name.
    pub host: String,
    /// The ranks that own these sockets, such as "0-3,8".
    pub ranks: String,
    /// Interface that the kernel uses to reach the peers.
    pub interface: String,
    /// MTU of the interface.
    pub mtu_bytes: u32,
    /// MTU of the route; absent if the route does not define one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route_mtu_bytes: Option<u32>,
    /// Queueing discipline at the root of the interface.
    pub qdisc: String,
    /// Congestion control of the sockets.
    pub congestion_control: String,
    /// Largest number of sockets that a rank has on this path. At most 256 sockets per rank are inspected.
    pub sockets: u32,
    /// Smallest send buffer, after the kernel's autotuning.
    pub send_buffer_bytes_min: u64,
    /// Largest send buffer.
    pub send_buffer_bytes_max: u64,
    /// Smallest receive buffer, after the kernel's autotuning.
    pub receive_buffer_bytes_min: u64,
    /// Largest receive buffer.
    pub receive_buffer_bytes_max: u64,
}

impl NetworkPath {
    /// Merges the sockets of `other` if path and settings are equal. Otherwise returns false without merging.
    pub fn merge_if_equal(&mut self, other: &Self) -> bool {
        let key = |path: &Self| {
            (
                path.host.clone(),
                path.interface.clone(),
                (path.mtu_bytes, path.route_mtu_bytes),
                path.qdisc.clone(),
                path.congestion_control.clone(),
            )
        };
        if key(self) != key(other) {
            return false;
        }
        self.sockets = self.sockets.max(other.sockets);
        self.send_buffer_bytes_min = self.send_buffer_bytes_min.min(other.send_buffer_bytes_min);
        self.send_buffer_bytes_max = self.send_buffer_bytes_max.max(other.send_buffer_bytes_max);
        self.receive_buffer_bytes_min = self
            .receive_buffer_bytes_min
            .min(other.receive_buffer_bytes_min);
        self.receive_buffer_bytes_max = self
            .receive_buffer_bytes_max
            .max(other.receive_buffer_bytes_max);
        true
    }
}
