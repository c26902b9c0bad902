//! Closing queues: unsignalled operations that nothing in flight would tell the end of are told by a write without a
//! byte.

use tonnage_sys::verbs::{WorkAction, WorkRequest, WorkTarget};
use tonnage_units::Result;

use super::contact::closing_tag;
use super::pairs::{PeerPairs, no_bytes};
use super::send_queue::{SILENT, send_id};
use super::worker::VerbsWorker;

impl VerbsWorker {
    /// Makes what nothing in flight would tell the end of tell it, by a write without a byte.
    #[cold]
    pub(super) fn close_silent_queues(&mut self) -> Result<()> {
        for place in 0..self.pairs.len() {
            let pair = &mut self.pairs[place];
            if !pair.sends.must_close() {
                continue;
            }
            // Any peer that the queue pair leads to will do.
            let leads = |peer: &PeerPairs| {
                peer.is_connected && [peer.one_sided, peer.messages].contains(&place)
            };
            let Some(at) = self.peers.iter().position(leads) else {
                continue;
            };
            let peer = &self.peers[at];
            let (number, _) = pair.sends.push(SILENT, closing_tag(at), 0, 1);
            let target = WorkTarget {
                action: WorkAction::Write,
                pair: pair.handle,
                local: self.contact_region,
                remote: peer.mailbox.clone().unwrap_or_else(no_bytes),
                inline_bytes_max: 0,
                address: peer.address,
            };
            let request = WorkRequest {
                id: send_id(place, number),
                local: 0,
                remote: 0,
                len: 0,
                imm: 0,
                signalled: true,
            };
            self.closing_writes += 1;
            let staged = self.queues.stage(&target, &request);
            staged.map_err(|why| self.about_device(why))?;
        }
        self.ring()
    }
}
