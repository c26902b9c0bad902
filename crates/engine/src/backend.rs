//! Contract for backends of collectives. A list row describes a backend before it is opened, so a wrong request is
//! refused before any rank starts. [`GroupCalls`] is the trait of backends that run in this process.

use std::sync::Arc;

use tonnage_collective::{Collective, Dtype, Reduction, Shape};
use tonnage_sys::mapping::Arena;
use tonnage_units::names::unknown_name_error;
use tonnage_units::{Error, Result};

use crate::{EngineReport, Libraries, Library, Lifecycle};

/// One row of the list of backends.
#[derive(Debug, Clone, Copy)]
pub struct BackendEntry {
    /// The name that `--backend` takes, up to a colon.
    pub name: &'static str,
    /// One line for `tonnage engines`.
    pub about: &'static str,
    /// Requirements on the machine and the run, for `tonnage engines`.
    pub needs: &'static str,
    /// The text that may follow the colon.
    pub variant: BackendVariant,
    /// Variants to try if the user names no backend.
    pub usual: &'static [&'static str],
    /// True for a library that works only in ranks started by its own launcher.
    pub needs_launcher: bool,
    /// Supported operations.
    pub ops: &'static [Collective],
    /// Supported element types.
    pub dtypes: &'static [Dtype],
    /// Supported reductions.
    pub reductions: &'static [Reduction],
    /// Operations that always overwrite their input with the result.
    pub in_place_always: &'static [Collective],
    /// True if `--algorithm` and `--chunk` have an effect.
    pub has_algorithms: bool,
    /// Libraries that the backend loads at run time and that `--library NAME=PATH` can choose.
    pub libraries: &'static [Library],
    /// Hooks for a library with process-wide state.
    pub lifecycle: Lifecycle,
    /// Opens a backend that calls a library in this process. All ranks call this on their main thread. `None` for
    /// backends that `tonnage_bench` opens itself, because they need its ranks and engines.
    pub open: Option<OpenGroupCalls>,
}

/// Opens a backend on one rank.
pub type OpenGroupCalls = fn(&OpenGroup<'_>) -> Result<Box<dyn GroupCalls>>;

/// Arguments for opening a backend on one rank.
#[derive(Debug, Clone, Copy)]
pub struct OpenGroup<'a> {
    /// This rank.
    pub rank: u32,
    /// Ranks of the run; all of them take part.
    pub ranks: u32,
    /// This rank's group. Its members call together and are numbered in rank order.
    pub group: u32,
    /// Number of groups, all of the same size.
    pub groups: u32,
    /// `--library`: files to load instead of the ones that the backend would find.
    pub libraries: &'a Libraries,
}

/// A call that a benchmark repeats.
#[derive(Debug, Clone)]
pub struct GroupCall {
    /// Element counts of each rank of a group.
    pub shape: Shape,
    /// The reduction; `None` for an operation without one.
    pub reduction: Option<Reduction>,
    /// True if the result overwrites the input.
    pub in_place: bool,
    /// Memory of this rank.
    pub memory: Arc<Arena>,
    /// Offset of the input.
    pub input: u64,
    /// Offset of the output.
    pub output: u64,
}

/// Calls of one rank to a library in this process. The caller measures the time.
pub trait GroupCalls {
    /// Prepares a call and returns the offset of its result: `output`, or for an in-place call the offset that the
    /// library chose. All ranks prepare their calls, then wait for each other.
    ///
    /// # Errors
    /// [`Error::Unavailable`] for a call that the library does not support. The message names an alternative.
    fn prepare(&mut self, call: GroupCall) -> Result<u64>;

    /// Uses the library's own barrier to wait until all ranks of all groups have arrived.
    ///
    /// # Errors
    /// The library's message.
    fn align(&mut self) -> Result<()>;

    /// Makes the call.
    ///
    /// # Errors
    /// The library's message.
    fn call(&mut self) -> Result<()>;

    /// The library, version and options in use, for the record.
    fn report(&self) -> EngineReport;
}

/// The text that may follow the colon of a backend's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackendVariant {
    /// No text is allowed.
    Nothing,
    /// The name of one of this program's engines, with the engine's own variant if it has any.
    Engine,
    /// One of these texts is required.
    OneOf(&'static [BackendPart]),
}

/// A text that may follow the colon of a backend's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackendPart {
    /// The text.
    pub name: &'static str,
    /// The library that this variant uses, for `tonnage engines`.
    pub about: &'static str,
    /// Appended to [`BackendEntry::needs`] to complete its sentence; may be empty.
    pub needs: &'static str,
}

