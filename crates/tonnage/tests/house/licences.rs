//! Licences and origins of dependencies. Known vulnerabilities are not tested here, because the same commit could pass
//! today and fail tomorrow. Before a release, run `cargo install cargo-audit && cargo audit`.

use std::process::Command;

use serde_json::Value;

use super::source;

/// Permitted licences of dependencies, as the packages declare them. Each allows use in a program under MIT or
/// Apache-2.0.
const LICENCES: [&str; 15] = [
    "(MIT OR Apache-2.0) AND Unicode-3.0",
    "0BSD OR MIT OR Apache-2.0",
    "Apache-2.0",
    "Apache-2.0 OR MIT",
    "Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT",
    "Apache-2.0/MIT",
    "BSD-2-Clause OR Apache-2.0 OR MIT",
    "BSD-3-Clause",
    "MIT",
    "MIT OR Apache-2.0",
    "MIT OR Zlib OR Apache-2.0",
    "MIT-0",
    "MIT/Apache-2.0",
    "Unlicense OR MIT",
    "Zlib",
];

/// This package declares no licence, but contains two licence texts. One (Battelle's, with the conditions of
/// BSD-3-Clause) covers its own few lines, which run only during the build. The other (BSD-2-Clause or GPL-2.0) covers
/// libfabric, which is compiled into the program. A new version needs a new review.
const READ: (&str, &str) = ("lamellar-libfabric-src", "0.1.1");

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Returns problems with packages listed by `cargo metadata`. A package of this workspace has no `source`.
fn wrong(packages: &[Value]) -> Vec<String> {
    let mut wrong = Vec::new();
    for package in packages {
        let text = |key: &str| package[key].as_str().unwrap_or("");
        let name = text("name");
        if package["source"].is_null() {
            let all = package["dependencies"].as_array().unwrap().iter();
            let any = all.filter(|to| to["req"] == "*" && to["path"].is_null());
            wrong.extend(any.map(|to| format!("{name} takes any version of {}", to["name"])));
            continue;
        }
        if text("source") != CRATES_IO {
            wrong.push(format!("{name} comes from {}", text("source")));
        }
        let licence = text("license");
        if !LICENCES.contains(&licence) && (name, text("version")) != READ {
            wrong.push(format!("{name} is under {licence:?}"));
        }
    }
    wrong
}

/// Returns all packages from which the program and its tests are built.
#[cfg(test)]
fn packages() -> Vec<Value> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args([
        "metadata",
        "--format-version=1",
        "--locked",
        "--all-features",
    ]);
    for architecture in ["x86_64", "aarch64"] {
        cargo.arg(format!(
            "--filter-platform={architecture}-unknown-linux-gnu"
        ));
    }
    let output = cargo.current_dir(source::root()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

#[test]
fn dependencies_come_from_crates_io_under_licences_that_were_read() {
    let packages = packages();
    assert!(packages.len() > 100);
    assert_eq!(wrong(&packages), Vec::<String>::new());
}

#[test]
fn a_licence_a_source_and_a_wildcard_that_nobody_read_are_found() {
    let package = |name: &str, version: &str, licence: &str, source: &str| serde_json::json!({ "name": name, "version": version, "license": licence, "source": source });
    let found = wrong(&[
        package("one", "1.0.0", "GPL-3.0-only", CRATES_IO),
        package("two", "1.0.0", "MIT", "git+https://example.org/two"),
        package(READ.0, "0.2.0", "", CRATES_IO),
        serde_json::json!({ "name": "own", "dependencies": [{ "name": "three", "req": "*" }] }),
    ]);
    let expected = [
        "one is under \"GPL-3.0-only\"",
        "two comes from git+https://example.org/two",
        "lamellar-libfabric-src is under \"\"",
        "own takes any version of \"three\"",
    ];
    assert_eq!(found, expected);
}
