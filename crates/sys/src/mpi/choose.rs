//! Choice of the MPI library: the one that belongs to the launcher of this process, because another one's processes
//! would not find each other and each believe to be alone.
//!
//! What lives here: the order in which files and names are tried. What does not: telling a loaded library's kind, which
//! is in `dialect`.

use std::path::{Path, PathBuf};

use crate::error::{LibraryError, LibraryErrorKind};
use crate::library::SharedLibrary;
use crate::process::Env;

/// Names that the loader searches for. Those of MPICH's family stand for hundreds of builds: MPICH's own name,
/// Debian's, and the standard's, which other implementations use as well and is therefore the last.
const OPEN_MPI: &[&str] = &["libmpi.so.40"];
const MPICH: &[&str] = &["libmpi.so.12", "libmpich.so.12", "libmpi_abi.so.1"];
/// In a launcher's own installation the standard interface is known to be the launcher's.
const MPICH_INSTALLED: &[&str] = &["libmpi_abi.so.1", "libmpi.so.12", "libmpich.so.12"];
/// Folders of an installation that hold its libraries; the last one is Intel MPI's.
const FOLDERS: [&str; 3] = ["lib", "lib64", "lib/release"];

/// Family of the launcher that started this process, as far as its library is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Open MPI's mpirun.
    OpenMpi,
    /// The mpirun of MPICH or of one of its relatives.
    Mpich,
    /// Something that speaks PMI-1 or PMI-2, such as `srun --mpi=pmi2`: MPICH more likely than Open MPI.
    Pmi,
    /// A launcher that does not tell, or `srun --mpi=pmix`.
    Unknown,
}

impl Family {
    /// Reads the family from the variables that launchers set.
    pub fn sniff(env: Env<'_>) -> Self {
        let set = |name| env(name).is_some();
        if set("OMPI_COMM_WORLD_SIZE") {
            Self::OpenMpi
        } else if set("MPI_LOCALNRANKS") {
            // Hydra says this, srun does not.
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
    /// None of these files and names is there.
    NotThere(Vec<String>),
    /// One is there and cannot be used: the loader's reason, or what it lacks.
    Unusable(LibraryError),
}

/// Candidates, in order: files of the launcher's installation that are there, then names for the loader.
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

/// Loads the first of these that is there, and says which. Its symbols are made visible to everything that is loaded
/// later, because Open MPI loads its own parts that way.
pub(super) fn load(tried: Vec<String>) -> Result<(SharedLibrary, String), NoLibrary> {
    for name in &tried {
        match SharedLibrary::open_global(name) {
            Ok(library) => return Ok((library, name.clone())),
            // Only where there is none. One that is there but broken is an error, for the next one would be another
            // MPI.
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
        let family = |pairs: &[(&str, &str)]| Family::sniff(&env(pairs));
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
    fn what_is_there_but_broken_is_not_passed_over() {
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
