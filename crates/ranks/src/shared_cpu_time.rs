//! Extends time-outs when many ranks share a CPU: a rank that waits for a CPU sends nothing meanwhile, and must not be
//! reported as lost.
//!
//! Each rank sends rank 0 the CPUs that it may run on. Rank 0 tells all ranks the load of the most crowded CPU, so that
//! every rank allows for the slowest host. The time-outs are in [`crate::JoinOptions`].

use std::collections::HashMap;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity};

use crate::RankInfo;
use crate::hosts::machine_name;

/// Added to every time-out per additional rank on the same CPU. Each rank has up to two runnable threads. Both threads
/// of both ranks need the CPU, for about 3 ms each, before a heartbeat is sent and received. The rest is slack for
/// other load on the host.
pub(crate) const EACH_RANK: Duration = Duration::from_millis(30);

/// Returns CPUs that this process may run on, limited to the number that it may use at once.
pub(crate) fn own_cpus() -> Vec<u32> {
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    let Ok(allowed) = sched_getaffinity(None) else {
        // The host has more CPUs than `CpuSet` holds. The actual numbers matter only if ranks are bound to different
        // CPUs.
        return (0u32..).take(count).collect();
    };
    let numbers = (0u32..).zip(0..CpuSet::MAX_CPU);
    let own = numbers.filter(|&(_, cpu)| allowed.is_set(cpu));
    own.map(|(number, _)| number).take(count).collect()
}

/// Returns the number of ranks on the most crowded CPU, rounded up. A rank that may run on several CPUs counts as a
/// fraction on each.
pub(crate) fn ranks_per_cpu<'a>(ranks: impl Iterator<Item = (&'a RankInfo, Vec<u32>)>) -> u32 {
    let mut loads = HashMap::new();
    for (info, cpus) in ranks {
        for cpu in &cpus {
            *loads.entry((machine_name(info), *cpu)).or_insert(0.0) += 1.0 / cpus.len() as f64;
        }
    }
    let most = loads.into_values().fold(1.0, f64::max);
    // Fractions such as 1/3 are not exact in binary.
    (most - 1e-6).ceil() as u32
}

/// Returns the extra time for ranks that share a CPU: `each` for every rank beyond the first.
pub(crate) fn extra_time(each: Duration, ranks_per_cpu: u32) -> Duration {
    each.saturating_mul(ranks_per_cpu.saturating_sub(1))
}

/// Returns the extra time for `ranks` ranks on the CPUs of this process.
pub(crate) fn extra_time_here(ranks: u32) -> Duration {
    let cpus = u32::try_from(own_cpus().len()).unwrap_or(u32::MAX);
    extra_time(EACH_RANK, ranks.div_ceil(cpus.max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::rank_info;

    /// Ranks on the most crowded CPU, for ranks with these machines and CPUs.
    fn most<const N: usize>(ranks: &[(&str, [u32; N])]) -> u32 {
        let info = |boot: &str| RankInfo {
            boot_id: boot.into(),
            ..rank_info(0, "h")
        };
        let infos: Vec<_> = ranks.iter().map(|(boot, _)| info(boot)).collect();
        let cpus = ranks.iter().map(|(_, cpus)| cpus.to_vec());
        ranks_per_cpu(infos.iter().zip(cpus))
    }

    #[test]
    fn the_most_crowded_cpu_of_all_machines_counts() {
        assert_eq!(most::<1>(&[]), 1);
        assert_eq!(most(&[("a", [0, 1]); 2]), 1);
        assert_eq!(most(&[("a", [0, 1]); 3]), 2);
        assert_eq!(most(&[("a", [0, 1]); 1024]), 512);
        assert_eq!(most(&[("a", [0, 1, 2]); 6]), 2);
        // Bound to one CPU each, as launchers do, then two to the same CPU.
        assert_eq!(most(&[("a", [0]), ("a", [1]), ("a", [2])]), 1);
        assert_eq!(most(&[("a", [0]), ("a", [1]), ("a", [1])]), 2);
        assert_eq!(most(&[("a", [0]), ("b", [0]), ("c", [0])]), 1);
        assert_eq!(most(&[("a", []); 9]), 1);
    }

    #[test]
    fn ranks_with_their_own_cpus_get_no_extra_time() {
        assert_eq!(extra_time(EACH_RANK, 0), Duration::ZERO);
        assert_eq!(extra_time(EACH_RANK, 1), Duration::ZERO);
        assert_eq!(extra_time(EACH_RANK, 512), Duration::from_millis(15_330));
        assert_eq!(extra_time(Duration::MAX, u32::MAX), Duration::MAX);
        let cpus = own_cpus();
        assert!(!cpus.is_empty());
        assert_eq!(extra_time_here(cpus.len() as u32), Duration::ZERO);
        assert_eq!(extra_time_here(3 * cpus.len() as u32), 2 * EACH_RANK);
    }
}
