//! An open port of a device, shared by all workers of the port.

use std::fmt::Display;
use std::sync::Mutex;

use tonnage_sys::verbs::{DeviceLimits, Gid, LinkLayer, PathTo};
use tonnage_units::lock::lock;
use tonnage_units::{Error, Result};

use super::choose::{ChosenPort, unavailable};
use super::cm_port::CmPort;
use super::dc::DcDevice;
use super::options::{Asked, INLINE_USUAL};

/// Default maximum for the queue depth of a DC initiator that peers share. It is limited because each work request
/// takes several entries of the device's queue.
const INITIATOR_DEPTH_MAX: u32 = 1024;

/// An open port, shared by all its workers.
pub(super) struct OpenPort {
    pub(super) chosen: ChosenPort,
    pub(super) asked: Asked,
    pub(super) limits: DeviceLimits,
    /// Library and address for rdma_cm; `None` if rdma_cm is not used.
    pub(super) cm: Option<CmPort>,
    /// The device's support of DC; `None` for other transports.
    pub(super) dc: Option<DcDevice>,
    /// For each queue pair to a peer, whether it needs receives.
    pub(super) receives: Vec<bool>,
    /// Whether write-imms consume receives of the first queue pair.
    pub(super) immediates: bool,
    /// Whether this rank sends its own payload: it initiates operations other than reads.
    pub(super) sends_payload: bool,
    /// Whether peers may execute atomic operations.
    pub(super) atomics: bool,
    pub(super) event_log: EventLog,
}

/// Device events since a port was opened. The library returns each event only once, but every worker of the port
/// reports all events.
#[derive(Default)]
pub(super) struct EventLog(Mutex<Vec<String>>);

impl EventLog {
    /// Adds new events, and returns all events except the first `seen`. Sets `seen` to the number of all events.
    fn update(&self, new: Vec<String>, seen: &mut usize) -> Vec<String> {
        let mut events = lock(&self.0);
        events.extend(new);
        let unseen = events.iter().skip(*seen).cloned().collect();
        *seen = events.len();
        unseen
    }
}

