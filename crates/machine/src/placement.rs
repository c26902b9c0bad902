//! Placement of workers on CPUs.
//!
//! [`place_workers`] is a pure function. Every local rank computes the whole host's placement from the same topology
//! and takes its own part. So the ranks agree without communicating.

use std::marker::PhantomData;
use std::str::FromStr;

use super::topology::{Cpu, Topology};
use tonnage_units::number_list;
use tonnage_units::{Error, Result};

/// How workers are placed, as chosen with `--cpus`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum CpuChoice {
    /// Automatically, by the rules of [`place_workers`].
    #[default]
    Auto,
    /// Workers are not pinned; the kernel decides.
    None,
    /// These CPUs in this order: for rank 0's workers, then for rank 1's, and so on, wrapping around at the end of the
    /// list.
    List(Vec<u32>),
}

/// Parses "none", or a list of one or more CPUs without duplicates.
impl FromStr for CpuChoice {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if text == "none" {
            return Ok(Self::None);
        }
        let cpus = number_list::parse(text)?;
        let is_duplicate = |(at, cpu): &(usize, &u32)| cpus[..*at].contains(cpu);
        if let Some((_, cpu)) = cpus.iter().enumerate().find(is_duplicate) {
            return Err(Error::Usage(format!(
                "the list {text:?} has CPU {cpu} twice"
            )));
        }
        Ok(Self::List(cpus))
    }
}

/// Maximum number of workers per rank, far above the number of CPUs of any host.
const WORKERS_MAX: u32 = 1 << 16;

/// CPUs of the workers of one rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// One CPU for each worker; `None` if the worker is not pinned.
    pub cpus: Vec<Option<u32>>,
    /// True if workers of this host share CPUs, so that they must yield instead of spinning.
    pub yielding: bool,
}

/// Number of workers of each rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Workers {
    /// All workers of a rank.
    pub each: u32,
    /// Workers of each rank that are placed first. If CPUs are short, the first workers of all ranks get CPUs before
    /// any other worker. The other workers share the remaining CPUs, or the first workers' CPUs if none remain.
    pub first: u32,
}

impl From<u32> for Workers {
    /// All workers are placed first, so none has priority.
    fn from(each: u32) -> Self {
        Self { each, first: each }
    }
}

/// Places the `workers` of local rank `local_rank`. The host has `local_size` ranks, all with the same number of
/// workers.
///
/// [`CpuChoice::Auto`] gives every worker its own CPU among those that the process may use. CPUs are assigned in the
/// order of the ranks. As long as there are enough cores, a rank gets whole cores, and after that second threads. In
/// both cases the CPUs are on the lowest NUMA node that fits all the rank's workers. If no single node fits them, the
/// CPUs are on several nodes.
///
/// If there are more workers than CPUs, CPUs are assigned round-robin, and workers yield. The [`Workers::first`] of all
/// ranks then get CPUs before the other workers.
///
/// # Errors
/// [`Error::Usage`] if a listed CPU is not usable; the message names the usable ones. Also if `local_rank` is not below
/// `local_size`, if there are more than 65536 workers, or if no CPU is known.
pub fn place_workers(
    topology: &Topology,
    local_rank: u32,
    local_size: u32,
    workers: impl Into<Workers>,
    choice: &CpuChoice,
) -> Result<Placement> {
    let workers = workers.into();
    if local_rank >= local_size {
        return Err(Error::Usage(format!(
            "local rank {local_rank} of {local_size}: local ranks count from 0, so the last is {}",
            i64::from(local_size) - 1
        )));
    }
    if workers.each > WORKERS_MAX {
        return Err(Error::Usage(format!(
            "{} threads in a rank are too many: at most {WORKERS_MAX}, and best no more than the host's {} CPUs",
            workers.each,
            topology.allowed.len()
        )));
    }
    let request = PlacementRequest {
        local_rank,
        local_size,
        workers,
    };
    match choice {
        CpuChoice::None => Ok(Placement {
            cpus: vec![None; workers.each as usize],
            yielding: request.total() > topology.allowed.len() as u64,
        }),
        CpuChoice::List(list) => {
            check_list(topology, list)?;
            Ok(round_robin(list, &request))
        }
        CpuChoice::Auto => {
            let mut mine = place_ranks(topology, local_rank + 1, &request)?;
            mine.pop()
                .ok_or_else(|| Error::Failed("no rank was placed".to_owned()))
        }
    }
}

