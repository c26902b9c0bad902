//! The manifests of contrib/kubernetes: their structure, and runs of the program as the described pods.
//!
//! The pods' settings (arguments, variables, the first pod's host name) are read from the manifests, so that they
//! always match the program. Settings that controllers add are hard-coded here: the index of a pod of an Indexed Job,
//! and the expansion of a TrainJob by Kubeflow Trainer's plugin for torch. Schemas are not checked, because they are on
//! the network. On a cluster, `kubectl apply --dry-run=server` checks them.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;

use tempfile::tempdir;
use tonnage_record::Outcome;
use tonnage_testbed::Hosts;
use yaml_rust2::{Yaml, YamlLoader};

use super::hosts::{all_good, hosts};
use super::support::{BRIEF, Program, records, tonnage, tonnage_in};

/// Pods of one run, as described in a manifest.
struct Pods {
    count: i64,
    arguments: String,
    /// Environment variables with the same value in each pod.
    variables: BTreeMap<String, String>,
    /// Variables with the number of the pod.
    index_names: &'static [&'static str],
    /// Name that the controller and the Service give to the first pod.
    first: String,
    /// The launcher variables that the records name.
    launcher: &'static str,
}

fn documents(name: &str) -> Vec<Yaml> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../contrib/kubernetes")
        .join(name);
    YamlLoader::load_from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

fn of_kind<'a>(documents: &'a [Yaml], kind: &str) -> &'a Yaml {
    let mut found = documents
        .iter()
        .filter(|part| part["kind"].as_str() == Some(kind));
    let one = found.next().unwrap_or_else(|| panic!("no {kind}"));
    assert!(found.next().is_none(), "several {kind}");
    one
}

fn text(yaml: &Yaml) -> &str {
    yaml.as_str().unwrap_or_else(|| panic!("no text: {yaml:?}"))
}

fn number(yaml: &Yaml) -> i64 {
    yaml.as_i64()
        .unwrap_or_else(|| panic!("no number: {yaml:?}"))
}

fn arguments(yaml: &Yaml) -> String {
    let words: Vec<_> = yaml.as_vec().unwrap().iter().map(text).collect();
    words.join(" ")
}

/// Returns the variables of a container. Values from a Secret are looked up in the documents.
fn variables(env: &Yaml, documents: &[Yaml]) -> BTreeMap<String, String> {
    let value = |entry: &Yaml| {
        let from = &entry["valueFrom"]["secretKeyRef"];
        if from.is_badvalue() {
            return text(&entry["value"]).to_owned();
        }
        let secret = of_kind(documents, "Secret");
        assert_eq!(secret["metadata"]["name"], from["name"]);
        text(&secret["stringData"][text(&from["key"])]).to_owned()
    };
    let entries = env.as_vec().unwrap().iter();
    entries
        .map(|entry| (text(&entry["name"]).to_owned(), value(entry)))
        .collect()
}

/// Reads the specification of an Indexed Job, alone or within a JobSet.
fn indexed(spec: &Yaml, documents: &[Yaml], first: String) -> Pods {
    assert_eq!(text(&spec["completionMode"]), "Indexed");
    let count = number(&spec["completions"]);
    assert_eq!(number(&spec["parallelism"]), count, "all run at once");
    let pod = &spec["template"]["spec"];
    assert_eq!(pod["securityContext"]["runAsNonRoot"].as_bool(), Some(true));
    // Kubernetes does not know user names in an image, so the ID must be numeric.
    assert!(number(&pod["securityContext"]["runAsUser"]) > 0);
    let container = &pod["containers"][0];
    assert!(
        container["command"].is_badvalue(),
        "the image sets the command"
    );
    let variables = variables(&container["env"], documents);
    assert_eq!(variables["WORLD_SIZE"], count.to_string());
    assert_eq!(variables["MASTER_ADDR"], first);
    Pods {
        count,
        arguments: arguments(&container["args"]),
        variables,
        index_names: &["JOB_COMPLETION_INDEX"],
        first,
        launcher: "JOB_COMPLETION_INDEX, MASTER_ADDR",
    }
}

/// A Job names its pod I JOB-I, within the headless Service that the pods name.
fn job() -> Pods {
    let documents = documents("job.yaml");
    let (job, service) = (of_kind(&documents, "Job"), of_kind(&documents, "Service"));
    let template = &job["spec"]["template"];
    let domain = text(&template["spec"]["subdomain"]);
    assert_eq!(text(&service["metadata"]["name"]), domain);
    assert_eq!(text(&service["spec"]["clusterIP"]), "None");
    // Without this setting, pods would have no DNS names until all of them run.
    let published = &service["spec"]["publishNotReadyAddresses"];
    assert_eq!(published.as_bool(), Some(true));
    let labels = template["metadata"]["labels"].as_hash().unwrap();
    for (name, value) in service["spec"]["selector"].as_hash().unwrap() {
        assert_eq!(labels.get(name), Some(value), "pods that the Service finds");
    }
    let first = format!("{}-0.{domain}", text(&job["metadata"]["name"]));
    indexed(&job["spec"], &documents, first)
}

