//! Sources that are found, which one wins, and what is refused.

use super::*;
use crate::testing::{env, says};

fn seen(variables: &str) -> Result<Option<Identity>> {
    detect(&env(variables), None)
}

const TORCHRUN: &str =
    "RANK=3 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=hosta MASTER_PORT=29500";
const OPEN_MPI: &str = "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1 \
                        OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_NAMESPACE=7";
const MPICH: &str = "PMI_RANK=1 PMI_SIZE=2 PMI_FD=8 MPI_LOCALNRANKS=2 MPI_LOCALRANKID=1";
const SRUN: &str = "SLURM_JOB_ID=12 SLURM_STEP_ID=3 SLURM_PROCID=1 SLURM_NTASKS=4 SLURM_STEP_NUM_TASKS=2 \
                    SLURM_STEP_NODELIST=n[1-2]";

/// The second of two pods, as Kubeflow Trainer's plugin for torch describes it; Kubernetes adds the index.
const TRAIN_JOB: &str = "PET_NNODES=2 PET_NPROC_PER_NODE=1 PET_NODE_RANK=1 PET_MASTER_ADDR=node-0-0.tonnage \
                         PET_MASTER_PORT=29500 JOB_COMPLETION_INDEX=1";
const INDEXED_JOB: &str =
    "JOB_COMPLETION_INDEX=1 WORLD_SIZE=2 MASTER_ADDR=job-0.svc MASTER_PORT=29500";

/// Variables of torchrun; the first of one name counts.
fn with(more: &str) -> String {
    format!("{more} {TORCHRUN}")
}

/// Variables without those of one name.
fn without(variables: &str, name: &str) -> String {
    let mut rest: Vec<&str> = variables.split(' ').collect();
    rest.retain(|word| word.split('=').next() != Some(name));
    rest.join(" ")
}

/// Some of the variables, by their places.
fn some(variables: &str, places: std::ops::Range<usize>) -> String {
    let words: Vec<&str> = variables.split_whitespace().collect();
    words[places].join(" ")
}

fn port_of(variables: &str) -> u16 {
    match seen(variables).unwrap().unwrap().meeting {
        Meeting::Master { port, .. } => port,
        other => panic!("{other:?}"),
    }
}

fn master(host: &str, port: u16, source: AddressSource) -> Meeting {
    Meeting::Master {
        host: host.into(),
        port,
        source,
    }
}

fn refused(variables: &str, parts: &[&str]) {
    let error = seen(variables).expect_err("must be refused");
    assert_eq!(error.exit_code(), 2);
    says(&error, parts);
}

/// The meeting of a process that is rank 1 of 2 by this source.
fn meeting_of(variables: &str, source: &str) -> Meeting {
    let identity = seen(variables).unwrap().unwrap();
    assert_eq!((identity.rank, identity.size), (1, 2));
    assert_eq!(identity.source, source);
    identity.meeting
}

#[test]
fn nothing_says_single_host() {
    for (variables, why) in [
        ("", ""),
        ("SLURM_PROCID=0 SLURM_NTASKS=4", "a batch script"),
        ("OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1", "one rank"),
    ] {
        assert_eq!(seen(variables).unwrap(), None, "{why}");
    }
}

#[test]
fn rank_and_world_size() {
    let identity = seen(TORCHRUN).unwrap().unwrap();
    assert_eq!((identity.rank, identity.size), (3, 8));
    assert_eq!((identity.local_rank, identity.local_size), (1, Some(2)));
    assert_eq!(identity.source, "RANK/WORLD_SIZE");
    let meeting = master("hosta", 29500, AddressSource::Variable);
    assert_eq!(identity.meeting, meeting);
    let alone = seen("RANK=0 WORLD_SIZE=1").unwrap().unwrap();
    assert_eq!(alone.meeting, Meeting::Alone);
}

#[test]
fn torchruns_own_store_moves_the_port() {
    let agent = "TORCHELASTIC_USE_AGENT_STORE=True";
    assert_eq!(port_of(&with(agent)), 29501);
    assert_eq!(port_of(&with("TORCHELASTIC_USE_AGENT_STORE=False")), 29500);
    assert_eq!(port_of(&with(&format!("{agent} TONNAGE_PORT=7"))), 7);
    refused(
        &with(&format!("{agent} MASTER_PORT=65535")),
        &["TONNAGE_PORT"],
    );
}

