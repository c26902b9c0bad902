//! Placement of workers on CPUs.
//!
//! [`place_workers`] is a pure function: every local rank works out the whole host's placement from the same topology
//! and takes its own part, so that the ranks agree without talking.

use std::marker::PhantomData;
use std::str::FromStr;

use super::topology::{Cpu, Topology};
use tonnage_units::number_list;
use tonnage_units::{Error, Result};

/// A rule for placing workers, as `--cpus` says it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum CpuChoice {
    /// By the own rules of [`place_workers`].
    #[default]
    Auto,
    /// Nothing is pinned; the kernel decides.
    None,
    /// These CPUs in this order: rank 0's workers, then rank 1's, starting again when the list is used up.
    List(Vec<u32>),
}

/// Reads "none" or a list, which is not empty and has no CPU twice.
impl FromStr for CpuChoice {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if text == "none" {
            return Ok(Self::None);
        }
        let cpus = number_list::parse(text)?;
        let is_twice = |(at, cpu): &(usize, &u32)| cpus[..*at].contains(cpu);
        if let Some((_, cpu)) = cpus.iter().enumerate().find(is_twice) {
            return Err(Error::Usage(format!(
                "the list {text:?} has CPU {cpu} twice"
            )));
        }
        Ok(Self::List(cpus))
    }
}

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

/// Workers of each rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Workers {
    /// All of them.
    pub each: u32,
    /// The first ones of each rank, which where there are not CPUs for all get theirs before the others of any rank;
    /// the others share what is left, or where nothing is left the CPUs of the first ones.
    pub first: u32,
}

impl From<u32> for Workers {
    /// Workers of which none are before the others.
    fn from(each: u32) -> Self {
        Self { each, first: each }
    }
}

/// Places the `workers` of local rank `local_rank` on a host where `local_size` ranks have as many each.
///
/// [`CpuChoice::Auto`] gives every worker a CPU of its own among those that the process may use. Ranks take theirs in
/// order, the first rank first. A rank takes whole cores while there are enough, and then second threads of cores; in
/// both cases on the lowest NUMA node on which all its workers fit, else over several. When there are more workers than
/// CPUs, worker after worker takes the next CPU, round and round, and they yield; [`Workers::first`] come first then.
///
/// # Errors
/// [`Error::Usage`] when a listed CPU cannot be used, which names those that can; or when `local_rank` is not below
/// `local_size`, there are more than 65536 workers, or no CPU is known.
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
            "{} workers in a rank are too many: at most {WORKERS_MAX}, and best no more than the host's {} CPUs",
            workers.each,
            topology.allowed.len()
        )));
    }
    let job = Job {
        local_rank,
        local_size,
        workers,
    };
    match choice {
        CpuChoice::None => Ok(Placement {
            cpus: vec![None; workers.each as usize],
            yielding: job.total() > topology.allowed.len() as u64,
        }),
        CpuChoice::List(list) => {
            check_list(topology, list)?;
            Ok(round_robin(list, &job))
        }
        CpuChoice::Auto => {
            let mut mine = place_ranks(topology, local_rank + 1, &job)?;
            mine.pop()
                .ok_or_else(|| Error::Failed("no rank was placed".to_owned()))
        }
    }
}

/// Pins the calling thread to one CPU.
pub fn pin_thread(cpu: u32) -> Result<()> {
    spread_thread(&[cpu])
}

/// Gives the thread that made it back the CPUs that it had: a thread that is pinned while this lives is free again
/// afterwards, and so is each thread that it starts then.
#[must_use = "the CPUs are given back when this is dropped"]
pub struct OwnCpus {
    /// `None` where the kernel does not say which they were.
    had: Option<rustix::thread::CpuSet>,
    // Dropped by another thread it would move that one.
    _of_this_thread: PhantomData<*const ()>,
}

impl OwnCpus {
    /// Notes the CPUs of the calling thread.
    pub fn of_this_thread() -> Self {
        Self {
            had: rustix::thread::sched_getaffinity(None).ok(),
            _of_this_thread: PhantomData,
        }
    }
}

impl Drop for OwnCpus {
    fn drop(&mut self) {
        let now = rustix::thread::sched_getaffinity(None).ok();
        if let (Some(had), true) = (&self.had, self.had != now)
            && let Err(error) = rustix::thread::sched_setaffinity(None, had)
        {
            log::warn!("a thread stays pinned to its last CPU: {error}");
        }
    }
}

/// Lets the calling thread run on any of these CPUs: a thread begins on those of the one that started it.
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
        let what = format!("cannot pin a thread to CPU {}", number_list::format(cpus));
        match error {
            rustix::io::Errno::PERM => Error::Failed(format!(
                "{what}: {error}. A filter of system calls, as containers have, forbids it: use --cpus none"
            )),
            _ => Error::io(what, error),
        }
    })
}

/// The part of the host's workers that is asked for.
struct Job {
    local_rank: u32,
    local_size: u32,
    workers: Workers,
}

impl Job {
    /// Workers of all local ranks.
    fn total(&self) -> u64 {
        u64::from(self.local_size) * u64::from(self.workers.each)
    }

    /// The place of a worker in the order in which `length` CPUs are given out, round and round.
    fn turn(&self, worker: u32, length: u64) -> u64 {
        let (rank, worker) = (u64::from(self.local_rank), u64::from(worker));
        let (each, first) = (u64::from(self.workers.each), u64::from(self.workers.first));
        let firsts = u64::from(self.local_size) * first;
        // Where there are enough, ranks take theirs in order.
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

/// Worker after worker takes the next of `cpus`, which is not empty, round and round.
fn round_robin(cpus: &[u32], job: &Job) -> Placement {
    let length = cpus.len() as u64;
    let cpu_of = |worker| {
        let at = usize::try_from(job.turn(worker, length)).ok()?;
        cpus.get(at).copied()
    };
    let mine = (0..job.workers.each).map(cpu_of).collect();
    // A list may name a CPU twice, so that workers share one even when there are enough.
    let used = usize::try_from(job.total().min(length)).unwrap_or(cpus.len());
    let mut distinct: Vec<u32> = cpus.iter().copied().take(used).collect();
    distinct.sort_unstable();
    distinct.dedup();
    Placement {
        cpus: mine,
        yielding: job.total() > distinct.len() as u64,
    }
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
        if job.total() > all.len() as u64 {
            return round_robin(&all, &Job { local_rank, ..*job });
        }
        let cpus = free.take(job.workers.each as usize);
        Placement {
            cpus: cpus.into_iter().map(Some).collect(),
            yielding: false,
        }
    };
    Ok((0..ranks).map(own).collect())
}

/// Places the workers of all ranks of a host as [`place_workers`] does each rank's by [`CpuChoice::Auto`].
pub(crate) fn place_all(
    topology: &Topology,
    ranks: u32,
    workers: Workers,
) -> Result<Vec<Placement>> {
    let job = Job {
        local_rank: 0,
        local_size: ranks,
        workers,
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

/// Those of `cpus` on the lowest node that has at least `count` of them, in the order in which they are given.
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
