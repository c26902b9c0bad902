//! Sources that are found, which one wins, and what is refused.

use super::*;

mod pods;

fn seen(pairs: &[(&str, &str)]) -> Result<Option<Identity>> {
    let env = |name: &str| {
        pairs
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| (*value).to_owned())
    };
    detect(&env, None)
}

const TORCHRUN: [(&str, &str); 6] = [
    ("RANK", "3"),
    ("WORLD_SIZE", "8"),
    ("LOCAL_RANK", "1"),
    ("LOCAL_WORLD_SIZE", "2"),
    ("MASTER_ADDR", "hosta"),
    ("MASTER_PORT", "29500"),
];

fn with(more: &[(&'static str, &'static str)]) -> Vec<(&'static str, &'static str)> {
    // Later entries win, so they are put in front.
    more.iter().chain(TORCHRUN.iter()).copied().collect()
}

fn port_of(identity: &Identity) -> u16 {
    match identity.meeting {
        Meeting::Master { port, .. } => port,
        _ => panic!("{identity:?}"),
    }
}

fn refused(pairs: &[(&str, &str)], parts: &[&str]) {
    let error = seen(pairs).expect_err("must be refused");
    assert_eq!(error.exit_code(), 2);
    for part in parts {
        assert!(error.to_string().contains(part), "{error} lacks {part}");
    }
}

