//! Plain writes into memory of a device that have left their sender and have not landed: between a network card and a
//! GPU, until the target flushes them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tonnage_engine::memory::Memory;
use tonnage_units::Result;

/// Time that landing takes, at least.
pub const LANDING: Duration = Duration::from_millis(1);

/// The newest bytes for each region and offset.
#[derive(Default)]
pub struct HeldWrites(Mutex<BTreeMap<(u32, u64), Vec<u8>>>);

impl HeldWrites {
    fn all(&self) -> MutexGuard<'_, BTreeMap<(u32, u64), Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps bytes for a region and an offset.
    pub fn hold(&self, to: (u32, u64), from: (&dyn Memory, u64), len: u32) -> Result<()> {
        let mut bytes = vec![0; len as usize];
        from.0.read(from.1, &mut bytes)?;
        self.all().insert(to, bytes);
        Ok(())
    }

    /// Puts all of them where they belong, in no less than [`LANDING`]; returns whether there were any.
    pub fn land(&self, memory: impl Fn(u32) -> Result<Arc<dyn Memory>>) -> Result<bool> {
        let all = std::mem::take(&mut *self.all());
        let (held, began) = (!all.is_empty(), Instant::now());
        let mut all = all.into_iter();
        all.try_for_each(|((region, offset), bytes)| memory(region)?.write(offset, &bytes))?;
        while held && began.elapsed() < LANDING {}
        Ok(held)
    }
}
