//! Starts ranks, and contains the scenarios.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use tonnage_sys::error::{LibraryError, LibraryErrorKind};
use tonnage_sys::mapping::{Arena, Pages, Sharing};
use tonnage_sys::mpi::{Communicator, MpiReduction, MpiType, World, finish, start};

use super::every::Group;

const IS_RANK: &str = "TONNAGE_TEST_IS_RANK";
const RANKS: [u32; 3] = [2, 3, 5];
/// Number of elements, chosen so that no tested number of ranks divides it.
const ELEMENTS: u64 = 17;
/// The type for scenarios that do not test types: ranks outnumber the CPUs of a small machine and busy-wait, so each
/// call is slow.
const SOME_TYPES: [MpiType; 1] = [MpiType::Float32];

/// Launchers, with the name of their library's dialect, and their Debian package.
const LAUNCHERS: [(&str, &str, &str); 2] = [
    (
        "mpirun.openmpi --bind-to none --oversubscribe",
        "Open MPI",
        "openmpi-bin",
    ),
    ("mpiexec.mpich", "MPICH", "mpich"),
];

fn env(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn arena(bytes: usize) -> Arena {
    Arena::allocate(bytes, Pages::Normal, Sharing::Private, None).unwrap()
}

#[test]
#[ignore = "it is a rank of other tests"]
fn as_rank() {
    if env(IS_RANK).is_none() {
        println!("skip: only another test starts this one");
        return;
    }
    // A library other than the launcher's, for ranks that are started manually.
    let path = env("TONNAGE_MPI").map(PathBuf::from);
    let world = start(path.as_deref(), &env).unwrap();
    let comm = world.communicator().unwrap();
    let types = comm.types();
    Group::new(&comm, ELEMENTS).every_call(&types);
    Group::new(&comm, 0).every_call(&SOME_TYPES);
    orders(&comm);
    groups(&comm);
    wrong(&world, &comm);
    parts(comm);
    finish().unwrap();
    let (rank, size, dialect) = (world.rank(), world.size(), world.dialect().name());
    println!("\nplayed {rank} of {size}: {dialect}, {:?}", types);
    std::process::exit(0);
}

/// Checks a prediction: `orders_unsigned_bytes` compares bytes in this process only, and predicts whether all ranks get
/// the right result.
fn orders(comm: &Communicator) {
    let (input, output) = (arena(4096), arena(4096));
    let byte = if comm.rank() == 0 { 200 } else { 100 };
    for (reduction, right) in [(MpiReduction::Min, 100), (MpiReduction::Max, 200)] {
        input.write(0, &[byte; 17]).unwrap();
        comm.all_reduce(
            MpiType::Uint8,
            reduction,
            Some((&input, 0)),
            (&output, 0),
            17,
        )
        .unwrap();
        let mut got = [0; 17];
        output.read(0, &mut got).unwrap();
        let told = comm.orders_unsigned_bytes(reduction).unwrap();
        assert_eq!(got == [right; 17], told, "{reduction:?}: {got:?}");
    }
}

/// Splits the ranks into two halves, even and odd ranks, each in reverse order. Both halves make all calls at the same
/// time.
fn groups(all: &Communicator) {
    let (me, size) = (all.rank(), all.size());
    let half = all.split(me % 2, size - me).unwrap();
    let members = (size - me % 2).div_ceil(2);
    assert_eq!(half.size(), members);
    assert_eq!(half.rank(), members - 1 - me / 2);
    Group::new(&half, ELEMENTS).every_call(&SOME_TYPES);
    // Split a group again, into groups of one rank.
    let alone = half.split(half.rank(), 0).unwrap();
    assert_eq!((alone.rank(), alone.size()), (0, 1));
    Group::new(&alone, ELEMENTS).every_call(&SOME_TYPES);
    alone.free().unwrap();
    half.free().unwrap();
    all.barrier().unwrap();
}

/// Makes calls with more elements than one count may express. The limit is lowered for this.
fn parts(mut comm: Communicator) {
    // A block of 84 elements for each of five ranks is 7 units of 12 elements each.
    let (elements, elements_max) = (84, 36);
    comm.limit_calls(elements_max, false).unwrap();
    assert!(!comm.has_large_calls());
    let mut group = Group::new(&comm, elements);
    group.scatters = false;
    group.every_call(&SOME_TYPES);
    let (input, output) = (arena(4096), arena(4096));
    let why = comm
        .reduce_scatter_block(
            MpiType::Int8,
            MpiReduction::Sum,
            Some((&input, 0)),
            (&output, 0),
            elements,
        )
        .unwrap_err();
    let fits = elements_max / u64::from(comm.size());
    assert!(why.to_string().contains(&format!("; {fits} do")), "{why}");
    // A prime number of elements cannot be composed of units.
    let why = comm
        .all_gather(MpiType::Int8, Some((&input, 0)), (&output, 0), 83)
        .unwrap_err();
    assert!(matches!(*why, LibraryErrorKind::Unsupported(_)), "{why}");
    comm.limit_calls(elements_max, true).unwrap();
    if comm.has_large_calls() {
        Group::new(&comm, elements).every_call(&SOME_TYPES);
    }
    assert!(comm.limit_calls(0, true).is_err());
    assert!(comm.limit_calls(1 << 31, true).is_err());
}

/// Invalid calls return errors. A message that is too long is an error of MPI itself.
fn wrong(world: &Arc<World>, comm: &Communicator) {
    let (input, output) = (arena(4096), arena(4096));
    let (from, to) = ((&input, 0), (&output, 0));
    let end = input.len() as u64;
    let (byte, sum) = (MpiType::Int8, MpiReduction::Sum);
    let refused = |result: Result<(), LibraryError>, part: &str| {
        let why = result.unwrap_err();
        assert!(why.to_string().contains(part), "{why}");
    };
    let size = comm.size();
    let me = comm.rank();
    let other = (me + 1) % size;
    let behind = (&output, 8);
    let no_root = format!("root {size} is not in the group, which has ranks 0 to");
    for (result, part) in [
        (comm.broadcast(byte, size, to, 1), &*no_root),
        (
            comm.reduce(byte, sum, size, Some(from), Some(to), 1),
            "root",
        ),
        (comm.send(byte, size, from, 1), "rank"),
        (
            comm.all_reduce(byte, sum, Some(from), (&output, end), 1),
            "outside",
        ),
        (comm.all_gather(byte, Some(from), to, end), "outside"),
        (
            comm.all_gather(MpiType::Int64, Some(from), to, u64::MAX / 2),
            "address space",
        ),
        (comm.broadcast(byte, 0, to, u64::MAX), "outside"),
        (comm.all_reduce(byte, sum, Some(behind), to, 9), "overlap"),
        (
            comm.send_receive(byte, (me, behind), (me, to), 9),
            "overlap",
        ),
        (
            comm.gather(byte, other, None, None, 1),
            "only the root can call in place",
        ),
        (
            comm.scatter(byte, me, None, Some(to), 1),
            "the root has no memory",
        ),
        (
            comm.check(byte, Some(MpiReduction::Avg)),
            "MPI has no reduction avg; it has sum, prod, min, max",
        ),
        (
            comm.broadcast(MpiType::Bfloat16, 0, to, 1),
            "has no type for bfloat16; it has float32, float64, ",
        ),
    ] {
        refused(result, part);
    }
    assert!(comm.check(MpiType::Float64, Some(sum)).is_ok());
    assert!(comm.split(u32::MAX, 0).is_err());
    std::thread::scope(|scope| {
        let elsewhere = scope.spawn(|| comm.barrier());
        refused(elsewhere.join().unwrap(), "another thread");
        let elsewhere = scope.spawn(|| world.communicator().map(drop));
        refused(elsewhere.join().unwrap(), "another thread");
    });
    let pair = comm.split(comm.rank() / 2, 0).unwrap();
    for group in [comm, &pair] {
        too_long_and_too_short(group);
    }
    pair.free().unwrap();
}

/// Receives messages of an unexpected length.
fn too_long_and_too_short(comm: &Communicator) {
    let arena = arena(4096);
    let place = (&arena, 0);
    if comm.size() > 1 && comm.rank() == 0 {
        comm.send(MpiType::Int32, 1, place, 8).unwrap();
        comm.send(MpiType::Int32, 1, place, 2).unwrap();
    }
    if comm.rank() == 1 {
        let why = comm.receive(MpiType::Int32, 0, place, 4).unwrap_err();
        assert!(
            matches!(&*why, LibraryErrorKind::Call { call: "MPI_Recv", message, .. } if message.contains("truncated")),
            "{why}"
        );
        let why = comm.receive(MpiType::Int32, 0, place, 4).unwrap_err();
        let expected = "MPI_Recv: received 2 elements from rank 0, expected 4";
        assert!(why.to_string().starts_with(expected), "{why}");
    }
    comm.barrier().unwrap();
}

/// Runs all scenarios under each installed launcher, with each number of ranks.
#[test]
fn every_call_gives_its_expected_result_or_an_error() {
    for (launcher, dialect, package) in LAUNCHERS {
        let mut words = launcher.split_whitespace();
        let name = words.next().unwrap();
        if !Path::new("/usr/bin").join(name).exists() {
            println!("skip: {name} is not installed (run: apt-get install {package})");
            continue;
        }
        for ranks in RANKS {
            let folder = tempfile::tempdir().unwrap();
            let output = Command::new("timeout")
                .args(["--kill-after=5", "180", name, "-np", &ranks.to_string()])
                .args(words.clone())
                .arg(std::env::current_exe().unwrap())
                .args(["--exact", "--ignored", "--nocapture", "plays::as_rank"])
                .env_clear()
                .env("PATH", "/usr/bin:/bin")
                .env("HOME", folder.path())
                .env("TMPDIR", folder.path())
                .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
                .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
                .env(IS_RANK, "1")
                .stdin(Stdio::null())
                .output()
                .unwrap();
            let stdout = String::from_utf8_lossy(&output.stdout);
            let said = format!("{stdout}\n{}", String::from_utf8_lossy(&output.stderr));
            assert!(output.status.success(), "{launcher}, {ranks} ranks: {said}");
            for rank in 0..ranks {
                let played = format!("played {rank} of {ranks}: {dialect}");
                assert!(stdout.contains(&played), "{launcher}: {said}");
            }
        }
    }
}
