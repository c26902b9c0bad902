//! Registers GPU memory with a NIC, for engines that use NICs.
//!
//! | file | contents |
//! | --- | --- |
//! | `mod` | the option, and the check that it has an effect |
//! | `ways` | the methods of registering: choosing one, and the error if none is granted |
//! | `nic_memory` | device memory as each method presents it to a NIC |
//! | `nic_regions` | a worker's registered memory, and which method was granted for each |
//! | `arrivals` | flushing a NIC's writes before they count as arrived |
//!
//! The engines make the calls that register, which are in `tonnage_sys::verbs` and `tonnage_sys::libfabric`. Moving
//! bytes through pinned memory instead is in `super::staged`, and is never chosen here.

mod arrivals;
#[cfg(test)]
#[path = "../../../sys/tests/cuda/double.rs"]
pub(crate) mod double;
mod nic_memory;
mod nic_regions;
#[cfg(test)]
#[path = "tests.rs"]
mod over_double;
mod ways;

pub(crate) use nic_memory::NicMemory;
pub(crate) use nic_regions::NicRegions;
pub(crate) use ways::RegistrationWay;

use tonnage_engine::{EngineOption, OpenRequest, OptionKind};
use tonnage_units::{Error, Result};

/// Name of the option.
pub(crate) const REGISTRATION: &str = "registration";

/// Value of the option that tries all methods.
pub(crate) const AUTO: &str = "auto";

/// Returns the option for an engine with these methods. The option applies to these variants of the engine, or to all
/// if the list is empty.
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

/// Refuses a requested method that has no effect because the bytes are staged. A plan that names the method, but has
/// GPU memory at neither end, is refused earlier. This function cannot know whether a caller of the library will
/// register GPU memory.
///
/// # Errors
/// `Usage`, naming the two options between which the user must choose.
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
        "{REGISTRATION}={asked} registers GPU memory, but staging=pinned registers pinned host memory instead: leave one \
         of them out"
    )))
}

/// Returns advice to append if `bytes` could not be registered. If the limit of locked memory is too low, it explains
/// how to raise the limit; otherwise it is empty.
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
    fn a_way_that_has_no_effect_is_refused() {
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