/// Pins the calling thread to one CPU.
pub fn pin_thread(cpu: u32) -> Result<()> {
    spread_thread(&[cpu])
}

/// When dropped, restores the CPUs that its thread had when this value was created. If the thread was pinned in the
/// meantime, it is free again, and so are the threads that it starts afterwards.
#[must_use = "the CPUs are given back when this is dropped"]
pub struct AffinityGuard {
    /// The CPUs to restore; `None` if the kernel did not report them.
    had: Option<rustix::thread::CpuSet>,
    // Not `Send`, because dropping it on another thread would change that thread's CPUs.
    _not_send: PhantomData<*const ()>,
}

impl AffinityGuard {
    /// Saves the CPUs of the calling thread.
    pub fn save() -> Self {
        Self {
            had: rustix::thread::sched_getaffinity(None).ok(),
            _not_send: PhantomData,
        }
    }
}

impl Drop for AffinityGuard {
    fn drop(&mut self) {
        let now = rustix::thread::sched_getaffinity(None).ok();
        if let (Some(had), true) = (&self.had, self.had != now)
            && let Err(error) = rustix::thread::sched_setaffinity(None, had)
        {
            log::warn!("a thread stays pinned to its last CPU: {error}");
        }
    }
}

/// Lets the calling thread run on any of these CPUs. A new thread inherits the CPUs of the thread that started it.
pub fn spread_thread(cpus: &[u32]) -> Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    for &cpu in cpus {
        if cpu as usize >= rustix::thread::CpuSet::MAX_CPU {
            return Err(Error::Failed(format!(
                "CPU {cpu} is beyond the range of the kernel's interface"
            )));
        }
        set.set(cpu as usize);
    }
    rustix::thread::sched_setaffinity(None, &set).map_err(|error| {
        let what = format!("cannot pin a thread to CPU {}", number_list::format(cpus));
        match error {
            rustix::io::Errno::PERM => Error::Failed(format!(
                "{what}: {error}. A system call filter, as in containers, forbids it: use --cpus none"
            )),
            _ => Error::io(what, error),
        }
    })
}

/// The workers to place: those of one rank, among all ranks of the host.
struct PlacementRequest {
    local_rank: u32,
    local_size: u32,
    workers: Workers,
}

impl PlacementRequest {
    /// Returns the number of workers of all local ranks.
    fn total(&self) -> u64 {
        u64::from(self.local_size) * u64::from(self.workers.each)
    }

    /// Returns the index of a worker's CPU among `length` CPUs that are assigned round-robin.
    fn round_robin_index(&self, worker: u32, length: u64) -> u64 {
        let (rank, worker) = (u64::from(self.local_rank), u64::from(worker));
        let (each, first) = (u64::from(self.workers.each), u64::from(self.workers.first));
        let firsts = u64::from(self.local_size) * first;
        // If there are enough CPUs, each rank gets consecutive ones.
        if self.total() <= length || first >= each {
            return (rank * each + worker) % length;
        }
        if worker < first {
            return (rank * first + worker) % length;
        }
        let after = rank * (each - first) + worker - first;
        match length.checked_sub(firsts) {
            Some(left) if left > 0 => firsts + after % left,
            _ => (firsts + after) % length,
        }
    }
}

fn check_list(topology: &Topology, list: &[u32]) -> Result<()> {
    let allowed = number_list::format(&topology.allowed);
    if list.is_empty() {
        return Err(Error::Usage(format!(
            "the list of CPUs is empty; this process may use {allowed}"
        )));
    }
    let is_wrong = |cpu: &&u32| topology.allowed.binary_search(cpu).is_err();
    let wrong: Vec<u32> = list.iter().filter(is_wrong).copied().collect();
    if wrong.is_empty() {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "CPU {} cannot be used: this process may use {allowed}",
        number_list::format(&wrong)
    )))
}

