//! Memories that workers of this process have registered, by the numbers in their descriptors. The registry lets the
//! initiator find the memory of a peer, which is another thread of the same process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tonnage_engine::memory::Memory;
use tonnage_engine::{Descriptor, Peer};
use tonnage_units::{Error, Result};

/// Size of a descriptor.
pub(super) const DESCRIPTOR_BYTES: usize = 12;

/// Registered memories of all workers. This table keeps the memories alive.
static REGISTERED: Mutex<Registered> = Mutex::new(Registered {
    next: 0,
    memories: BTreeMap::new(),
});

struct Registered {
    next: u64,
    memories: BTreeMap<u64, Weak<dyn Memory>>,
}

fn registered() -> MutexGuard<'static, Registered> {
    REGISTERED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A registered memory. Peers can find it until this value is dropped.
pub(super) struct CudaRegistration {
    number: u64,
    pub(super) memory: Arc<dyn Memory>,
}

impl CudaRegistration {
    pub(super) fn new(memory: &Arc<dyn Memory>) -> Self {
        let mut registered = registered();
        let number = registered.next;
        registered.next += 1;
        registered.memories.insert(number, Arc::downgrade(memory));
        Self {
            number,
            memory: Arc::clone(memory),
        }
    }

    /// Returns the descriptor: the process ID and the memory's number.
    pub(super) fn descriptor(&self) -> Descriptor {
        let process = std::process::id().to_le_bytes();
        Descriptor([&process[..], &self.number.to_le_bytes()].concat())
    }
}

impl Drop for CudaRegistration {
    fn drop(&mut self) {
        registered().memories.remove(&self.number);
    }
}

/// Finds a peer's memory. Errors contain the name of the engine.
///
/// # Errors
/// `Unavailable` for memory of another process; `Failed` for memory that is not registered.
pub(super) fn find(engine: &str, descriptor: &Descriptor, peer: Peer) -> Result<Arc<dyn Memory>> {
    let unknown = || Error::Failed(format!("{engine}: rank {peer} has no such memory"));
    let (process, number) = descriptor.0.split_first_chunk::<4>().ok_or_else(unknown)?;
    if u32::from_le_bytes(*process) != std::process::id() {
        return Err(Error::Unavailable {
            what: format!("engine {engine} with rank {peer}"),
            why: "it copies within one process, but that rank is another process".to_owned(),
            how: "Choose an engine that works between processes".to_owned(),
        });
    }
    let number = number.try_into().map(u64::from_le_bytes);
    let number = number.map_err(|_| unknown())?;
    let memory = registered().memories.get(&number).and_then(Weak::upgrade);
    memory.ok_or_else(unknown)
}
