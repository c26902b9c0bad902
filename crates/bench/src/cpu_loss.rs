//! CPU time that ranks lost during their trials, for all kinds of experiments. Measures how long threads waited for a
//! CPU, and how often the quota of a control group throttled them.
//!
//! A kind calls [`CpuLossMeter::begin`] and [`CpuLossMeter::end`] just outside its measured intervals. The conductor
//! reads the sums after each point. Nothing in this module runs in a timed loop.

use serde::{Deserialize, Serialize};

use crate::host::RankHost;
use crate::json::Json;
use tonnage_machine::cpu_time::{LimitedGroup, SchedTime, Throttling};
use tonnage_machine::kernel_files::Tree;
use tonnage_ranks::{Hosts, Rank};
use tonnage_record::Effective;
use tonnage_record::cpu_loss::{CPU_LOSSES_MAX, CpuLoss, LOSS_RECORDED, UsedQuota};
use tonnage_units::{Reduce, number_list};

/// Returns the kernel's ID of the calling thread.
pub fn own_thread() -> u32 {
    rustix::thread::gettid().as_raw_pid().unsigned_abs()
}

/// Returns the scheduling times of the calling thread so far, or `None` if the kernel does not count them.
pub fn own_sched_time() -> Option<SchedTime> {
    SchedTime::of_thread(&Tree::host(), own_thread())
}

/// Measures the CPU time that one rank loses.
pub struct CpuLossMeter {
    tree: Tree,
    groups: Vec<LimitedGroup>,
    /// Threads in the current interval, with their scheduling times at its start.
    threads: Vec<(u32, Option<SchedTime>)>,
    /// Counts of the control groups at the start of the interval.
    groups_before: Vec<Throttling>,
    sums: IntervalSums,
}

/// Sums over the intervals of a point.
#[derive(Default)]
struct IntervalSums {
    thread_ns: u64,
    wait_ns: u64,
    /// True if there was a thread whose time the kernel did not count.
    is_partial: bool,
    /// Largest number of threads in an interval.
    threads: usize,
    throttlings: Vec<Throttling>,
}

impl CpuLossMeter {
    /// Finds the control groups in `tree` that limit this process.
    pub fn new(tree: Tree) -> Self {
        Self {
            groups: LimitedGroup::all(&tree),
            tree,
            threads: Vec::new(),
            groups_before: Vec::new(),
            sums: IntervalSums::default(),
        }
    }

    /// Clears the sums of all intervals.
    pub fn reset(&mut self) {
        self.sums = IntervalSums::default();
    }

    /// Begins an interval of the calling thread and the threads `others`.
    pub fn begin(&mut self, others: &[u32]) {
        self.begin_groups();
        let threads = others.iter().copied().chain([own_thread()]);
        let tree = &self.tree;
        self.threads = threads
            .map(|thread| (thread, SchedTime::of_thread(tree, thread)))
            .collect();
    }

    /// Begins an interval in which each thread measures its own times, which are then passed to [`Self::count`].
    pub fn begin_groups(&mut self) {
        self.threads.clear();
        let counts = self.groups.iter().map(|group| group.throttling(&self.tree));
        self.groups_before = counts.map(Option::unwrap_or_default).collect();
    }

    /// Ends an interval in which each thread was measured for `elapsed_ns`.
    pub fn end(&mut self, elapsed_ns: u64) {
        let threads = std::mem::take(&mut self.threads);
        for (thread, before) in &threads {
            let after = SchedTime::of_thread(&self.tree, *thread);
            let both = after.zip(*before);
            self.count(both.map(|(after, before)| after.since(before)), elapsed_ns);
        }
        self.end_groups(threads.len());
    }

    /// Ends an interval of `threads` threads, after their times were passed to [`Self::count`].
    pub fn end_groups(&mut self, threads: usize) {
        self.sums.threads = self.sums.threads.max(threads);
        let sums = &mut self.sums.throttlings;
        sums.resize(self.groups.len(), Throttling::default());
        for ((sum, group), before) in sums.iter_mut().zip(&self.groups).zip(&self.groups_before) {
            if let Some(after) = group.throttling(&self.tree) {
                sum.add(after.since(*before));
            }
        }
    }

    /// Adds a thread that was measured for `elapsed_ns`. `time` is `None` if the kernel does not count scheduling
    /// times.
    pub fn count(&mut self, time: Option<SchedTime>, elapsed_ns: u64) {
        self.sums.thread_ns += elapsed_ns;
        match time {
            Some(time) => self.sums.wait_ns += time.wait_ns,
            None => self.sums.is_partial = true,
        }
    }

