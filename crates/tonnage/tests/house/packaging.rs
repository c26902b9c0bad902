//! Statements of contrib/ and of packages about this program: versions, files, cloud settings, scripts without syntax
//! errors.
//!
//! These tests do not build the packages, because that takes minutes. `make packages` and `make test-packages` do.

use std::path::Path;
use std::process::Command;

use yaml_rust2::{Yaml, YamlLoader};

use super::source::root;

const RECIPE: &str = "contrib/spack/spack_repo/tonnage/packages/tonnage/package.py";

fn text(path: &str) -> String {
    let path = root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn table(path: &str) -> toml::Table {
    text(path).parse().unwrap()
}

#[test]
fn versions_are_those_of_the_program() {
    let version = env!("CARGO_PKG_VERSION");
    for manifest in ["job", "jobset", "trainjob", "init-container", "cronjob"] {
        let image = format!("image: registry.example/tonnage:{version}\n");
        let path = format!("contrib/kubernetes/{manifest}.yaml");
        assert!(text(&path).contains(&image), "{path} has no {image}");
    }
    let recipe = text(RECIPE);
    assert!(recipe.contains(&format!("version(\"{version}\",")));
    let rust = env!("CARGO_PKG_RUST_VERSION");
    assert!(recipe.contains(&format!("depends_on(\"rust@{rust}:\", type=\"build\")")));
    // The recipe finds the source a fixed number of directory levels above itself.
    let depth = Path::new(RECIPE).components().count() - 1;
    assert!(recipe.contains(&format!("parents[{depth}]")));
}

#[test]
fn the_wheel_is_built_of_this_program() {
    let python = table("pyproject.toml");
    let maturin = &python["tool"]["maturin"];
    assert_eq!(maturin["bindings"].as_str(), Some("bin"));
    let manifest = table(maturin["manifest-path"].as_str().unwrap());
    assert_eq!(manifest["package"]["name"], python["project"]["name"]);
    assert_eq!(
        manifest["package"]["description"],
        python["project"]["description"]
    );
    let profile = maturin["profile"].as_str().unwrap();
    let workspace = table("Cargo.toml");
    assert_eq!(
        workspace["profile"][profile]["inherits"].as_str(),
        Some("release")
    );
    assert_eq!(
        workspace["workspace"]["package"]["license"],
        python["project"]["license"]
    );
    // All packages take their binary from this profile's directory.
    let script = text("scripts/make-packages.sh");
    assert!(script.contains(&format!("-unknown-linux-gnu/{profile}/tonnage")));
}

#[test]
fn files_of_the_deb_are_there() {
    let manifest = table("crates/tonnage/Cargo.toml");
    let assets = manifest["package"]["metadata"]["deb"]["assets"].as_array();
    let made = text("scripts/make-packages.sh");
    for asset in assets.unwrap() {
        let source = asset[0].as_str().unwrap();
        if source == "target/release/tonnage" {
            continue;
        }
        let source = source.strip_prefix("../../").unwrap();
        let (folder, name) = source.rsplit_once('/').unwrap_or(("", source));
        let folder = folder.strip_suffix("/**").unwrap_or(folder);
        if let Some(share) = folder.strip_prefix("target/packages/share/") {
            assert!(made.contains(share), "nobody makes {source}");
            continue;
        }
        let ending = name.strip_prefix('*').unwrap_or(name);
        let found = root().join(folder).read_dir().unwrap().any(|entry| {
            let file = entry.unwrap().file_name();
            file.to_str().is_some_and(|file| file.ends_with(ending))
        });
        assert!(found, "{source} is not there");
    }
    // Slurm runs the scripts from this folder.
    for script in ["health-check.sh", "prolog.sh"] {
        let folder = "usr/share/tonnage/slurm/";
        assert!(text(&format!("contrib/slurm/{script}")).contains(&format!("/{folder}{script}")));
        let runs = |asset: &toml::Value| {
            asset[0].as_str() == Some("../../contrib/slurm/*.sh")
                && asset[1].as_str() == Some(folder)
                && asset[2].as_str() == Some("755")
        };
        assert!(assets.unwrap().iter().any(runs), "{script}");
    }
}

/// `pcluster create-cluster --dryrun true` checks more, but needs network access or a mock of AWS.
#[test]
fn the_cluster_on_aws_has_what_its_readme_promises() {
    let parts = YamlLoader::load_from_str(&text("contrib/aws/cluster.yaml")).unwrap();
    let cluster = &parts[0];
    assert_eq!(cluster["Scheduling"]["Scheduler"].as_str(), Some("slurm"));
    let queue = &cluster["Scheduling"]["SlurmQueues"][0];
    let network = &queue["Networking"];
    assert_eq!(network["PlacementGroup"]["Enabled"], Yaml::Boolean(true));
    let nodes = &queue["ComputeResources"][0];
    assert_eq!(nodes["Efa"]["Enabled"], Yaml::Boolean(true));
    assert_eq!(nodes["MinCount"].as_i64(), Some(0), "nothing runs unasked");
    assert!(nodes["MaxCount"].as_i64() >= Some(2));
    // AWS assigns no public address to nodes with several interfaces, so they need a private subnet.
    assert_ne!(
        network["SubnetIds"][0],
        cluster["HeadNode"]["Networking"]["SubnetId"]
    );
    let readme = text("contrib/aws/README.md");
    for word in [
        "--zone",
        "--placement",
        "--instance-type",
        "--num-machines",
        "--linux-type",
        "--ami",
        "--name",
        "connect",
        "tmux",
    ] {
        assert!(
            readme.contains(&format!("\n| `{word}")),
            "{word} is not mapped"
        );
    }
}

/// Returns whether a script has no syntax errors; `None` if its interpreter is not installed.
fn is_readable(program: &str, arguments: &[&str], path: &str) -> Option<bool> {
    let mut command = Command::new(program);
    let output = command
        .args(arguments)
        .arg(root().join(path))
        .output()
        .ok()?;
    Some(output.status.success())
}

#[test]
fn scripts_can_be_read() {
    const PYTHON: &str = "import sys; compile(open(sys.argv[1]).read(), sys.argv[1], 'exec')";
    for (program, arguments, path) in [
        ("python3", &["-c", PYTHON][..], RECIPE),
        ("bash", &["-n"], "scripts/make-packages.sh"),
        ("bash", &["-n"], "scripts/test-packages.sh"),
    ] {
        match is_readable(program, arguments, path) {
            None => println!("skip: {program} is not installed: {path} is not read"),
            Some(read) => assert!(read, "{program} cannot read {path}"),
        }
    }
    // Bash does detect errors: it refuses a Python file.
    if is_readable("bash", &["-n"], RECIPE).is_some() {
        assert_eq!(is_readable("bash", &["-n"], RECIPE), Some(false));
    }
}
