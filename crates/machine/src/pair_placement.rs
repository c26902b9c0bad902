//! Places workers that exchange bytes with each other: on one socket, or on two.
//!
//! Like [`super::placement`], these are pure functions: every rank of a machine computes the places of all ranks from
//! the same topology, and takes its own. Worker w of a rank exchanges bytes only with workers w of other ranks. Ranks
//! that are connected, directly or through other ranks, form a group. The workers w of a group are placed together.

use std::collections::{BTreeMap, BTreeSet};

use super::placement::{Placement, Workers, known_cpus, place_all};
use super::topology::{Cpu, Topology};
use tonnage_units::number_list;
use tonnage_units::{Error, PairPlace, Result};

/// A rank of this machine, with the properties that affect placement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineRank {
    /// Number of the rank in the run.
    pub rank: u32,
    /// CPUs that the rank may use, ascending.
    pub allowed: Vec<u32>,
    /// Ranks that this rank exchanges bytes with, as indices into the list of the machine's ranks.
    pub peers: Vec<usize>,
}

/// Places the workers of all ranks of a machine. Workers that exchange bytes get one socket, or initiators get one
/// socket and targets another.
///
/// As long as there are enough cores, each worker gets a whole core. A group's cores are on one NUMA node if the group
/// fits there. If cores are short, workers get second threads, if possible not on the core of a peer. Workers share
/// CPUs, and then yield, only if there are more workers than CPUs.
///
/// # Errors
/// [`Error::Unavailable`] with the reason if no CPUs satisfy `place`. [`Error::Usage`] if `place` is far and the ranks
/// cannot be divided into two sides.
pub fn place_pairs(
    topology: &Topology,
    ranks: &[MachineRank],
    workers: impl Into<Workers>,
    place: PairPlace,
) -> Result<Vec<Placement>> {
    let workers = workers.into();
    let mut machine_cpus = MachineCpus::new(topology, ranks);
    let groups = Group::all(ranks);
    if place == PairPlace::Far && groups.iter().any(|group| !group.is_two_sided) {
        return Err(Error::Usage(
            "place far needs initiators and targets, and three ranks that all exchange bytes with each other cannot be \
             on two sockets: use traffic pair, fan-out or fan-in"
                .to_owned(),
        ));
    }
    let regions = match place {
        PairPlace::Near => machine_cpus.one_socket_regions(|cpu| cpu.package.is_some()),
        PairPlace::Far => machine_cpus.two_socket_regions(),
    };
    let unavailable = |why: String| Error::Unavailable {
        what: format!("--place {}", place.name()),
        why,
        how: match place {
            PairPlace::Near => "Leave --place out, or choose --place far".to_owned(),
            PairPlace::Far => "Leave --place out, or choose --place near".to_owned(),
        },
    };
    let has_no_region = |group: &&Group| machine_cpus.find_shared(group, &regions).is_none();
    if let Some(group) = groups.iter().find(has_no_region) {
        let why = explain_impossible(topology, &machine_cpus.cpus, ranks, group, place);
        return Err(unavailable(why));
    }
    let total = ranks.len() * workers.each as usize;
    let shares = total > machine_cpus.cpus.len();
    let placed = machine_cpus.place(&groups, workers, |machine_cpus, group| {
        let own = machine_cpus.find_unshared(group, &regions);
        own.or_else(|| machine_cpus.find_shared(group, &regions).filter(|_| shares))
    });
    placed.ok_or_else(|| unavailable(explain_shortage(&machine_cpus.cpus, total)))
}

/// Places the workers of all ranks of a machine, which may all use the same CPUs, like [`super::place_workers`]. Then
/// moves workers that exchange bytes to one socket, separate cores and one NUMA node, as far as this improves the
/// placement. The placement stays as it was if the workers would then use fewer cores in total.
pub fn place_automatically(
    topology: &Topology,
    ranks: &[MachineRank],
    workers: impl Into<Workers>,
) -> Result<Vec<Placement>> {
    let workers = workers.into();
    let plain = place_all(topology, ranks.len() as u32, workers)?;
    let mut machine_cpus = MachineCpus::new(topology, ranks);
    let groups = Group::all(ranks);
    let fault = |placed: &[Placement]| fault(topology, &groups, placed);
    if plain.iter().any(|rank| rank.yielding) || fault(&plain) == Fault::default() {
        return Ok(plain);
    }
    let regions = machine_cpus.one_socket_regions(|_| true);
    let near = machine_cpus.place(&groups, workers, |machine_cpus, group| {
        machine_cpus.find_unshared(group, &regions)
    });
    let better = |near: &Vec<Placement>| {
        fault(near) < fault(&plain) && cores(topology, near) >= cores(topology, &plain)
    };
    Ok(near.filter(better).unwrap_or(plain))
}

