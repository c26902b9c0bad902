//! Proof, from device counters, that the payload of a point crossed the expected devices.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use tonnage_units::WireKind;

/// Maximum number of devices in the list. If there are more, it contains only devices with errors and devices that the
/// payload did not cross.
pub const DEVICES_MAX: usize = 256;

/// Growth of the devices' counters from before the warm-up to after the last trial. Counters include other traffic, so
/// they only prove that a device carried at least as many bytes as the payload has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WireProof {
    /// True if every rank's engine named a device, and every named device carried at least 99 % of the payload expected
    /// there.
    pub crossed: bool,
    /// Number of devices that engines named, on all hosts.
    pub devices_named: u32,
    /// Number of devices that the payload crossed.
    pub devices_crossed: u32,
    /// The devices. If there are more than 256, lists only devices that the payload did not cross, and devices that
    /// counted errors, drops or retransmits.
    pub devices: Vec<DevicePath>,
    /// TCP counters of hosts that move payload through network interfaces.
    pub tcp: Vec<TcpPath>,
    /// Sentences that explain why parts of the proof are missing; empty if `crossed` is true.
    pub why: Vec<String>,
}

/// One device of one host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DevicePath {
    /// The host's name.
    pub host: String,
    /// The ranks that use the device, such as "0-3,8".
    pub ranks: String,
    /// Interface or RDMA port.
    pub kind: WireKind,
    /// The kernel's name.
    pub name: String,
    /// The port of an RDMA device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u32>,
    /// Payload that these ranks sent through all their shared devices together.
    pub sent_bytes_expected: u64,
    /// Payload that these ranks received through all their shared devices together.
    pub received_bytes_expected: u64,
    /// Bytes that the device counted as sent, including headers and other traffic; absent without a counter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_bytes: Option<u64>,
    /// Bytes that the device counted as received; absent without a counter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received_bytes: Option<u64>,
    /// True if the device carried its part of the payload.
    pub crossed: bool,
    /// Increase of all counters of the device, by the kernel's names for them.
    pub counters: BTreeMap<String, u64>,
}

/// TCP counters of one host (or network namespace), over all its connections.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TcpPath {
    /// The host's name.
    pub host: String,
    /// Ranks on this host with engines that named an interface.
    pub ranks: String,
    /// Increase of the host's counters in /proc/net/snmp and /proc/net/netstat.
    pub counters: BTreeMap<String, u64>,
}

impl WireProof {
    /// Returns an empty proof. Hosts are added later.
    pub fn empty() -> Self {
        Self {
            crossed: true,
            devices_named: 0,
            devices_crossed: 0,
            devices: Vec::new(),
            tcp: Vec::new(),
            why: Vec::new(),
        }
    }
}

impl DevicePath {
    /// The usual name of the device: "eth0", "mlx5_0 port 1".
    pub fn title(&self) -> String {
        match self.port {
            None => self.name.clone(),
            Some(port) => format!("{} port {port}", self.name),
        }
    }
}
