//! Placement of workers on CPUs.
//!
//! [`place_workers`] is a pure function: every local rank works out the whole host's placement from the same topology
//! and takes its own part, so that the ranks agree without talking.

use super::cpu_choice::CpuChoice;
use super::topology::{Cpu, Topology};
use tonnage_units::number_list;
use tonnage_units::{Error, Result};

/// The most workers that one rank may have, far above the CPUs of any host.
const WORKERS_MAX: u32 = 1 << 16;

/// CPUs of the workers of one rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// One CPU for each worker; `None` where it is not pinned.
    pub cpus: Vec<Option<u32>>,
    /// True when workers of this host share CPUs, so that they must yield instead of spinning.
    pub yielding: bool,
}

/// Places the `workers` workers of local rank `local_rank` on a host where `local_size` ranks have as many each.
///
/// [`CpuChoice::Auto`] gives every worker a CPU of its own among those that the process may use. Ranks take theirs in
/// order, the first rank first. A rank takes whole cores while there are enough, and then second threads of cores; in
/// both cases on the lowest NUMA node on which all its workers fit, else over several. When there are more workers than
/// CPUs, worker after worker takes the next CPU, round and round, and they yield.
///
/// # Errors
/// [`Error::Usage`] when a listed CPU cannot be used, which names those that can; or when `local_rank` is not below
/// `local_size`, there are more than 65536 workers, or no CPU is known.
pub fn place_workers(
    topology: &Topology,
    local_rank: u32,
    local_size: u32,
    workers: u32,
    choice: &CpuChoice,
) -> Result<Placement> {
    if local_rank >= local_size {
        return Err(Error::Usage(format!(
            "local rank {local_rank} of {local_size}: local ranks count from 0, so the last is {}",
            i64::from(local_size) - 1
        )));
    }
    if workers > WORKERS_MAX {
        return Err(Error::Usage(format!(
            "{workers} workers in a rank are too many: at most {WORKERS_MAX}, and best no more than the host's {} CPUs",
            topology.allowed.len()
        )));
    }
    let job = Job {
        local_rank,
        workers,
        total: u64::from(local_size) * u64::from(workers),
    };
    match choice {
        CpuChoice::None => Ok(Placement {
            cpus: vec![None; workers as usize],
            yielding: job.total > topology.allowed.len() as u64,
        }),
        CpuChoice::List(list) => {
            check_list(topology, list)?;
            Ok(round_robin(list, &job))
        }
        CpuChoice::Auto => place_auto(topology, &job),
    }
}

/// Pins the calling thread to one CPU.
///
/// # Errors
/// When the kernel refuses: the CPU does not exist or the process may not use it.
pub fn pin_thread(cpu: u32) -> Result<()> {
    spread_thread(&[cpu])
}

/// Lets the calling thread run on any of these CPUs: a thread begins on those of the one that started it.
///
/// # Errors
/// When the kernel refuses: a CPU does not exist or the process may not use it.
pub fn spread_thread(cpus: &[u32]) -> Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    for &cpu in cpus {
        if cpu as usize >= rustix::thread::CpuSet::MAX_CPU {
            return Err(Error::Failed(format!(
                "CPU {cpu} is beyond what the kernel's interface can name"
            )));
        }
        set.set(cpu as usize);
    }
    rustix::thread::sched_setaffinity(None, &set).map_err(|error| {
        let cpus = number_list::format(cpus);
        Error::io(format!("cannot pin a thread to CPU {cpus}"), error)
    })
}

/// The part of the host's workers that is asked for.
struct Job {
    local_rank: u32,
    workers: u32,
    /// Workers of all local ranks.
    total: u64,
}

fn check_list(topology: &Topology, list: &[u32]) -> Result<()> {
    let allowed = number_list::format(&topology.allowed);
    if list.is_empty() {
        return Err(Error::Usage(format!(
            "the list of CPUs is empty; this process may use {allowed}"
        )));
    }
    let wrong: Vec<u32> = list
        .iter()
        .copied()
        .filter(|cpu| topology.allowed.binary_search(cpu).is_err())
        .collect();
    if wrong.is_empty() {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "CPU {} cannot be used: this process may use {allowed}",
        number_list::format(&wrong)
    )))
}

