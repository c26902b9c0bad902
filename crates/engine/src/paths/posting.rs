//! The way of an operation into the engines of its paths: cut into parts, staged, handed over where there is room.

use tonnage_units::Result;

use super::lanes::{LanePath, PathLane, never_resolved};
use super::path::Path;
use super::worker::PathsWorker;
use crate::Op;

impl PathsWorker {
    /// Cuts an operation and stages its parts; returns whether there was room.
    #[inline]
    pub(super) fn stage(&mut self, op: &Op) -> Result<bool> {
        let lane = match self.lanes.get_mut(op.lane.0 as usize) {
            Some(Some(lane)) => lane,
            _ => return Err(never_resolved(op.lane)),
        };
        let parts = lane.shares.parts(op.len);
        if lane.staged + parts as usize > self.staged_max {
            return Ok(false);
        }
        let Some(tag) = self
            .in_flight
            .begin((op.lane, op.tag), op.len, op.imm, parts)
        else {
            return Ok(false);
        };
        if parts == 1 {
            let LanePath { path, lane, .. } = lane.next_way(0);
            self.paths[path].staged.push(Op { lane, tag, ..*op });
        } else {
            stage_parts(&mut self.paths, lane, &Op { tag, ..*op });
        }
        lane.staged += parts as usize;
        self.staged += parts as usize;
        Ok(true)
    }

    /// Counts a poll for each rail that has something in flight: how long it was busy, without a clock.
    #[inline]
    pub(super) fn count_busy(&mut self) {
        let (mut any, queue_pairs) = (false, self.division.queue_pairs as usize);
        for (rail, paths) in self.rails.iter_mut().zip(self.paths.chunks(queue_pairs)) {
            let busy = paths.iter().any(|path| path.in_flight > 0);
            rail.busy_polls += u64::from(busy);
            any |= busy;
        }
        for rail in &mut self.rails {
            rail.polls += u64::from(any);
        }
    }

    /// Hands over what waits, as far as there is room.
    #[inline]
    pub(super) fn hand_over(&mut self) -> Result<()> {
        if self.staged > 0 {
            let (lanes, in_flight, staged) = (&mut self.lanes, &self.in_flight, &mut self.staged);
            for path in &mut self.paths {
                path.hand_over(|tag| {
                    *staged -= 1;
                    let lane = in_flight
                        .lane_of(tag)
                        .and_then(|lane| lanes.get_mut(lane.0 as usize));
                    let Some(Some(lane)) = lane else {
                        return false;
                    };
                    lane.staged -= 1;
                    lane.counts
                })?;
            }
        }
        Ok(())
    }
}

/// Stages the parts of an operation, share by share, each on its rail.
fn stage_parts(paths: &mut [Path], lane: &mut PathLane, op: &Op) {
    let shares = lane.shares;
    let share_bytes = shares.share_bytes(op.len);
    let (mut rail, mut offset) = (0, 0);
    while offset < op.len {
        let end = offset + share_bytes.min(op.len - offset);
        let (_, bytes) = shares.parts_of_share(end - offset);
        while offset < end {
            let way = lane.next_way(rail);
            let len = bytes.min(end - offset);
            paths[way.path].staged.push(Op {
                lane: way.lane,
                local: op.local + u64::from(offset),
                remote: op.remote + u64::from(offset),
                len,
                ..*op
            });
            offset += len;
        }
        rail += 1;
    }
}
