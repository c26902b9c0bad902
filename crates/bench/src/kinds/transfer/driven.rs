//! The engine that a worker drives during a point: its own, or the library over it.

use super::layout::SliceLayout;
use crate::library::{GatheredRoom, LibraryCalls, LibraryEngine, TakenOver};
use crate::opening::engine::EngineWorker;
use tonnage_engine::{Engine, Peer};
use tonnage_plan::transfer::{BatchCall, Pacing, TransferPoint};
use tonnage_units::{Error, Result};

/// The engine that a worker drives, on the worker's own thread, which the library does not leave.
pub enum Driven {
    /// The worker's own.
    Own(Box<dyn Engine + Send>),
    /// The library over it.
    Library(Box<LibraryEngine>),
}

/// Room for batches that the library takes in one call.
fn gathers(point: &TransferPoint) -> Option<GatheredRoom> {
    let one = matches!(point.pacing, Pacing::Batch { .. }) && point.batching.call == BatchCall::One;
    one.then(|| GatheredRoom {
        batches: point.batching.in_flight,
        operations: point.batch_share_max(),
    })
}

impl Driven {
    /// Takes a worker's engine for a point, until [`Self::end`].
    ///
    /// # Errors
    /// When an earlier point did not give it back.
    pub fn begin(point: &TransferPoint, rank: Peer, worker: &mut EngineWorker) -> Result<Self> {
        let gone = || Error::Failed("an earlier point left this worker's engine unusable".into());
        let engine = worker.engine.take().ok_or_else(gone)?;
        let Some(session) = point.session else {
            return Ok(Self::Own(engine));
        };
        let bytes = |peer| (peer, SliceLayout::new(point, peer).bytes());
        let peers = SliceLayout::new(point, rank).peers();
        let peers: Vec<_> = peers.into_iter().map(bytes).collect();
        let taken = TakenOver {
            engine,
            caps: worker.caps,
            name: &point.engine,
            rank,
            memory: (&worker.memory, worker.region),
            peers: &peers,
            depth: point.depth(),
        };
        let calls = LibraryCalls {
            api: point.api,
            session,
            gathers: gathers(point),
        };
        Ok(Self::Library(Box::new(LibraryEngine::over(taken, calls))))
    }

    /// The engine.
    pub fn engine(&mut self) -> &mut dyn Engine {
        match self {
            Self::Own(engine) => engine.as_mut(),
            Self::Library(engine) => engine.as_mut(),
        }
    }

    /// Gives the engine back, unless operations are still in flight: then it is closed.
    pub fn end(self, worker: &mut EngineWorker) {
        worker.engine = match self {
            Self::Own(engine) => Some(engine),
            Self::Library(engine) => engine.into_engine(),
        };
    }
}
