//! Tells the program which commit it was built from, so that every record can say it, and for which machine.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Names the revision for a build of sources that no repository has, such as a distribution's package.
const VARIABLE: &str = "TONNAGE_REVISION";

/// Holds the revision in archives that `git archive` has made (.gitattributes), as code forges do for their downloads.
const FILE: &str = "revision.txt";

/// As many characters as are told.
const SHOWN: usize = 12;

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The commit of this source's own repository. One that merely lies around the source, such as that of a distribution's
/// recipes, says nothing about it.
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

/// `None` where the file holds what git would have replaced.
fn of_archive() -> Option<String> {
    let text = std::fs::read_to_string(FILE).ok()?;
    let text = text.trim();
    let is_commit = text.len() >= SHOWN && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_commit.then(|| text[..SHOWN].to_owned())
}

fn main() {
    let workspace = Path::new("../..");
    // Else the version has to do.
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
