//! Taking over an engine that was used before: its peers and its registrations, for programs that open, register and
//! connect in a way of their own.

use std::sync::Arc;

use tonnage_engine::memory::Memory;
use tonnage_engine::{Peer, Region};

use crate::endpoint::TransferEndpoint;
use crate::error::TransferResult;
use crate::memory::LocalMemory;
use crate::state::KnownPeer;

impl TransferEndpoint {
    /// Takes over peers that the engine has connected to, and met, before it became an endpoint's. Their processes are
    /// not watched: whoever connected them may know how.
    pub fn adopt_peers(&self, peers: impl IntoIterator<Item = Peer>) {
        let mut state = self.cell().borrow();
        for peer in peers {
            let known = KnownPeer {
                place: None,
                met: true,
            };
            state.peers.entry(peer).or_insert(known);
        }
    }

    /// Takes over memory that was registered with the engine before. It stays registered when this is dropped, and when
    /// [`Self::into_parts`] gives the engine back.
    pub fn adopt_memory(&self, memory: Arc<dyn Memory>, region: Region) -> LocalMemory {
        let index = self
            .cell()
            .borrow()
            .adopt_region(Arc::clone(&memory), region);
        LocalMemory::new(self.cell().clone(), index, memory)
    }

    /// Says how long the write-imms are that a peer sends from now on, for an engine that cuts them
    /// ([`Engine::expect`](tonnage_engine::Engine::expect)); `None` when it sends no more.
    ///
    /// # Errors
    /// When the engine could not tell whose parts arrive, or some have arrived only in part.
    pub fn expect(&self, peer: Peer, bytes: Option<u32>) -> TransferResult<()> {
        self.cell().borrow().expect(peer, bytes)
    }
}
