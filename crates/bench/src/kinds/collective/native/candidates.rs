//! Candidates for carrying out a call. They differ in algorithm and message size, and compete in the warm-up.

use std::cell::RefCell;
use std::rc::Rc;

use tonnage_collective::steps::{Program, algorithms, check, program};
use tonnage_collective::{Algorithm, Reduction};
use tonnage_plan::collective::CollectivePoint;
use tonnage_units::Result;

/// Only calls above this size are divided into several messages. For smaller calls, one message is faster than two.
const CUT_BYTES_MIN: u64 = 64 << 10;

/// Message sizes that compete for larger calls. The smallest size is an eighth of the size of a common cache. Slower
/// paths need larger messages.
const CHUNKS: [u64; 3] = [64 << 10, 256 << 10, 1 << 20];

/// With more ranks than this, only algorithms with few peers per rank compete.
const MANY_RANKS: u32 = 64;

/// An algorithm and a message size for a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    pub algorithm: Algorithm,
    /// Maximum length of a message.
    pub chunk_bytes: u64,
}

impl Candidate {
    /// Returns the steps of the rank with index `place` in its group, in a call of the point.
    pub fn program(&self, point: &CollectivePoint, place: u32) -> Result<Program> {
        program(
            &point.shape(),
            point.reduction.unwrap_or(Reduction::Sum),
            self.algorithm,
            place,
            self.chunk_bytes,
            point.in_place,
        )
    }
}

/// Number of candidates that are kept per call. A slightly slower candidate may be the fastest a minute later.
const BEST_KEPT: usize = 3;

/// The best candidates that were found in this run. If the same calls come again under another label, only these
/// compete.
#[derive(Clone, Default)]
pub struct KnownAlgorithms(Rc<RefCell<Vec<BestAlgorithms>>>);

/// Engine name, point without its label, and the best candidates.
type BestAlgorithms = (String, CollectivePoint, Vec<Candidate>);

impl KnownAlgorithms {
    /// Returns the best candidates for a point over an engine. `None` if no candidates competed yet.
    pub fn find(&self, engine: &str, point: &CollectivePoint) -> Option<Vec<Candidate>> {
        let point = without_label(point);
        let known = self.0.borrow();
        let mut known = known.iter();
        let found = known.find(|(name, other, _)| name == engine && *other == point);
        found.map(|(_, _, candidates)| candidates.clone())
    }

    /// Keeps the fastest of the candidates that competed. If there are results for the same calls already, they stay.
    pub fn add(&self, engine: &str, point: &CollectivePoint, mut tried: Vec<(u64, Candidate)>) {
        if self.find(engine, point).is_some() {
            return;
        }
        tried.sort_by_key(|(taken_ns, _)| *taken_ns);
        let best = tried
            .into_iter()
            .take(BEST_KEPT)
            .map(|(_, candidate)| candidate)
            .collect();
        let known = (engine.to_owned(), without_label(point), best);
        self.0.borrow_mut().push(known);
    }
}

fn without_label(point: &CollectivePoint) -> CollectivePoint {
    CollectivePoint {
        label: None,
        ..point.clone()
    }
}

/// Returns the candidates for the calls of a point. All ranks get the same candidates. There is only one if the plan
/// left no choice.
pub fn candidates(point: &CollectivePoint, message_bytes_max: u64) -> Vec<Candidate> {
    let own = algorithms(point.op);
    let fits = |algorithm: &&Algorithm| {
        let few_peers = !matches!(algorithm, Algorithm::Pairwise | Algorithm::Linear);
        let in_place = check(point.op, **algorithm, point.in_place).is_ok();
        in_place && (few_peers || point.shape().ranks <= MANY_RANKS || own.len() == 1)
    };
    let algorithms: Vec<Algorithm> = match point.algorithm {
        Some(asked) => vec![asked],
        None => own.iter().filter(fits).copied().collect(),
    };
    let block_bytes = point.shape().block_bytes().max(1);
    let chunks: Vec<u64> = match point.chunk_bytes {
        Some(asked) => vec![asked],
        None if block_bytes <= CUT_BYTES_MIN => vec![block_bytes],
        None => {
            let shorter = CHUNKS.into_iter().filter(|&chunk| chunk < block_bytes);
            shorter.chain([block_bytes]).collect()
        }
    };
    // The device's limit may make several message sizes equal. Equal candidates are adjacent, and duplicates are
    // removed.
    let with_chunks = |algorithm| {
        let candidate = move |&chunk_bytes: &u64| Candidate {
            algorithm,
            chunk_bytes: chunk_bytes.min(message_bytes_max),
        };
        chunks.iter().map(candidate)
    };
    let mut all: Vec<Candidate> = algorithms.into_iter().flat_map(with_chunks).collect();
    all.dedup();
    all
}