#[test]
fn nothing_says_single_host() {
    assert_eq!(seen(&[]).unwrap(), None);
    assert_eq!(
        seen(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4")]).unwrap(),
        None,
        "a batch script"
    );
    assert_eq!(
        seen(&[("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "1")]).unwrap(),
        None
    );
}

#[test]
fn rank_and_world_size() {
    let identity = seen(&TORCHRUN).unwrap().unwrap();
    assert_eq!(
        (identity.rank, identity.size, identity.local_rank),
        (3, 8, 1)
    );
    assert_eq!(identity.local_size, Some(2));
    assert_eq!(identity.source, "RANK/WORLD_SIZE");
    assert_eq!(
        identity.meeting,
        Meeting::Master {
            host: "hosta".into(),
            port: 29500,
            source: AddressSource::Variable,
        }
    );
    let alone = seen(&[("RANK", "0"), ("WORLD_SIZE", "1")])
        .unwrap()
        .unwrap();
    assert_eq!(alone.meeting, Meeting::Alone);
}

#[test]
fn torchruns_own_store_moves_the_port() {
    let agent = ("TORCHELASTIC_USE_AGENT_STORE", "True");
    assert_eq!(port_of(&seen(&with(&[agent])).unwrap().unwrap()), 29501);
    let off = ("TORCHELASTIC_USE_AGENT_STORE", "False");
    assert_eq!(port_of(&seen(&with(&[off])).unwrap().unwrap()), 29500);
    assert_eq!(
        port_of(
            &seen(&with(&[agent, ("TONNAGE_PORT", "7")]))
                .unwrap()
                .unwrap()
        ),
        7
    );
    refused(&with(&[agent, ("MASTER_PORT", "65535")]), &["TONNAGE_PORT"]);
}

#[test]
fn incomplete_or_unreadable_is_refused() {
    refused(&[("RANK", "0")], &["WORLD_SIZE", "`unset RANK`"]);
    refused(&[("WORLD_SIZE", "2")], &["RANK", "`unset WORLD_SIZE`"]);
    refused(
        &with(&[("MASTER_ADDR", "fe80::1")]),
        &["MASTER_ADDR", "fe80::1%eth0"],
    );
    refused(&[("RANK", "0"), ("WORLD_SIZE", "2")], &["MASTER_ADDR"]);
    refused(
        &[("RANK", "0"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "a")],
        &["MASTER_PORT"],
    );
    refused(&with(&[("RANK", "x")]), &["RANK=x"]);
    refused(&with(&[("RANK", "-1")]), &["RANK=-1"]);
    refused(&with(&[("RANK", "8")]), &["rank 8 of 8"]);
    refused(&with(&[("LOCAL_RANK", "2")]), &["LOCAL_RANK"]);
    refused(&with(&[("MASTER_PORT", "0")]), &["MASTER_PORT=0"]);
    refused(
        &with(&[("WORLD_SIZE", "99999999999")]),
        &["WORLD_SIZE=99999999999"],
    );
}

#[test]
fn launchers_that_disagree_are_named_with_their_values() {
    refused(
        &with(&[("OMPI_COMM_WORLD_RANK", "2"), ("OMPI_COMM_WORLD_SIZE", "8")]),
        &[
            "RANK=3",
            "WORLD_SIZE=8",
            "OMPI_COMM_WORLD_RANK=2",
            "OMPI_COMM_WORLD_SIZE=8",
        ],
    );
    refused(
        &with(&[("PMI_RANK", "3"), ("PMI_SIZE", "9")]),
        &["PMI_SIZE=9"],
    );
    let slurm = [("SLURM_PROCID", "0"), ("SLURM_NTASKS", "5")];
    assert!(seen(&with(&slurm)).is_ok(), "not a step");
    let step = [("SLURM_STEP_ID", "0"), slurm[0], slurm[1]];
    refused(&with(&step), &["SLURM_PROCID=0", "SLURM_NTASKS=5"]);
    let inside_torchrun: Vec<_> = with(&[("TORCHELASTIC_RUN_ID", "none")])
        .into_iter()
        .chain(step)
        .collect();
    assert!(
        seen(&inside_torchrun).is_ok(),
        "srun starts one torchrun for each host"
    );
    let inside_mpirun: Vec<_> =
        with(&[("OMPI_COMM_WORLD_RANK", "3"), ("OMPI_COMM_WORLD_SIZE", "8")])
            .into_iter()
            .chain(step)
            .collect();
    assert!(
        seen(&inside_mpirun).is_ok(),
        "srun starts one daemon of mpirun for each host"
    );
}

fn meeting_of(pairs: &[(&str, &str)]) -> (u32, u32, String, Meeting) {
    let identity = seen(pairs).unwrap().unwrap();
    (
        identity.rank,
        identity.size,
        identity.source,
        identity.meeting,
    )
}

const OPEN_MPI: [(&str, &str); 5] = [
    ("OMPI_COMM_WORLD_RANK", "1"),
    ("OMPI_COMM_WORLD_SIZE", "2"),
    ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
    ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
    ("PMIX_NAMESPACE", "7"),
];
const MPICH: [(&str, &str); 5] = [
    ("PMI_RANK", "1"),
    ("PMI_SIZE", "2"),
    ("PMI_FD", "8"),
    ("MPI_LOCALNRANKS", "2"),
    ("MPI_LOCALRANKID", "1"),
];
const SRUN: [(&str, &str); 6] = [
    ("SLURM_JOB_ID", "12"),
    ("SLURM_STEP_ID", "3"),
    ("SLURM_PROCID", "1"),
    ("SLURM_NTASKS", "4"),
    ("SLURM_STEP_NUM_TASKS", "2"),
    ("SLURM_STEP_NODELIST", "n[1-2]"),
];

#[test]
fn each_launcher_has_its_way_to_meet() {
    let pmix = Meeting::Exchange(Exchange::Pmix);
    let pmi1 = |fd| Meeting::Exchange(Exchange::Pmi1 { fd });
    let (rank, size, source, meeting) = meeting_of(&OPEN_MPI);
    assert_eq!((rank, size, source.as_str()), (1, 2, "OMPI_COMM_WORLD_*"));
    assert_eq!(meeting, pmix);
    assert_eq!(
        seen(&OPEN_MPI).unwrap().unwrap().local_size,
        Some(2),
        "a host's ranks are known"
    );
    let (rank, size, source, meeting) = meeting_of(&MPICH);
    assert_eq!((rank, size, source.as_str()), (1, 2, "PMI_*"));
    assert_eq!(meeting, pmi1(8));
    let (rank, size, source, meeting) = meeting_of(&SRUN);
    assert_eq!((rank, size, source.as_str()), (1, 2, "SLURM_PROCID"));
    let first_host = Meeting::FirstHost {
        host: "n1".into(),
        port: 21_215,
        others: true,
    };
    assert_eq!(meeting, first_host);
    let under_srun = |more: &[(&'static str, &'static str)]| {
        let pairs: Vec<_> = SRUN.iter().chain(more).copied().collect();
        let (_, _, source, meeting) = meeting_of(&pairs);
        assert_eq!(source, "SLURM_PROCID");
        meeting
    };
    assert_eq!(under_srun(&[("PMIX_NAMESPACE", "slurm.pmix.12.3")]), pmix);
    let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    let fd = std::os::fd::AsRawFd::as_raw_fd(&socket);
    let text: &'static str = Box::leak(fd.to_string().into_boxed_str());
    let pmi2 = [("PMI_RANK", "1"), ("PMI_SIZE", "2"), ("PMI_FD", text)];
    assert_eq!(under_srun(&pmi2), pmi1(fd));
    // What launchers further out have left belongs to other servers, or to files of the user's.
    for stale in ["slurm.pmix.12.4", "slurm.pmix.2.3", "prterun-a-7@1"] {
        assert_eq!(under_srun(&[("PMIX_NAMESPACE", stale)]), first_host);
    }
    assert_eq!(under_srun(&[("PMI_FD", "999999")]), first_host);
    let other = [("PMI_RANK", "0"), ("PMI_SIZE", "2"), ("PMI_FD", "11")];
    let pairs: Vec<_> = SRUN.iter().chain(&other).copied().collect();
    refused(&pairs, &["SLURM_PROCID=1", "PMI_RANK=0", "disagree"]);
}

#[test]
fn launchers_inside_slurm_count_their_own_processes() {
    for inner in [&OPEN_MPI, &MPICH] {
        let daemons = [("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "1")];
        let pairs: Vec<_> = inner.iter().chain(&daemons).chain(&SRUN).copied().collect();
        let (rank, size, source, _) = meeting_of(&pairs);
        assert_eq!((rank, size), (1, 2));
        assert_ne!(source, "SLURM_PROCID");
    }
}

#[test]
fn an_srun_inside_mpirun_is_not_hidden() {
    let me: &'static str = Box::leak(std::process::id().to_string().into_boxed_str());
    let step = |task: &'static str| {
        [("SLURM_TASK_PID", task)]
            .into_iter()
            .chain(SRUN)
            .collect::<Vec<_>>()
    };
    let one = [("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "1")];
    // This process is the task itself; or nobody knows where the task is, and one rank in each of two would be two
    // runs.
    for task in [me, "4194999", "x"] {
        let pairs: Vec<_> = one.into_iter().chain(step(task)).collect();
        refused(
            &pairs,
            &["OMPI_COMM_WORLD_SIZE=1", "SLURM_STEP_NUM_TASKS=2"],
        );
    }
    // A leftover of MPICH's, and ranks by `--mpi=pmi2`.
    let left = [
        ("MPI_LOCALNRANKS", "1"),
        ("PMI_RANK", "1"),
        ("PMI_SIZE", "2"),
    ];
    let pairs: Vec<_> = left.into_iter().chain(step(me)).collect();
    assert_eq!(meeting_of(&pairs).2, "SLURM_PROCID");
}

#[test]
fn a_shell_inside_a_step_of_one_task_starts_ranks_by_hand() {
    let shell = [
        ("SLURM_STEP_ID", "0"),
        ("SLURM_PROCID", "0"),
        ("SLURM_STEP_NUM_TASKS", "1"),
    ];
    let pairs: Vec<_> = shell.into_iter().chain(TORCHRUN).collect();
    assert_eq!(seen(&pairs).unwrap().unwrap().rank, 3);
    let alone: Vec<_> = [("RANK", "0"), ("WORLD_SIZE", "1")]
        .into_iter()
        .chain(SRUN)
        .collect();
    refused(&alone, &["WORLD_SIZE=1", "disagree"]);
}

#[test]
fn a_batch_script_may_export_the_number_of_ranks() {
    let exported = [
        ("WORLD_SIZE", "2"),
        ("MASTER_ADDR", "n1"),
        ("MASTER_PORT", "29500"),
    ];
    for launcher in [&OPEN_MPI[..], &MPICH, &SRUN] {
        let pairs: Vec<_> = exported.iter().chain(launcher).copied().collect();
        let (rank, size, source, _) = meeting_of(&pairs);
        assert_eq!((rank, size), (1, 2));
        assert_ne!(source, "RANK/WORLD_SIZE");
        let other: Vec<_> = [("WORLD_SIZE", "3")]
            .iter()
            .chain(launcher)
            .copied()
            .collect();
        refused(&other, &["WORLD_SIZE=3", "=2", "disagree"]);
    }
    let one = [
        exported[0],
        ("OMPI_COMM_WORLD_RANK", "0"),
        ("OMPI_COMM_WORLD_SIZE", "1"),
    ];
    refused(&one, &["RANK is not set"]);
}

#[test]
fn a_launcher_may_count_starters_of_several_ranks() {
    // Rank 3 of 8, two on each host, and one task on each host.
    for counted in [
        [
            ("SLURM_PROCID", "1"),
            ("SLURM_STEP_NUM_TASKS", "4"),
            ("SLURM_STEP_ID", "0"),
        ],
        [
            ("OMPI_COMM_WORLD_RANK", "1"),
            ("OMPI_COMM_WORLD_SIZE", "4"),
            ("PMIX_NAMESPACE", "7"),
        ],
    ] {
        assert_eq!(seen(&with(&counted)).unwrap().unwrap().rank, 3);
    }
    refused(
        &with(&[
            ("SLURM_PROCID", "1"),
            ("SLURM_STEP_NUM_TASKS", "3"),
            ("SLURM_STEP_ID", "0"),
        ]),
        &["SLURM_STEP_NUM_TASKS=3", "disagree"],
    );
}

#[test]
fn a_launcher_that_lost_its_exchange_says_how_else() {
    refused(
        &OPEN_MPI[..2],
        &[
            "PMIX_NAMESPACE",
            "MASTER_ADDR",
            "RANK=$OMPI_COMM_WORLD_RANK",
        ],
    );
    refused(&MPICH[..2], &["PMI_FD", "RANK=$PMI_RANK"]);
    refused(&[MPICH[0], MPICH[1], ("PMI_FD", "x")], &["PMI_FD=x"]);
    refused(&SRUN[1..4], &["SLURM_STEP_NODELIST"]);
    refused(&MPICH[..1], &["PMI_SIZE is not set"]);
    refused(&OPEN_MPI[1..2], &["OMPI_COMM_WORLD_RANK is not set"]);
    refused(&[MPICH[0], ("PMI_SIZE", "1")], &["rank 1 of 1"]);
}

#[test]
fn several_processes_that_each_believe_to_be_alone_are_refused() {
    refused(&MPICH[3..], &["MPI_LOCALNRANKS=2", "finds 1"]);
    refused(&OPEN_MPI[2..], &["OMPI_COMM_WORLD_LOCAL_SIZE=2", "finds 1"]);
    refused(&OPEN_MPI[4..], &["PMIX_NAMESPACE=7", "not how many"]);
    let alone = [("RANK", "0"), ("WORLD_SIZE", "1")];
    for launcher in [&MPICH[..], &OPEN_MPI[..]] {
        let pairs: Vec<_> = alone.iter().chain(launcher).copied().collect();
        refused(&pairs, &["WORLD_SIZE=1", "disagree"]);
        let pairs: Vec<_> = alone.iter().chain(&launcher[2..]).copied().collect();
        refused(&pairs, &["=2 says that a launcher has started 2"]);
    }
    refused(
        &[
            ("OMPI_COMM_WORLD_RANK", "0"),
            ("OMPI_COMM_WORLD_SIZE", "1"),
            MPICH[0],
            MPICH[1],
        ],
        &["OMPI_COMM_WORLD_SIZE=1", "PMI_SIZE=2", "disagree"],
    );
}

#[test]
fn ranks_that_tonnage_started_look_at_nothing_else() {
    let local = [
        ("TONNAGE_RANK", "1"),
        ("TONNAGE_SIZE", "2"),
        ("TONNAGE_CONTROL", "127.0.0.1:7"),
    ];
    let pairs: Vec<_> = local.into_iter().chain(TORCHRUN).collect();
    let identity = seen(&pairs).unwrap().unwrap();
    assert_eq!(
        (identity.rank, identity.size, identity.local_size),
        (1, 2, Some(2))
    );
    assert_eq!(identity.source, "tonnage --ranks");
    assert_eq!(
        identity.meeting,
        Meeting::Local {
            control: "127.0.0.1:7".parse().unwrap()
        }
    );
    refused(&local[..1], &["TONNAGE_SIZE"]);
    refused(&local[..2], &["TONNAGE_CONTROL"]);
}

#[test]
fn the_command_line_comes_first() {
    let stated = |rank, pairs: &[(&str, &str)]| {
        let explicit = Explicit {
            rank,
            size: 2,
            host: "a".into(),
            port: 7,
            source: "--rank".into(),
        };
        let env = |name: &str| {
            let found = pairs.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        detect(&env, Some(explicit))
    };
    let master = Meeting::Master {
        host: "a".into(),
        port: 7,
        source: AddressSource::Option,
    };
    for pairs in [
        &[][..],
        &OPEN_MPI,
        &[("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "1")],
    ] {
        assert_eq!(stated(1, pairs).unwrap().unwrap().meeting, master);
    }
    assert!(stated(2, &[]).is_err());
    let error = stated(1, &TORCHRUN).unwrap_err().to_string();
    assert!(error.contains("RANK=3 WORLD_SIZE=8 disagree"), "{error}");
    let error = stated(0, &OPEN_MPI).unwrap_err().to_string();
    assert!(
        error.contains("--rank") && error.contains("OMPI_COMM_WORLD_RANK=1"),
        "{error}"
    );
}