/// Assigns `cpus`, which is not empty, to the workers in round-robin order.
fn round_robin(cpus: &[u32], request: &PlacementRequest) -> Placement {
    let length = cpus.len() as u64;
    let cpu_of = |worker| {
        let at = usize::try_from(request.round_robin_index(worker, length)).ok()?;
        cpus.get(at).copied()
    };
    let mine = (0..request.workers.each).map(cpu_of).collect();
    // A list that was not parsed may name a CPU twice. Workers then share that CPU even if there are enough CPUs.
    let used = usize::try_from(request.total().min(length)).unwrap_or(cpus.len());
    let mut distinct: Vec<u32> = cpus.iter().copied().take(used).collect();
    distinct.sort_unstable();
    distinct.dedup();
    Placement {
        cpus: mine,
        yielding: request.total() > distinct.len() as u64,
    }
}

/// Places the workers of the first `ranks` local ranks automatically, regardless of which workers exchange bytes.
fn place_ranks(
    topology: &Topology,
    ranks: u32,
    request: &PlacementRequest,
) -> Result<Vec<Placement>> {
    let mut free = FreeCpus::new(topology);
    let all: Vec<u32> = free.in_order().iter().map(|cpu| cpu.id).collect();
    if all.is_empty() {
        return Err(Error::Usage(
            "the kernel does not say which CPUs this process may use; use --cpus none".to_owned(),
        ));
    }
    let own = |local_rank| {
        if request.total() > all.len() as u64 {
            return round_robin(
                &all,
                &PlacementRequest {
                    local_rank,
                    ..*request
                },
            );
        }
        let cpus = free.take(request.workers.each as usize);
        Placement {
            cpus: cpus.into_iter().map(Some).collect(),
            yielding: false,
        }
    };
    Ok((0..ranks).map(own).collect())
}

/// Places the workers of all ranks of a host as [`place_workers`] does for each rank with [`CpuChoice::Auto`].
pub(crate) fn place_all(
    topology: &Topology,
    ranks: u32,
    workers: Workers,
) -> Result<Vec<Placement>> {
    let request = PlacementRequest {
        local_rank: 0,
        local_size: ranks,
        workers,
    };
    place_ranks(topology, ranks, &request)
}

/// Returns the CPUs that a process may use, sorted by node, core and number. An allowed CPU that the topology does not
/// list counts as a core of its own.
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
struct FreeCpus {
    /// Sorted by node, core and number.
    cpus: Vec<Cpu>,
    /// Cores with at least one taken CPU.
    used_cores: Vec<u32>,
}

impl FreeCpus {
    fn new(topology: &Topology) -> Self {
        Self {
            cpus: known_cpus(topology, &topology.allowed),
            used_cores: Vec::new(),
        }
    }

    /// Returns all free CPUs: first one CPU of each unused core, then the other CPUs.
    fn in_order(&self) -> Vec<Cpu> {
        let mut order = self.whole_cores();
        let others = self.cpus.iter().filter(|cpu| !order.contains(cpu)).copied();
        let others: Vec<Cpu> = others.collect();
        order.extend(others);
        order
    }

    /// Returns one CPU of each unused core.
    fn whole_cores(&self) -> Vec<Cpu> {
        let mut cores = self.cpus.clone();
        cores.retain(|cpu| !self.used_cores.contains(&cpu.core));
        cores.dedup_by_key(|cpu| cpu.core);
        cores
    }

    /// Assigns up to `count` CPUs to one rank.
    fn take(&mut self, count: usize) -> Vec<u32> {
        let mut candidates = self.whole_cores();
        if candidates.len() < count {
            candidates = self.in_order();
        }
        let mut chosen = on_one_node(&candidates, count).unwrap_or(candidates);
        chosen.truncate(count);
        self.cpus.retain(|cpu| !chosen.contains(cpu));
        self.used_cores.extend(chosen.iter().map(|cpu| cpu.core));
        chosen.iter().map(|cpu| cpu.id).collect()
    }
}

/// Returns the CPUs among `cpus` that are on the lowest node with at least `count` of them, in the given order.
fn on_one_node(cpus: &[Cpu], count: usize) -> Option<Vec<Cpu>> {
    let mut nodes: Vec<u32> = cpus.iter().map(|cpu| cpu.node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let of = |node: u32| cpus.iter().filter(move |cpu| cpu.node == node).copied();
    let node = nodes.into_iter().find(|node| of(*node).count() >= count)?;
    Some(of(node).collect())
}

#[cfg(test)]
mod tests;