/// A JobSet creates a Service with its own name. Pod I of its job J gets the name JOBSET-PART-J-I.
fn jobset() -> Pods {
    let documents = documents("jobset.yaml");
    let set = of_kind(&documents, "JobSet");
    let network = &set["spec"]["network"];
    for name in ["enableDNSHostnames", "publishNotReadyAddresses"] {
        assert_eq!(network[name].as_bool(), Some(true), "{name}");
    }
    let part = &set["spec"]["replicatedJobs"][0];
    assert_eq!(number(&part["replicas"]), 1, "indexes count within a job");
    let name = text(&set["metadata"]["name"]);
    let first = format!("{name}-{}-0-0.{name}", text(&part["name"]));
    indexed(&part["template"]["spec"], &documents, first)
}

fn trainjob() -> Pods {
    let documents = documents("trainjob.yaml");
    let job = of_kind(&documents, "TrainJob");
    assert_eq!(
        text(&job["spec"]["runtimeRef"]["name"]),
        "torch-distributed"
    );
    let trainer = &job["spec"]["trainer"];
    assert_eq!(arguments(&trainer["command"]), "tonnage");
    let name = text(&job["metadata"]["name"]);
    let first = format!("{name}-node-0-0.{name}");
    let count = number(&trainer["numNodes"]);
    let mut variables = variables(&trainer["env"], &documents);
    for (name, value) in [
        ("PET_NNODES", count.to_string()),
        (
            "PET_NPROC_PER_NODE",
            number(&trainer["numProcPerNode"]).to_string(),
        ),
        ("PET_MASTER_ADDR", first.clone()),
        ("PET_MASTER_PORT", "29500".into()),
    ] {
        // The plugin refuses a variable that is already set.
        assert_eq!(variables.insert(name.into(), value), None, "{name}");
    }
    Pods {
        count,
        arguments: arguments(&trainer["args"]),
        variables,
        index_names: &["PET_NODE_RANK", "JOB_COMPLETION_INDEX"],
        first,
        launcher: "PET_*, PET_MASTER_ADDR",
    }
}

impl Pods {
    /// Sets a pod's variables, with a secret instead of the placeholder that the manifest's reader has to change.
    fn dress(&self, mut program: Program, index: usize, secret: &str) -> Program {
        for (name, value) in &self.variables {
            program = program.env(name, value.replace("CHANGE-ME", secret));
        }
        for name in self.index_names {
            program = program.env(name, index.to_string());
        }
        program
    }

    fn run(&self, hosts: &Hosts) {
        let names = hosts.folder().join("hosts");
        let mut names = OpenOptions::new().append(true).open(names).unwrap();
        writeln!(names, "{} {}", hosts.address(0), self.first).unwrap();
        let dir = tempdir().unwrap();
        let started: Vec<_> = (0..usize::try_from(self.count).unwrap())
            .map(|index| {
                // Pods share no home directory, so a pod cannot see another pod's secret file.
                let home = dir.path().join(index.to_string());
                fs::create_dir(&home).unwrap();
                let arguments = format!("{} {BRIEF} -o r.jsonl", self.arguments);
                let program = tonnage_in(hosts, index, &home, &arguments);
                self.dress(program, index, &"0123456789abcdef".repeat(4))
                    .start()
            })
            .collect();
        let ended: Vec<_> = started.into_iter().map(|run| run.end()).collect();
        all_good(&ended);
        let records = records::read(&dir.path().join("0/r.jsonl"));
        assert!(records.len() > 1, "{ended:#?}");
        for record in records {
            assert_eq!(record.outcome, Outcome::Measured, "{ended:#?}");
            assert_eq!(record.environment[0].launcher, self.launcher);
        }
    }
}

#[test]
fn pods_of_the_manifests_are_a_run() {
    let all = [job(), jobset(), trainjob()];
    let most = all.iter().map(|pods| pods.count).max().unwrap();
    let Some(hosts) = hosts(usize::try_from(most).unwrap(), None) else {
        return;
    };
    for pods in all {
        pods.run(&hosts);
    }
}

/// A secret in a public file is not secret, so the placeholder must be refused.
#[test]
fn unmodified_manifests_are_refused() {
    for pods in [job(), jobset(), trainjob()] {
        let dir = tempdir().unwrap();
        let program = tonnage(dir.path(), &pods.arguments);
        pods.dress(program, 0, "CHANGE-ME")
            .run()
            .with_code(2)
            .with_one_error(&["TONNAGE_SECRET", "9 bytes", "at least 16"]);
    }
}

/// The image must not run as root. It must start the program that takes the manifests' arguments.
#[test]
fn the_image_starts_the_program_without_root() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/kubernetes/Dockerfile");
    let text = fs::read_to_string(path).unwrap();
    let last = |word: &str| text.lines().rfind(|line| line.starts_with(word)).unwrap();
    let documents = documents("job.yaml");
    let user = &of_kind(&documents, "Job")["spec"]["template"]["spec"]["securityContext"];
    let (user, group) = (number(&user["runAsUser"]), number(&user["runAsGroup"]));
    assert_eq!(last("USER"), format!("USER {user}:{group}"));
    assert_eq!(last("ENTRYPOINT"), "ENTRYPOINT [\"/usr/bin/tonnage\"]");
}
