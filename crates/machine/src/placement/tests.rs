//! Tests of the placement of workers.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::super::kernel_files::invented::Machine;
use super::*;

/// A machine of `sockets` × `cores` × `threads` CPUs, numbered as Linux does on x86, with one node per socket. All CPUs
/// are allowed.
fn invented(sockets: u32, cores: u32, threads: u32) -> Topology {
    let machine = Machine::new();
    machine.processors(sockets, cores, threads);
    Topology::read_from(&machine.tree(), vec![])
}

fn auto(topology: &Topology, size: u32, workers: u32) -> (Vec<Vec<u32>>, bool) {
    let place = |rank| place_workers(topology, rank, size, workers, &CpuChoice::Auto).unwrap();
    let all: Vec<Placement> = (0..size).map(place).collect();
    let is_alike = |one: &Placement| one.yielding == all[0].yielding;
    assert!(all.iter().all(is_alike));
    let cpus = |p: &Placement| p.cpus.iter().map(|cpu| cpu.unwrap()).collect();
    (all.iter().map(cpus).collect(), all[0].yielding)
}

#[test]
fn two_ranks_get_two_cores_of_one_node() {
    // The last machine has a single core with two threads, so the ranks share it.
    for topology in [invented(2, 4, 2), invented(1, 2, 1), invented(1, 1, 2)] {
        assert_eq!(auto(&topology, 2, 1), (vec![vec![0], vec![1]], false));
    }
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
    // The first two ranks use up all cores. The other ranks get second threads, each on one node.
    let (cpus, _) = auto(&topology, 4, 4);
    let blocks = [0, 4, 8, 12].map(|first| (first..first + 4).collect::<Vec<u32>>());
    assert_eq!(cpus, blocks);
    // A rank with more workers than cores gets both threads of each core.
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
fn the_first_workers_of_all_ranks_come_before_the_others() {
    let places = |cpus, size, workers, choice: &CpuChoice| -> Vec<Vec<u32>> {
        let topology = invented(1, cpus, 1);
        let place = |rank| place_workers(&topology, rank, size, workers, choice).unwrap();
        let cpus = |rank| place(rank).cpus.into_iter().flatten().collect();
        (0..size).map(cpus).collect()
    };
    let one_of = |each| Workers { each, first: 1 };
    let auto = |cpus, size, workers| places(cpus, size, workers, &CpuChoice::Auto);
    // The CPUs suffice only for the first workers, so each shares its CPU with its rank's other worker.
    assert_eq!(auto(2, 2, one_of(2)), [[0, 0], [1, 1]]);
    // All other workers share the remaining CPUs.
    assert_eq!(auto(3, 2, one_of(2)), [[0, 2], [1, 2]]);
    assert_eq!(auto(4, 2, one_of(4)), [[0, 2, 3, 2], [1, 3, 2, 3]]);
    // The CPUs do not suffice even for the first workers.
    assert_eq!(auto(2, 3, one_of(2)), [[0, 1], [1, 0], [0, 1]]);
    assert_eq!(auto(4, 2, one_of(2)), [[0, 1], [2, 3]]);
    let list = CpuChoice::List(vec![3, 1]);
    assert_eq!(places(4, 2, one_of(2), &list), [[3, 3], [1, 1]]);
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
    for (rank, size, cpu, yielding) in [(0, 2, 3, false), (1, 2, 1, false), (2, 3, 3, true)] {
        let placed = place_workers(&topology, rank, size, 1, &list).unwrap();
        assert_eq!((placed.cpus, placed.yielding), (vec![Some(cpu)], yielding));
    }
    let twice = CpuChoice::List(vec![2, 2]);
    assert!(place_workers(&topology, 0, 1, 2, &twice).unwrap().yielding);
    assert!(!place_workers(&topology, 0, 1, 1, &twice).unwrap().yielding);
}

#[test]
fn a_cpu_that_cannot_be_used_is_named_with_those_that_can() {
    let mut topology = invented(1, 4, 1);
    topology.allowed = vec![1, 2, 3];
    let place = |list: &[u32]| place_workers(&topology, 0, 1, 1, &CpuChoice::List(list.to_vec()));
    let error = place(&[0, 2, 9]).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    let text = "CPU 0,9 cannot be used: this process may use 1-3";
    assert_eq!(error.to_string(), text);
    assert!(place(&[]).unwrap_err().to_string().contains("1-3"));
}

#[test]
fn nothing_is_pinned_when_that_is_the_choice() {
    let topology = invented(1, 2, 1);
    for (workers, yielding) in [(2, true), (1, false)] {
        let placed = place_workers(&topology, 0, 2, workers, &CpuChoice::None).unwrap();
        let cpus = vec![None; workers as usize];
        assert_eq!((placed.cpus, placed.yielding), (cpus, yielding));
    }
}

#[test]
fn a_rank_outside_of_its_host_is_refused() {
    let error = place_workers(&invented(1, 2, 1), 2, 2, 1, &CpuChoice::Auto).unwrap_err();
    assert!(matches!(error, Error::Usage(_)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

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

#[test]
fn cpus_are_ranges_and_numbers_in_order() {
    let list = CpuChoice::List(vec![8, 0, 1, 2, 3]);
    assert_eq!("8,0-3".parse::<CpuChoice>().unwrap(), list);
    assert_eq!("none".parse::<CpuChoice>().unwrap(), CpuChoice::None);
    for (text, part) in [
        ("", "the list \"\": \"\" is not a number"),
        ("3-1", "goes down"),
        ("0-3,2", "has CPU 2 twice"),
        ("0-4294967295", "is not a number below 65536"),
        ("+1", "is not a number below 65536"),
        ("0-", "is not a number below 65536"),
    ] {
        let message = text.parse::<CpuChoice>().unwrap_err().to_string();
        assert!(message.contains(part), "{text}: {message}");
    }
}
