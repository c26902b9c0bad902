//! The engine that a worker drives during a point. It is the worker's own engine, the transfer library over this
//! engine, or a layer that compares every operation.

use std::sync::Arc;

use super::layout::SliceLayout;
use super::verify::{is_signalled, worker_seed};
use crate::loop_parameters::posting;
use crate::opening::engine::EngineWorker;
use tonnage_engine::{Engine, Peer};
use tonnage_loops::each::{ComparingEngine, ComparisonSetup};
use tonnage_loops::library::{AdoptedEngine, BatchCapacity, LibraryCalls, LibraryEngine};
use tonnage_plan::transfer::{CallsPerBatch, Pacing, TransferPoint};
use tonnage_units::{Error, Result};

/// The engine that a worker drives. It does not leave the worker's thread.
pub enum PointEngine {
    /// The worker's own engine, without any layer.
    Own(Box<dyn Engine + Send>),
    /// The transfer library over the worker's engine.
    Library(Box<LibraryEngine>),
    /// A layer over the worker's engine, which compares every operation.
    Each(Box<ComparingEngine>),
}

/// Returns whether a layer over the engine compares every operation. Atomic operations don't need this layer, because
/// all their answers are kept and checked.
pub(crate) fn compares_each(point: &TransferPoint) -> bool {
    point.verify.is_each() && !point.op.is_atomic()
}

impl PointEngine {
    /// Takes the engine from a worker for the duration of a point. [`Self::end`] gives it back.
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
        let takes_batches = matches!(point.pacing, Pacing::Batch { .. })
            && point.batching.call == CallsPerBatch::One;
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

    /// Gives the engine back to the worker. If the library or the comparing layer still has operations in flight, the
    /// engine is closed instead.
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
