//! The engine that a worker drives during a point: its own, the library over it, or what compares every operation.

use std::sync::Arc;

use super::layout::SliceLayout;
use super::verify::{is_signalled, worker_seed};
use crate::loop_parameters::posting;
use crate::opening::engine::EngineWorker;
use tonnage_engine::{Engine, Peer};
use tonnage_loops::each::{Compared, EachEngine};
use tonnage_loops::library::{GatheredRoom, LibraryCalls, LibraryEngine, TakenOver};
use tonnage_plan::transfer::{BatchCall, Pacing, TransferPoint};
use tonnage_units::{Error, Result};

/// The engine that a worker drives, on the worker's own thread, which the library does not leave.
pub enum Driven {
    /// The worker's own.
    Own(Box<dyn Engine + Send>),
    /// The library over it.
    Library(Box<LibraryEngine>),
    /// What compares every operation, over it.
    Each(Box<EachEngine>),
}

/// Returns whether an engine's operations are compared one by one. Answers of atomic operations are kept and checked
/// one by one anyway.
pub(crate) fn compares_each(point: &TransferPoint) -> bool {
    point.verify.is_each() && !point.op.is_atomic()
}

impl Driven {
    /// Takes a worker's engine for a point, until [`Self::end`].
    pub fn begin(
        point: &TransferPoint,
        (rank, index): (Peer, u32),
        worker: &mut EngineWorker,
    ) -> Result<Self> {
        let gone = || Error::Failed("an earlier point left this worker's engine unusable".into());
        let engine = worker.engine.take().ok_or_else(gone)?;
        if compares_each(point) {
            let mail = worker.mail.take().ok_or_else(gone)?;
            let compared = Compared {
                memory: Arc::clone(&worker.memory),
                caps: worker.caps,
                rank,
                verb: point.op,
                peers: &SliceLayout::new(point, rank).peers(),
                depth: point.depth(),
                seed: worker_seed(point, index),
                is_signalled: is_signalled(point),
            };
            return Ok(Self::Each(Box::new(EachEngine::over(
                engine, mail, compared,
            )?)));
        }
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
        let takes_batches =
            matches!(point.pacing, Pacing::Batch { .. }) && point.batching.call == BatchCall::One;
        let calls = LibraryCalls {
            posting: posting(point.api, session),
            gathers: takes_batches.then(|| GatheredRoom {
                batches: point.batching.in_flight,
                operations: point.batch_share_max(),
            }),
        };
        Ok(Self::Library(Box::new(LibraryEngine::over(taken, calls))))
    }

    pub fn engine(&mut self) -> &mut dyn Engine {
        match self {
            Self::Own(engine) => engine.as_mut(),
            Self::Library(engine) => engine.as_mut(),
            Self::Each(engine) => engine.as_mut(),
        }
    }

    /// Gives the engine back. One under the library or under comparisons is closed instead if operations are still in
    /// flight.
    pub fn end(self, worker: &mut EngineWorker) {
        worker.engine = match self {
            Self::Own(engine) => Some(engine),
            Self::Library(engine) => engine.into_engine(),
            Self::Each(each) => each.into_parts().map(|(engine, mail)| {
                worker.mail = Some(mail);
                engine
            }),
        };
    }
}
