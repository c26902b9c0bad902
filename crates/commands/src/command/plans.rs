//! `tonnage plans`: the plans inside this program. `tonnage run NAME` can run them from any folder.

use std::path::Path;
use std::process::ExitCode;

use tonnage_plan::Plan;
use tonnage_units::names::nearest;
use tonnage_units::{Error, Result};

use super::print;
use crate::args::PlansArgs;

/// A plan inside this program.
struct Shipped {
    name: &'static str,
    text: &'static str,
    /// Hardware and software that the plan's points need. Without it, they are skipped or refused.
    needs: &'static str,
}

static SHIPPED: [Shipped; 15] = [
    Shipped {
        name: "tour",
        text: include_str!("../../../../plans/tour.toml"),
        needs: "nothing",
    },
    Shipped {
        name: "gpu-node",
        text: include_str!("../../../../plans/gpu-node.toml"),
        needs: "an NVIDIA GPU and its driver",
    },
    Shipped {
        name: "gpu-node-amd",
        text: include_str!("../../../../plans/gpu-node-amd.toml"),
        needs: "an AMD GPU and ROCm's runtime",
    },
    Shipped {
        name: "mori-io-read",
        text: include_str!("../../../../plans/mori-io-read.toml"),
        needs: "two hosts with an RDMA NIC, or --engine with another engine",
    },
    Shipped {
        name: "mori-io-write",
        text: include_str!("../../../../plans/mori-io-write.toml"),
        needs: "two hosts with an RDMA NIC; any engine with --engine",
    },
    Shipped {
        name: "one-sided-read",
        text: include_str!("../../../../plans/one-sided-read.toml"),
        needs: "a server and clients with RDMA NICs; parts run anywhere",
    },
    Shipped {
        name: "efa-write",
        text: include_str!("../../../../plans/efa-write.toml"),
        needs: "four hosts with EFA; any engine with --engine",
    },
    Shipped {
        name: "torch-distributed",
        text: include_str!("../../../../plans/torch-distributed.toml"),
        needs: "a python3 with PyTorch; 2, 8 or 16 hosts",
    },
    Shipped {
        name: "cori-lustre-posix",
        text: include_str!("../../../../plans/cori-lustre-posix.toml"),
        needs: "a parallel file system",
    },
    Shipped {
        name: "cori-lustre-mpiio",
        text: include_str!("../../../../plans/cori-lustre-mpiio.toml"),
        needs: "a parallel file system, and mpirun",
    },
    Shipped {
        name: "cori-lustre-2-buffered",
        text: include_str!("../../../../plans/cori-lustre-2-buffered.toml"),
        needs: "a parallel file system",
    },
    Shipped {
        name: "cori-lustre-2-direct",
        text: include_str!("../../../../plans/cori-lustre-2-direct.toml"),
        needs: "a parallel file system",
    },
    Shipped {
        name: "cori-lustre-2-haswell",
        text: include_str!("../../../../plans/cori-lustre-2-haswell.toml"),
        needs: "a parallel file system",
    },
    Shipped {
        name: "cori-datawarp-1",
        text: include_str!("../../../../plans/cori-datawarp-1.toml"),
        needs: "a burst buffer or parallel file system, and mpirun",
    },
    Shipped {
        name: "cori-datawarp-2",
        text: include_str!("../../../../plans/cori-datawarp-2.toml"),
        needs: "a burst buffer or parallel file system, and mpirun",
    },
];

/// Lists the plans, or prints the text of a plan.
pub fn plans(args: &PlansArgs) -> Result<ExitCode> {
    match &args.name {
        Some(name) => print(shipped(name).ok_or_else(|| unknown(name))?.text)?,
        None => print(&list()?)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Loads the plan with this name inside this program. If there is none, loads the file.
pub fn load(plan: &Path) -> Result<Plan> {
    let Some(name) = plan.to_str() else {
        return Plan::load(plan);
    };
    if let Some(shipped) = shipped(name) {
        return Plan::from_toml(shipped.text, &format!("plan {name}"));
    }
    let is_name = !name.contains(['/', '.']);
    if is_name && !plan.exists() {
        return Err(unknown(name));
    }
    let stem = plan.file_stem().and_then(|stem| stem.to_str());
    match stem.and_then(shipped) {
        Some(same) if !plan.exists() => Err(Error::Usage(format!(
            "there is no file {name}; the plan {0} is inside this program: `tonnage run {0}`",
            same.name
        ))),
        _ => Plan::load(plan),
    }
}

fn shipped(name: &str) -> Option<&'static Shipped> {
    SHIPPED.iter().find(|plan| plan.name == name)
}

fn unknown(name: &str) -> Error {
    let names = SHIPPED.each_ref().map(|plan| plan.name);
    let hint = match nearest(name, &names) {
        Some(near) => format!("did you mean {near}?"),
        None => "`tonnage plans` lists those inside this program".to_owned(),
    };
    Error::Usage(format!("there is no plan {name:.60?}: {hint}"))
}

fn list() -> Result<String> {
    let mut text = String::from(
        "Plans in this program: `tonnage run NAME` runs one, `tonnage plans NAME` prints it.\n",
    );
    let width = SHIPPED
        .iter()
        .map(|plan| plan.name.len())
        .max()
        .unwrap_or(0);
    for shipped in &SHIPPED {
        let plan = Plan::from_toml(shipped.text, shipped.name)?;
        let ranks = plan
            .ranks
            .map_or_else(|| "any".to_owned(), |ranks| ranks.to_string());
        text += &format!(
            "\n  {:<width$}  {}\n  {:<width$}  ranks: {ranks}; needs {}\n",
            shipped.name,
            plan.title.as_deref().unwrap_or(&plan.name),
            "",
            shipped.needs,
        );
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_plan_of_the_source_tree_is_inside() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../plans");
        let files = std::fs::read_dir(folder).unwrap();
        let files: BTreeSet<_> = files
            .map(|file| file.unwrap().path().file_stem().unwrap().to_owned())
            .collect();
        let inside = SHIPPED.iter().map(|plan| plan.name.into()).collect();
        assert_eq!(files, inside);
    }

    #[test]
    fn every_plan_is_listed_with_its_needs() {
        let text = list().unwrap();
        for shipped in &SHIPPED {
            assert!(text.contains(&format!("\n  {} ", shipped.name)), "{text}");
        }
        assert!(
            text.lines().all(|line| line.chars().count() <= 120),
            "{text}"
        );
    }

    #[test]
    fn a_plan_is_found_by_name_or_as_a_file() {
        let plan = load(Path::new("tour")).unwrap();
        assert_eq!(plan.name, "tour");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("mine.toml");
        std::fs::write(&file, shipped("gpu-node").unwrap().text).unwrap();
        assert_eq!(load(&file).unwrap().name, "gpu-node");
        for (name, hint) in [
            ("gpu-nod", "did you mean gpu-node?"),
            ("something-else", "`tonnage plans` lists"),
            ("no/such/folder/tour.toml", "`tonnage run tour`"),
            ("no/such/folder/mine.toml", "cannot be read"),
        ] {
            let refused = load(Path::new(name)).unwrap_err().to_string();
            assert!(refused.contains(hint), "{refused}");
        }
    }
}
