//! Several paths for each flow: queue pairs, and the parts that a long operation is cut into.
//!
//! [`divided`] makes of domains others whose workers have several engines each. What they make is an [`Engine`] like
//! any other: it spreads operations over its paths in turn, cuts those that are too long, and counts the parts back
//! into one completion. It knows no engine by name. Where there is one path and nothing to cut it is not there at all.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `cut`, `division` | the lengths of the parts, and how many paths there are |
//! | `domain` | capabilities of all paths together: the least of their parts' |
//! | `worker` | registering, connecting, lanes, posting and polling on all paths |
//! | `lanes` | a lane of each path, and whose turn it is |
//! | `path` | one of a device's own engines, and what waits for room in it |
//! | `operations` | operations of which parts are still on their way |
//! | `assembly` | write-imms that have arrived in part |
//!
//! Both ends give operations to their paths in the same order, so that the n-th send still meets the n-th receive.
//! Between paths nothing has an order: neither the bytes nor the completions.
//!
//! [`Engine`]: crate::Engine

mod assembly;
mod cut;
mod division;
mod domain;
mod lanes;
mod operations;
mod path;
#[cfg(test)]
mod tests;
mod worker;

use std::sync::Arc;

pub use cut::Cut;
pub use division::Division;

use crate::Domains;
use domain::PathsDomain;

/// The domains themselves where nothing is divided, else one with several paths for each.
pub fn divided(domains: Domains, division: Division) -> Domains {
    if division == Division::NONE {
        return domains;
    }
    let with_paths = |domain| Arc::new(PathsDomain::new(domain, division)) as _;
    domains.into_iter().map(with_paths).collect()
}
