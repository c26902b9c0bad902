//! Extends time-outs if many ranks share a CPU. A rank that waits for a CPU sends nothing in this time, but must not be
//! reported as lost.
//!
//! Each rank sends rank 0 the CPUs that it may run on. Rank 0 sends all ranks the load of the most crowded CPU, so that
//! every rank allows for the slowest host. The base time-outs are in [`crate::JoinOptions`].

use std::collections::HashMap;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity};

use crate::RankInfo;
use crate::hosts::machine_name;

/// Added to every time-out for each additional rank on the same CPU. Each rank has up to two runnable threads. Before a
/// heartbeat is sent and received, both threads of both ranks need the CPU for about 3 ms each. The rest is slack for
/// other load on the host.
pub(crate) const EACH_RANK: Duration = Duration::from_millis(30);

/// Returns the CPUs that this process may run on, limited to the number of CPUs that it may use at once.
pub(crate) fn own_cpus() -> Vec<u32> {
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    let Ok(allowed) = sched_getaffinity(None) else {
        // The host has more CPUs than `CpuSet` holds. Invented numbers suffice, because actual ones matter only if
        // ranks are bound to different CPUs.
        return (0u32..).take(count).collect();
    };
    let numbers = (0u32..).zip(0..CpuSet::MAX_CPU);
    let own = numbers.filter(|&(_, cpu)| allowed.is_set(cpu));
    own.map(|(number, _)| number).take(count).collect()
}

/// Returns the number of ranks on the most crowded CPU, rounded up. A rank that may run on N CPUs counts as 1/N on
/// each.
pub(crate) fn ranks_per_cpu<'a>(ranks: impl Iterator<Item = (&'a RankInfo, Vec<u32>)>) -> u32 {
    let mut loads = HashMap::new();
    for (info, cpus) in ranks {
        for cpu in &cpus {
            *loads.entry((machine_name(info), *cpu)).or_insert(0.0) += 1.0 / cpus.len() as f64;
        }
    }
    let most = loads.into_values().fold(1.0, f64::max);
    // Subtracts rounding errors, because fractions such as 1/3 are not exact in binary.
    (most - 1e-6).ceil() as u32
}

/// Returns the extra time for ranks that share a CPU: `each` for every rank beyond the first.
pub(crate) fn extra_time(each: Duration, ranks_per_cpu: u32) -> Duration {
    each.saturating_mul(ranks_per_cpu.saturating_sub(1))
}

/// Returns the extra time if `ranks` ranks share the CPUs of this process.
pub(crate) fn extra_time_here(ranks: u32) -> Duration {
    let cpus = u32::try_from(own_cpus().len()).unwrap_or(u32::MAX);
    extra_time(EACH_RANK, ranks.div_ceil(cpus.max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::rank_info;

    /// Returns the number of ranks on the most crowded CPU. Each rank is given by its machine and its CPUs.
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
        // Each rank is bound to one CPU, as launchers do; in the second case, two ranks are bound to the same CPU.
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
