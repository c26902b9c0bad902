//! Meeting place under plain `srun`, which has no channel between ranks. Rank 0 is on the first host of the step, and
//! the port is computed from the step's number.
//!
//! This module also reads Slurm's host lists, and asks Slurm for a host's address if the resolver does not know the
//! name. It distinguishes the variables of this step from leftovers of an outer step.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::variables::{Env, read_number, read_port};
use tonnage_sys::launcher::parent_of;
use tonnage_units::identity::Meeting;
use tonnage_units::{Error, Result};

/// First port that may be computed from a step's number.
const PORT_FIRST: u16 = 20_000;
/// Number of ports for steps. The last one is well below the ephemeral range.
const PORTS: u64 = 10_000;
/// Limit on the hosts in a list, above the size of any cluster.
const HOSTS_MAX: usize = 1 << 16;
/// Longest wait for an answer of Slurm's controller.
const ANSWER: Duration = Duration::from_secs(10);
/// Limit on the length of `scontrol`'s answer.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// Returns the meeting place of the ranks of this step.
pub(crate) fn meeting_of_step(env: Env<'_>, rank: u32) -> Result<Meeting> {
    let name = "SLURM_STEP_NODELIST";
    let list = env(name).ok_or_else(|| {
        Error::Usage(format!(
            "SLURM_PROCID={rank} is set, but {name} is not: start tonnage by srun itself, or export RANK, WORLD_SIZE, \
             MASTER_ADDR and MASTER_PORT"
        ))
    })?;
    let hosts = expand_host_list(&list)
        .map_err(|why| Error::Usage(format!("{name}={list} cannot be read: {why}")))?;
    let Some(host) = hosts.first() else {
        return Err(Error::Usage(format!("{name}={list} names no host")));
    };
    let node = read_number(env, "SLURM_NODEID")?;
    if rank == 0 && node.is_some_and(|node| node != 0) {
        return Err(Error::Usage(format!(
            "srun has started rank 0 on another host than {host}, the first of {list}, where the other ranks expect \
             it: leave --distribution out, or start with --mpi=pmix or --mpi=pmi2"
        )));
    }
    let port = match read_port(env, "TONNAGE_PORT")? {
        Some(port) => port,
        None => port_of_step(env)?,
    };
    Ok(Meeting::FirstHost {
        host: host.clone(),
        port,
        others: hosts.len() > 1,
    })
}

/// Returns the step's name, which is unique in the cluster.
pub(crate) fn step_name(env: Env<'_>) -> Option<String> {
    Some(format!(
        "{}.{}",
        env("SLURM_JOB_ID")?.trim(),
        env("SLURM_STEP_ID")?.trim()
    ))
}

/// Returns whether `srun --mpi=pmix` offers PMIx to this step. Variables left by another launcher or an outer step
/// would lead to a different server.
pub(crate) fn has_pmix(env: Env<'_>) -> bool {
    let Some(namespace) = env("PMIX_NAMESPACE") else {
        return false;
    };
    let step = env("SLURM_STEP_ID").unwrap_or_default();
    // The parts of a heterogeneous job have different numbers, but PMIx uses the first part's number for all of them.
    let mine = ["SLURM_JOB_ID", "SLURM_JOB_ID_HET_GROUP_0"]
        .iter()
        .filter_map(|name| env(name))
        .any(|job| namespace == format!("slurm.pmix.{}.{}", job.trim(), step.trim()));
    if !mine {
        log::warn!(
            "PMIX_NAMESPACE={namespace} is not of the Slurm step {}: it is left over from another launcher, and not used",
            step_name(env).unwrap_or_default()
        );
    }
    mine
}

/// Limit on the number of processes, such as shells, between a step's task and this process.
const ANCESTORS_MAX: usize = 64;

/// Returns whether this step's task was started with this variable. The task is this process or an ancestor. `None` if
/// the task is not found or cannot be inspected.
pub(crate) fn task_had_variable(env: Env<'_>, name: &str) -> Option<bool> {
    let task: u32 = env("SLURM_TASK_PID")?.trim().parse().ok()?;
    let mut pid = std::process::id();
    if pid == task {
        return Some(env(name).is_some());
    }
    for _ in 0..ANCESTORS_MAX {
        pid = parent_of(pid)?;
        if pid == task {
            let started_with = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
            let name = format!("{name}=");
            let mut variables = started_with.split(|byte| *byte == 0);
            return Some(variables.any(|variable| variable.starts_with(name.as_bytes())));
        }
    }
    None
}

