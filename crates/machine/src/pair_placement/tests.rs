use super::super::kernel_files::invented::Machine;
use super::*;

/// Creates `count` ranks that may use the same CPUs. The two ranks of each pair exchange bytes.
fn ranks_of(topology: &Topology, count: usize, pairs: &[(usize, usize)]) -> Vec<MachineRank> {
    let alone = |rank| MachineRank {
        rank,
        allowed: topology.allowed.clone(),
        peers: Vec::new(),
    };
    let mut ranks: Vec<MachineRank> = (0..count as u32).map(alone).collect();
    for &(one, other) in pairs {
        ranks[one].peers.push(other);
        ranks[other].peers.push(one);
    }
    ranks
}

/// Creates `count` pairs: rank i with rank i + `count`.
fn pairs(topology: &Topology, count: usize) -> Vec<MachineRank> {
    let both: Vec<_> = (0..count).map(|rank| (rank, rank + count)).collect();
    ranks_of(topology, 2 * count, &both)
}

fn machine(sockets: u32, cores: u32, threads: u32, allowed: &[u32]) -> Topology {
    let machine = Machine::new();
    machine.processors(sockets, cores, threads);
    Topology::read_from(&machine.tree(), allowed.to_vec())
}

fn cpus(placed: &[Placement]) -> Vec<Vec<u32>> {
    let of = |rank: &Placement| rank.cpus.iter().map(|cpu| cpu.unwrap()).collect();
    placed.iter().map(of).collect()
}

fn placed(
    topology: &Topology,
    ranks: &[MachineRank],
    workers: u32,
    place: PairPlace,
) -> Result<Vec<Vec<u32>>> {
    let placed = place_pairs(topology, ranks, workers, place)?;
    assert!(placed.iter().all(|rank| !rank.yielding), "{placed:?}");
    Ok(cpus(&placed))
}

fn near(topology: &Topology, count: usize, workers: u32) -> Vec<Vec<u32>> {
    placed(topology, &pairs(topology, count), workers, PairPlace::Near).unwrap()
}

fn far(topology: &Topology, count: usize, workers: u32) -> Vec<Vec<u32>> {
    placed(topology, &pairs(topology, count), workers, PairPlace::Far).unwrap()
}

fn why_not(topology: &Topology, place: PairPlace) -> String {
    let refused = place_pairs(topology, &pairs(topology, 1), 1, place).unwrap_err();
    assert!(matches!(refused, Error::Unavailable { .. }), "{refused:?}");
    refused.to_string()
}

fn by_itself(topology: &Topology, ranks: &[MachineRank], workers: u32) -> Vec<Vec<u32>> {
    cpus(&place_automatically(topology, ranks, workers).unwrap())
}

#[test]
fn two_sockets_take_a_pair_together_or_one_worker_each() {
    // Cores 0 and 1 are on socket 0, cores 2 and 3 on socket 1. CPUs 4 to 7 are the second threads.
    let topology = machine(2, 2, 2, &[]);
    assert_eq!(near(&topology, 1, 1), [[0], [1]]);
    assert_eq!(far(&topology, 1, 1), [[0], [2]]);
    assert_eq!(near(&topology, 1, 2), [[0, 2], [1, 3]]);
    assert_eq!(far(&topology, 1, 2), [[0, 1], [2, 3]]);
    assert_eq!(near(&topology, 2, 1), [[0], [2], [1], [3]]);
    assert_eq!(far(&topology, 2, 1), [[0], [1], [2], [3]]);
}

#[test]
fn a_pair_is_not_on_two_threads_of_a_core_while_cores_are_free() {
    let topology = machine(2, 2, 2, &[]);
    // The third pair gets second threads, but of two different cores.
    assert_eq!(near(&topology, 1, 3), [[0, 2, 4], [1, 3, 5]]);
    assert_eq!(far(&topology, 1, 4), [[0, 1, 4, 5], [2, 3, 6, 7]]);
    // Allowed are both threads of core 0 and one thread of core 1, so socket 0 has two cores.
    let some = machine(2, 2, 2, &[0, 4, 5]);
    assert_eq!(near(&some, 1, 1), [[0], [5]]);
    // One core per socket is allowed, so the pair gets the two threads of a core.
    let halves = machine(2, 2, 2, &[0, 4, 2, 6]);
    assert_eq!(near(&halves, 1, 1), [[0], [4]]);
    // Socket 0 has one allowed core and socket 1 has two, so the pair goes to socket 1.
    let uneven = machine(2, 2, 2, &[0, 4, 2, 3]);
    assert_eq!(near(&uneven, 1, 1), [[2], [3]]);
}

