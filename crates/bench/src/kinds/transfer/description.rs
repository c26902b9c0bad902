//! A rank's message to the others once its engine is open: what was really chosen, and on which CPUs and devices.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::wire_proof::NamedDevices;
use tonnage_engine::memory::MemoryReport;
use tonnage_engine::{Domain, EngineReport, LimitKind};

/// A rank's message to the others once it is open.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OpenMessage {
    /// CPUs of the workers; `None` where one is not pinned.
    pub cpus: Vec<Option<u32>>,
    /// Sockets of these CPUs; `None` where that is not known.
    pub sockets: Vec<Option<u32>>,
    /// True with more workers than CPUs on the host.
    pub yielding: bool,
    /// Memory of its workers: said once where it is the same for all.
    pub memory: Vec<MemoryReport>,
    /// The engine's choices.
    pub engine: EngineReport,
    /// Devices of the workers.
    pub devices: Vec<Device>,
    /// The devices that its payload has to cross; `None` where it names none.
    pub wire_devices: Option<NamedDevices>,
}

/// The device that a worker was given, as far as limits depend on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Its place among the devices of the host.
    pub place: u32,
    /// Upper bound of the engine's bandwidth on it.
    pub limit: LimitKind,
    /// True when completed writes are visible to the peer: always, and where it is asked for.
    pub delivers: [bool; 2],
    /// True when a send is done only once its receiver has taken it, by the engine or by counts.
    pub sends_taken: bool,
    /// The engine's address for socket streams.
    pub address: Option<IpAddr>,
    /// The network interface that has that address.
    pub interface: Option<String>,
}

impl Device {
    pub(super) fn new(place: usize, domain: &dyn Domain, counts_sends: bool) -> Self {
        let address = domain.stream_address();
        Self {
            place: u32::try_from(place).unwrap_or(u32::MAX),
            limit: domain.caps().limit,
            delivers: [domain.caps().delivered, domain.caps().delivery_on_request],
            sends_taken: domain.caps().sends_taken || counts_sends,
            address,
            interface: address.and_then(interface_of),
        }
    }

    /// Its interface and address; `None` where it has neither.
    pub(super) fn name(&self) -> Option<String> {
        match (&self.interface, self.address) {
            (Some(interface), Some(address)) => Some(format!("{interface} ({address})")),
            (None, Some(address)) => Some(address.to_string()),
            (interface, None) => interface.clone(),
        }
    }
}

/// The network interface that has an address; `None` when none has, or the system does not list them.
fn interface_of(address: IpAddr) -> Option<String> {
    let all = tonnage_sys::interfaces::addresses().ok()?;
    let found = all.into_iter().find(|entry| entry.address == address);
    found.map(|entry| entry.name)
}