/// Returns the port of the step: the same for all ranks of the step, and different from the next step's.
fn port_of_step(env: Env<'_>) -> Result<u16> {
    let read = |name: &str| {
        let text = env(name).ok_or_else(|| {
            Error::Usage(format!(
                "{name} is not set, which the ranks' port follows from: export TONNAGE_PORT"
            ))
        })?;
        text.trim().parse::<u64>().map_err(|_| {
            Error::Usage(format!(
                "{name}={text} is not a number, which the ranks' port follows from: export TONNAGE_PORT"
            ))
        })
    };
    let (job, step) = (read("SLURM_JOB_ID")?, read("SLURM_STEP_ID")?);
    // The factor is coprime to the number of ports, so that steps of neighbouring jobs get different ports.
    let place = job.wrapping_mul(101).wrapping_add(step) % PORTS;
    Ok(PORT_FIRST.saturating_add(u16::try_from(place).unwrap_or_default()))
}

/// Expands a list such as `n[0-1,07-09],m1`, in order.
pub(crate) fn expand_host_list(list: &str) -> Result<Vec<String>, String> {
    let mut hosts = Vec::new();
    for part in split_host_list(list)? {
        let mut names = vec![String::new()];
        let mut rest = part;
        while let Some((before, behind)) = rest.split_once('[') {
            let (inside, after) = behind.split_once(']').ok_or("a bracket is not closed")?;
            let numbers = expand_numbers(inside)?;
            if names.len().saturating_mul(numbers.len()) > HOSTS_MAX {
                return Err(format!("it has more than {HOSTS_MAX} hosts"));
            }
            let with = |name: &String| {
                let name = format!("{name}{before}");
                numbers.iter().map(move |number| format!("{name}{number}"))
            };
            names = names.iter().flat_map(with).collect();
            rest = after;
        }
        for name in &mut names {
            name.push_str(rest);
        }
        if names.iter().any(String::is_empty) {
            return Err("a host has no name".into());
        }
        hosts.append(&mut names);
        if hosts.len() > HOSTS_MAX {
            return Err(format!("it has more than {HOSTS_MAX} hosts"));
        }
    }
    Ok(hosts)
}

/// Splits the list at commas outside brackets.
fn split_host_list(list: &str) -> Result<Vec<&str>, String> {
    let mut inside = false;
    for byte in list.bytes() {
        match byte {
            b'[' if inside => return Err("a bracket is inside another one".into()),
            b']' if !inside => return Err("a bracket was not opened".into()),
            b'[' => inside = true,
            b']' => inside = false,
            b'/' | b'\0'..=b' ' => return Err("a host name contains an invalid character".into()),
            _ => {}
        }
    }
    if inside {
        return Err("a bracket is not closed".into());
    }
    let mut inside = false;
    Ok(list
        .split(|sign| {
            inside = (inside || sign == '[') && sign != ']';
            sign == ',' && !inside
        })
        .collect())
}

/// Expands the numbers inside brackets; leading zeros are kept.
fn expand_numbers(inside: &str) -> Result<Vec<String>, String> {
    let mut numbers = Vec::new();
    for range in inside.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let read = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            let number = text.parse::<u64>().ok().filter(|_| digits);
            number.ok_or_else(|| format!("{text:?} is not a number"))
        };
        let (from, to) = (read(first)?, read(last)?);
        if from > to || to - from >= HOSTS_MAX as u64 {
            return Err(format!("{range} is not a range of at most {HOSTS_MAX}"));
        }
        let width = first.len();
        numbers.extend((from..=to).map(|number| format!("{number:0width$}")));
        if numbers.len() > HOSTS_MAX {
            return Err(format!("it has more than {HOSTS_MAX} hosts"));
        }
    }
    Ok(numbers)
}