/// Worker after worker takes the next of `cpus`, which is not empty, round and round.
fn round_robin(cpus: &[u32], job: &Job) -> Placement {
    let length = cpus.len() as u64;
    let first = u64::from(job.local_rank) * u64::from(job.workers);
    let mine = (first..first + u64::from(job.workers))
        .map(|slot| {
            usize::try_from(slot % length)
                .ok()
                .and_then(|at| cpus.get(at))
                .copied()
        })
        .collect();
    // A list may name a CPU twice, so that workers share one even when there are enough.
    let used = usize::try_from(job.total.min(length)).unwrap_or(cpus.len());
    let mut distinct: Vec<u32> = cpus.iter().copied().take(used).collect();
    distinct.sort_unstable();
    distinct.dedup();
    Placement {
        cpus: mine,
        yielding: job.total > distinct.len() as u64,
    }
}

fn place_auto(topology: &Topology, job: &Job) -> Result<Placement> {
    let mut mine = place_ranks(topology, job.local_rank + 1, job)?;
    mine.pop()
        .ok_or_else(|| Error::Failed("no rank was placed".to_owned()))
}

/// Places the workers of the first `ranks` local ranks automatically, without regard to which of them exchange bytes.
fn place_ranks(topology: &Topology, ranks: u32, job: &Job) -> Result<Vec<Placement>> {
    let mut free = Free::new(topology);
    let all: Vec<u32> = free.in_order().iter().map(|cpu| cpu.id).collect();
    if all.is_empty() {
        return Err(Error::Usage(
            "the kernel does not say which CPUs this process may use; choose to pin no worker"
                .to_owned(),
        ));
    }
    let own = |local_rank| {
        if job.total > all.len() as u64 {
            return round_robin(&all, &Job { local_rank, ..*job });
        }
        let cpus = free.take(job.workers as usize);
        Placement {
            cpus: cpus.into_iter().map(Some).collect(),
            yielding: false,
        }
    };
    Ok((0..ranks).map(own).collect())
}

/// Places the workers of all ranks of a host as [`place_workers`] does each rank's by [`CpuChoice::Auto`].
///
/// # Errors
/// As for [`place_workers`].
pub(crate) fn place_all(topology: &Topology, ranks: u32, workers: u32) -> Result<Vec<Placement>> {
    let total = u64::from(ranks) * u64::from(workers);
    let job = Job {
        local_rank: 0,
        workers,
        total,
    };
    place_ranks(topology, ranks, &job)
}

/// The CPUs that a process may use, by node, then core, then number. One that is allowed but not known to be online is
/// one that the kernel says nothing about: a core of its own.
pub(crate) fn known_cpus(topology: &Topology, allowed: &[u32]) -> Vec<Cpu> {
    let known = |id: &u32| {
        let alone = Cpu {
            id: *id,
            core: *id,
            package: None,
            node: 0,
        };
        topology.cpu(*id).copied().unwrap_or(alone)
    };
    let mut cpus: Vec<Cpu> = allowed.iter().map(known).collect();
    cpus.sort_by_key(|cpu| (cpu.node, cpu.core, cpu.id));
    cpus
}

/// The CPUs that no rank has taken yet.
struct Free {
    /// By node, then core, then number.
    cpus: Vec<Cpu>,
    /// Cores of which a CPU has been taken.
    used_cores: Vec<u32>,
}

impl Free {
    fn new(topology: &Topology) -> Self {
        Self {
            cpus: known_cpus(topology, &topology.allowed),
            used_cores: Vec::new(),
        }
    }

    /// All free CPUs: one of each core that nobody uses first, then the others.
    fn in_order(&self) -> Vec<Cpu> {
        let mut order = self.whole_cores();
        let others = self.cpus.iter().filter(|cpu| !order.contains(cpu)).copied();
        let others: Vec<Cpu> = others.collect();
        order.extend(others);
        order
    }

    /// One CPU of each core that nobody uses.
    fn whole_cores(&self) -> Vec<Cpu> {
        let mut cores = self.cpus.clone();
        cores.retain(|cpu| !self.used_cores.contains(&cpu.core));
        cores.dedup_by_key(|cpu| cpu.core);
        cores
    }

