//! The source of this repository: its files, and the modules that they make.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use syn::Item;

/// A file of Rust.
pub struct File {
    /// Its path from the root of the repository.
    pub path: String,
    /// Its text.
    pub text: String,
}

/// Modules of one library, program or test by their paths from its root, which is empty.
pub type Modules = BTreeMap<Vec<String>, Module>;

/// A module.
pub struct Module {
    /// Its file; tests inside of a file are a file of their own, as they would be beside it.
    pub file: String,
    /// Everything in it but modules.
    pub items: Vec<Item>,
}

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The name of the crate that a file of the repository belongs to.
pub fn crate_of(path: &str) -> &str {
    path.split('/').nth(1).unwrap_or(path)
}

/// Every file of Rust in the crates.
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

/// The files that are the head of a library, a program or a test of cargo's.
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

/// The modules below a head.
pub fn modules(head: &str) -> Modules {
    let mut all = Modules::new();
    let path = root().join(head);
    let directory = path.parent().unwrap().to_owned();
    read(&mut all, &path, &directory, Vec::new());
    all
}

/// Reads a file as the module `name`, whose children lie in `directory`.
fn read(all: &mut Modules, path: &Path, directory: &Path, name: Vec<String>) {
    let text = std::fs::read_to_string(path).unwrap();
    let syntax = syn::parse_file(&text).unwrap();
    add(all, &shown(path), syntax.items, Some(directory), name);
}

/// Adds a module with those inside of it; `directory` is where the files of its children lie.
pub fn add(
    all: &mut Modules,
    file: &str,
    items: Vec<Item>,
    directory: Option<&Path>,
    name: Vec<String>,
) {
    let mut own = Vec::new();
    for item in items {
        let Item::Mod(module) = item else {
            own.push(item);
            continue;
        };
        let child = module.ident.to_string();
        let name = [&name[..], std::slice::from_ref(&child)].concat();
        match (module.content, directory) {
            (Some((_, items)), directory) => {
                let inner = match child.as_str() {
                    "tests" => format!("{file} (its tests)"),
                    _ => file.to_owned(),
                };
                let directory = directory.map(|directory| directory.join(&child));
                add(all, &inner, items, directory.as_deref(), name);
            }
            // A file with a path of its own belongs to another head, and is looked at there.
            (None, _) if module.attrs.iter().any(|it| it.path().is_ident("path")) => {}
            (None, Some(directory)) => {
                let below = directory.join(&child);
                let beside = below.with_extension("rs");
                let path = match beside.exists() {
                    true => beside,
                    false => below.join("mod.rs"),
                };
                read(all, &path, &below, name);
            }
            (None, None) => {}
        }
    }
    let file = file.to_owned();
    all.insert(name, Module { file, items: own });
}
