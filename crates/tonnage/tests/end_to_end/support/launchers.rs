//! MPI launchers, written as the beginning of a command line, and programs that they start.

use std::path::Path;

use super::{Program, under};

/// Open MPI's mpirun with two ranks.
pub const OPEN_MPI: &str = "mpirun.openmpi -np 2 --bind-to none --oversubscribe";
/// MPICH's mpirun with two ranks.
pub const MPICH: &str = "mpirun.mpich -np 2";

/// Returns whether the first word of a launcher's command line is installed. If not, prints how to get it.
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

/// Returns the program under mpirun. To run as root, Open MPI requires two confirmations.
pub fn under_mpirun(dir: &Path, launcher: &str, arguments: &str) -> Program {
    under(dir, launcher, arguments)
        .env("TMPDIR", dir)
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
}
