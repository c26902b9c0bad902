//! Pods of Kubernetes: an Indexed Job's, and a TrainJob's with and without torchrun.

use super::{meeting_of, refused, seen, with};
use crate::bootstrap::detect::{AddressSource, Meeting};

#[test]
fn an_indexed_job_says_its_size_by_world_size() {
    let job = [
        ("JOB_COMPLETION_INDEX", "1"),
        ("WORLD_SIZE", "2"),
        ("MASTER_ADDR", "job-0.svc"),
        ("MASTER_PORT", "29500"),
    ];
    let (rank, size, source, meeting) = meeting_of(&job);
    assert_eq!(
        (rank, size, source.as_str()),
        (1, 2, "JOB_COMPLETION_INDEX")
    );
    let master = Meeting::Master {
        host: "job-0.svc".into(),
        port: 29500,
        source: AddressSource::Variable,
    };
    assert_eq!(meeting, master);
    refused(&job[..1], &["WORLD_SIZE", "completions", "WORLD_SIZE=1"]);
    refused(&job[..2], &["MASTER_ADDR"]);
    refused(&job[..3], &["MASTER_PORT"]);
    refused(&[("JOB_COMPLETION_INDEX", "2"), job[1]], &["rank 2 of 2"]);
    let alone = [("JOB_COMPLETION_INDEX", "0"), ("WORLD_SIZE", "1")];
    assert_eq!(seen(&alone).unwrap(), None);
    let one_in_a_pod = with(&[job[0], ("LOCAL_RANK", "0"), ("LOCAL_WORLD_SIZE", "1")]);
    refused(&one_in_a_pod, &["JOB_COMPLETION_INDEX=1", "disagree"]);
    // Eight ranks in each pod, started by a script.
    let in_a_pod = with(&[job[0], ("LOCAL_WORLD_SIZE", "4")]);
    assert!(seen(&in_a_pod).is_ok());
}

/// Variables of the second of two pods, as Kubeflow Trainer's plugin for torch sets them; Kubernetes adds the index.
const TRAIN_JOB: [(&str, &str); 6] = [
    ("PET_NNODES", "2"),
    ("PET_NPROC_PER_NODE", "1"),
    ("PET_NODE_RANK", "1"),
    ("PET_MASTER_ADDR", "tonnage-node-0-0.tonnage"),
    ("PET_MASTER_PORT", "29500"),
    ("JOB_COMPLETION_INDEX", "1"),
];

#[test]
fn a_pod_of_a_train_job_is_a_rank() {
    let (rank, size, source, meeting) = meeting_of(&TRAIN_JOB);
    assert_eq!((rank, size, source.as_str()), (1, 2, "PET_*"));
    let master = Meeting::Master {
        host: "tonnage-node-0-0.tonnage".into(),
        port: 29500,
        source: AddressSource::TrainJob,
    };
    assert_eq!(meeting, master);
    let without = |name: &str| -> Vec<_> {
        TRAIN_JOB
            .into_iter()
            .filter(|(known, _)| *known != name)
            .collect()
    };
    refused(&without("PET_NNODES"), &["PET_NNODES is not set"]);
    refused(
        &without("PET_MASTER_ADDR"),
        &["PET_*", "PET_MASTER_ADDR is not set"],
    );
    refused(&without("PET_MASTER_PORT"), &["PET_MASTER_PORT is not set"]);
    for several in ["8", "auto"] {
        let mut job = without("PET_NPROC_PER_NODE");
        job.push(("PET_NPROC_PER_NODE", several));
        let asked = format!("PET_NPROC_PER_NODE={several}");
        refused(&job, &[&asked, "numProcPerNode: 1", "torchrun --no-python"]);
    }
    let mut alone = without("PET_NNODES");
    alone.push(("PET_NNODES", "1"));
    refused(&alone, &["rank 1 of 1"]);
}

/// Of an elastic job even the number of pods is no number.
#[test]
fn what_torchrun_says_in_a_pod_of_a_train_job_counts() {
    let mut job = TRAIN_JOB.to_vec();
    job[0].1 = "1:2";
    job[1].1 = "4";
    job.extend([
        ("RANK", "5"),
        ("WORLD_SIZE", "8"),
        ("LOCAL_RANK", "1"),
        ("LOCAL_WORLD_SIZE", "4"),
        ("MASTER_ADDR", "tonnage-node-0-0.tonnage"),
        ("MASTER_PORT", "29500"),
        ("TORCHELASTIC_RUN_ID", "none"),
        ("TORCHELASTIC_USE_AGENT_STORE", "True"),
    ]);
    let (rank, size, source, meeting) = meeting_of(&job);
    assert_eq!((rank, size, source.as_str()), (5, 8, "RANK/WORLD_SIZE"));
    assert!(
        matches!(meeting, Meeting::Master { port: 29501, .. }),
        "{meeting:?}"
    );
}
