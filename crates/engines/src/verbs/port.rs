//! One open port of a device, which its workers share.

use tonnage_sys::verbs::DeviceLimits;

use super::choose::ChosenPort;
use super::cm_port::CmPort;
use super::options::{Asked, INLINE_USUAL};

/// An open port, which its workers share.
pub(super) struct OpenPort {
    pub(super) chosen: ChosenPort,
    pub(super) asked: Asked,
    pub(super) limits: DeviceLimits,
    /// Library and address of rdma_cm; `None` where it does not connect.
    pub(super) cm: Option<CmPort>,
    /// Queue pairs to each peer: whether each has to have receives ready.
    pub(super) receives: Vec<bool>,
    /// True when the first of them uses up receives by writes with an immediate.
    pub(super) immediates: bool,
    /// True where peers may change words in one step.
    pub(super) atomics: bool,
}

impl OpenPort {
    pub(super) fn number(&self) -> u8 {
        self.chosen.port.number
    }

    /// Device and port, and the address that packets carry, in words.
    pub(super) fn in_words(&self) -> String {
        let (name, number) = (self.chosen.context.name(), self.number());
        match &self.chosen.gid {
            Some(gid) => format!("{name}:{number} ({})", gid.ip()),
            None => format!("{name}:{number}"),
        }
    }

    /// Trouble that the device has told of since it was asked last, in words that go behind others; empty without any.
    pub(super) fn events(&self) -> String {
        match self.chosen.context.take_events().as_slice() {
            [] => String::new(),
            events => format!("; the device reports: {}", events.join(", ")),
        }
    }

    pub(super) fn mtu(&self) -> u32 {
        self.asked.mtu.unwrap_or(self.chosen.port.mtu)
    }

    pub(super) fn gid(&self) -> Option<[u8; 16]> {
        self.chosen.gid.as_ref().map(|gid| gid.address.octets())
    }

    /// Reads that this side would have in flight.
    pub(super) fn reads(&self) -> u8 {
        let device = self.limits.reads_as_initiator;
        self.asked.reads.map_or(device, |asked| asked.min(device))
    }

    /// Payloads that are asked to fit into a work request.
    pub(super) fn inline_bytes(&self) -> u32 {
        self.asked.inline_bytes.unwrap_or(INLINE_USUAL)
    }

    /// Every so many operations of a queue pair one is signalled: at least two in a window, so that there is always one
    /// that tells of the others' end.
    pub(super) fn signal(&self, window: u32, send_depth: u32) -> u32 {
        let most = window.min(send_depth).div_ceil(2).max(1);
        self.asked.signal.min(most)
    }

    /// Work requests of a send queue for a window.
    pub(super) fn send_depth(&self, window: u32) -> u32 {
        // Operations of several lanes, and what the engine does by itself.
        let wanted = window.saturating_mul(2).saturating_add(8).max(32);
        let depth = self.asked.send_depth.unwrap_or(wanted);
        depth.clamp(2, self.limits.work_requests.max(2))
    }
}
