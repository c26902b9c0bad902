//! Tests which source of a rank's number takes precedence, and which contradictions are refused.

use super::*;
use crate::testing::{env, says};

/// Variables of one process of each launcher, by the launcher's short name.
const LAUNCHERS: [(&str, &str); 6] = [
    (
        "torchrun",
        "RANK=3 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=hosta MASTER_PORT=29500",
    ),
    (
        "open-mpi",
        "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2 \
         PMIX_NAMESPACE=7",
    ),
    (
        "mpich",
        "PMI_RANK=1 PMI_SIZE=2 PMI_FD=8 MPI_LOCALNRANKS=2 MPI_LOCALRANKID=1",
    ),
    (
        "srun",
        "SLURM_JOB_ID=12 SLURM_STEP_ID=3 SLURM_PROCID=1 SLURM_NTASKS=4 SLURM_STEP_NUM_TASKS=2 \
         SLURM_STEP_NODELIST=n[1-2]",
    ),
    // The second of two pods, with the variables that Kubeflow Trainer's plugin for torch sets. Kubernetes adds the
    // index.
    (
        "train-job",
        "PET_NNODES=2 PET_NPROC_PER_NODE=1 PET_NODE_RANK=1 PET_MASTER_ADDR=node-0-0.tonnage PET_MASTER_PORT=29500 \
         JOB_COMPLETION_INDEX=1",
    ),
    (
        "indexed-job",
        "JOB_COMPLETION_INDEX=1 WORLD_SIZE=2 MASTER_ADDR=job-0.svc MASTER_PORT=29500",
    ),
];

/// Expands short names to variables. If a name occurs twice, the first value counts; `!NAME` removes a variable.
fn variables(words: &str) -> String {
    let (gone, words): (Vec<&str>, Vec<&str>) = words
        .split_whitespace()
        .partition(|word| word.starts_with('!'));
    let mut all = Vec::new();
    for word in words {
        let launcher = LAUNCHERS.iter().find(|(name, _)| *name == word);
        all.extend(launcher.map_or(word, |(_, all)| all).split_whitespace());
    }
    all.retain(|word| {
        let name = word.split('=').next();
        gone.iter().all(|gone| gone.strip_prefix('!') != name)
    });
    all.join(" ")
}

fn seen(words: &str) -> Result<Option<Identity>> {
    detect(&env(&variables(words)), None)
}

