//! Tells the program which commit it was built from, so that every record can say it.

use std::process::Command;

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn main() {
    // Packaged sources have no repository: then the revision is unknown, and the version has to do.
    let revision = git(&["rev-parse", "--short=12", "HEAD"]).map_or("unknown".to_owned(), |head| {
        let changed = git(&["status", "--porcelain", "--untracked-files=no"])
            .is_some_and(|changes| !changes.is_empty());
        if changed {
            format!("{head}-dirty")
        } else {
            head
        }
    });
    println!("cargo:rustc-env=TONNAGE_GIT_REVISION={revision}");
    if let Some(directory) = git(&["rev-parse", "--absolute-git-dir"]) {
        println!("cargo:rerun-if-changed={directory}/HEAD");
        println!("cargo:rerun-if-changed={directory}/index");
    }
    println!("cargo:rerun-if-changed=build.rs");
}
