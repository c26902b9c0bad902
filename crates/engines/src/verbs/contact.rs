//! First contact: two reads from a page of each peer, one of a single byte and one of a whole packet. If a path fails
//! or does not carry its MTU, this shows before anything is measured.

use std::time::{Duration, Instant};

use tonnage_sys::verbs::{WorkAction, WorkTarget};
use tonnage_units::{Error, Result};

use super::causes::{state_name, usual_cause};
use super::send_queue::{SILENT, send_id};
use super::worker::{Worker, own_request};

/// Time limit for a peer's answer. A queue pair fails sooner, unless its retries are unlimited.
const DEADLINE: Duration = Duration::from_secs(30);

/// Kind of a tag: the read of one byte.
const BYTE: u32 = 1;
/// Kind of a tag: the read of one packet.
const PACKET: u32 = 2;

/// Tag of an operation of first contact: its kind and the index of the peer. The index is needed because a DC initiator
/// has several peers.
fn tag(kind: u32, peer: usize) -> u32 {
    kind | (peer as u32) << 2
}

/// Returns a tag's kind and index of the peer. Kind 0 is a write that closes a queue.
fn parse_tag(tag: u32) -> (u32, usize) {
    (tag & 3, (tag >> 2) as usize)
}

/// Tag of a write that closes a queue. The write goes to this peer.
pub(super) fn closing_tag(peer: usize) -> u32 {
    tag(0, peer)
}

/// Name of first contact in errors.
const CONTACT: &str = "first contact";

impl Worker {
    /// Reads from every peer that was connected since the last call, and waits until all peers have answered.
    pub(super) fn first_contact(&mut self, stopped: &dyn Fn() -> bool) -> Result<()> {
        let mut fresh = Vec::new();
        for at in self.peers.unmet() {
            for place in self.peers.at(at).places() {
                // Peers may share a DC initiator, so its queue may be full.
                self.wait_for(place, self.send_depth.saturating_sub(2), stopped)?;
                self.read_page(at, place)?;
                fresh.push(place);
            }
        }
        for place in fresh {
            self.wait_for(place, 0, stopped)?;
        }
        self.peers.note_met();
        Ok(())
    }

    /// Waits until a queue pair has at most `left` work requests in flight.
    fn wait_for(&mut self, place: usize, left: u32, stopped: &dyn Fn() -> bool) -> Result<()> {
        let began = Instant::now();
        while self.peers.pair(place).sends.in_flight() > left {
            if stopped() {
                return Err(Error::Failed("the run was stopped".into()));
            }
            if began.elapsed() > DEADLINE {
                let why = format!("no answer within {} s", DEADLINE.as_secs());
                let oldest = self.peers.pair(place).sends.oldest();
                let (_, peer) = parse_tag(oldest.map_or(0, |oldest| oldest.tag));
                return Err(self.own_failure(CONTACT, (place, peer), &why, None));
            }
            self.take_silently()?;
        }
        Ok(())
    }

    fn read_page(&mut self, peer: usize, place: usize) -> Result<()> {
        let Some(remote) = self.peers.at(peer).mailbox.clone() else {
            let rank = self.peers.at(peer).rank;
            return Err(Error::Failed(format!(
                "rank {rank} was not connected before first contact"
            )));
        };
        let target = WorkTarget {
            action: WorkAction::Read,
            pair: self.peers.pair(place).handle,
            local: self.memories.contact(),
            remote,
            inline_bytes_max: 0,
            address: self.peers.at(peer).address,
        };
        let packet = self.peers.at(peer).mtu.clamp(1, PAGE as u32);
        for (kind, len) in [(BYTE, 1), (PACKET, packet)] {
            let tag = tag(kind, peer);
            let (number, _) = self.peers.pair_mut(place).sends.push(SILENT, tag, len, 1);
            let request = own_request(send_id(place, number), 0, len);
            let staged = self.queues.stage(&target, &request);
            staged.map_err(|why| self.port.about(why))?;
        }
        self.queues.ring().map_err(|why| self.port.about(why))
    }

    /// The error of an operation that the engine itself posted: for first contact, or to close a queue.
    #[cold]
    pub(super) fn silent_failure(&self, place: usize, tag: u32, failure: (u32, u32)) -> Error {
        let (state, vendor) = failure;
        let name = state_name(state);
        let (kind, peer) = parse_tag(tag);
        let at = (place, peer);
        let vendor = format!("{name} ({state}), vendor code {vendor:#x}");
        if kind == PACKET && name == "RETRY_EXC_ERR" {
            let mtu = self.peers.all().get(peer).map_or(0, |peer| peer.mtu);
            let why = format!(
                "a read of 1 B completed, but one of {mtu} B did not ({vendor}): the path does not carry packets of \
                 that size; choose engine-option mtu={} or give every switch and interface on it a larger MTU",
                (mtu / 2).max(256)
            );
            return self.own_failure(CONTACT, at, &why, None);
        }
        let what = match kind {
            BYTE | PACKET => CONTACT,
            _ => "a write without a byte, which ends unsignalled operations,",
        };
        self.own_failure(what, at, &vendor, usual_cause(name))
    }

    fn own_failure(
        &self,
        what: &str,
        (place, peer): (usize, usize),
        why: &str,
        cause: Option<&str>,
    ) -> Error {
        let pair = self.peers.pair(place);
        let peer = self.peers.all().get(peer);
        let device = peer.map_or("an unknown device", |peer| peer.device.as_str());
        let rank = peer.map_or(pair.peer, |peer| peer.rank);
        let cause = cause.map_or_else(String::new, |cause| format!("; usual cause: {cause}"));
        Error::Failed(format!(
            "{}: {what} of rank {} at {} with rank {rank} at {device}, queue pair {}: {why}{cause}{}",
            self.port.engine(),
            self.config.rank,
            self.port.in_words(),
            pair.number,
            self.port.events()
        ))
    }
}

/// Number of bytes that peers may read, at most one packet. A second part of the page, of the same size, stores the
/// bytes that this worker reads.
pub(super) const PAGE: usize = 4096;

/// Offset where the engine's own reads are stored: reads of flushes and of first contact.
pub(super) const SCRATCH: u64 = PAGE as u64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_has_the_kind_and_the_peer() {
        for (kind, peer) in [(BYTE, 0), (PACKET, 77), (BYTE, 1 << 20)] {
            assert_eq!(parse_tag(tag(kind, peer)), (kind, peer));
        }
        assert_eq!(parse_tag(closing_tag(5)), (0, 5));
    }
}