fn port_of(words: &str) -> u16 {
    match seen(words).unwrap().unwrap().meeting {
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

/// Returns the meeting of a process. These variables and this `source` must make the process rank 1 of 2.
fn meeting_of(words: &str, source: &str) -> Meeting {
    let identity = seen(words).unwrap().unwrap();
    assert_eq!((identity.rank, identity.size), (1, 2), "{words}");
    assert_eq!(identity.source, source, "{words}");
    identity.meeting
}

/// Refused variables => parts of the error message.
const REFUSED: &[&str] = &[
    // Incomplete or unreadable.
    "RANK=0 => WORLD_SIZE => `unset RANK`",
    "WORLD_SIZE=2 => RANK => `unset WORLD_SIZE`",
    "RANK=0 WORLD_SIZE=2 => MASTER_ADDR",
    "RANK=0 WORLD_SIZE=2 MASTER_ADDR=a => MASTER_PORT",
    "MASTER_ADDR=fe80::1 torchrun => MASTER_ADDR => fe80::1%eth0",
    "RANK=x torchrun => RANK=x",
    "RANK=-1 torchrun => RANK=-1",
    "RANK=8 torchrun => rank 8 of 8",
    "LOCAL_RANK=2 torchrun => LOCAL_RANK",
    "MASTER_PORT=0 torchrun => MASTER_PORT=0",
    "WORLD_SIZE=99999999999 torchrun => WORLD_SIZE=99999999999",
    "TORCHELASTIC_USE_AGENT_STORE=True MASTER_PORT=65535 torchrun => TONNAGE_PORT",
    "PMI_RANK=1 PMI_SIZE=2 PMI_FD=x => PMI_FD=x",
    "PMI_RANK=1 PMI_SIZE=2 PMI_FD=-1 => PMI_FD=-1",
    "PMI_RANK=1 => PMI_SIZE is not set",
    "PMI_RANK=1 PMI_SIZE=1 => rank 1 of 1",
    "OMPI_COMM_WORLD_SIZE=2 => OMPI_COMM_WORLD_RANK is not set",
    "TONNAGE_RANK=1 => TONNAGE_SIZE",
    "TONNAGE_RANK=1 TONNAGE_SIZE=2 => TONNAGE_CONTROL",
    "srun !SLURM_STEP_NODELIST => SLURM_STEP_NODELIST",
    "indexed-job !WORLD_SIZE !MASTER_ADDR !MASTER_PORT => WORLD_SIZE => completions => WORLD_SIZE=1",
    "indexed-job !MASTER_ADDR !MASTER_PORT => MASTER_ADDR",
    "indexed-job !MASTER_PORT => MASTER_PORT",
    "JOB_COMPLETION_INDEX=2 WORLD_SIZE=2 => rank 2 of 2",
    "train-job !PET_NNODES => PET_ => PET_NNODES is not set",
    "train-job !PET_MASTER_ADDR => PET_ => PET_MASTER_ADDR is not set",
    "train-job !PET_MASTER_PORT => PET_ => PET_MASTER_PORT is not set",
    "PET_NNODES=1 train-job => rank 1 of 1",
    // The job asks for more ranks per pod than the launcher starts.
    "PET_NPROC_PER_NODE=8 train-job => PET_NPROC_PER_NODE=8 => numProcPerNode: 1 => torchrun --no-python",
    "PET_NPROC_PER_NODE=auto train-job => PET_NPROC_PER_NODE=auto => numProcPerNode: 1",
    // Launchers that disagree; the message quotes their values.
    "OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=8 torchrun => RANK=3 => WORLD_SIZE=8 => OMPI_COMM_WORLD_RANK=2",
    "PMI_RANK=3 PMI_SIZE=9 torchrun => PMI_SIZE=9",
    "SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_NTASKS=5 torchrun => SLURM_PROCID=0 => SLURM_NTASKS=5",
    "srun PMI_RANK=0 PMI_SIZE=2 PMI_FD=11 => SLURM_PROCID=1 => PMI_RANK=0 => disagree",
    "RANK=0 WORLD_SIZE=1 srun => WORLD_SIZE=1 => disagree",
    "WORLD_SIZE=3 open-mpi => WORLD_SIZE=3 => =2 => disagree",
    "WORLD_SIZE=3 mpich => WORLD_SIZE=3 => =2 => disagree",
    "WORLD_SIZE=3 srun => WORLD_SIZE=3 => =2 => disagree",
    "WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 => RANK is not set",
    "torchrun SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=3 SLURM_STEP_ID=0 => SLURM_STEP_NUM_TASKS=3 => disagree",
    "JOB_COMPLETION_INDEX=1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 torchrun => JOB_COMPLETION_INDEX=1 => disagree",
    // The variable by which the ranks would meet is missing.
    "open-mpi !PMIX_NAMESPACE => PMIX_NAMESPACE => MASTER_ADDR => RANK=$OMPI_COMM_WORLD_RANK",
    "mpich !PMI_FD => PMI_FD => RANK=$PMI_RANK",
    // The launcher started several processes, but each finds only one rank.
    "mpich !PMI_RANK !PMI_SIZE !PMI_FD => MPI_LOCALNRANKS=2 => finds 1",
    "open-mpi !OMPI_COMM_WORLD_RANK !OMPI_COMM_WORLD_SIZE => OMPI_COMM_WORLD_LOCAL_SIZE=2 => finds 1",
    "PMIX_NAMESPACE=7 => PMIX_NAMESPACE=7 => not how many",
    "RANK=0 WORLD_SIZE=1 mpich => WORLD_SIZE=1 => disagree",
    "RANK=0 WORLD_SIZE=1 open-mpi => WORLD_SIZE=1 => disagree",
    "RANK=0 WORLD_SIZE=1 MPI_LOCALNRANKS=2 => =2 says that a launcher has started 2",
    "RANK=0 WORLD_SIZE=1 OMPI_COMM_WORLD_LOCAL_SIZE=2 => =2 says that a launcher has started 2",
    "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 PMI_RANK=1 PMI_SIZE=2 => OMPI_COMM_WORLD_SIZE=1 => PMI_SIZE=2 => disagree",
];

#[test]
fn wrong_variables_are_refused_by_name() {
    for row in REFUSED {
        let mut parts = row.split(" => ");
        let error = seen(parts.next().unwrap()).expect_err(row);
        assert_eq!(error.exit_code(), 2, "{row}");
        says(&error, &parts.collect::<Vec<_>>());
    }
}

#[test]
fn without_variables_there_is_a_single_host() {
    for (words, why) in [
        ("", ""),
        ("SLURM_PROCID=0 SLURM_NTASKS=4", "a batch script"),
        ("OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1", "one rank"),
        ("JOB_COMPLETION_INDEX=0 WORLD_SIZE=1", "one pod"),
    ] {
        assert_eq!(seen(words).unwrap(), None, "{why}");
    }
}

#[test]
fn rank_and_world_size() {
    let identity = seen("torchrun").unwrap().unwrap();
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
    for (store, port) in [
        ("TORCHELASTIC_USE_AGENT_STORE=True", 29501),
        ("TORCHELASTIC_USE_AGENT_STORE=False", 29500),
        ("TORCHELASTIC_USE_AGENT_STORE=True TONNAGE_PORT=7", 7),
    ] {
        assert_eq!(port_of(&format!("{store} torchrun")), port);
    }
}

/// Outer launchers count their own processes, not ranks. Examples are one torchrun, one mpirun daemon or one pod for
/// several ranks, a batch script, or a shell inside a step of one task.
#[test]
fn torchruns_variables_win_inside_other_launchers() {
    let step = "SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_NTASKS=5";
    for others in [
        "SLURM_PROCID=0 SLURM_NTASKS=5",
        &format!("TORCHELASTIC_RUN_ID=none {step}"),
        &format!("OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=8 {step}"),
        "SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1",
        "SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=4 SLURM_STEP_ID=0",
        "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 PMIX_NAMESPACE=7",
        "JOB_COMPLETION_INDEX=1 LOCAL_WORLD_SIZE=4",
    ] {
        let identity = seen(&format!("{others} torchrun")).unwrap().unwrap();
        assert_eq!(identity.rank, 3, "{others}");
    }
}

#[test]
fn each_launcher_has_its_own_meeting() {
    let pmix = Meeting::Exchange(Exchange::Pmix);
    let pmi1 = |fd| Meeting::Exchange(Exchange::Pmi1 { fd });
    assert_eq!(meeting_of("open-mpi", "OMPI_COMM_WORLD_*"), pmix);
    let local_size = seen("open-mpi").unwrap().unwrap().local_size;
    assert_eq!(local_size, Some(2), "a host's ranks are known");
    assert_eq!(meeting_of("mpich", "PMI_*"), pmi1(8));
    let first_host = Meeting::FirstHost {
        host: "n1".into(),
        port: 21_215,
        others: true,
    };
    let under_srun = |more: &str| meeting_of(&format!("srun {more}"), "SLURM_PROCID");
    assert_eq!(under_srun(""), first_host);
    assert_eq!(under_srun("PMIX_NAMESPACE=slurm.pmix.12.3"), pmix);
    let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    let fd = std::os::fd::AsRawFd::as_raw_fd(&socket);
    let pmi2 = under_srun(&format!("PMI_RANK=1 PMI_SIZE=2 PMI_FD={fd}"));
    assert_eq!(pmi2, pmi1(fd));
    // Variables left by outer launchers lead to other servers, or to files of the user.
    for stale in ["slurm.pmix.12.4", "slurm.pmix.2.3", "prterun-a-7@1"] {
        assert_eq!(under_srun(&format!("PMIX_NAMESPACE={stale}")), first_host);
    }
    assert_eq!(under_srun("PMI_FD=999999"), first_host);
    let by_index = meeting_of("indexed-job", "JOB_COMPLETION_INDEX");
    let first_pod = master("job-0.svc", 29500, AddressSource::Variable);
    assert_eq!(by_index, first_pod);
    let first_pod = master("node-0-0.tonnage", 29500, AddressSource::TrainJob);
    assert_eq!(meeting_of("train-job", "PET_*"), first_pod);
}

#[test]
fn launchers_inside_slurm_count_their_own_processes() {
    for (inner, source) in [("open-mpi", "OMPI_COMM_WORLD_*"), ("mpich", "PMI_*")] {
        let words = format!("{inner} SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 srun");
        meeting_of(&words, source);
    }
}

#[test]
fn an_srun_inside_mpirun_is_not_hidden() {
    let me = std::process::id().to_string();
    let one = "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1";
    // Either this process is the task itself, or the task is unknown. One rank in each of two tasks would mean two
    // runs, so both cases are refused.
    for task in [&*me, "4194999", "x"] {
        let error = seen(&format!("{one} SLURM_TASK_PID={task} srun")).unwrap_err();
        says(
            &error,
            &["OMPI_COMM_WORLD_SIZE=1", "SLURM_STEP_NUM_TASKS=2"],
        );
    }
    // A leftover variable of MPICH, in a rank of `srun --mpi=pmi2`.
    let left = "MPI_LOCALNRANKS=1 PMI_RANK=1 PMI_SIZE=2";
    let words = format!("{left} SLURM_TASK_PID={me} srun");
    meeting_of(&words, "SLURM_PROCID");
}

#[test]
fn a_batch_script_may_export_the_number_of_ranks() {
    for (launcher, source) in [
        ("open-mpi", "OMPI_COMM_WORLD_*"),
        ("mpich", "PMI_*"),
        ("srun", "SLURM_PROCID"),
    ] {
        let exported = "WORLD_SIZE=2 MASTER_ADDR=n1 MASTER_PORT=29500";
        meeting_of(&format!("{exported} {launcher}"), source);
    }
}

#[test]
fn ranks_that_tonnage_started_ignore_other_variables() {
    let local = "TONNAGE_RANK=1 TONNAGE_SIZE=2 TONNAGE_CONTROL=127.0.0.1:7";
    let control = "127.0.0.1:7".parse().unwrap();
    let meeting = meeting_of(&format!("{local} torchrun"), "tonnage --ranks");
    assert_eq!(meeting, Meeting::Local { control });
    assert_eq!(seen(local).unwrap().unwrap().local_size, Some(2));
}

#[test]
fn the_command_line_comes_first() {
    let stated = |rank, words: &str| {
        let explicit = ExplicitRank {
            rank,
            size: 2,
            host: "a".into(),
            port: 7,
            source: "--rank".into(),
        };
        detect(&env(&variables(words)), Some(explicit))
    };
    let master = master("a", 7, AddressSource::Option);
    let one = "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1";
    for words in ["", "open-mpi", one] {
        assert_eq!(stated(1, words).unwrap().unwrap().meeting, master);
    }
    assert!(stated(2, "").is_err());
    let error = stated(1, "torchrun").unwrap_err();
    says(&error, &["RANK=3 WORLD_SIZE=8 disagree"]);
    let error = stated(0, "open-mpi").unwrap_err();
    says(&error, &["--rank", "OMPI_COMM_WORLD_RANK=1"]);
}

/// In an elastic job, PET_NNODES is a range of numbers of pods.
#[test]
fn torchruns_variables_win_in_a_pod_of_a_train_job() {
    let torchrun = "RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 MASTER_ADDR=node-0-0.tonnage \
                    MASTER_PORT=29500 TORCHELASTIC_RUN_ID=none TORCHELASTIC_USE_AGENT_STORE=True";
    let job = format!("{torchrun} PET_NNODES=1:2 PET_NPROC_PER_NODE=4 train-job");
    let identity = seen(&job).unwrap().unwrap();
    assert_eq!((identity.rank, identity.size), (5, 8));
    assert_eq!(identity.source, "RANK/WORLD_SIZE");
    assert_eq!(port_of(&job), 29501);
}
