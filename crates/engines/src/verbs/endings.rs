//! Completions of the library as those of the engine: work requests that have ended, and what has arrived.

use tonnage_engine::{Completion, Ending, Lane};
use tonnage_sys::verbs::WorkEvent;
use tonnage_units::Result;

use super::causes::{ToldFailure, state_name};
use super::send_queue::{EndedWork, IMMEDIATE, SILENT};
use super::worker::VerbsWorker;

/// Receives for writes with an immediate that are posted again at once.
const POSTED_AGAIN: u32 = 16;

impl VerbsWorker {
    /// Tells of work requests that have ended, as many as fit.
    #[inline]
    pub(super) fn tell(&mut self, ended: EndedWork, done: &mut [Completion]) -> Result<usize> {
        let mut count = 0;
        while count < done.len() {
            let pair = &mut self.pairs[ended.pair];
            let Some((pending, is_last)) = pair.sends.pop(ended.last) else {
                self.ended = None;
                return Ok(count);
            };
            let failure = ended.failure.filter(|_| is_last);
            if pending.lane == SILENT {
                match failure {
                    Some(failure) => {
                        return Err(self.silent_failure(ended.pair, pending.tag, failure));
                    }
                    None => continue,
                }
            }
            let lane = Lane(pending.lane);
            let ending = match failure {
                None => Ending::Done,
                Some(failure) => self.note_failure(lane, ended.pair, failure),
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
                return Ok(count);
            }
        }
        Ok(count)
    }

    #[cold]
    fn note_failure(&mut self, lane: Lane, pair: usize, failure: (u32, u32)) -> Ending {
        let first = *self.pairs[pair].broken.get_or_insert(failure);
        self.told = Some(ToldFailure {
            lane,
            pair,
            failure: first,
        });
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
        Ok(Some(Completion {
            tag: id as u32,
            lane: match self.lanes.get(lane_of(id).0 as usize) {
                Some(Some(lane)) => Lane(lane.asked.peer),
                _ => Lane::UNNAMED,
            },
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
        let lane = lane_of(id);
        let pair = self.lanes.get(lane.0 as usize).and_then(Option::as_ref);
        let pair = pair.map_or(0, |lane| lane.pair);
        let ending = self.note_failure(lane, pair, failure);
        Ok(Some(Completion {
            tag: id as u32,
            lane,
            len: 0,
            imm: 0,
            ending,
        }))
    }
}

#[inline]
fn lane_of(id: u64) -> Lane {
    Lane((id >> 32) as u32 & 0x3fff_ffff)
}