    /// Returns this rank's losses in all intervals, for merging with other ranks' losses.
    pub fn own_losses(&self, rank: &Rank, host: &RankHost) -> CpuLosses {
        let id = rank.id() as usize;
        let name = rank.rank_infos().get(id).map(|info| info.host.to_string());
        let at_once = self.sums.threads * host.neighbours.1 as usize;
        let shares_cpus = at_once > host.topology.allowed.len();
        self.losses(rank.id(), name.unwrap_or_default(), shares_cpus)
    }

    fn losses(&self, rank: u32, host: String, shares_cpus: bool) -> CpuLosses {
        let sums = &self.sums;
        let groups = self.groups.iter().zip(&sums.throttlings);
        let quota = groups
            .filter(|(_, counted)| counted.throttled_periods > 0)
            .max_by_key(|(_, counted)| counted.throttled_ns)
            .map(|(group, counted)| UsedQuota {
                quota_millicpus: group.quota_millicpus,
                periods: counted.periods,
                throttled_periods: counted.throttled_periods,
                throttled_ns: counted.throttled_ns,
            });
        let loss = CpuLoss {
            rank,
            host,
            thread_ns: sums.thread_ns,
            wait_ns: (!sums.is_partial).then_some(sums.wait_ns),
            shares_cpus,
            quota,
        };
        let waited = sums.wait_ns as f64 > LOSS_RECORDED * sums.thread_ns as f64;
        let counts = sums.thread_ns > 0 && (loss.quota.is_some() || waited);
        CpuLosses(Json(counts.then_some(loss).into_iter().collect()))
    }
}

/// Losses of several ranks, the largest losses first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CpuLosses(Json<Vec<CpuLoss>>);

impl Reduce for CpuLosses {
    fn merge(&mut self, Self(Json(others)): Self) {
        let Self(Json(all)) = self;
        all.extend(others);
        let lost = |loss: &CpuLoss| loss.wait_ns.unwrap_or(0) as f64 / loss.thread_ns as f64;
        all.sort_by(|one, other| {
            let larger = lost(other).total_cmp(&lost(one));
            larger.then(one.rank.cmp(&other.rank))
        });
        all.truncate(CPU_LOSSES_MAX);
    }
}

impl CpuLosses {
    /// Returns the losses for a record. `effective` has the CPUs that the ranks ran on.
    pub fn for_record(self, effective: &[Effective], hosts: &Hosts) -> Vec<CpuLoss> {
        let Self(Json(mut all)) = self;
        for loss in &mut all {
            loss.shares_cpus |= shares_cpus(loss.rank, effective, hosts);
        }
        all
    }
}

