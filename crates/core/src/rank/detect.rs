//! Who am I: which rank of how many, and where the ranks meet.
//!
//! Sources, first match: what the command line says, the variables of a rank that tonnage itself started, and
//! `RANK`/`WORLD_SIZE`/`MASTER_ADDR`/`MASTER_PORT`, which torchrun sets and every launcher can. Open MPI, PMI and Slurm
//! variables are only compared with them: they carry no address where ranks could meet, so alone they are refused
//! rather than started as many runs of one rank. Another way to exchange the address is a new [`Meeting`].

use std::net::SocketAddr;

use super::launchers::{other_launchers, refuse_disagreement, refuse_silent_singletons};
use crate::{Error, Result};

/// Reads one environment variable; a function, so that tests need no process environment.
pub type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

/// This process's place in the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// 0 .. `size`.
    pub rank: u32,
    /// Number of ranks.
    pub size: u32,
    /// Place among the ranks of this host; 0 until [`super::Rank::join`] has counted them when `local_size` is `None`.
    pub local_rank: u32,
    /// Ranks of this host, when the launcher says it.
    pub local_size: Option<u32>,
    /// Where this was read: "RANK/WORLD_SIZE", "tonnage --ranks", …
    pub source: String,
    /// How the ranks find each other.
    pub meeting: Meeting,
}

/// How the ranks find each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meeting {
    /// There is one rank.
    Alone,
    /// tonnage started all ranks on this host; rank 0 has the listening socket as its standard input.
    Local {
        /// Address of that socket.
        control: SocketAddr,
    },
    /// Rank 0 listens on this address, and all others connect to it.
    Master {
        /// Host name or address.
        host: String,
        /// TCP port.
        port: u16,
    },
}

/// A place in the run that the command line states.
#[derive(Debug, Clone)]
pub struct Explicit {
    /// 0 .. `size`.
    pub rank: u32,
    /// Number of ranks.
    pub size: u32,
    /// Host name or address of rank 0.
    pub host: String,
    /// TCP port of rank 0.
    pub port: u16,
    /// The options' names, for messages and records.
    pub source: String,
}

/// Finds this process's place in the run; `None` when nothing says that there are other ranks.
///
/// # Errors
/// [`Error::Usage`] when a source is incomplete, cannot be read, contradicts itself or another launcher's variables, or
/// when only a launcher speaks that gives no address.
pub fn detect(env: Env<'_>, explicit: Option<Explicit>) -> Result<Option<Identity>> {
    if let Some(explicit) = explicit {
        return from_explicit(explicit).map(Some);
    }
    if env("TONNAGE_RANK").is_some() {
        return from_supervisor(env).map(Some);
    }
    let others = other_launchers(env)?;
    if env("RANK").is_none() && env("WORLD_SIZE").is_none() {
        refuse_silent_singletons(&others)?;
        return Ok(None);
    }
    let identity = from_rank_and_world_size(env)?;
    refuse_disagreement(env, &identity, &others)?;
    Ok(Some(identity))
}

fn from_explicit(explicit: Explicit) -> Result<Identity> {
    let Explicit {
        rank,
        size,
        host,
        port,
        source,
    } = explicit;
    check_range(rank, size, &source)?;
    let meeting = if size == 1 {
        Meeting::Alone
    } else {
        Meeting::Master { host, port }
    };
    Ok(Identity {
        rank,
        size,
        local_rank: 0,
        local_size: None,
        source,
        meeting,
    })
}

fn from_supervisor(env: Env<'_>) -> Result<Identity> {
    let source = "tonnage --ranks";
    let rank = required(env, "TONNAGE_RANK", source)?;
    let size = required(env, "TONNAGE_SIZE", source)?;
    check_range(rank, size, "TONNAGE_RANK/TONNAGE_SIZE")?;
    let control = env("TONNAGE_CONTROL").ok_or_else(|| {
        Error::Usage(format!(
            "TONNAGE_RANK={rank} is set, but TONNAGE_CONTROL is not"
        ))
    })?;
    let control = control.parse().map_err(|_| {
        Error::Usage(format!(
            "TONNAGE_CONTROL={control} is not an address with a port"
        ))
    })?;
    Ok(Identity {
        rank,
        size,
        local_rank: rank,
        local_size: Some(size),
        source: source.to_owned(),
        meeting: Meeting::Local { control },
    })
}

