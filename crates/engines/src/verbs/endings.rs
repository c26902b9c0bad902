//! Completions of the library as those of the engine: work requests that have ended, and what has arrived.

use tonnage_engine::{Completion, Ending, Lane, LaneKind};
use tonnage_sys::verbs::WorkEvent;
use tonnage_units::Result;

use super::causes::state_name;
use super::lanes::VerbsLane;
use super::send_queue::{EndedWork, IMMEDIATE, SILENT};
use super::worker::VerbsWorker;

/// Receives for writes with an immediate that are posted again at once.
const POSTED_AGAIN: u32 = 16;

impl VerbsWorker {
    /// Tells of work requests that have ended, as many as fit.
    #[inline]
    pub(super) fn tell(&mut self, ended: EndedWork, done: &mut [Completion]) -> usize {
        let mut count = 0;
        // What shared a work request has failed with it, and nothing tells what else ended with it and did not.
        let all_failed = self.port.asked.stretches > 1;
        while count < done.len() {
            let pair = &mut self.pairs[ended.pair];
            let Some((pending, is_last)) = pair.sends.pop(ended.last) else {
                self.ended = None;
                return count;
            };
            let failure = ended.failure.filter(|_| is_last || all_failed);
            if pending.lane == SILENT {
                if let Some(failure) = failure
                    && self.pairs[ended.pair].broken.is_none()
                {
                    // Told by the next poll: what this one has found is not lost.
                    let error = self.silent_failure(ended.pair, pending.tag, failure);
                    self.pairs[ended.pair].broken = Some(failure);
                    self.dead = Some(error.to_string());
                }
                continue;
            }
            let lane = Lane(pending.lane);
            let ending = match failure {
                None => Ending::Done,
                Some(failure) => self.note_failure(ended.pair, lane, failure),
            };
            done[count] = Completion {
                tag: pending.tag,
                lane,
                len: pending.len,
                imm: 0,
                ending,
            };
            count += 1;
            if is_last {
                self.ended = None;
                return count;
            }
        }
        count
    }

    #[cold]
    fn note_failure(&mut self, pair: usize, lane: Lane, failure: (u32, u32)) -> Ending {
        if self.pairs[pair].broken.is_none()
            && let Some(Some(lane)) = self.lanes.get(lane.0 as usize)
        {
            self.pairs[pair].peer = lane.asked.peer;
        }
        // What fails behind another operation of its queue pair fails for the same reason.
        let first = *self.pairs[pair].broken.get_or_insert(failure);
        Ending::Failed(first.0 as i32)
    }

    /// A receive that was filled or used up; `None` for what nobody is told of.
    #[inline]
    pub(super) fn arrived(&mut self, event: WorkEvent) -> Result<Option<Completion>> {
        let id = event.id();
        if let Some(state) = event.failure() {
            return self.receive_failed(id, (state, event.vendor_code()));
        }
        if id & IMMEDIATE != 0 {
            let place = id as u32 as usize;
            let pair = &mut self.pairs[place];
            let peer = pair.peer;
            pair.used_up += 1;
            if pair.used_up >= POSTED_AGAIN.min(self.receive_depth.div_ceil(2)) {
                let (handle, count) = (pair.handle, std::mem::take(&mut pair.used_up));
                let again = self.queues.receive_immediates(handle, count as usize, id);
                again.map_err(|why| self.about_device(why))?;
            }
            return Ok(Some(Completion {
                tag: 0,
                lane: Lane(peer),
                len: event.len(),
                imm: event.immediate().unwrap_or(0),
                ending: Ending::Arrived,
            }));
        }
        let pair = &mut self.pairs[place_of(id)];
        pair.receives_posted = pair.receives_posted.saturating_sub(1);
        Ok(Some(Completion {
            tag: id as u32,
            lane: Lane(pair.peer),
            len: event.len(),
            imm: 0,
            ending: Ending::Arrived,
        }))
    }

    #[cold]
    fn receive_failed(&mut self, id: u64, failure: (u32, u32)) -> Result<Option<Completion>> {
        let name = state_name(failure.0);
        // The queue pair has failed before, at its other end too: that end says why.
        if name == "WR_FLUSH_ERR" {
            return Ok(None);
        }
        if id & IMMEDIATE != 0 {
            let why = format!("a receive for a write-imm failed: {name} ({})", failure.0);
            return Err(self.about_device(why));
        }
        let place = place_of(id);
        let of_pair = |lane: &Option<VerbsLane>| {
            lane.as_ref()
                .is_some_and(|lane| lane.pair == place && lane.asked.kind == LaneKind::Receive)
        };
        let lane = self.lanes.iter().position(of_pair);
        let lane = lane.map_or(Lane::UNNAMED, |lane| Lane(lane as u32));
        let ending = self.note_failure(place, lane, failure);
        Ok(Some(Completion {
            tag: id as u32,
            lane,
            len: 0,
            imm: 0,
            ending,
        }))
    }
}

/// Place of the queue pair of a receive.
#[inline]
fn place_of(id: u64) -> usize {
    (id >> 32) as usize & 0x3fff_ffff
}
