//! CPUs of the workers that measure a latency beside a load: their own, or shared with somebody.

use std::collections::BTreeMap;

use super::description::{OpenMessage, WorkerPlaces};
use tonnage_ranks::{Alike, Hosts};
use tonnage_record::transfer::MeasuringCpus;

/// Workers on one CPU of a machine.
#[derive(Default)]
struct OnCpu {
    measuring: u32,
    loading: u32,
}

/// CPUs of the first `measuring` workers of all ranks, where others move a background.
pub(super) fn of_ranks(
    (all, places): (&Alike<OpenMessage>, &Alike<WorkerPlaces>),
    hosts: &Hosts,
    measuring: u32,
) -> MeasuringCpus {
    let ranks = all.iter().zip(places.iter()).zip(hosts.machines());
    let cpus = ranks.map(|((opened, places), &machine)| RankCpus {
        machine,
        cpus: &places.cpus,
        is_crowded: opened.yielding,
    });
    measuring_cpus(cpus, measuring)
}

/// A rank as far as it matters here.
struct RankCpus<'a> {
    machine: u32,
    /// CPUs of its workers; `None` where one is not pinned.
    cpus: &'a [Option<u32>],
    /// True with more workers than CPUs.
    is_crowded: bool,
}

/// CPUs of the first `measuring` workers of each rank.
fn measuring_cpus<'a>(ranks: impl Iterator<Item = RankCpus<'a>>, measuring: u32) -> MeasuringCpus {
    let mut cpus = BTreeMap::<(u32, u32), OnCpu>::new();
    for rank in ranks {
        for (worker, cpu) in (0u32..).zip(rank.cpus) {
            let Some(cpu) = *cpu else {
                // Nobody knows who runs where. With too few CPUs, everybody may meet everybody.
                match rank.is_crowded {
                    true => return MeasuringCpus::Together,
                    false => continue,
                }
            };
            let on_cpu = cpus.entry((rank.machine, cpu)).or_default();
            match worker < measuring {
                true => on_cpu.measuring += 1,
                false => on_cpu.loading += 1,
            }
        }
    }
    let any = |is: fn(&OnCpu) -> bool| cpus.values().any(is);
    if any(|on_cpu| on_cpu.measuring > 1) {
        MeasuringCpus::Together
    } else if any(|on_cpu| on_cpu.measuring > 0 && on_cpu.loading > 0) {
        MeasuringCpus::WithLoad
    } else {
        MeasuringCpus::Own
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CPUs of two workers of each rank, the second of which moves the load.
    fn of<'a>(cpus: &'a [[Option<u32>; 2]], machines: &[u32]) -> MeasuringCpus {
        let rank = |(cpus, machine): (&'a [Option<u32>; 2], &u32)| RankCpus {
            machine: *machine,
            cpus,
            is_crowded: true,
        };
        measuring_cpus(cpus.iter().zip(machines).map(rank), 1)
    }

    #[test]
    fn the_worst_that_any_of_them_has_counts() {
        let at = |cpus: [u32; 2]| cpus.map(Some);
        let one = [0, 0];
        assert_eq!(of(&[at([0, 1]), at([2, 3])], &one), MeasuringCpus::Own);
        assert_eq!(of(&[at([0, 2]), at([1, 2])], &one), MeasuringCpus::Own);
        assert_eq!(of(&[at([0, 0]), at([1, 2])], &one), MeasuringCpus::WithLoad);
        assert_eq!(of(&[at([0, 1]), at([1, 2])], &one), MeasuringCpus::WithLoad);
        assert_eq!(of(&[at([0, 1]), at([0, 1])], &one), MeasuringCpus::Together);
        // Machines have CPUs of the same numbers.
        assert_eq!(of(&[at([0, 1]), at([0, 1])], &[0, 1]), MeasuringCpus::Own);
        assert_eq!(of(&[[None; 2]; 2], &one), MeasuringCpus::Together);
    }
}
