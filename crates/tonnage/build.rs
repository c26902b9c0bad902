//! Passes the commit and the target triple of the build to the compiler, so that every record can name them.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Variable that names the revision if the source has no repository, such as in a distribution's package.
const VARIABLE: &str = "TONNAGE_REVISION";

/// File with the revision in archives that `git archive` makes (.gitattributes), such as downloads from code forges.
const FILE: &str = "revision.txt";

/// Number of characters of the commit that are shown.
const SHOWN: usize = 12;

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Returns the commit of this source's own repository. A repository that merely contains the source, such as a
/// distribution's recipes, does not count.
fn of_repository(workspace: &Path) -> Option<String> {
    let top = PathBuf::from(git(&["rev-parse", "--show-toplevel"])?);
    if top.canonicalize().ok()? != workspace.canonicalize().ok()? {
        return None;
    }
    if let Some(directory) = git(&["rev-parse", "--absolute-git-dir"]) {
        println!("cargo:rerun-if-changed={directory}/HEAD");
        println!("cargo:rerun-if-changed={directory}/index");
    }
    let head = git(&["rev-parse", "HEAD"])?;
    let head = head.get(..SHOWN)?;
    let changed = git(&["status", "--porcelain", "--untracked-files=no"])
        .is_some_and(|changes| !changes.is_empty());
    Some(if changed {
        format!("{head}-dirty")
    } else {
        head.to_owned()
    })
}

fn of_variable() -> Option<String> {
    let text = std::env::var(VARIABLE).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// Returns the revision in the file. `None` if it still has the placeholder that `git archive` replaces.
fn of_archive() -> Option<String> {
    let text = std::fs::read_to_string(FILE).ok()?;
    let text = text.trim();
    let is_commit = text.len() >= SHOWN && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_commit.then(|| text[..SHOWN].to_owned())
}

fn main() {
    let workspace = Path::new("../..");
    // Without any revision, users have only the version.
    let revision = of_variable()
        .or_else(of_archive)
        .or_else(|| of_repository(workspace))
        .unwrap_or_else(|| "unknown".to_owned());
    println!("cargo:rustc-env=TONNAGE_GIT_REVISION={revision}");
    let target = std::env::var("TARGET").unwrap_or_default();
    println!("cargo:rustc-env=TONNAGE_TARGET={target}");
    println!("cargo:rerun-if-env-changed={VARIABLE}");
    println!("cargo:rerun-if-changed={FILE}");
    println!("cargo:rerun-if-changed=build.rs");
}
