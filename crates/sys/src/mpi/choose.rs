//! Chooses the MPI library that belongs to this process's launcher. With another library, the processes would not find
//! each other, and each would run as a job of one process.
//!
//! Defines the order in which files and names are tried. `dialect` recognises a loaded library.

use std::path::{Path, PathBuf};

use crate::error::{LibraryError, LibraryErrorKind};
use crate::library::SharedLibrary;
use crate::process::Env;

/// Names for the loader's search. MPICH's family has MPICH's own name, Debian's name and the standard's name. Other
/// implementations also use the standard's name, so it comes last.
const OPEN_MPI: &[&str] = &["libmpi.so.40"];
const MPICH: &[&str] = &["libmpi.so.12", "libmpich.so.12", "libmpi_abi.so.1"];
/// Names in a launcher's own installation. The standard's name comes first, because there it belongs to the launcher's
/// MPI.
const MPICH_INSTALLED: &[&str] = &["libmpi_abi.so.1", "libmpi.so.12", "libmpich.so.12"];
/// Library folders of an installation; the last one is Intel MPI's.
const FOLDERS: [&str; 3] = ["lib", "lib64", "lib/release"];

/// MPI family of the launcher that started this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Open MPI's mpirun.
    OpenMpi,
    /// The mpirun of MPICH or a derivative.
    Mpich,
    /// A launcher with PMI-1 or PMI-2, such as `srun --mpi=pmi2`: more likely MPICH than Open MPI.
    Pmi,
    /// A launcher that sets no known variable, or `srun --mpi=pmix`.
    Unknown,
}

impl Family {
    /// Determines the family from the variables that launchers set.
    pub fn detect(env: Env<'_>) -> Self {
        let set = |name| env(name).is_some();
        if set("OMPI_COMM_WORLD_SIZE") {
            Self::OpenMpi
        } else if set("MPI_LOCALNRANKS") {
            // Hydra sets this, srun does not.
            Self::Mpich
        } else if set("PMI_FD") && !set("PMIX_NAMESPACE") {
            Self::Pmi
        } else {
            Self::Unknown
        }
    }
}

/// The reason why no library was loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoLibrary {
    /// None of these files and names exists.
    NotThere(Vec<String>),
    /// One exists but is unusable: the loader's reason, or the missing symbol.
    Unusable(LibraryError),
}

/// Returns the candidates in order: existing files of the launcher's installation, then names for the loader.
pub(super) fn candidates(
    family: Family,
    env: Env<'_>,
    launcher: Option<PathBuf>,
    exists: &dyn Fn(&Path) -> bool,
) -> Vec<String> {
    let said = |name| env(name).filter(|path| !path.is_empty()).map(PathBuf::from);
    let (prefixes, installed, names): (_, &[&str], Vec<&[&str]>) = match family {
        Family::OpenMpi => ([said("OPAL_PREFIX"), launcher], OPEN_MPI, vec![OPEN_MPI]),
        Family::Mpich => ([launcher, said("I_MPI_ROOT")], MPICH_INSTALLED, vec![MPICH]),
        Family::Pmi => (
            [None, said("I_MPI_ROOT")],
            MPICH_INSTALLED,
            vec![MPICH, OPEN_MPI],
        ),
        Family::Unknown => ([said("OPAL_PREFIX"), None], OPEN_MPI, vec![OPEN_MPI, MPICH]),
    };
    let mut tried = Vec::new();
    for prefix in prefixes.into_iter().flatten() {
        for folder in FOLDERS {
            let files = installed.iter().map(|name| prefix.join(folder).join(name));
            tried.extend(
                files
                    .filter(|file| exists(file))
                    .filter_map(|file| file.into_os_string().into_string().ok()),
            );
        }
    }
    tried.extend(names.into_iter().flatten().map(|name| (*name).to_owned()));
    tried
}

/// Loads the first existing candidate, and returns its name. Its symbols are visible to all libraries loaded later,
/// because Open MPI's own parts, which it loads itself, need them.
pub(super) fn load(tried: Vec<String>) -> Result<(SharedLibrary, String), NoLibrary> {
    for name in &tried {
        match SharedLibrary::open_global(name) {
            Ok(library) => return Ok((library, name.clone())),
            // Only a missing library is skipped. A broken library is an error, because the next candidate would be
            // another MPI.
            Err(error) if matches!(*error, LibraryErrorKind::NotFound { .. }) => {}
            Err(error) => return Err(NoLibrary::Unusable(error)),
        }
    }
    Err(NoLibrary::NotThere(tried))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env<'a>(pairs: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<String> + 'a {
        move |name| {
            let found = pairs.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        }
    }

    #[test]
    fn the_launcher_chooses_the_family() {
        let family = |pairs: &[(&str, &str)]| Family::detect(&env(pairs));
        assert_eq!(family(&[("OMPI_COMM_WORLD_SIZE", "2")]), Family::OpenMpi);
        let hydra = [("PMI_FD", "6"), ("MPI_LOCALNRANKS", "2")];
        assert_eq!(family(&hydra), Family::Mpich);
        assert_eq!(family(&[("PMI_FD", "6")]), Family::Pmi);
        let pmix = [("PMIX_NAMESPACE", "x"), ("PMI_FD", "6")];
        assert_eq!(family(&pmix), Family::Unknown);
        assert_eq!(family(&[]), Family::Unknown);
    }

    #[test]
    fn the_launchers_own_installation_comes_first_and_other_families_never() {
        let there =
            |file: &Path| file.starts_with("/venv/lib") && !file.starts_with("/venv/lib/release");
        let tried = |family, pairs: &[(&str, &str)], launcher: Option<&str>| {
            candidates(family, &env(pairs), launcher.map(PathBuf::from), &there)
        };
        assert_eq!(
            tried(Family::Mpich, &[], Some("/venv")),
            [
                "/venv/lib/libmpi_abi.so.1",
                "/venv/lib/libmpi.so.12",
                "/venv/lib/libmpich.so.12",
                "libmpi.so.12",
                "libmpich.so.12",
                "libmpi_abi.so.1"
            ]
        );
        assert_eq!(
            tried(Family::OpenMpi, &[("OPAL_PREFIX", "/venv")], Some("/usr")),
            ["/venv/lib/libmpi.so.40", "libmpi.so.40"]
        );
        assert_eq!(tried(Family::OpenMpi, &[], None), ["libmpi.so.40"]);
        assert_eq!(tried(Family::Pmi, &[], None)[0], "libmpi.so.12");
        assert_eq!(tried(Family::Unknown, &[], None).len(), 4);
    }

    #[test]
    fn a_broken_library_is_not_skipped() {
        let broken = "/proc/self/status".to_owned();
        let missing = "/nonexistent/libmpi.so.40".to_owned();
        let why = load(vec![missing.clone(), broken.clone()]).unwrap_err();
        assert!(
            matches!(&why, NoLibrary::Unusable(error)
                if matches!(&**error, LibraryErrorKind::NotLoaded { library, .. } if *library == broken)),
            "{why:?}"
        );
        let why = load(vec![missing.clone()]).unwrap_err();
        assert_eq!(why, NoLibrary::NotThere(vec![missing]));
    }
}
