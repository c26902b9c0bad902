//! MPI launchers, as the start of a command line, and programs under them.

use std::path::Path;

use super::{Program, under};

/// Open MPI's mpirun with two ranks.
pub const OPEN_MPI: &str = "mpirun.openmpi -np 2 --bind-to none --oversubscribe";
/// MPICH's mpirun with two ranks.
pub const MPICH: &str = "mpirun.mpich -np 2";

/// Whether the first word of a launcher's command line is installed; prints how to get it otherwise.
pub fn is_there(launcher: &str) -> bool {
    let name = launcher.split_whitespace().next().unwrap();
    let found = ["/usr/bin", "/bin"]
        .iter()
        .any(|folder| Path::new(folder).join(name).exists());
    if !found {
        let package = match name {
            "mpirun.openmpi" => "openmpi-bin",
            "mpirun.mpich" => "mpich",
            _ => "python3-torch",
        };
        println!("skip: {name} is not installed (run: apt-get install {package})");
    }
    found
}

/// A program under mpirun, which requires two confirmations to run as root.
pub fn under_mpirun(dir: &Path, launcher: &str, arguments: &str) -> Program {
    under(dir, launcher, arguments)
        .env("TMPDIR", dir)
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
}