    /// Takes up to `count` CPUs for one rank.
    fn take(&mut self, count: usize) -> Vec<u32> {
        let cores = self.whole_cores();
        let candidates = if cores.len() >= count {
            cores
        } else {
            self.in_order()
        };
        let mut chosen = on_one_node(&candidates, count).unwrap_or(candidates);
        chosen.truncate(count);
        self.cpus.retain(|cpu| !chosen.contains(cpu));
        self.used_cores.extend(chosen.iter().map(|cpu| cpu.core));
        chosen.iter().map(|cpu| cpu.id).collect()
    }
}

/// Those of `cpus` on the lowest node that has at least `count` of them, in the order in which they are given.
fn on_one_node(cpus: &[Cpu], count: usize) -> Option<Vec<Cpu>> {
    let mut nodes: Vec<u32> = cpus.iter().map(|cpu| cpu.node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let of = |node: u32| cpus.iter().filter(move |cpu| cpu.node == node).copied();
    nodes
        .into_iter()
        .find(|node| of(*node).count() >= count)
        .map(|node| of(node).collect())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::super::topology::Node;
    use super::*;

    /// Sockets × cores × threads as Linux numbers them on x86, one node per socket, everything allowed.
    fn invented(sockets: u32, cores: u32, threads: u32) -> Topology {
        let all_cores = sockets * cores;
        let cpu = |id: u32| {
            let core = id % all_cores;
            Cpu {
                id,
                core,
                package: Some(core / cores),
                node: core / cores,
            }
        };
        let cpus: Vec<Cpu> = (0..all_cores * threads).map(cpu).collect();
        let of = |node: u32| {
            cpus.iter()
                .filter(|c| c.node == node)
                .map(|c| c.id)
                .collect()
        };
        let node = |id| Node {
            id,
            cpus: of(id),
            memory_bytes: None,
            memory_free_bytes: None,
        };
        let nodes = (0..sockets).map(node).collect();
        let allowed = cpus.iter().map(|cpu| cpu.id).collect();
        Topology {
            cpus,
            nodes,
            allowed,
        }
    }

    fn auto(topology: &Topology, size: u32, workers: u32) -> (Vec<Vec<u32>>, bool) {
        let place = |rank| place_workers(topology, rank, size, workers, &CpuChoice::Auto).unwrap();
        let all: Vec<Placement> = (0..size).map(place).collect();
        assert!(
            all.iter()
                .all(|placement| placement.yielding == all[0].yielding)
        );
        let cpus = |p: &Placement| p.cpus.iter().map(|cpu| cpu.unwrap()).collect();
        (all.iter().map(cpus).collect(), all[0].yielding)
    }

    #[test]
    fn two_ranks_get_two_cores_of_one_node() {
        assert_eq!(
            auto(&invented(2, 4, 2), 2, 1),
            (vec![vec![0], vec![1]], false)
        );
        assert_eq!(
            auto(&invented(1, 2, 1), 2, 1),
            (vec![vec![0], vec![1]], false)
        );
        // One core with two threads is all there is.
        assert_eq!(
            auto(&invented(1, 1, 2), 2, 1),
            (vec![vec![0], vec![1]], false)
        );
    }

    #[test]
    fn a_rank_that_fits_nowhere_else_moves_to_the_next_node() {
        let (cpus, yielding) = auto(&invented(2, 4, 2), 2, 3);
        assert_eq!(cpus, [vec![0, 1, 2], vec![4, 5, 6]]);
        assert!(!yielding);
    }

    #[test]
    fn whole_cores_come_before_one_node_and_second_threads_last() {
        let topology = invented(2, 4, 2);
        assert_eq!(auto(&topology, 1, 6).0, [vec![0, 1, 2, 3, 4, 5]]);
        // Cores are used up by the first two ranks; the others take second threads, each on one node.
        let (cpus, _) = auto(&topology, 4, 4);
        assert_eq!(
            cpus,
            [
                vec![0, 1, 2, 3],
                vec![4, 5, 6, 7],
                vec![8, 9, 10, 11],
                vec![12, 13, 14, 15]
            ]
        );
        // Both threads of each core when a rank asks for more than there are cores.
        assert_eq!(auto(&invented(1, 2, 2), 1, 4).0, [vec![0, 1, 2, 3]]);
    }

    #[test]
    fn more_workers_than_cpus_wrap_around_and_yield() {
        let (cpus, yielding) = auto(&invented(1, 2, 1), 3, 1);
        assert_eq!(cpus, [vec![0], vec![1], vec![0]]);
        assert!(yielding);
        assert_eq!(auto(&invented(1, 2, 2), 1, 5).0, [vec![0, 1, 2, 3, 0]]);
    }

    #[test]
    fn only_allowed_cpus_are_used() {
        let mut topology = invented(2, 4, 2);
        topology.allowed = vec![6, 7, 14];
        assert_eq!(auto(&topology, 2, 1), (vec![vec![6], vec![7]], false));
        assert_eq!(auto(&topology, 3, 1).0, [vec![6], vec![7], vec![14]]);
        assert!(auto(&topology, 4, 1).1);
    }

    #[test]
    fn a_list_is_followed_in_its_order() {
        let topology = invented(1, 4, 1);
        let list = CpuChoice::List(vec![3, 1]);
        let placed = |rank, size| place_workers(&topology, rank, size, 1, &list).unwrap();
        assert_eq!(
            placed(0, 2),
            Placement {
                cpus: vec![Some(3)],
                yielding: false
            }
        );
        assert_eq!(
            placed(1, 2),
            Placement {
                cpus: vec![Some(1)],
                yielding: false
            }
        );
        assert_eq!(
            placed(2, 3),
            Placement {
                cpus: vec![Some(3)],
                yielding: true
            }
        );
        let twice = CpuChoice::List(vec![2, 2]);
        assert!(place_workers(&topology, 0, 1, 2, &twice).unwrap().yielding);
        assert!(!place_workers(&topology, 0, 1, 1, &twice).unwrap().yielding);
    }

    #[test]
    fn a_cpu_that_cannot_be_used_is_named_with_those_that_can() {
        let mut topology = invented(1, 4, 1);
        topology.allowed = vec![1, 2, 3];
        let place =
            |list: &[u32]| place_workers(&topology, 0, 1, 1, &CpuChoice::List(list.to_vec()));
        let error = place(&[0, 2, 9]).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert_eq!(
            error.to_string(),
            "CPU 0,9 cannot be used: this process may use 1-3"
        );
        assert!(place(&[]).unwrap_err().to_string().contains("1-3"));
    }

    #[test]
    fn nothing_is_pinned_when_that_is_the_choice() {
        let topology = invented(1, 2, 1);
        let placed = place_workers(&topology, 0, 2, 2, &CpuChoice::None).unwrap();
        assert_eq!(
            placed,
            Placement {
                cpus: vec![None, None],
                yielding: true
            }
        );
        assert!(
            !place_workers(&topology, 0, 2, 1, &CpuChoice::None)
                .unwrap()
                .yielding
        );
    }

    #[test]
    fn a_rank_outside_of_its_host_is_refused() {
        let error = place_workers(&invented(1, 2, 1), 2, 2, 1, &CpuChoice::Auto).unwrap_err();
        assert!(matches!(error, Error::Usage(_)));
    }

    proptest! {
        #[test]
        fn no_cpu_is_used_twice_while_there_are_enough(
            (sockets, cores, threads) in (1u32..4, 1u32..6, 1u32..3),
            size in 1u32..8,
            workers in 1u32..8,
        ) {
            let topology = invented(sockets, cores, threads);
            let (cpus, yielding) = auto(&topology, size, workers);
            let distinct: BTreeSet<u32> = cpus.iter().flatten().copied().collect();
            let total = (size * workers) as usize;
            prop_assert_eq!(yielding, total > topology.allowed.len());
            prop_assert_eq!(distinct.len(), total.min(topology.allowed.len()));
            let used_cores: BTreeSet<u32> = distinct.iter().map(|c| topology.cpu(*c).unwrap().core).collect();
            if size == 1 {
                prop_assert_eq!(used_cores.len(), total.min((sockets * cores) as usize));
            }
        }
    }
}
