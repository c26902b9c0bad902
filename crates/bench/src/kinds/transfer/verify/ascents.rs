//! Steps of words that atomic operations change, told in two numbers.

use serde::{Deserialize, Serialize};
use tonnage_engine::pattern::mix;

/// Steps by which words went up, as their initiator was told.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ascents {
    /// Number of them.
    pub count: u64,
    /// Sum over them that does not depend on their order.
    pub digest: u64,
}

impl Ascents {
    /// Adds one, from a value of the word of a slot.
    pub fn step(&mut self, slot: u64, from: u64) {
        self.count += 1;
        self.digest = self.digest.wrapping_add(mix(mix(slot) ^ from));
    }

    /// Adds others.
    pub fn add(&mut self, other: Self) {
        self.count += other.count;
        self.digest = self.digest.wrapping_add(other.digest);
    }
}