/// One rank's worker in a group that is placed together.
#[derive(Debug, Clone, Copy)]
struct Member {
    /// Index of the member's rank in the machine's list.
    rank: usize,
    /// 0 or 1. Members of one side do not exchange bytes with each other.
    side: usize,
}

/// Ranks that are connected with each other, directly or through other ranks.
struct Group {
    members: Vec<Member>,
    /// False if members of one side exchange bytes, because the group cannot be divided into two sides.
    is_two_sided: bool,
}

impl Group {
    fn all(ranks: &[MachineRank]) -> Vec<Self> {
        let mut sides = vec![None; ranks.len()];
        let mut groups = Vec::new();
        for first in 0..ranks.len() {
            if sides[first].is_some() {
                continue;
            }
            sides[first] = Some(0);
            let mut group = Self {
                members: vec![Member {
                    rank: first,
                    side: 0,
                }],
                is_two_sided: true,
            };
            let mut next = 0;
            while let Some(&Member { rank, side }) = group.members.get(next) {
                next += 1;
                for &peer in &ranks[rank].peers {
                    match sides[peer] {
                        Some(known) => group.is_two_sided &= known != side,
                        None => {
                            let side = 1 - side;
                            sides[peer] = Some(side);
                            group.members.push(Member { rank: peer, side });
                        }
                    }
                }
            }
            group.members.sort_by_key(|member| member.rank);
            groups.push(group);
        }
        groups
    }
}

/// The socket of each of a group's two sides, and optionally the NUMA node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Region([(Option<u32>, Option<u32>); 2]);

impl Region {
    fn has(&self, cpu: &Cpu, side: usize) -> bool {
        let (socket, node) = self.0[side];
        cpu.package == socket && node.is_none_or(|node| node == cpu.node)
    }
}

/// Kinds of CPUs that a worker may get, from best to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CpuPreference {
    /// Unused cores.
    UnusedCores,
    /// Unused CPUs, on cores without other members of the group.
    OtherCores,
    /// Unused CPUs.
    UnusedCpus,
    /// Any CPU.
    Shared,
}

/// CPUs of a machine, and the number of workers already placed on each.
struct MachineCpus<'a> {
    ranks: &'a [MachineRank],
    /// Sorted by node, core and number.
    cpus: Vec<Cpu>,
    /// Number of workers on each of these CPUs.
    workers: Vec<u32>,
    /// Number of workers on each core.
    workers_of_core: BTreeMap<u32, u32>,
}

impl<'a> MachineCpus<'a> {
    fn new(topology: &Topology, ranks: &'a [MachineRank]) -> Self {
        let allowed = ranks.iter().flat_map(|rank| &rank.allowed).copied();
        let allowed: BTreeSet<u32> = allowed.collect();
        let allowed: Vec<u32> = allowed.into_iter().collect();
        let cpus = known_cpus(topology, &allowed);
        Self {
            ranks,
            workers: vec![0; cpus.len()],
            cpus,
            workers_of_core: BTreeMap::new(),
        }
    }

    /// Returns the regions on one socket: each NUMA node, then each whole socket.
    fn one_socket_regions(&self, fits: impl Fn(&Cpu) -> bool) -> Vec<Region> {
        let cpus = || self.cpus.iter().filter(|cpu| fits(cpu));
        let nodes: BTreeSet<_> = cpus().map(|cpu| (cpu.package, Some(cpu.node))).collect();
        let sockets: BTreeSet<_> = cpus().map(|cpu| (cpu.package, None)).collect();
        let both = nodes.into_iter().chain(sockets);
        both.map(|place| Region([place, place])).collect()
    }