#[test]
fn incomplete_or_unreadable_is_refused() {
    refused("RANK=0", &["WORLD_SIZE", "`unset RANK`"]);
    refused("WORLD_SIZE=2", &["RANK", "`unset WORLD_SIZE`"]);
    refused("RANK=0 WORLD_SIZE=2", &["MASTER_ADDR"]);
    refused("RANK=0 WORLD_SIZE=2 MASTER_ADDR=a", &["MASTER_PORT"]);
    for (more, parts) in [
        ("MASTER_ADDR=fe80::1", &["MASTER_ADDR", "fe80::1%eth0"][..]),
        ("RANK=x", &["RANK=x"]),
        ("RANK=-1", &["RANK=-1"]),
        ("RANK=8", &["rank 8 of 8"]),
        ("LOCAL_RANK=2", &["LOCAL_RANK"]),
        ("MASTER_PORT=0", &["MASTER_PORT=0"]),
        ("WORLD_SIZE=99999999999", &["WORLD_SIZE=99999999999"]),
    ] {
        refused(&with(more), parts);
    }
}

#[test]
fn launchers_that_disagree_are_named_with_their_values() {
    let values = [
        "RANK=3",
        "WORLD_SIZE=8",
        "OMPI_COMM_WORLD_RANK=2",
        "OMPI_COMM_WORLD_SIZE=8",
    ];
    refused(
        &with("OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=8"),
        &values,
    );
    refused(&with("PMI_RANK=3 PMI_SIZE=9"), &["PMI_SIZE=9"]);
    let slurm = "SLURM_PROCID=0 SLURM_NTASKS=5";
    assert!(seen(&with(slurm)).is_ok(), "not a step");
    let step = format!("SLURM_STEP_ID=0 {slurm}");
    refused(&with(&step), &["SLURM_PROCID=0", "SLURM_NTASKS=5"]);
    // srun starts one torchrun, or one daemon of mpirun, for each host.
    for inner in [
        "TORCHELASTIC_RUN_ID=none",
        "OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=8",
    ] {
        assert!(seen(&with(&format!("{inner} {step}"))).is_ok(), "{inner}");
    }
}

#[test]
fn each_launcher_has_its_way_to_meet() {
    let pmix = Meeting::Exchange(Exchange::Pmix);
    let pmi1 = |fd| Meeting::Exchange(Exchange::Pmi1 { fd });
    assert_eq!(meeting_of(OPEN_MPI, "OMPI_COMM_WORLD_*"), pmix);
    let local_size = seen(OPEN_MPI).unwrap().unwrap().local_size;
    assert_eq!(local_size, Some(2), "a host's ranks are known");
    assert_eq!(meeting_of(MPICH, "PMI_*"), pmi1(8));
    let first_host = Meeting::FirstHost {
        host: "n1".into(),
        port: 21_215,
        others: true,
    };
    let under_srun = |more: &str| meeting_of(&format!("{SRUN} {more}"), "SLURM_PROCID");
    assert_eq!(under_srun(""), first_host);
    assert_eq!(under_srun("PMIX_NAMESPACE=slurm.pmix.12.3"), pmix);
    let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    let fd = std::os::fd::AsRawFd::as_raw_fd(&socket);
    let pmi2 = under_srun(&format!("PMI_RANK=1 PMI_SIZE=2 PMI_FD={fd}"));
    assert_eq!(pmi2, pmi1(fd));
    // What launchers further out have left belongs to other servers, or to files of the user's.
    for stale in ["slurm.pmix.12.4", "slurm.pmix.2.3", "prterun-a-7@1"] {
        assert_eq!(under_srun(&format!("PMIX_NAMESPACE={stale}")), first_host);
    }
    assert_eq!(under_srun("PMI_FD=999999"), first_host);
    let other = format!("{SRUN} PMI_RANK=0 PMI_SIZE=2 PMI_FD=11");
    refused(&other, &["SLURM_PROCID=1", "PMI_RANK=0", "disagree"]);
}

#[test]
fn launchers_inside_slurm_count_their_own_processes() {
    for (inner, source) in [(OPEN_MPI, "OMPI_COMM_WORLD_*"), (MPICH, "PMI_*")] {
        meeting_of(
            &format!("{inner} SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 {SRUN}"),
            source,
        );
    }
}