#[test]
fn cpus_that_are_not_allowed_are_not_used() {
    let topology = machine(2, 4, 1, &[1, 5, 6]);
    assert_eq!(near(&topology, 1, 1), [[5], [6]]);
    assert_eq!(far(&topology, 1, 1), [[1], [5]]);
    let one_side = machine(2, 4, 1, &[4, 5, 6]);
    assert_eq!(
        why_not(&one_side, PairPlace::Far),
        "--place far cannot be used here: this machine has 2 sockets, and the ranks may use only CPUs 4-6 of one of \
         them. Leave --place out, or choose --place near"
    );
}

#[test]
fn nodes_of_a_socket_are_nearer_than_the_socket_and_not_as_far_as_another() {
    // Two sockets with two nodes each, and two cores per node.
    let machine = Machine::new();
    machine.processors(2, 4, 1);
    for (node, cpus) in ["0-1", "2-3", "4-5", "6-7"].iter().enumerate() {
        machine.file(&format!("sys/devices/system/node/node{node}/cpulist"), cpus);
    }
    let topology = Topology::read_from(&machine.tree(), vec![]);
    assert_eq!(near(&topology, 1, 2), [[0, 2], [1, 3]]);
    assert_eq!(far(&topology, 1, 2), [[0, 1], [4, 5]]);
    // If no node has two allowed CPUs, the pair gets one socket.
    let few = Topology::read_from(&machine.tree(), vec![1, 2, 4, 6]);
    assert_eq!(near(&few, 1, 2), [[1, 4], [2, 6]]);
    // Three ranks exchange bytes with rank 0.
    let fan = ranks_of(&topology, 4, &[(0, 1), (0, 2), (0, 3)]);
    let together = placed(&topology, &fan, 1, PairPlace::Near).unwrap();
    assert_eq!(together, [[0], [1], [2], [3]]);
    let apart = placed(&topology, &fan, 1, PairPlace::Far).unwrap();
    assert_eq!(apart, [[0], [4], [5], [6]]);
}

#[test]
fn one_socket_has_no_far_pairs_however_many_nodes_it_has() {
    let machine = Machine::new();
    machine.processors(1, 4, 1);
    machine.file("sys/devices/system/node/node0/cpulist", "0-1");
    machine.file("sys/devices/system/node/node1/cpulist", "2-3");
    let topology = Topology::read_from(&machine.tree(), vec![]);
    assert_eq!(
        why_not(&topology, PairPlace::Far),
        "--place far cannot be used here: this machine has one socket. Leave --place out, or choose --place near"
    );
    assert_eq!(near(&topology, 1, 2), [[0, 2], [1, 3]]);
}

#[test]
fn a_kernel_that_names_no_socket_gives_neither() {
    let machine = Machine::new();
    machine.processors(1, 2, 1);
    for cpu in [0, 1] {
        let path = format!("sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id");
        machine.file(&path, "-1");
    }
    let topology = Topology::read_from(&machine.tree(), vec![]);
    for place in PairPlace::ALL {
        let message = why_not(&topology, place);
        let why = "the kernel does not say which socket CPU 0 is on";
        assert!(message.contains(why), "{message}");
    }
    // `place_automatically` also works if the sockets are unknown.
    assert_eq!(by_itself(&topology, &pairs(&topology, 1), 1), [[0], [1]]);
}

#[test]
fn more_workers_than_cpus_share_them_on_their_sockets() {
    let topology = machine(2, 1, 1, &[]);
    for place in PairPlace::ALL {
        let placed = place_pairs(&topology, &pairs(&topology, 2), 1, place).unwrap();
        assert!(placed.iter().all(|rank| rank.yielding), "{placed:?}");
        let expected = match place {
            PairPlace::Near => [[0], [1], [0], [1]],
            PairPlace::Far => [[0], [0], [1], [1]],
        };
        assert_eq!(cpus(&placed), expected);
    }
}

