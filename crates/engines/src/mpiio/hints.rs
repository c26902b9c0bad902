//! The requested hints, and whether they have an effect.
//!
//! An MPI may ignore any hint. After a file was opened, ROMIO lists all hints that it uses; any other hint has no
//! effect. Open MPI 4 lists the hints that it was given, even if the layer that makes the calls does not know them. So
//! the hints that its default layer, OMPIO, knows are listed here.

use tonnage_engine::{Facts, fact_names};
use tonnage_sys::mpi::{Dialect, File, MpiHints};

/// Hints that OMPIO and its file-system components use in Open MPI 4.1 and 5.0.
const OMPIO: [&str; 7] = [
    "cb_buffer_size",
    "cb_nodes",
    "collective_buffering",
    "stripe_size",
    "stripe_width",
    "striping_factor",
    "striping_unit",
];

/// Prefix of the hints that switch collective buffering off: `romio_cb_write` and `romio_cb_read`.
const COLLECTIVE_BUFFERING: &str = "romio_cb_";

/// The layer of the MPI library that makes the calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layer {
    /// ROMIO, which lists the hints that it uses.
    Romio,
    /// ROMIO inside Open MPI, which lists the hints that it was given.
    RomioOfOpenMpi,
    /// OMPIO inside Open MPI, which lists the hints that it was given.
    Ompio,
    /// OMPIO or ROMIO: Open MPI uses ROMIO on some file systems, but does not report it.
    EitherOfOpenMpi,
    /// Another MPI. Its list of hints has none of ROMIO's.
    Unknown,
}

impl Layer {
    fn name(self) -> &'static str {
        match self {
            Self::Romio => "ROMIO",
            Self::RomioOfOpenMpi => "ROMIO of Open MPI",
            Self::Ompio => "OMPIO",
            Self::EitherOfOpenMpi => "OMPIO or ROMIO: Open MPI does not report which on Lustre",
            Self::Unknown => "unknown",
        }
    }

    /// Detects the layer. `component` is the argument of `mpirun --mca io …`.
    fn detect(used: &MpiHints, dialect: Dialect, component: Option<&str>, on_lustre: bool) -> Self {
        // Open MPI 5 returns the list of its ROMIO, but Open MPI 4 does not.
        if used.contains_key("romio_filesystem_type") {
            return Self::Romio;
        }
        match (dialect, component) {
            (Dialect::OpenMpi, Some(name)) if name.starts_with("romio") => Self::RomioOfOpenMpi,
            (Dialect::OpenMpi, Some("^ompio")) => Self::RomioOfOpenMpi,
            (Dialect::OpenMpi, None) if on_lustre => Self::EitherOfOpenMpi,
            (Dialect::OpenMpi, _) => Self::Ompio,
            _ => Self::Unknown,
        }
    }

    /// Returns whether the layer lists the hints that it uses. A hint that is not in this list then has no effect.
    fn lists_what_it_uses(self) -> bool {
        matches!(self, Self::Romio | Self::Unknown)
    }
}

/// The hints that MPI lists for the first file of a point.
#[derive(Debug, Default)]
pub(super) struct EffectiveHints {
    listed: Option<(MpiHints, Layer)>,
}

impl EffectiveHints {
    pub(super) fn is_unread(&self) -> bool {
        self.listed.is_none()
    }

    /// Reads the hints of an open file.
    pub(super) fn read(&mut self, file: &File, dialect: Dialect) -> Result<(), String> {
        let used = file.hints()?;
        let component = std::env::var("OMPI_MCA_io").ok();
        let layer = Layer::detect(&used, dialect, component.as_deref(), is_on_lustre(file));
        self.listed = Some((used, layer));
        Ok(())
    }

    /// Returns facts for the record: all hints that MPI lists, and the requested hints that have no effect.
    pub(super) fn describe(&self, asked: &MpiHints) -> Facts {
        let Some((used, layer)) = &self.listed else {
            return Facts::default();
        };
        let ineffective = not_taken(asked, used, *layer);
        let are = match layer.lists_what_it_uses() {
            true => "used",
            false => "set: Open MPI does not report which it uses",
        };
        Facts::default()
            .with_fact("io_layer", layer.name())
            .with_fact("hints", facts(used))
            .with_fact("hints_are", are)
            .with_optional_fact(
                fact_names::HINTS_NOT_TAKEN,
                (!ineffective.is_empty()).then(|| facts(&ineffective)),
            )
            .with_optional_fact(
                fact_names::HINTS_NOT_TAKEN_EFFECT,
                effect(asked, &ineffective),
            )
    }
}