#[test]
fn an_srun_inside_mpirun_is_not_hidden() {
    let me = std::process::id().to_string();
    let one = "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1";
    // This process is the task itself; or nobody knows where the task is, and one rank in each of two would be two
    // runs.
    for task in [&*me, "4194999", "x"] {
        let both = ["OMPI_COMM_WORLD_SIZE=1", "SLURM_STEP_NUM_TASKS=2"];
        refused(&format!("{one} SLURM_TASK_PID={task} {SRUN}"), &both);
    }
    // A leftover of MPICH's, and ranks by `--mpi=pmi2`.
    let left = "MPI_LOCALNRANKS=1 PMI_RANK=1 PMI_SIZE=2";
    meeting_of(
        &format!("{left} SLURM_TASK_PID={me} {SRUN}"),
        "SLURM_PROCID",
    );
}

#[test]
fn a_shell_inside_a_step_of_one_task_starts_ranks_by_hand() {
    let shell = with("SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1");
    assert_eq!(seen(&shell).unwrap().unwrap().rank, 3);
    refused(
        &format!("RANK=0 WORLD_SIZE=1 {SRUN}"),
        &["WORLD_SIZE=1", "disagree"],
    );
}

#[test]
fn a_batch_script_may_export_the_number_of_ranks() {
    for (launcher, source) in [
        (OPEN_MPI, "OMPI_COMM_WORLD_*"),
        (MPICH, "PMI_*"),
        (SRUN, "SLURM_PROCID"),
    ] {
        let exported = "WORLD_SIZE=2 MASTER_ADDR=n1 MASTER_PORT=29500";
        meeting_of(&format!("{exported} {launcher}"), source);
        refused(
            &format!("WORLD_SIZE=3 {launcher}"),
            &["WORLD_SIZE=3", "=2", "disagree"],
        );
    }
    let one = "WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1";
    refused(one, &["RANK is not set"]);
}

#[test]
fn a_launcher_may_count_starters_of_several_ranks() {
    // Rank 3 of 8, two on each host, and one task on each host.
    for counted in [
        "SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=4 SLURM_STEP_ID=0",
        "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 PMIX_NAMESPACE=7",
    ] {
        assert_eq!(seen(&with(counted)).unwrap().unwrap().rank, 3);
    }
    let three = with("SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=3 SLURM_STEP_ID=0");
    refused(&three, &["SLURM_STEP_NUM_TASKS=3", "disagree"]);
}

#[test]
fn a_launcher_that_lost_its_exchange_says_how_else() {
    let advice = [
        "PMIX_NAMESPACE",
        "MASTER_ADDR",
        "RANK=$OMPI_COMM_WORLD_RANK",
    ];
    refused(&some(OPEN_MPI, 0..2), &advice);
    refused(&some(MPICH, 0..2), &["PMI_FD", "RANK=$PMI_RANK"]);
    refused("PMI_RANK=1 PMI_SIZE=2 PMI_FD=x", &["PMI_FD=x"]);
    refused("PMI_RANK=1 PMI_SIZE=2 PMI_FD=-1", &["PMI_FD=-1"]);
    refused(&some(SRUN, 1..4), &["SLURM_STEP_NODELIST"]);
    refused("PMI_RANK=1", &["PMI_SIZE is not set"]);
    refused(
        "OMPI_COMM_WORLD_SIZE=2",
        &["OMPI_COMM_WORLD_RANK is not set"],
    );
    refused("PMI_RANK=1 PMI_SIZE=1", &["rank 1 of 1"]);
}

#[test]
fn several_processes_that_each_believe_to_be_alone_are_refused() {
    refused(&some(MPICH, 3..5), &["MPI_LOCALNRANKS=2", "finds 1"]);
    refused(
        &some(OPEN_MPI, 2..5),
        &["OMPI_COMM_WORLD_LOCAL_SIZE=2", "finds 1"],
    );
    refused("PMIX_NAMESPACE=7", &["PMIX_NAMESPACE=7", "not how many"]);
    for launcher in [MPICH, OPEN_MPI] {
        let alone = "RANK=0 WORLD_SIZE=1";
        refused(
            &format!("{alone} {launcher}"),
            &["WORLD_SIZE=1", "disagree"],
        );
        let local = some(launcher, 2..5);
        let parts = ["=2 says that a launcher has started 2"];
        refused(&format!("{alone} {local}"), &parts);
    }
    let two = "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 PMI_RANK=1 PMI_SIZE=2";
    refused(two, &["OMPI_COMM_WORLD_SIZE=1", "PMI_SIZE=2", "disagree"]);
}

