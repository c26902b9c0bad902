//! Registrations of memory of a GPU with a network card, for engines over one.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `mod` | the option, and where it has no effect |
//! | `ways` | ways to register, the one that is taken, and the refusal where none is granted |
//! | `card_memory` | memory of a device as a card takes it by each of these ways |
//! | `card_regions` | what a worker has registered, and what was granted |
//! | `arrivals` | flushing what a card has written, before it counts as arrived |
//!
//! The calls that register are in `tonnage_sys::verbs` and `tonnage_sys::libfabric`, made by the engines. Moving bytes
//! through pinned memory instead is in `super::staged`, and never chosen here.

mod arrivals;
mod card_memory;
mod card_regions;
#[cfg(test)]
#[path = "../../../sys/tests/cuda/double.rs"]
mod double;
#[cfg(test)]
#[path = "tests.rs"]
mod over_double;
mod ways;

use tonnage_engine::{EngineOption, OpenRequest, OptionKind};
use tonnage_units::{Error, Result};

pub(crate) use card_memory::CardMemory;
pub(crate) use card_regions::CardRegions;
pub(crate) use ways::{CardWay, first_granted, not_granted};

use crate::memory::cuda_region::is_of_gpu;

/// The option's name.
pub(crate) const REGISTRATION: &str = "registration";

/// The value that tries all ways.
pub(crate) const AUTO: &str = "auto";

/// The option, for the row of an engine that has these ways on these variants; on all where none is named.
pub(crate) const fn option(
    values: &'static [&'static str],
    variants: &'static [&'static str],
    about: &'static str,
) -> EngineOption {
    EngineOption {
        name: REGISTRATION,
        kind: OptionKind::OfGpuMemory(values),
        variants,
        about,
    }
}

/// Refuses a way that was asked for where nothing is registered by it.
///
/// # Errors
/// `Usage`, with what to leave out.
pub(crate) fn check_registration(
    request: &OpenRequest<'_>,
    options: &[EngineOption],
    is_staged: bool,
) -> Result<()> {
    let asked = request.option(options, REGISTRATION);
    if asked.is_empty() || asked == AUTO {
        return Ok(());
    }
    if is_staged {
        return Err(Error::Usage(format!(
            "{REGISTRATION}={asked} is about memory of a GPU that is registered, and staging=pinned registers pinned memory \
             of the host in its place: leave one of them out"
        )));
    }
    let (own, peers) = request.memories;
    // Of a memory that nobody named, and of ranks that take no part, nothing is known.
    if own.name.is_empty() || peers.is_empty() {
        return Ok(());
    }
    if is_of_gpu(own) || peers.iter().copied().any(is_of_gpu) {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "{REGISTRATION}={asked} is about memory of a GPU, and neither this rank nor its peers have any: leave it out, or \
         choose --memory cuda"
    )))
}

#[cfg(test)]
mod tests {
    use tonnage_engine::{EngineOptions, RankMemory};

    use super::*;

    const OPTIONS: [EngineOption; 1] = [option(&[AUTO, "dmabuf"], &[], "")];

    fn checked(value: &str, own: &str, peers: &[&str], is_staged: bool) -> Result<()> {
        let options = EngineOptions::from([(REGISTRATION.to_owned(), value.to_owned())]);
        let memory = |name| RankMemory { name, gpu: None };
        let peers: Vec<_> = peers.iter().copied().map(memory).collect();
        let request = OpenRequest {
            options: &options,
            memories: (memory(own), &peers),
            ..OpenRequest::default()
        };
        check_registration(&request, &OPTIONS, is_staged)
    }

    #[test]
    fn a_way_is_refused_where_it_has_no_effect() {
        for (value, own, peers) in [
            ("auto", "host", &["host"][..]),
            ("dmabuf", "cuda", &["host"]),
            ("dmabuf", "host", &["cuda:1"]),
            ("dmabuf", "cuda-pinned", &["host", "cuda"]),
            // Memory that a library's caller registers later, and a rank that takes no part.
            ("dmabuf", "", &[]),
            ("dmabuf", "host", &[]),
        ] {
            checked(value, own, peers, false).unwrap();
        }
        let refused = checked("dmabuf", "cuda-pinned", &["host"], false).unwrap_err();
        assert!(refused.to_string().contains("--memory cuda"), "{refused}");
        let refused = checked("dmabuf", "cuda", &["cuda"], true).unwrap_err();
        assert!(
            refused.to_string().contains("leave one of them out"),
            "{refused}"
        );
        checked("auto", "cuda", &["cuda"], true).unwrap();
    }
}