impl OpenPort {
    /// The engine's name, including the transport.
    pub(super) fn engine(&self) -> &'static str {
        self.asked.transport.engine()
    }

    pub(super) fn number(&self) -> u8 {
        self.chosen.port.number
    }

    /// Describes device, port, and the address that packets carry.
    pub(super) fn in_words(&self) -> String {
        let (name, number) = (self.chosen.context.name(), self.number());
        match &self.chosen.gid {
            Some(gid) => format!("{name}:{number} ({})", gid.ip()),
            None => format!("{name}:{number}"),
        }
    }

    /// The error for a failure of the device, including the events that the device has reported.
    #[cold]
    pub(super) fn about(&self, why: impl Display) -> Error {
        let (engine, at, events) = (self.engine(), self.in_words(), self.events());
        Error::Failed(format!("{engine} on {at}: {why}{events}"))
    }

    /// Device events since the port was opened, as a suffix of a message; empty if there are none.
    pub(super) fn events(&self) -> String {
        match self.unseen_events(&mut 0).as_slice() {
            [] => String::new(),
            events => format!("; the device reports: {}", events.join(", ")),
        }
    }

    /// Returns the port's device events except the first `seen`. Sets `seen` to the number of all events.
    pub(super) fn unseen_events(&self, seen: &mut usize) -> Vec<String> {
        let new = self.chosen.context.take_events();
        self.event_log.update(new, seen)
    }

    pub(super) fn mtu(&self) -> u32 {
        self.asked.mtu.unwrap_or(self.chosen.port.mtu)
    }

    pub(super) fn gid(&self) -> Option<[u8; 16]> {
        self.chosen.gid.as_ref().map(|gid| gid.address.octets())
    }

    /// The part of a path that is the same for all peers.
    pub(super) fn path(&self) -> PathTo {
        PathTo {
            port: self.number(),
            pkey_index: self.asked.pkey_index,
            mtu: self.mtu(),
            service_level: self.asked.service_level,
            traffic_class: self.asked.traffic_class,
            ..PathTo::default()
        }
    }

    /// Returns the index and value of this side's address; `None` if packets carry none.
    pub(super) fn own_gids(&self) -> Option<(u8, Gid)> {
        Some((self.gid_index()?, self.gid()?))
    }

    fn gid_index(&self) -> Option<u8> {
        let index = self.chosen.gid.as_ref()?.index;
        Some(u8::try_from(index).unwrap_or(u8::MAX))
    }

    /// Returns the index of this side's address, and the peer's address; `None` if packets carry none.
    ///
    /// # Errors
    /// If only one side's packets carry addresses, or the link layers differ.
    pub(super) fn gids_with(
        &self,
        over_ethernet: bool,
        gid: Option<Gid>,
        device: &str,
    ) -> Result<Option<(u8, Gid)>, String> {
        if (self.chosen.port.link_layer == LinkLayer::Ethernet) != over_ethernet {
            return Err(format!(
                "one device speaks InfiniBand and the other RoCE; {}",
                self.both_ends(device)
            ));
        }
        match (self.gid_index(), gid) {
            (Some(own), Some(other)) => Ok(Some((own, other))),
            (None, None) => Ok(None),
            _ => Err(format!(
                "only one side's packets carry addresses: give both sides the engine-option gid; {}",
                self.both_ends(device)
            )),
        }
    }

    /// Describes this port and the peer's.
    pub(super) fn both_ends(&self, device: &str) -> String {
        format!("this side is at {}, the other at {device}", self.in_words())
    }

    /// Refuses a device that grants less inline payload than the user asked for.
    pub(super) fn check_inline(&self, granted: u32) -> Result<()> {
        let Some(asked) = self.asked.inline_bytes.filter(|&asked| asked > granted) else {
            return Ok(());
        };
        let why = format!("inline={asked}, but {} grants {granted}", self.in_words());
        let how = format!("Choose inline=auto or at most {granted}");
        Err(unavailable(why, &how))
    }

    /// Maximum bytes of one registration.
    pub(super) fn region_bytes(&self) -> u64 {
        let device = self.limits.region_bytes;
        self.asked
            .region_bytes
            .map_or(device, |asked| asked.min(device))
    }

    /// Maximum number of reads that this side keeps in flight.
    pub(super) fn reads(&self) -> u8 {
        let device = self.limits.reads_as_initiator;
        self.asked.reads.map_or(device, |asked| asked.min(device))
    }

    /// Number of payload bytes that a work request must be able to hold inline.
    pub(super) fn inline_bytes(&self) -> u32 {
        self.asked.inline_bytes.unwrap_or(INLINE_USUAL)
    }

    /// Returns the signalling interval of a queue pair. At least two operations of a window are signalled, so that the
    /// completion of the others is always noticed.
    pub(super) fn signal(&self, window: u32, send_depth: u32) -> u32 {
        let most = window.min(send_depth).div_ceil(2).max(1);
        self.asked.signal.min(most)
    }

    /// Send-queue depth of a DC initiator, if `peers` peers share the initiators.
    pub(super) fn initiator_depth(&self, window: u32, peers: u32) -> u32 {
        let of_one = self.send_depth(window);
        match self.asked.send_depth {
            Some(_) => of_one,
            None => shared_depth(of_one, peers.div_ceil(self.asked.initiators))
                .min(self.limits.work_requests.max(2)),
        }
    }

    /// Send-queue depth needed for `window`.
    pub(super) fn send_depth(&self, window: u32) -> u32 {
        // Room for the operations of several lanes, and for operations of the engine itself.
        let wanted = window.saturating_mul(2).saturating_add(8).max(32);
        let depth = self.asked.send_depth.unwrap_or(wanted);
        depth.clamp(2, self.limits.work_requests.max(2))
    }
}

/// Depth of a queue that `peers` peers share, if each peer needs `of_one` entries.
fn shared_depth(of_one: u32, peers: u32) -> u32 {
    let all = of_one.saturating_mul(peers.max(1));
    all.min(INITIATOR_DEPTH_MAX.max(of_one))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_worker_of_a_port_reports_every_event_once() {
        let log = EventLog::default();
        let (mut first, mut second) = (0, 0);
        assert_eq!(log.update(vec!["a".into()], &mut first), ["a"]);
        assert_eq!(log.update(vec!["b".into()], &mut second), ["a", "b"]);
        assert_eq!(log.update(Vec::new(), &mut first), ["b"]);
        assert!(log.update(Vec::new(), &mut second).is_empty());
    }

    #[test]
    fn a_shared_queue_has_room_for_all_peers_up_to_a_maximum() {
        assert_eq!(shared_depth(32, 0), 32);
        assert_eq!(shared_depth(32, 8), 256);
        assert_eq!(shared_depth(32, 1 << 30), INITIATOR_DEPTH_MAX);
        assert_eq!(shared_depth(8200, 8), 8200);
    }
}