/// Returns whether a rank yields, or is pinned to a CPU that another thread of the run uses too.
fn shares_cpus(rank: u32, effective: &[Effective], hosts: &Hosts) -> bool {
    let groups = effective.iter().filter_map(|group| {
        let ranks = number_list::parse(&group.ranks).ok()?;
        Some((ranks, group))
    });
    let groups: Vec<_> = groups.collect();
    let own: Vec<_> = groups
        .iter()
        .filter(|(ranks, _)| ranks.contains(&rank))
        .collect();
    let cpus: Vec<u32> = own
        .iter()
        .flat_map(|(_, group)| group.cpus.iter().flatten().copied())
        .collect();
    // With several backends, each rank appears once per backend. Backends take turns, so only one of these sets counts.
    let of_one = own.first().map_or(0, |(_, group)| group.cpus.len());
    let distinct = cpus.iter().collect::<std::collections::BTreeSet<_>>().len();
    let twice = !cpus.is_empty() && distinct < of_one.min(cpus.len());
    let others = groups.iter().flat_map(|(ranks, group)| {
        let ranks = ranks.iter().map(|&other| (other, &group.cpus));
        ranks.filter(|(other, _)| *other != rank && hosts.share_machine(*other, rank))
    });
    let is_shared = |other: &[Option<u32>]| other.iter().flatten().any(|cpu| cpus.contains(cpu));
    let mut others = others;
    own.iter().any(|(_, group)| group.yielding)
        || twice
        || others.any(|(_, other)| is_shared(other))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonnage_machine::kernel_files::invented::Machine;
    use tonnage_ranks::testing::rank_info;

    /// Writes the files of a control group with a quota of half a CPU. `periods` are the group's counts; `wait_ns` is
    /// the thread's wait.
    fn counted(machine: &Machine, periods: [u64; 3], wait_ns: u64) {
        let [all, throttled, throttled_us] = periods;
        machine
            .file("proc/self/cgroup", "0::/")
            .file(
                "proc/self/mountinfo",
                "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw",
            )
            .file("sys/fs/cgroup/cpu.max", "50000 100000")
            .file(
                "sys/fs/cgroup/cpu.stat",
                &format!(
                    "nr_periods {all}\nnr_throttled {throttled}\nthrottled_usec {throttled_us}"
                ),
            )
            .file(
                &format!("proc/self/task/{}/schedstat", own_thread()),
                &format!("1 {wait_ns} 1"),
            );
    }

    fn only(losses: CpuLosses) -> Option<CpuLoss> {
        let CpuLosses(Json(mut all)) = losses;
        assert!(all.len() < 2, "{all:?}");
        all.pop()
    }

    #[test]
    fn only_time_inside_intervals_is_summed() {
        let machine = Machine::new();
        counted(&machine, [10, 5, 100], 1000);
        let mut cpu = CpuLossMeter::new(machine.tree());
        cpu.begin(&[]);
        counted(&machine, [20, 14, 600], 501_000);
        cpu.end(1_000_000);
        counted(&machine, [50, 44, 9000], 9_000_000);
        cpu.begin(&[]);
        counted(&machine, [53, 46, 9400], 9_400_000);
        cpu.end(1_000_000);
        let loss = only(cpu.losses(1, "b".into(), false)).unwrap();
        let quota = UsedQuota {
            quota_millicpus: 500,
            periods: 13,
            throttled_periods: 11,
            throttled_ns: 900_000,
        };
        assert_eq!(loss.quota, Some(quota));
        assert_eq!(
            (loss.thread_ns, loss.wait_ns),
            (2_000_000, Some(900_000)),
            "{loss:?}"
        );
        assert_eq!(
            (loss.lost_to_quota(), loss.lost_to_others()),
            (Some(0.45), Some(0.0))
        );
        cpu.reset();
        assert_eq!(only(cpu.losses(1, "b".into(), false)), None);
    }

    #[test]
    fn a_wait_without_throttling_is_blamed_on_other_threads() {
        let machine = Machine::new();
        counted(&machine, [10, 5, 100], 0);
        let mut cpu = CpuLossMeter::new(machine.tree());
        cpu.begin(&[]);
        counted(&machine, [20, 5, 100], 490_000);
        cpu.end(1_000_000);
        let loss = only(cpu.losses(0, "a".into(), false)).unwrap();
        assert_eq!(
            (loss.lost_to_quota(), loss.lost_to_others()),
            (None, Some(0.49))
        );
        // If a thread's time is not counted, the cause stays unknown. Below, a wait of 1 % is too short to be recorded.
        cpu.count(None, 1_000_000);
        let loss = only(cpu.losses(0, "a".into(), false)).unwrap();
        assert_eq!(loss.lost_to_others(), None);
        cpu.reset();
        let waited = SchedTime {
            run_ns: 0,
            wait_ns: 10_000,
        };
        cpu.count(Some(waited), 1_000_000);
        assert_eq!(only(cpu.losses(0, "a".into(), false)), None);
    }

    #[test]
    fn the_ranks_with_the_largest_losses_are_kept() {
        let of = |rank: u32| {
            let mut cpu = CpuLossMeter::new(Machine::new().tree());
            let wait_ns = 100_000 + u64::from(rank) * 1000;
            cpu.count(Some(SchedTime { run_ns: 0, wait_ns }), 1_000_000);
            cpu.losses(rank, "h".into(), false)
        };
        let mut all = of(0);
        (1..40).for_each(|rank| all.merge(of(rank)));
        let CpuLosses(Json(all)) = all;
        assert_eq!(all.len(), CPU_LOSSES_MAX);
        assert_eq!((all[0].rank, all[15].rank), (39, 24));
    }

    #[test]
    fn ranks_pinned_to_one_cpu_share_it() {
        let infos = [rank_info(0, "a"), rank_info(1, "a"), rank_info(2, "b")];
        let hosts = Hosts::from_infos(&infos);
        let of = |ranks: &str, cpus: &[u32]| Effective {
            ranks: ranks.into(),
            cpus: cpus.iter().copied().map(Some).collect(),
            ..Effective::default()
        };
        let apart = [of("0,2", &[0]), of("1", &[1])];
        let together = [of("0-2", &[0, 1])];
        let twice = [of("0", &[0, 0])];
        let shared = |rank, effective: &[Effective]| shares_cpus(rank, effective, &hosts);
        assert!(!shared(0, &apart) && !shared(1, &apart) && !shared(2, &apart));
        assert!(shared(0, &together) && shared(1, &together) && !shared(2, &together));
        assert!(shared(0, &twice));
    }
}