/// Returns the address that Slurm itself uses for a host.
pub(crate) fn node_address(host: &str) -> Result<String> {
    let failed = |why: String| {
        Error::Failed(format!(
            "the name {host} has no address that other hosts can reach, and `scontrol show node {host}` did not give one \
             ({why}): export RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, or start with --mpi=pmix or --mpi=pmi2"
        ))
    };
    let mut child = Command::new("scontrol")
        .args(["--oneliner", "show", "node", host])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| failed(error.to_string()))?;
    let pipe = child.stdout.take();
    let reader = std::thread::Builder::new().spawn(move || {
        let mut text = String::new();
        let read = pipe.map(|pipe| pipe.take(ANSWER_BYTES_MAX).read_to_string(&mut text));
        read.is_some_and(|outcome| outcome.is_ok()).then_some(text)
    });
    let ended = reader
        .map_err(|error| Error::start_error("a thread", &error).to_string())
        .and_then(|reader| {
            let until = Instant::now() + ANSWER;
            loop {
                match child.try_wait() {
                    Ok(Some(status)) => return Ok((status, reader)),
                    Ok(None) if Instant::now() < until => {
                        std::thread::sleep(Duration::from_millis(5));
                    }
                    Ok(None) => return Err(format!("it did not end within {ANSWER:?}")),
                    Err(error) => return Err(error.to_string()),
                }
            }
        });
    let (status, reader) = ended.map_err(|why| {
        // `kill` fails only if the process has just ended.
        let _ = child.kill();
        let _ = child.wait();
        failed(why)
    })?;
    let text = reader.join().ok().flatten().unwrap_or_default();
    text.split_whitespace()
        .find_map(|word| word.strip_prefix("NodeAddr="))
        .map(str::to_owned)
        .ok_or_else(|| failed(format!("{status}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{env, says};
    use proptest::prelude::*;

    #[test]
    fn slurms_host_lists_are_expanded() {
        let expanded = |list: &str| expand_host_list(list).unwrap().join(" ");
        assert_eq!(expanded("n[0-1,07-09],m1"), "n0 n1 n07 n08 n09 m1");
        assert_eq!(expanded("m1"), "m1");
        assert_eq!(expanded("a-b[9-11]"), "a-b9 a-b10 a-b11");
        let two = "r0n2-ib r0n3-ib r1n2-ib r1n3-ib x";
        assert_eq!(expanded("r[0-1]n[2-3]-ib,x"), two);
        for wrong in "|,|n[|n]|n[0|n[[0]]|n[]|n[a]|n[2-1]|n[0-]|n[-1]|a,,b|n[+1]|n[0-99999999]|n[0-999]m[0-999]|n[18446744073709551616]|a b".split('|') {
            assert!(expand_host_list(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_lists_neither_panic_nor_grow(list in "[n0-9\\[\\],\\-/ é]{0,40}") {
            if let Ok(hosts) = expand_host_list(&list) {
                prop_assert!(!hosts.is_empty() && hosts.len() <= HOSTS_MAX);
                prop_assert!(hosts.iter().all(|host| !host.is_empty() && !host.contains(['[', ']', ','])));
            }
        }

        #[test]
        fn ranges_expand_to_their_numbers(
            groups in prop::collection::vec(("[a-z]{1,5}-?", prop::collection::vec((0u64..2000, 0u64..20, 1usize..6), 1..4)), 1..5),
        ) {
            let mut list = Vec::new();
            let mut wanted = Vec::new();
            for (name, ranges) in &groups {
                let mut inside = Vec::new();
                for &(first, more, width) in ranges {
                    inside.push(format!("{first:0width$}-{:0width$}", first + more));
                    // Numbers with more digits than the first are not padded.
                    let width = format!("{first:0width$}").len();
                    wanted.extend((first..=first + more).map(|number| format!("{name}{number:0width$}")));
                }
                list.push(format!("{name}[{}]", inside.join(",")));
            }
            prop_assert_eq!(expand_host_list(&list.join(",")).unwrap(), wanted);
        }
    }

    fn at(variables: &str, rank: u32) -> Result<Meeting> {
        meeting_of_step(&env(variables), rank)
    }

    const LIST: &str = "SLURM_STEP_NODELIST=n[3-4]";

    #[test]
    fn steps_meet_on_their_first_host() {
        let place = |more: &str, rank| match at(&format!("{LIST} {more}"), rank).unwrap() {
            Meeting::FirstHost { host, port, others } => (host, port, others),
            other => panic!("{other:?}"),
        };
        let first = place("SLURM_JOB_ID=12 SLURM_STEP_ID=3", 0);
        assert_eq!(first, ("n3".to_owned(), 21_215, true));
        let mut all = std::collections::BTreeSet::new();
        for job in 0..50 {
            for step in 0..50 {
                let (_, port, _) = place(&format!("SLURM_JOB_ID={job} SLURM_STEP_ID={step}"), 1);
                assert!((20_000..30_000).contains(&port));
                all.insert(port);
            }
        }
        assert_eq!(all.len(), 2500, "neighbours share a port");
        assert_eq!(place("TONNAGE_PORT=7", 1).1, 7);
    }

    #[test]
    fn unusable_steps_are_refused() {
        for (variables, part) in [
            ("", "SLURM_STEP_NODELIST"),
            ("SLURM_STEP_NODELIST=n[", "n["),
            (LIST, "TONNAGE_PORT"),
            (&format!("{LIST} SLURM_JOB_ID=x"), "SLURM_JOB_ID=x"),
            (&format!("{LIST} SLURM_NODEID=1"), "another host than n3"),
        ] {
            let error = at(variables, 0).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            says(&error, &[part]);
        }
    }
}