/// Finds the row of a backend by its name in a plan, and returns it with the text after the colon.
///
/// # Errors
/// `Usage` for a name that is not in the list, or for a variant that is missing, unknown or not allowed.
pub fn find<'a, 'b>(
    backends: &'a [BackendEntry],
    backend: &'b str,
) -> Result<(&'a BackendEntry, &'b str)> {
    let (name, variant) = backend.split_once(':').unwrap_or((backend, ""));
    let names: Vec<_> = backends.iter().map(|entry| entry.name).collect();
    let known = backends.iter().find(|entry| entry.name == name);
    let entry = known.ok_or_else(|| unknown_name_error("backend", name, &names))?;
    match entry.variant {
        BackendVariant::Nothing if !variant.is_empty() => Err(Error::Usage(format!(
            "backend {name} takes nothing after a colon: use backend {name}"
        ))),
        BackendVariant::Engine if variant.is_empty() => Err(Error::Usage(format!(
            "backend {name} needs an engine: use backend {name}:shm, or another engine that `tonnage engines` lists"
        ))),
        BackendVariant::OneOf(parts) if parts.iter().all(|part| part.name != variant) => {
            let known: Vec<_> = parts.iter().map(|part| part.name).collect();
            Err(unknown_name_error(
                &format!("variant of {name}"),
                variant,
                &known,
            ))
        }
        _ => Ok((entry, variant)),
    }
}

impl BackendEntry {
    /// Refuses a call that the backend does not support on any machine.
    ///
    /// # Errors
    /// `Usage`, listing the supported values.
    pub fn check(&self, op: Collective, dtype: Dtype, reduction: Option<Reduction>) -> Result<()> {
        self.check_one("op", op, self.ops, Collective::name)?;
        self.check_one("dtype", dtype, self.dtypes, Dtype::name)?;
        reduction.map_or(Ok(()), |reduction| {
            self.check_one("reduce", reduction, self.reductions, Reduction::name)
        })
    }

    fn check_one<T: Copy + PartialEq>(
        &self,
        option: &str,
        asked: T,
        known: &[T],
        name: fn(T) -> &'static str,
    ) -> Result<()> {
        if known.contains(&asked) {
            return Ok(());
        }
        let known: Vec<_> = known.iter().map(|&it| name(it)).collect();
        Err(Error::Usage(format!(
            "backend {} does not support {option} {}: it supports {}",
            self.name,
            name(asked),
            known.join(", ")
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKENDS: [BackendEntry; 3] = [
        backend("own", BackendVariant::Engine),
        backend("whole", BackendVariant::Nothing),
        backend("other", BackendVariant::OneOf(&[part("a"), part("b")])),
    ];

    const fn part(name: &'static str) -> BackendPart {
        BackendPart {
            name,
            about: "",
            needs: "",
        }
    }

    const fn backend(name: &'static str, variant: BackendVariant) -> BackendEntry {
        BackendEntry {
            name,
            about: "",
            needs: "",
            variant,
            usual: &[],
            needs_launcher: false,
            ops: &[Collective::AllReduce, Collective::Barrier],
            dtypes: &[Dtype::Float32],
            reductions: &[Reduction::Sum, Reduction::Max],
            in_place_always: &[],
            has_algorithms: false,
            libraries: &[],
            lifecycle: Lifecycle::NONE,
            open: None,
        }
    }

    fn message(backend: &str) -> String {
        find(&BACKENDS, backend).unwrap_err().to_string()
    }

    #[test]
    fn the_name_ends_at_the_first_colon() {
        let (entry, variant) = find(&BACKENDS, "own:fabric:tcp").unwrap();
        assert_eq!((entry.name, variant), ("own", "fabric:tcp"));
        assert_eq!(find(&BACKENDS, "other:b").unwrap().1, "b");
        assert!(message("owm:shm").contains("did you mean \"own\"?"));
        assert!(message("own").contains("use backend own:shm"));
        assert!(message("whole:x").contains("takes nothing after a colon"));
        assert!(message("other:c").contains("a, b"));
        assert!(message("other").contains("a, b"));
    }

    #[test]
    fn an_unsupported_call_is_refused_listing_the_supported_values() {
        let [entry, ..] = BACKENDS;
        let check = |op, dtype, reduction| entry.check(op, dtype, reduction);
        assert!(check(Collective::AllReduce, Dtype::Float32, Some(Reduction::Sum)).is_ok());
        let message = |op, dtype, reduction| check(op, dtype, reduction).unwrap_err().to_string();
        assert_eq!(
            message(Collective::Gather, Dtype::Float32, None),
            "backend own does not support op gather: it supports all-reduce, barrier"
        );
        assert!(message(Collective::Barrier, Dtype::Int8, None).contains("dtype int8"));
        assert!(
            message(Collective::AllReduce, Dtype::Float32, Some(Reduction::Avg))
                .contains("reduce avg: it supports sum, max")
        );
    }
}
