//! Compiles libfabric's core and its providers tcp, rxm and shm into a static library, with a C compiler alone.
//!
//! The sources come from the crate `lamellar-libfabric-src`. That crate's own build needs autotools; here `c/config.h`
//! replaces the output of configure.

use std::error::Error;
use std::path::{Path, PathBuf};

/// Source folders, each with the C files to leave out: old symbol versions, which only a shared library needs, and code
/// that needs liburing or performance counters.
const FOLDERS: [(&str, &[&str]); 9] = [
    ("src", &["abi_1_0.c", "iouring.c"]),
    ("src/unix", &[]),
    ("src/linux", &["rdpmc.c"]),
    ("prov/util/src", &[]),
    ("prov/coll/src", &[]),
    ("prov/hook/src", &[]),
    ("prov/tcp/src", &[]),
    ("prov/rxm/src", &[]),
    ("prov/shm/src", &[]),
];

/// Include folders, in addition to `c/`.
const INCLUDES: [&str; 4] = [
    "include",
    "prov/hook/include",
    "prov/coll/include",
    "prov/tcp/include",
];

/// The C file with the table of sizes, offsets and values.
const LAYOUT: &str = "c/layout.c";

fn main() -> Result<(), Box<dyn Error>> {
    // The source tree belongs to a fixed crate version and cannot change, so only these inputs rerun the build.
    for input in ["build.rs", "c/config.h", LAYOUT] {
        println!("cargo:rerun-if-changed={input}");
    }
    let target = |name: &str| std::env::var(format!("CARGO_CFG_TARGET_{name}"));
    if target("OS")? != "linux" || target("POINTER_WIDTH")? != "64" {
        return Err("the embedded libfabric is set up for 64-bit Linux only".into());
    }
    let source = libfabric_src::source_dir();
    let version = version_of(&source)?;
    println!("cargo:rustc-env=TONNAGE_LIBFABRIC_VERSION={version}");
    let mut build = cc::Build::new();
    for (folder, left_out) in FOLDERS {
        build.files(c_files(&source.join(folder), left_out)?);
    }
    build
        .file(LAYOUT)
        .include("c")
        .includes(INCLUDES.map(|folder| source.join(folder)))
        .define("HAVE_CONFIG_H", None)
        .define("_GNU_SOURCE", None)
        .define("__USE_XOPEN2K8", None)
        .define("NDEBUG", None)
        .define("SYSCONFDIR", "\"/etc\"")
        .define("RDMADIR", "\"rdma\"")
        .define("TONNAGE_LIBFABRIC_VERSION", &*format!("\"{version}\""))
        // Same level as a libfabric release build, in every profile, so that tests run the code that users run.
        .opt_level(2)
        .debug(false)
        .flag("-fvisibility=hidden")
        // The warnings of third-party code depend on the compiler, and this project cannot act on them.
        .warnings(false)
        .cargo_warnings(false)
        .try_compile("tonnage_libfabric")?;
    println!("cargo:rustc-link-lib=pthread");
    println!("cargo:rustc-link-lib=rt");
    Ok(())
}

/// Returns the release from configure.ac: `AC_INIT([libfabric], [1.22.0], …`.
fn version_of(source: &Path) -> Result<String, Box<dyn Error>> {
    let path = source.join("configure.ac");
    let text = std::fs::read_to_string(&path)?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("AC_INIT([libfabric], ["));
    let version = line.and_then(|rest| rest.split(']').next());
    Ok(version
        .ok_or_else(|| format!("{}: names no version", path.display()))?
        .to_owned())
}

/// Returns a folder's C files in sorted order, so that the library is always assembled in the same order.
fn c_files(folder: &Path, left_out: &[&str]) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let wanted = !left_out.iter().any(|name| path.ends_with(name));
        if wanted && path.extension().is_some_and(|extension| extension == "c") {
            files.push(path);
        }
    }
    if files.is_empty() {
        return Err(format!("{}: no C files", folder.display()).into());
    }
    files.sort();
    Ok(files)
}
