//! Proof that the payload of a point crossed the devices that it should have, by what these counted meanwhile.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use tonnage_units::WireKind;

/// Most devices that are listed one by one: those that the payload did not cross or that were in trouble come first.
pub const DEVICES_MAX: usize = 256;

/// Counts of the devices from before the warm-up to after the last trial. Other traffic is in it too, so that more than
/// "at least as much as the payload" can never be said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WireProof {
    /// Every device that an engine named carried at least 99 % of the payload that should have crossed it, and every
    /// rank's engine named one.
    pub crossed: bool,
    /// Devices that engines named, on all hosts.
    pub devices_named: u32,
    /// Devices that the payload crossed.
    pub devices_crossed: u32,
    /// The devices; above 256 only those that were not crossed or whose counters of errors, drops or retransmits moved.
    pub devices: Vec<DevicePath>,
    /// TCP of the hosts whose payload goes through interfaces.
    pub tcp: Vec<TcpPath>,
    /// Parts that are not proven, in plain sentences; empty where `crossed`.
    pub why: Vec<String>,
}

/// One device of one host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DevicePath {
    /// The host's name.
    pub host: String,
    /// The ranks that use it, such as "0-3,8".
    pub ranks: String,
    /// Interface or RDMA port.
    pub kind: WireKind,
    /// The kernel's name.
    pub name: String,
    /// The port of an RDMA device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u32>,
    /// Payload that these ranks sent through all devices that they share.
    pub sent_bytes_expected: u64,
    /// Payload that these ranks received through all devices that they share.
    pub received_bytes_expected: u64,
    /// Bytes that this device counted as sent, headers and other traffic included; absent where it does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_bytes: Option<u64>,
    /// Bytes that this device counted as received; absent where it does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received_bytes: Option<u64>,
    /// True when it carried its part.
    pub crossed: bool,
    /// Growth of all counters of the device, by the kernel's names.
    pub counters: BTreeMap<String, u64>,
}

/// TCP of one host (or network namespace), all connections together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TcpPath {
    /// The host's name.
    pub host: String,
    /// The ranks that run there and whose engine named an interface.
    pub ranks: String,
    /// Growth of its counters of /proc/net/snmp and /proc/net/netstat.
    pub counters: BTreeMap<String, u64>,
}

impl WireProof {
    /// The sum of nothing.
    pub fn nothing() -> Self {
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
    /// The device as people call it: "eth0", "mlx5_0 port 1".
    pub fn title(&self) -> String {
        match self.port {
            None => self.name.clone(),
            Some(port) => format!("{} port {port}", self.name),
        }
    }
}