fn from_rank_and_world_size(env: Env<'_>) -> Result<Identity> {
    let source = "RANK/WORLD_SIZE";
    let rank = required(env, "RANK", source)?;
    let size = required(env, "WORLD_SIZE", source)?;
    check_range(rank, size, source)?;
    let local_size = number(env, "LOCAL_WORLD_SIZE")?;
    let local_rank = number(env, "LOCAL_RANK")?;
    if let (Some(local_rank), Some(local_size)) = (local_rank, local_size) {
        check_range(local_rank, local_size, "LOCAL_RANK/LOCAL_WORLD_SIZE")?;
    }
    // One without the other is counted again when the ranks have joined.
    let (local_rank, local_size) = match (local_rank, local_size) {
        (Some(local_rank), Some(local_size)) => (local_rank, Some(local_size)),
        _ => (0, None),
    };
    let meeting = if size == 1 {
        Meeting::Alone
    } else {
        master(env)?
    };
    Ok(Identity {
        rank,
        size,
        local_rank,
        local_size,
        source: source.to_owned(),
        meeting,
    })
}

/// The address where rank 0 listens. torchrun with `TORCHELASTIC_USE_AGENT_STORE=True` listens on `MASTER_PORT` itself,
/// so the next port is taken then; `TONNAGE_PORT` overrides both.
fn master(env: Env<'_>) -> Result<Meeting> {
    let host = env("MASTER_ADDR").filter(|host| !host.is_empty()).ok_or_else(|| {
        Error::Usage("RANK and WORLD_SIZE are set, but MASTER_ADDR is not: export the host name or address of rank 0".into())
    })?;
    if let Some(port) = port(env, "TONNAGE_PORT")? {
        return Ok(Meeting::Master { host, port });
    }
    let port = port(env, "MASTER_PORT")?.ok_or_else(|| {
        Error::Usage("RANK and WORLD_SIZE are set, but MASTER_PORT is not: export a TCP port that is free on rank 0".into())
    })?;
    if env("TORCHELASTIC_USE_AGENT_STORE").is_none_or(|value| value != "True") {
        return Ok(Meeting::Master { host, port });
    }
    let next = port.checked_add(1).ok_or_else(|| {
        Error::Usage(format!("torchrun uses MASTER_PORT={port} itself and there is no port after it: set TONNAGE_PORT"))
    })?;
    log::info!(
        "torchrun listens on MASTER_PORT={port} itself, so the ranks meet on port {next}; TONNAGE_PORT overrides"
    );
    Ok(Meeting::Master { host, port: next })
}

fn check_range(rank: u32, size: u32, source: &str) -> Result<()> {
    if rank < size {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "{source} says rank {rank} of {size}: ranks count from 0 to the size less one"
    )))
}

fn required(env: Env<'_>, name: &str, source: &str) -> Result<u32> {
    number(env, name)?
        .ok_or_else(|| Error::Usage(format!("{source} is incomplete: {name} is not set")))
}

pub(super) fn number(env: Env<'_>, name: &str) -> Result<Option<u32>> {
    env(name)
        .map(|text| {
            text.trim()
                .parse()
                .map_err(|_| Error::Usage(format!("{name}={text} is not a whole number")))
        })
        .transpose()
}

fn port(env: Env<'_>, name: &str) -> Result<Option<u16>> {
    let Some(text) = env(name) else {
        return Ok(None);
    };
    match text.trim().parse() {
        Ok(port) if port > 0 => Ok(Some(port)),
        _ => Err(Error::Usage(format!(
            "{name}={text} is not a TCP port (1 to 65535)"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
                port: 29500
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
        refused(&[("RANK", "0")], &["WORLD_SIZE"]);
        refused(&[("WORLD_SIZE", "2")], &["RANK"]);
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
        let slurm = [("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4")];
        assert!(seen(&with(&slurm)).is_ok(), "not a step");
        let step = [("SLURM_STEP_ID", "0"), slurm[0], slurm[1]];
        refused(&with(&step), &["SLURM_PROCID=0", "SLURM_NTASKS=4"]);
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

    #[test]
    fn a_launcher_without_an_address_is_not_started_as_singletons() {
        refused(
            &[("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "2")],
            &["MASTER_ADDR", "MASTER_PORT", "RANK=$OMPI_COMM_WORLD_RANK"],
        );
        refused(&[("PMI_RANK", "0"), ("PMI_SIZE", "2")], &["$PMI_RANK"]);
        refused(
            &[
                ("SLURM_STEP_ID", "0"),
                ("SLURM_PROCID", "1"),
                ("SLURM_NTASKS", "2"),
            ],
            &["$SLURM_PROCID"],
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
        let explicit = Explicit {
            rank: 1,
            size: 2,
            host: "a".into(),
            port: 7,
            source: "--rank".into(),
        };
        let env = |_: &str| Some("9".to_owned());
        let identity = detect(&env, Some(explicit.clone())).unwrap().unwrap();
        assert_eq!(
            identity.meeting,
            Meeting::Master {
                host: "a".into(),
                port: 7
            }
        );
        assert!(
            detect(
                &env,
                Some(Explicit {
                    rank: 2,
                    ..explicit
                })
            )
            .is_err()
        );
    }
}
