//! Devices of the ranks' memories, such as GPUs: what each rank tells its peers of its own before engines are opened,
//! because a number means another device in another process.

use std::collections::BTreeMap;

use crate::deadlines::DEADLINES;
use tonnage_engine::memory::{BusDevice, MemoryEntry, Request};
use tonnage_ranks::{Rank, pack, unpack};
use tonnage_units::{Error, Result};

/// Devices by the ranks whose memory will be of them; those of the host's memory are not named.
#[derive(Debug, Default)]
pub(crate) struct MemoryDevices(BTreeMap<u32, BusDevice>);

impl MemoryDevices {
    /// This rank's alone, by the memory that it will ask for.
    pub(crate) fn of_own(rank: u32, entry: &MemoryEntry, request: &Request<'_>) -> Self {
        let device = (entry.device)(request);
        Self(device.map(|device| (rank, device)).into_iter().collect())
    }

    /// Adds those of peers, which all ranks tell each other.
    ///
    /// # Errors
    /// When the run has ended.
    pub(crate) fn exchanged(mut self, rank: &mut Rank, mut peers: Vec<u32>) -> Result<Self> {
        let mut told = Vec::new();
        if let Some(own) = self.of(rank.id()) {
            peers.sort_unstable();
            peers.dedup();
            peers.retain(|&peer| peer != rank.id());
            let own = pack(own)?;
            told = peers.into_iter().map(|peer| (peer, own.clone())).collect();
        }
        for (peer, message) in rank.exchange("devices of memories", told, DEADLINES.step)? {
            let device = unpack(&message).map_err(|error| {
                Error::Failed(format!(
                    "rank {peer} told unreadably of its device: {error}"
                ))
            })?;
            self.0.insert(peer, device);
        }
        Ok(self)
    }

    /// The device of a rank's memory.
    pub(crate) fn of(&self, rank: u32) -> Option<&BusDevice> {
        self.0.get(&rank)
    }
}
