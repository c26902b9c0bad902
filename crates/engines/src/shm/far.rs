//! Memory of peers: describing one's own to them, and mapping what lanes name.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tonnage_engine::{Descriptor, Peer};
use tonnage_sys::mapping::Arena;
use tonnage_units::Result;

use crate::rings::Contacts;

/// A registered memory as a peer maps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FarRegion {
    pub(super) pid: u32,
    /// Never given twice, as a file's number is.
    pub(super) region: u32,
    pub(super) fd: i32,
    pub(super) bytes: u64,
}

/// A peer's memory in this process. It stays while a lane uses it, and until another one of that peer is mapped.
struct Mapped {
    peer: Peer,
    region: FarRegion,
    memory: Arc<Arena>,
}

/// The memory of peers that is mapped.
#[derive(Default)]
pub(super) struct FarMaps {
    mapped: Vec<Mapped>,
}

impl FarMaps {
    /// The memory that a peer's descriptor means.
    pub(super) fn of(
        &mut self,
        contacts: &Contacts,
        peer: Peer,
        descriptor: &Descriptor,
    ) -> Result<(u32, Arc<Arena>)> {
        let region: FarRegion = serde_json::from_slice(&descriptor.0).map_err(|error| {
            contacts.unusable(peer, format!("the peer's region cannot be read ({error})"))
        })?;
        let known = |mapped: &&Mapped| mapped.peer == peer && mapped.region == region;
        if let Some(mapped) = self.mapped.iter().find(known) {
            return Ok((region.region, Arc::clone(&mapped.memory)));
        }
        let memory = contacts.attach(peer, (region.pid, region.fd), region.bytes)?;
        self.mapped
            .retain(|old| old.peer != peer || Arc::strong_count(&old.memory) > 1);
        let number = region.region;
        self.mapped.push(Mapped {
            peer,
            region,
            memory: Arc::clone(&memory),
        });
        Ok((number, memory))
    }
}
