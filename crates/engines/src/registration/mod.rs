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
pub(crate) mod double;
#[cfg(test)]
#[path = "tests.rs"]
mod over_double;
mod ways;

pub(crate) use card_memory::CardMemory;
pub(crate) use card_regions::CardRegions;
pub(crate) use ways::CardWay;

use tonnage_engine::{EngineOption, OpenRequest, OptionKind};
use tonnage_units::{Error, Result};

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

/// Refuses a way that was asked for where nothing is registered by it. Plans refuse it before, where no end has memory
/// of a GPU; of what a library's caller registers, nothing is known yet.
///
/// # Errors
/// `Usage`, with what to leave out.
pub(crate) fn check_registration(
    request: &OpenRequest<'_>,
    options: &[EngineOption],
    is_staged: bool,
) -> Result<()> {
    let asked = request.option(options, REGISTRATION);
    if !is_staged || asked.is_empty() || asked == AUTO {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "{REGISTRATION}={asked} is about memory of a GPU that is registered, and staging=pinned registers pinned memory of \
         the host in its place: leave one of them out"
    )))
}

/// Advice to append when `bytes` could not be registered: how to raise the limit of locked memory, if it is too low.
pub(crate) fn locked_memory_advice(bytes: usize) -> String {
    match tonnage_sys::process::locked_memory_limit() {
        Some(limit) if limit < bytes as u64 => format!(
            ": this process may lock {limit} bytes of memory; raise it with `ulimit -l unlimited`, or LimitMEMLOCK of the \
             service that starts it"
        ),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use tonnage_engine::EngineOptions;

    use super::*;

    const OPTIONS: [EngineOption; 1] = [option(&[AUTO, "dmabuf"], &[], "")];

    fn checked(value: &str, is_staged: bool) -> Result<()> {
        let options = EngineOptions::from([(REGISTRATION.to_owned(), value.to_owned())]);
        let request = OpenRequest {
            options: &options,
            ..OpenRequest::default()
        };
        check_registration(&request, &OPTIONS, is_staged)
    }

    #[test]
    fn a_way_is_refused_where_it_has_no_effect() {
        checked("auto", false).unwrap();
        checked("dmabuf", false).unwrap();
        let refused = checked("dmabuf", true).unwrap_err();
        assert!(
            refused.to_string().contains("leave one of them out"),
            "{refused}"
        );
        checked("auto", true).unwrap();
    }
}