/// Describes the consequence if some requested hints have no effect.
fn effect(asked: &MpiHints, ineffective: &MpiHints) -> Option<&'static str> {
    let is_on = |name: &String| {
        let disabled = asked.get(name).is_some_and(|value| value == "disable");
        name.starts_with(COLLECTIVE_BUFFERING) && disabled
    };
    ineffective
        .keys()
        .any(is_on)
        .then_some("collective buffering is not off")
}

fn facts(hints: &MpiHints) -> Facts {
    let add =
        |facts: Facts, (name, value): (&String, &String)| facts.with_fact(name, value.as_str());
    hints.iter().fold(Facts::default(), add)
}

/// The magic number of the Lustre file system.
const LUSTRE: u64 = 0x0bd0_0bd0;

fn is_on_lustre(file: &File) -> bool {
    rustix::fs::statfs(file.path()).is_ok_and(|system| system.f_type as u64 == LUSTRE)
}

/// Returns the requested hints without effect, with the reasons.
fn not_taken(asked: &MpiHints, used: &MpiHints, layer: Layer) -> MpiHints {
    let mut ineffective = MpiHints::new();
    for (name, value) in asked {
        let why = match used.get(name) {
            _ if layer == Layer::Ompio && !OMPIO.contains(&name.as_str()) => Some(
                "OMPIO does not know it; ROMIO may: mpirun --mca io romio321 (Open MPI 4) or romio341 (Open MPI 5)"
                    .to_owned(),
            ),
            None => Some("MPI does not list it".to_owned()),
            Some(other) if other.trim() != value.trim() => {
                Some(format!("MPI uses {other} instead of {value}"))
            }
            Some(_) => None,
        };
        ineffective.extend(why.map(|why| (name.clone(), why)));
    }
    ineffective
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hints(pairs: &[(&str, &str)]) -> MpiHints {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        pairs.iter().map(owned).collect()
    }

    #[test]
    fn the_layer_is_detected_from_its_list_or_component() {
        let romio = hints(&[("romio_filesystem_type", "UFS")]);
        let layer = |dialect, component, lustre| Layer::detect(&romio, dialect, component, lustre);
        assert_eq!(layer(Dialect::Mpich, None, true), Layer::Romio);
        assert_eq!(layer(Dialect::Standard, None, false), Layer::Romio);
        assert_eq!(layer(Dialect::OpenMpi, None, false), Layer::Romio);
        let given = hints(&[("cb_nodes", "1")]);
        let open_mpi =
            |component, lustre| Layer::detect(&given, Dialect::OpenMpi, component, lustre);
        assert_eq!(open_mpi(None, false), Layer::Ompio);
        assert_eq!(open_mpi(None, true), Layer::EitherOfOpenMpi);
        assert_eq!(open_mpi(Some("ompio"), true), Layer::Ompio);
        assert_eq!(open_mpi(Some("romio321"), false), Layer::RomioOfOpenMpi);
        let none = Layer::detect(&given, Dialect::Mpich, None, false);
        assert_eq!(none, Layer::Unknown);
    }

    #[test]
    fn hints_without_effect_are_named_with_the_reason() {
        let asked = hints(&[("cb_nodes", "4"), ("romio_cb_write", "disable"), ("x", "1")]);
        let used = hints(&[("cb_nodes", "2"), ("romio_cb_write", "disable")]);
        let ineffective = not_taken(&asked, &used, Layer::Romio);
        assert_eq!(ineffective.keys().collect::<Vec<_>>(), ["cb_nodes", "x"]);
        assert!(ineffective["cb_nodes"].contains("uses 2 instead of 4"));
        let ineffective = not_taken(&asked, &asked, Layer::Ompio);
        assert_eq!(
            ineffective.keys().collect::<Vec<_>>(),
            ["romio_cb_write", "x"]
        );
        let off = "collective buffering is not off";
        assert_eq!(effect(&asked, &ineffective), Some(off));
        let other = hints(&[("cb_nodes", "MPI uses 2 instead of 4")]);
        assert_eq!(effect(&asked, &other), None);
        assert!(not_taken(&asked, &asked, Layer::RomioOfOpenMpi).is_empty());
    }
}