#[test]
fn ranks_that_tonnage_started_look_at_nothing_else() {
    let local = "TONNAGE_RANK=1 TONNAGE_SIZE=2 TONNAGE_CONTROL=127.0.0.1:7";
    let control = "127.0.0.1:7".parse().unwrap();
    let meeting = meeting_of(&with(local), "tonnage --ranks");
    assert_eq!(meeting, Meeting::Local { control });
    assert_eq!(seen(local).unwrap().unwrap().local_size, Some(2));
    refused(&some(local, 0..1), &["TONNAGE_SIZE"]);
    refused(&some(local, 0..2), &["TONNAGE_CONTROL"]);
}

#[test]
fn the_command_line_comes_first() {
    let stated = |rank, variables: &str| {
        let explicit = Explicit {
            rank,
            size: 2,
            host: "a".into(),
            port: 7,
            source: "--rank".into(),
        };
        detect(&env(variables), Some(explicit))
    };
    let master = master("a", 7, AddressSource::Option);
    for variables in [
        "",
        OPEN_MPI,
        "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1",
    ] {
        assert_eq!(stated(1, variables).unwrap().unwrap().meeting, master);
    }
    assert!(stated(2, "").is_err());
    let error = stated(1, TORCHRUN).unwrap_err();
    says(&error, &["RANK=3 WORLD_SIZE=8 disagree"]);
    says(
        &stated(0, OPEN_MPI).unwrap_err(),
        &["--rank", "OMPI_COMM_WORLD_RANK=1"],
    );
}

#[test]
fn an_indexed_job_says_its_size_by_world_size() {
    let meeting = meeting_of(INDEXED_JOB, "JOB_COMPLETION_INDEX");
    assert_eq!(meeting, master("job-0.svc", 29500, AddressSource::Variable));
    let index = some(INDEXED_JOB, 0..1);
    refused(&index, &["WORLD_SIZE", "completions", "WORLD_SIZE=1"]);
    refused(&some(INDEXED_JOB, 0..2), &["MASTER_ADDR"]);
    refused(&some(INDEXED_JOB, 0..3), &["MASTER_PORT"]);
    refused("JOB_COMPLETION_INDEX=2 WORLD_SIZE=2", &["rank 2 of 2"]);
    assert_eq!(seen("JOB_COMPLETION_INDEX=0 WORLD_SIZE=1").unwrap(), None);
    let one_in_a_pod = with(&format!("{index} LOCAL_RANK=0 LOCAL_WORLD_SIZE=1"));
    refused(&one_in_a_pod, &["JOB_COMPLETION_INDEX=1", "disagree"]);
    // Eight ranks in each pod, started by a script.
    assert!(seen(&with(&format!("{index} LOCAL_WORLD_SIZE=4"))).is_ok());
}

#[test]
fn a_pod_of_a_train_job_is_a_rank() {
    let meeting = meeting_of(TRAIN_JOB, "PET_*");
    assert_eq!(
        meeting,
        master("node-0-0.tonnage", 29500, AddressSource::TrainJob)
    );
    for name in ["PET_NNODES", "PET_MASTER_ADDR", "PET_MASTER_PORT"] {
        let part = format!("{name} is not set");
        refused(&without(TRAIN_JOB, name), &["PET_", &part]);
    }
    for several in ["8", "auto"] {
        let asked = format!("PET_NPROC_PER_NODE={several}");
        let advice = ["numProcPerNode: 1", "torchrun --no-python"];
        refused(
            &format!("{asked} {TRAIN_JOB}"),
            &[&asked, advice[0], advice[1]],
        );
    }
    refused(&format!("PET_NNODES=1 {TRAIN_JOB}"), &["rank 1 of 1"]);
}

/// Of an elastic job even the number of pods is no number.
#[test]
fn what_torchrun_says_in_a_pod_of_a_train_job_counts() {
    let torchrun = "RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 MASTER_ADDR=node-0-0.tonnage \
                    MASTER_PORT=29500 TORCHELASTIC_RUN_ID=none TORCHELASTIC_USE_AGENT_STORE=True";
    let job = format!("{torchrun} PET_NNODES=1:2 PET_NPROC_PER_NODE=4 {TRAIN_JOB}");
    let identity = seen(&job).unwrap().unwrap();
    assert_eq!((identity.rank, identity.size), (5, 8));
    assert_eq!(identity.source, "RANK/WORLD_SIZE");
    assert_eq!(port_of(&job), 29501);
}
