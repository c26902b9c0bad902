//! Several paths for each flow: rails, queue pairs, and the parts that a long operation is cut into.
//!
//! [`divided`] makes of domains others whose workers have several engines each. What they make is an [`Engine`] like
//! any other: it spreads operations over its paths in turn, cuts those that are too long, and counts the parts back
//! into one completion. It knows no engine by name. Where there is one path and nothing to cut it is not there at all.
//! Over several rails a path is one rail times one queue pair, the queue pairs of a rail next to each other.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `division` | the lengths of the parts, how many paths there are, and how devices share them |
//! | `domain` | capabilities of all paths together: the least of their parts' |
//! | `worker` | registering, connecting, lanes, cutting, handing over and polling on all paths |
//! | `operations` | operations of which parts are still on their way |
//! | `assembly` | write-imms that have arrived in part |
//!
//! Both ends give operations to their paths in the same order, so that the n-th send still meets the n-th receive.
//! Between paths nothing has an order: neither the bytes nor the completions.
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

pub use division::{Cut, Division, Rails, Shares};

use crate::Domains;
use domain::PathsDomain;

/// The domains themselves where nothing is divided, or where they make their own queue pairs, else one with several
/// paths for each; one for all of them together where a worker has several rails.
pub fn divided(domains: Domains, division: Division) -> Domains {
    let makes_its_own = domains.iter().all(|domain| domain.caps().carried);
    if division == Division::NONE || (makes_its_own && division.is_of_queue_pairs()) {
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
