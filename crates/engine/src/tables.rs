//! Tables of the lanes and registered memories that an engine identifies by numbers.

use std::collections::{BTreeMap, VecDeque};

use tonnage_units::{Error, Result};

use crate::{Completion, Lane, Peer, RegionId};

/// The lanes of a worker. The number of a released lane is reused.
#[derive(Debug)]
pub struct LaneTable<T>(Vec<Option<T>>);

impl<T> Default for LaneTable<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> LaneTable<T> {
    /// A resolved lane.
    ///
    /// # Errors
    /// If the lane was never resolved, or has been released.
    #[inline]
    pub fn get(&self, lane: Lane) -> Result<&T> {
        self.peek(lane).ok_or_else(|| never_resolved(lane))
    }

    /// A lane, or `None` if it has been released.
    #[inline]
    pub fn peek(&self, lane: Lane) -> Option<&T> {
        self.0.get(lane.0 as usize)?.as_ref()
    }

    /// Like [`Self::peek`], but mutable.
    #[inline]
    pub fn peek_mut(&mut self, lane: Lane) -> Option<&mut T> {
        self.0.get_mut(lane.0 as usize)?.as_mut()
    }

    /// Like [`Self::get`], but mutable.
    ///
    /// # Errors
    /// If the lane was never resolved, or has been released.
    #[inline]
    pub fn get_mut(&mut self, lane: Lane) -> Result<&mut T> {
        self.peek_mut(lane).ok_or_else(|| never_resolved(lane))
    }

    /// Finds the first lane for which `fits` returns true, so that resolving a specification again returns the same
    /// lane.
    pub fn find(&self, fits: impl Fn(&T) -> bool) -> Option<Lane> {
        let fits = |lane: &Option<T>| lane.as_ref().is_some_and(&fits);
        self.0.iter().position(fits).map(|at| Lane(at as u32))
    }

    /// Adds a lane under the lowest free number.
    pub fn put(&mut self, state: T) -> Lane {
        let free = self.0.iter().position(Option::is_none);
        let at = free.unwrap_or(self.0.len());
        self.0.resize_with(self.0.len().max(at + 1), || None);
        self.0[at] = Some(state);
        Lane(at as u32)
    }

    /// Removes a lane and returns its state; `None` if it does not exist.
    pub fn release(&mut self, lane: Lane) -> Option<T> {
        self.0.get_mut(lane.0 as usize)?.take()
    }

    /// Releases all lanes.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// All lanes.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().flatten()
    }

    /// All lanes with their numbers, mutable.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Lane, &mut T)> {
        let all = (0..).map(Lane).zip(&mut self.0);
        all.filter_map(|(lane, state)| Some((lane, state.as_mut()?)))
    }

    /// Checks that no lane uses a region, so that the region can be deregistered.
    ///
    /// # Errors
    /// If a lane uses the region.
    pub fn check_unused(&self, region: RegionId, region_of: impl Fn(&T) -> RegionId) -> Result<()> {
        if !self.iter().any(|lane| region_of(lane) == region) {
            return Ok(());
        }
        let text = format!("region {} has lanes that were not released", region.0);
        Err(Error::Failed(text))
    }
}

#[cold]
fn never_resolved(lane: Lane) -> Error {
    Error::Failed(format!("lane {} was never resolved", lane.0))
}

/// The registered memories of a worker. Numbers are never reused.
#[derive(Debug)]
pub struct RegionTable<T> {
    known: BTreeMap<u32, T>,
    next: u32,
}

impl<T> Default for RegionTable<T> {
    fn default() -> Self {
        Self {
            known: BTreeMap::new(),
            next: 0,
        }
    }
}

impl<T> RegionTable<T> {
    /// The number that the next registration will get.
    pub fn next(&self) -> RegionId {
        RegionId(self.next)
    }

    /// Stores a registration under [`Self::next`].
    pub fn put(&mut self, state: T) -> RegionId {
        let id = self.next();
        self.known.insert(id.0, state);
        self.next += 1;
        id
    }

    /// A registration.
    ///
    /// # Errors
    /// If the registration was never made, or has been undone.
    pub fn get(&self, region: RegionId) -> Result<&T> {
        let known = self.known.get(&region.0);
        known.ok_or_else(|| not_registered(region))
    }

    /// Removes a registration.
    ///
    /// # Errors
    /// If the registration was never made, or has been undone.
    pub fn take(&mut self, region: RegionId) -> Result<T> {
        let known = self.known.remove(&region.0);
        known.ok_or_else(|| not_registered(region))
    }

    /// All registrations, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (RegionId, &T)> {
        self.known.iter().map(|(&id, state)| (RegionId(id), state))
    }

    /// Number of registrations.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }
}

fn not_registered(region: RegionId) -> Error {
    Error::Failed(format!("region {} is not registered", region.0))
}

/// The error for a lane to a peer that was never connected.
pub fn never_connected(own: Peer, peer: Peer) -> Error {
    let text = format!("rank {own} was never connected to rank {peer}");
    Error::Failed(text)
}

/// Moves waiting completions into the free entries of a poll buffer, oldest first, and returns their number.
#[inline]
pub fn move_waiting(waiting: &mut VecDeque<Completion>, done: &mut [Completion]) -> usize {
    if waiting.is_empty() {
        return 0;
    }
    let count = waiting.len().min(done.len());
    for (place, completion) in done.iter_mut().zip(waiting.drain(..count)) {
        *place = completion;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lane_numbers_are_reused_and_region_numbers_are_not() {
        let mut lanes = LaneTable::default();
        assert_eq!([lanes.put('a'), lanes.put('b')], [Lane(0), Lane(1)]);
        assert_eq!(lanes.release(Lane(0)), Some('a'));
        assert_eq!(lanes.release(Lane(7)), None);
        assert!(lanes.get(Lane(0)).is_err() && lanes.get_mut(Lane(7)).is_err());
        assert_eq!(lanes.put('c'), Lane(0));
        assert_eq!(lanes.find(|&it| it == 'b'), Some(Lane(1)));
        assert!(lanes.check_unused(RegionId(3), |_| RegionId(3)).is_err());
        let mut regions = RegionTable::default();
        assert_eq!(regions.put('a'), RegionId(0));
        assert_eq!(regions.take(RegionId(0)).unwrap(), 'a');
        assert!(regions.get(RegionId(0)).is_err() && regions.take(RegionId(0)).is_err());
        assert_eq!(regions.put('b'), RegionId(1));
    }
}
