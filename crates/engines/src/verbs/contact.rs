//! First contact: two reads of a page of each peer, one of a byte and one of a whole packet, so that what does not pass
//! is known by name before anything is timed.

use std::time::{Duration, Instant};

use tonnage_sys::verbs::{WorkAction, WorkRequest, WorkTarget};
use tonnage_units::{Error, Result};

use super::causes::{state_name, usual_cause};
use super::page::{PAGE, SCRATCH};
use super::send_queue::{SILENT, send_id};
use super::worker::VerbsWorker;

/// Time until a peer that does not answer is a failure; a queue pair gives up sooner, unless it was told to try
/// forever.
const DEADLINE: Duration = Duration::from_secs(30);

/// Tag of the read of a byte.
const BYTE: u32 = 1;
/// Tag of the read of a packet.
const PACKET: u32 = 2;

/// First contact in words.
const CONTACT: &str = "first contact";

impl VerbsWorker {
    /// Reads from every peer that was connected since the last call, and waits until all have answered.
    pub(super) fn first_contact(&mut self, stopped: &dyn Fn() -> bool) -> Result<()> {
        let mut fresh = Vec::new();
        for at in self.met..self.peers.len() {
            for place in self.places_of(at) {
                self.read_page(at, place)?;
                fresh.push(place);
            }
        }
        let began = Instant::now();
        loop {
            let silent = fresh
                .iter()
                .find(|&&place| self.pairs[place].sends.in_flight() > 0);
            let Some(&place) = silent else {
                self.met = self.peers.len();
                return Ok(());
            };
            if stopped() {
                return Err(Error::Failed("the run was stopped".into()));
            }
            if began.elapsed() > DEADLINE {
                let seconds = DEADLINE.as_secs();
                let why = format!("no answer within {seconds} s");
                return Err(self.own_failure(CONTACT, place, &why, None));
            }
            self.take_silently()?;
        }
    }

    fn places_of(&self, peer: usize) -> Vec<usize> {
        let mut places = vec![self.peers[peer].one_sided, self.peers[peer].messages];
        places.dedup();
        places
    }

    fn read_page(&mut self, peer: usize, place: usize) -> Result<()> {
        let Some(remote) = self.peers[peer].mailbox else {
            let rank = self.peers[peer].rank;
            return Err(Error::Failed(format!(
                "rank {rank} was not connected before first contact"
            )));
        };
        let target = WorkTarget {
            action: WorkAction::Read,
            pair: self.pairs[place].handle,
            local: self.contact_region,
            remote,
            inline_bytes_max: 0,
        };
        let packet = self.peers[peer].mtu.clamp(1, PAGE as u32);
        for (tag, len) in [(BYTE, 1), (PACKET, packet)] {
            let (number, _) = self.pairs[place].sends.push(SILENT, tag, len, 1);
            let request = WorkRequest {
                id: send_id(place, number),
                local: SCRATCH,
                remote: 0,
                len,
                imm: 0,
                signalled: true,
            };
            let staged = self.queues.stage(&target, &request);
            staged.map_err(|why| self.about_device(why))?;
        }
        self.queues.ring().map_err(|why| self.about_device(why))
    }

    /// The failure of what the engine did by itself: first contact, or closing a queue.
    #[cold]
    pub(super) fn silent_failure(&self, place: usize, tag: u32, failure: (u32, u32)) -> Error {
        let (state, vendor) = failure;
        let name = state_name(state);
        let vendor = format!("{name} ({state}), vendor code {vendor:#x}");
        if tag == PACKET && name == "RETRY_EXC_ERR" {
            let rank = self.pairs[place].peer;
            let peer = self.peers.iter().find(|peer| peer.rank == rank);
            let mtu = peer.map_or(0, |peer| peer.mtu);
            let why = format!(
                "a read of 1 B came back, and one of {mtu} B did not ({vendor}): the path does not carry packets of that \
                 size; choose engine-option mtu={} or give every switch and interface on it a larger MTU",
                (mtu / 2).max(256)
            );
            return self.own_failure(CONTACT, place, &why, None);
        }
        let what = match tag {
            BYTE | PACKET => CONTACT,
            _ => "a write without a byte, which ends unsignalled operations,",
        };
        self.own_failure(what, place, &vendor, usual_cause(name))
    }

    fn own_failure(&self, what: &str, place: usize, why: &str, cause: Option<&str>) -> Error {
        let pair = &self.pairs[place];
        let peer = self.peers.iter().find(|peer| peer.rank == pair.peer);
        let device = peer.map_or("an unknown device", |peer| peer.device.as_str());
        let cause = cause.map_or_else(String::new, |cause| format!("; usual cause: {cause}"));
        Error::Failed(format!(
            "verbs:rc: {what} of rank {} at {} with rank {} at {device}, queue pair {}: {why}{cause}{}",
            self.config.rank,
            self.port.in_words(),
            pair.peer,
            pair.number,
            self.port.events()
        ))
    }
}