    /// Returns the regions on two sockets: all ordered pairs of sockets.
    fn two_socket_regions(&self) -> Vec<Region> {
        let known = self.cpus.iter().filter(|cpu| cpu.package.is_some());
        let sockets: BTreeSet<_> = known.map(|cpu| (cpu.package, None)).collect();
        let with_others = |one| {
            let others = sockets.iter().filter(move |other| **other != one);
            others.map(move |&other| Region([one, other]))
        };
        sockets.iter().flat_map(|&one| with_others(one)).collect()
    }

    /// Places the workers of all groups on the CPUs that `choose` returns; `None` if `choose` finds no CPUs. The first
    /// workers of all groups are placed before the other workers.
    fn place(
        &mut self,
        groups: &[Group],
        workers: Workers,
        choose: impl Fn(&Self, &Group) -> Option<Vec<usize>>,
    ) -> Option<Vec<Placement>> {
        let mut cpus = vec![Vec::new(); self.ranks.len()];
        let passes = [workers.first, workers.each - workers.first];
        let of_pass = |count| {
            groups
                .iter()
                .flat_map(move |group| (0..count).map(move |_| group))
        };
        for group in passes.into_iter().flat_map(of_pass) {
            let chosen = choose(self, group)?;
            for (member, at) in group.members.iter().zip(chosen) {
                let Cpu { id, core, .. } = self.cpus[at];
                self.workers[at] += 1;
                *self.workers_of_core.entry(core).or_default() += 1;
                cpus[member.rank].push(Some(id));
            }
        }
        let yielding = self.workers.iter().any(|&workers| workers > 1);
        let placed = cpus.into_iter().map(|cpus| Placement { cpus, yielding });
        Some(placed.collect())
    }

    /// Finds CPUs that no other worker uses, for the members of a group.
    fn find_unshared(&self, group: &Group, regions: &[Region]) -> Option<Vec<usize>> {
        let ways = [
            CpuPreference::UnusedCores,
            CpuPreference::OtherCores,
            CpuPreference::UnusedCpus,
        ];
        let each = |take| regions.iter().map(move |region| (region, take));
        let mut all = ways.into_iter().flat_map(each);
        all.find_map(|(region, take)| self.choose_cpus(group, region, take))
    }

    /// Finds CPUs for the members of a group in the least used region. Other workers may use the same CPUs.
    fn find_shared(&self, group: &Group, regions: &[Region]) -> Option<Vec<usize>> {
        let regions = regions.iter();
        let all =
            regions.filter_map(|region| self.choose_cpus(group, region, CpuPreference::Shared));
        all.min_by_key(|chosen| chosen.iter().map(|&at| self.workers[at]).sum::<u32>())
    }

    /// Finds CPUs for the members of a group in one region.
    fn choose_cpus(
        &self,
        group: &Group,
        region: &Region,
        take: CpuPreference,
    ) -> Option<Vec<usize>> {
        let choices = |member: &Member| self.ranks[member.rank].allowed.len();
        let mut order: Vec<usize> = (0..group.members.len()).collect();
        // Members with the fewest allowed CPUs choose first.
        order.sort_by_key(|&at| choices(&group.members[at]));
        let mut chosen = vec![None; group.members.len()];
        let mut on_cpu = vec![0u32; self.cpus.len()];
        let mut on_core = BTreeMap::<u32, u32>::new();
        for at in order {
            let Member { rank, side } = group.members[at];
            let allowed = &self.ranks[rank].allowed;
            let beside = |cpu: &Cpu| on_core.get(&cpu.core).copied().unwrap_or(0);
            let used = |cpu: &Cpu| self.workers_of_core.get(&cpu.core).copied().unwrap_or(0);
            let may = |(at, cpu): &(usize, &Cpu)| {
                let free = self.workers[*at] + on_cpu[*at] == 0;
                region.has(cpu, side)
                    && allowed.binary_search(&cpu.id).is_ok()
                    && match take {
                        CpuPreference::UnusedCores => used(cpu) + beside(cpu) == 0,
                        CpuPreference::OtherCores => free && beside(cpu) == 0,
                        CpuPreference::UnusedCpus => free,
                        CpuPreference::Shared => true,
                    }
            };
            let all = self.cpus.iter().enumerate().filter(may);
            let (best, cpu) = all.min_by_key(|&(at, cpu)| {
                (self.workers[at] + on_cpu[at], beside(cpu), used(cpu), at)
            })?;
            let core = cpu.core;
            on_cpu[best] += 1;
            *on_core.entry(core).or_default() += 1;
            chosen[at] = Some(best);
        }
        chosen.into_iter().collect()
    }
}

