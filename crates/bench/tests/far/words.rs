//! Atomic operations of the lying engine: under one lock for all of its ranks.

use std::sync::{Mutex, PoisonError};

use tonnage_engine::memory::Memory;
use tonnage_engine::{Op, Verb};
use tonnage_units::Result;

use super::lie::Lie;

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Changes a word. The lies: an old value that was another's, one that does not come, another word, no change at all.
pub fn change(
    op: &Op,
    verb: Verb,
    lie: Option<Lie>,
    far: &dyn Memory,
    own: &dyn Memory,
) -> Result<()> {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let elsewhere = matches!(lie, Some(Lie::Elsewhere | Lie::Swap));
    let at = op.remote + if elsewhere { 64 } else { 0 };
    let old = word(far, at)?;
    let (new, landing) = if verb == Verb::FetchAdd {
        (old + u64::from(op.imm), op.local)
    } else {
        let [expected, new] = [word(own, op.local)?, word(own, op.local + 8)?];
        (if old == expected { new } else { old }, op.local + 16)
    };
    if lie != Some(Lie::FlipAll) {
        far.write(at, &new.to_ne_bytes())?;
    }
    let told = old ^ u64::from(lie == Some(Lie::Flip));
    if lie != Some(Lie::Truncate) {
        own.write(landing, &told.to_ne_bytes())?;
    }
    Ok(())
}

fn word(memory: &dyn Memory, offset: u64) -> Result<u64> {
    let mut bytes = [0; 8];
    memory.read(offset, &mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}
