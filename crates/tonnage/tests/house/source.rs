//! The source files of this repository.

use std::path::{Path, PathBuf};

/// A Rust file.
pub struct File {
    /// Path from the root of the repository.
    pub path: String,
    /// The file's text.
    pub text: String,
}

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the name of the crate to which a file of the repository belongs.
pub fn crate_of(path: &str) -> &str {
    path.split('/').nth(1).unwrap_or(path)
}

/// Returns all Rust files of the crates.
pub fn files() -> Vec<File> {
    let mut found = Vec::new();
    collect(&root().join("crates"), &mut found);
    found.sort();
    let read = |path: PathBuf| File {
        path: shown(&path),
        text: std::fs::read_to_string(&path).unwrap(),
    };
    found.into_iter().map(read).collect()
}

fn collect(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, found);
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            found.push(path);
        }
    }
}

fn shown(path: &Path) -> String {
    let root = root();
    let path = path.strip_prefix(&root).unwrap_or(path);
    path.to_string_lossy().into_owned()
}

/// Returns the root files of libraries, programs and test targets.
pub fn heads() -> Vec<String> {
    let is_head = |path: &String| {
        let parts: Vec<&str> = path.split('/').skip(2).collect();
        matches!(
            parts[..],
            ["build.rs"] | ["src", "lib.rs" | "main.rs"] | ["tests", _] | ["tests", _, "main.rs"]
        )
    };
    let paths = files().into_iter().map(|file| file.path);
    paths.filter(is_head).collect()
}