/// Faults of a placement, worst first: groups on several sockets, workers that share a core with a peer, and groups on
/// several NUMA nodes.
#[derive(Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Fault {
    on_several_sockets: usize,
    on_core_of_peer: usize,
    on_several_nodes: usize,
}

fn fault(topology: &Topology, groups: &[Group], placed: &[Placement]) -> Fault {
    let mut fault = Fault::default();
    let workers = placed.first().map_or(0, |rank| rank.cpus.len());
    let of_group = |group| (0..workers).map(move |worker| (group, worker));
    for (group, worker) in groups.iter().flat_map(of_group) {
        let ids = group.members.iter().filter_map(|member| {
            let cpus = &placed.get(member.rank)?.cpus;
            cpus.get(worker).copied().flatten()
        });
        let ids: Vec<u32> = ids.collect();
        let cpus = known_cpus(topology, &ids);
        let distinct = |of: fn(&Cpu) -> Option<u32>| cpus.iter().map(of).collect::<BTreeSet<_>>();
        fault.on_several_sockets += usize::from(distinct(|cpu| cpu.package).len() > 1);
        fault.on_core_of_peer += cpus.len() - distinct(|cpu| Some(cpu.core)).len();
        fault.on_several_nodes += usize::from(distinct(|cpu| Some(cpu.node)).len() > 1);
    }
    fault
}

/// Returns the number of cores that have workers.
fn cores(topology: &Topology, placed: &[Placement]) -> usize {
    let ids: Vec<u32> = placed
        .iter()
        .flat_map(|rank| rank.cpus.iter().flatten().copied())
        .collect();
    let cpus = known_cpus(topology, &ids);
    let cores: BTreeSet<u32> = cpus.iter().map(|cpu| cpu.core).collect();
    cores.len()
}

/// Explains why workers get no CPUs of their own at the requested place, although the machine has enough.
fn explain_shortage(cpus: &[Cpu], workers: usize) -> String {
    let mut sockets = BTreeMap::<u32, usize>::new();
    for socket in cpus.iter().filter_map(|cpu| cpu.package) {
        *sockets.entry(socket).or_default() += 1;
    }
    let sockets = sockets.iter();
    let each = sockets.map(|(socket, cpus)| format!("{cpus} on socket {socket}"));
    let each = each.collect::<Vec<_>>().join(", ");
    format!("{workers} threads need more CPUs at this place than there are: {each}")
}

/// Explains why a group cannot be placed as requested, even with shared CPUs.
fn explain_impossible(
    topology: &Topology,
    cpus: &[Cpu],
    ranks: &[MachineRank],
    group: &Group,
    place: PairPlace,
) -> String {
    let sockets: BTreeSet<u32> = cpus.iter().filter_map(|cpu| cpu.package).collect();
    if let Some(unknown) = cpus.iter().find(|cpu| cpu.package.is_none())
        && sockets.len() < 2
    {
        let id = unknown.id;
        return format!("the kernel does not say which socket CPU {id} is on");
    }
    if place == PairPlace::Far && topology.sockets() < 2 {
        return "this machine has one socket".to_owned();
    }
    if place == PairPlace::Far && sockets.len() < 2 {
        let ids: Vec<u32> = cpus.iter().map(|cpu| cpu.id).collect();
        return format!(
            "this machine has {} sockets, and the ranks may use only CPUs {} of one of them",
            topology.sockets(),
            number_list::format(&ids)
        );
    }
    let bound = group.members.iter().map(|member| {
        let MachineRank { rank, allowed, .. } = &ranks[member.rank];
        format!("rank {rank} may use CPUs {}", number_list::format(allowed))
    });
    let bound: Vec<String> = bound.collect();
    let which = match place {
        PairPlace::Near => "no socket has CPUs for all that exchange bytes",
        PairPlace::Far => "no two sockets have CPUs for both sides",
    };
    format!("{which}: {}", bound.join(", "))
}

#[cfg(test)]
mod tests;
