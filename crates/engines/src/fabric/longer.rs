//! Writes that are too long for a flush to prove their arrival. The flush itself is the worker's.

use tonnage_engine::Op;
use tonnage_sys::libfabric::{Posted, Route};
use tonnage_units::{Error, Result};

use super::worker::FabricWorker;
use crate::slots::never_resolved;

impl FabricWorker {
    /// Posts a write that is too long for a read after it to prove its arrival, so that it asks for delivery itself.
    #[cold]
    pub(super) fn take_longer(&mut self, op: &Op, data: u64, user: u64) -> Result<bool> {
        let Some(Some(lane)) = self.lanes.get(op.lane.0 as usize) else {
            return Err(never_resolved(op.lane));
        };
        if !self.ways.flushes.is_some_and(|by| by.longer_delivered) {
            return Err(Error::Failed(format!(
                "{} orders reads only after writes of {} bytes or less, so that nothing would prove that one of {} has \
                 arrived: take smaller sizes, or --engine-option completion=auto where the provider can tell delivery, or \
                 --op send",
                self.name, lane.flushed_bytes_max, op.len
            )));
        }
        let route = Route {
            delivered: true,
            ..lane.route
        };
        let posted = self
            .endpoint
            .post(&route, op.local, op.remote, op.len, data, user);
        match posted {
            Ok(taken) => Ok(taken != Posted::Again),
            Err(failure) => Err(self.dead(&failure, None)),
        }
    }
}
