//! Several paths for each flow: rails, queue pairs, and the parts that a long operation is cut into.
//!
//! [`divide`] wraps domains so that each worker has several engines, one per path. The wrapper is an [`Engine`] like
//! any other: it spreads operations over its paths in turn, cuts long ones, and merges the completions of their parts.
//! It knows no engine by name. With several rails, a path is one queue pair of one rail, and the queue pairs of a rail
//! are adjacent.
//!
//! | file | contents |
//! | --- | --- |
//! | `division` | lengths of parts, the number of paths, and how paths share the devices |
//! | `domain` | capabilities common to all paths |
//! | `worker` | registering, connecting, lanes, cutting, posting and polling on all paths |
//! | `operations` | operations with parts still in flight |
//! | `assembly` | write-imms that have arrived in part |
//!
//! Both ends assign operations to paths in the same order, so that the n-th send still fills the n-th receive. Nothing
//! is ordered between paths: neither bytes nor completions.
//!
//! [`Engine`]: crate::Engine

mod assembly;
mod division;
mod domain;
mod operations;
#[cfg(test)]
mod tests;
mod worker;

use std::sync::Arc;

pub use division::{Cut, Division, RailShares, Rails};

use crate::Domains;
use domain::PathsDomain;

/// Wraps domains so that their workers have several paths: one wrapper per domain, or a single wrapper around all
/// domains if workers have several rails. Returns the domains unchanged if the division divides nothing, or asks only
/// for queue pairs that the domains create themselves.
pub fn divide(domains: Domains, division: Division) -> Domains {
    let makes_its_own = domains.iter().all(|domain| domain.caps().carried);
    if division == Division::NONE || (makes_its_own && division.divides_only_queue_pairs()) {
        return domains;
    }
    let with_paths = |devices| Arc::new(PathsDomain::new(devices, division)) as _;
    match division.rails {
        Rails::Single => domains
            .into_iter()
            .map(|device| with_paths(vec![device]))
            .collect(),
        Rails::Stripe | Rails::RoundRobin => vec![with_paths(domains)],
    }
}
