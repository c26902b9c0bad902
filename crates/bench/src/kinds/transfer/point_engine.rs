//! The engine that a worker drives during a point: its own, the transfer library over it, or the layer that compares
//! every operation.

use std::sync::Arc;

use super::layout::SliceLayout;
use super::verify::{is_signalled, worker_seed};
use crate::loop_parameters::posting;
use crate::opening::engine::EngineWorker;
use tonnage_engine::{Engine, Peer};
use tonnage_loops::each::{ComparingEngine, ComparisonSetup};
use tonnage_loops::library::{AdoptedEngine, BatchCapacity, LibraryCalls, LibraryEngine};
use tonnage_plan::transfer::{BatchCall, Pacing, TransferPoint};
use tonnage_units::{Error, Result};

/// The engine that a worker drives. It stays on the worker's own thread.
pub enum PointEngine {
    /// The worker's engine without a layer.
    Own(Box<dyn Engine + Send>),
    /// The transfer library over the worker's engine.
    Library(Box<LibraryEngine>),
    /// The layer over the worker's engine that compares every operation.
    Each(Box<ComparingEngine>),
}

/// Whether a layer over the engine compares every operation. Atomic operations don't need it: their answers are always
/// kept and checked one by one.
pub(crate) fn compares_each(point: &TransferPoint) -> bool {
    point.verify.is_each() && !point.op.is_atomic()
}

impl PointEngine {
    /// Takes a worker's engine for a point; [`Self::end`] returns it.
    pub fn begin(
        point: &TransferPoint,
        (rank, index): (Peer, u32),
        worker: &mut EngineWorker,
    ) -> Result<Self> {
        let gone = || Error::Failed("an earlier point left this thread's engine unusable".into());
        let engine = worker.engine.take().ok_or_else(gone)?;
        if compares_each(point) {
            let mail = worker.mail.take().ok_or_else(gone)?;
            let compared = ComparisonSetup {
                memory: Arc::clone(&worker.memory),
                caps: worker.caps,
                rank,
                verb: point.op,
                peers: &SliceLayout::new(point, rank).peers(),
                depth: point.depth(),
                seed: worker_seed(point, index),
                is_signalled: is_signalled(point),
            };
            return Ok(Self::Each(Box::new(ComparingEngine::new(
                engine, mail, compared,
            )?)));
        }
        let Some(session) = point.session else {
            return Ok(Self::Own(engine));
        };
        let bytes = |peer| (peer, SliceLayout::new(point, peer).bytes());
        let peers = SliceLayout::new(point, rank).peers();
        let peers: Vec<_> = peers.into_iter().map(bytes).collect();
        let taken = AdoptedEngine {
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
            gathers: takes_batches.then(|| BatchCapacity {
                batches: point.batching.in_flight,
                operations: point.batch_share_max(),
            }),
        };
        Ok(Self::Library(Box::new(LibraryEngine::adopt(taken, calls))))
    }

    pub fn engine(&mut self) -> &mut dyn Engine {
        match self {
            Self::Own(engine) => engine.as_mut(),
            Self::Library(engine) => engine.as_mut(),
            Self::Each(engine) => engine.as_mut(),
        }
    }

    /// Returns the engine to the worker. If operations are still in flight under the library or the comparing layer,
    /// the engine is closed instead.
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
