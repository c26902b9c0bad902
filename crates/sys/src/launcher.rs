//! Finds the installation of this process's launcher, so that its libraries can be preferred.
//!
//! This module walks up the process tree. `tonnage_ranks` interprets the launchers' variables.

use std::fs;
use std::path::{Path, PathBuf};

/// Programs that start the processes of a job, by name prefix.
const LAUNCHERS: [&str; 9] = [
    "mpirun",
    "mpiexec",
    "orterun",
    "orted",
    "prterun",
    "prted",
    "prte",
    "hydra_pmi_proxy",
    "hydra_bstrap_proxy",
];

/// Limit of the walk up the process tree, far above any real distance to a launcher.
const GENERATIONS_MAX: usize = 32;

/// Returns the installation folder of the nearest mpirun (or helper of mpirun) among this process's ancestors. It is
/// the folder above the program's `bin`.
///
/// `None` if there is none, or if the system hides an ancestor's program, as it does for another user's process.
pub fn prefix() -> Option<PathBuf> {
    let mut pid = parent_of(std::process::id())?;
    for _ in 0..GENERATIONS_MAX {
        let program = fs::read_link(format!("/proc/{pid}/exe")).ok();
        if let Some(prefix) = program.as_deref().and_then(prefix_of) {
            return Some(prefix);
        }
        pid = parent_of(pid)?;
    }
    None
}

/// Returns the installation that a launcher belongs to; `None` for other programs.
fn prefix_of(program: &Path) -> Option<PathBuf> {
    let name = program.file_name()?.to_str()?;
    if !LAUNCHERS.iter().any(|launcher| name.starts_with(launcher)) {
        return None;
    }
    let folder = program.parent()?;
    let prefix = folder.parent()?;
    (folder.file_name()? == "bin").then(|| prefix.to_owned())
}

/// Returns the parent of a process; `None` for the first process, or if the process has ended.
pub fn parent_of(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    line.trim().parse().ok().filter(|&parent| parent != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_launchers_lead_to_an_installation() {
        let prefix = |program: &str| prefix_of(Path::new(program));
        assert_eq!(prefix("/opt/x/bin/mpirun"), Some("/opt/x".into()));
        assert_eq!(prefix("/opt/x/bin/mpiexec.hydra"), Some("/opt/x".into()));
        assert_eq!(prefix("/usr/bin/hydra_pmi_proxy"), Some("/usr".into()));
        for other in ["/usr/bin/bash", "/opt/x/libexec/mpirun", "/mpirun", "/"] {
            assert_eq!(prefix(other), None, "{other}");
        }
    }

    #[test]
    fn every_process_has_a_parent_but_the_first() {
        let mine = parent_of(std::process::id()).unwrap();
        assert_eq!(mine, std::os::unix::process::parent_id());
        assert_eq!(parent_of(u32::MAX), None);
    }
}