#[test]
fn cpus_are_not_shared_while_there_are_enough_elsewhere() {
    let one_each = machine(2, 2, 1, &[0, 2]);
    assert!(why_not(&one_each, PairPlace::Near).contains(
        "2 threads need more CPUs at this place than there are: 1 on socket 0, 1 on socket 1"
    ));
    let three_and_one = machine(2, 4, 1, &[0, 1, 2, 4]);
    for place in PairPlace::ALL {
        let refused = place_pairs(&three_and_one, &pairs(&three_and_one, 2), 1, place);
        let message = refused.unwrap_err().to_string();
        assert!(
            message.contains("3 on socket 0, 1 on socket 1"),
            "{message}"
        );
    }
}

#[test]
fn ranks_that_a_launcher_bound_are_placed_within_their_cpus() {
    let topology = machine(2, 2, 1, &[]);
    let mut ranks = pairs(&topology, 1);
    (ranks[0].allowed, ranks[1].allowed) = (vec![2, 3], vec![0, 1]);
    let far = placed(&topology, &ranks, 1, PairPlace::Far).unwrap();
    assert_eq!(far, [[2], [0]]);
    let refused = place_pairs(&topology, &ranks, 1, PairPlace::Near).unwrap_err();
    assert!(
        refused.to_string().contains(
            "no socket has CPUs for all that exchange bytes: rank 0 may use CPUs 2-3, rank 1 may use CPUs 0-1"
        ),
        "{refused}"
    );
    // Rank 1 may use only CPU 0, so rank 0 gets the other one.
    (ranks[0].allowed, ranks[1].allowed) = (vec![0, 1], vec![0]);
    let near = placed(&topology, &ranks, 1, PairPlace::Near).unwrap();
    assert_eq!(near, [[1], [0]]);
}

#[test]
fn three_ranks_that_all_exchange_bytes_are_never_far() {
    let topology = machine(3, 2, 1, &[]);
    let all = ranks_of(&topology, 3, &[(0, 1), (0, 2), (1, 2)]);
    let refused = place_pairs(&topology, &all, 1, PairPlace::Far).unwrap_err();
    assert_eq!(refused.exit_code(), 2, "{refused}");
    // A pair of ranks always has two sides.
    let two = ranks_of(&topology, 2, &[(0, 1)]);
    let far = placed(&topology, &two, 1, PairPlace::Far).unwrap();
    assert_eq!(far, [[0], [2]]);
}

#[test]
fn by_itself_a_pair_is_near() {
    let topology = machine(2, 4, 2, &[]);
    // If ranks were placed one after the other, the targets of four pairs would be on the other socket. So would the
    // second of two ranks with three workers.
    let four = by_itself(&topology, &pairs(&topology, 4), 1);
    assert_eq!(four, [[0], [2], [4], [6], [1], [3], [5], [7]]);
    let three = by_itself(&topology, &pairs(&topology, 1), 3);
    assert_eq!(three, [[0, 2, 4], [1, 3, 5]]);
    // A placement that is already near does not change.
    let one = by_itself(&topology, &pairs(&topology, 1), 2);
    assert_eq!(one, [[0, 1], [2, 3]]);
}

#[test]
fn by_itself_cores_of_their_own_come_before_a_common_socket() {
    // With one core per socket, a near pair would share a core, so the pair is placed on two sockets.
    let topology = machine(2, 1, 2, &[]);
    assert_eq!(by_itself(&topology, &pairs(&topology, 1), 1), [[0], [1]]);
    // All second threads are needed anyway. The workers of a pair still get different cores.
    let small = machine(1, 4, 2, &[]);
    let all = by_itself(&small, &pairs(&small, 1), 4);
    assert_eq!(all, [[0, 2, 4, 6], [1, 3, 5, 7]]);
    // If there are more workers than CPUs, they are still assigned round-robin.
    let tiny = machine(2, 1, 1, &[]);
    assert_eq!(by_itself(&tiny, &pairs(&tiny, 2), 1), [[0], [1], [0], [1]]);
}
