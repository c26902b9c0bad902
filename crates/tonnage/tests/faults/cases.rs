//! Random cases. A seed and a number determine each case, so that it can be reproduced.

use std::fmt;

use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use rustix::process::Signal;

use super::support::launchers::{MPICH, OPEN_MPI};

/// Seed of the default cases. Its forty cases include everything that the last test of this file requires. Another seed
/// may replace it if its cases do too.
pub const SEED: u64 = 410;

/// Number of points of every run.
pub const POINTS: usize = 2;

/// One run and its fault.
#[derive(Debug, Clone)]
pub struct Case {
    /// The experiment that runs.
    pub work: Work,
    /// Ranks of the run.
    pub ranks: u32,
    /// When the fault occurs.
    pub moment: Moment,
    /// The fault.
    pub fault: Fault,
    /// Target of the signal.
    pub whom: Whom,
}

/// An experiment that lasts a few seconds.
#[derive(Debug, Clone)]
pub enum Work {
    Transfer(&'static str, &'static str, &'static str, &'static str),
    Connect(&'static str, &'static str),
    File(&'static str, &'static str, &'static str),
    /// Files through MPI: the launcher that starts the ranks, and options.
    Mpi(&'static str, &'static str),
}

/// When a fault occurs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// This many milliseconds after the start of the program. If the target does not exist by then, the fault waits for
    /// it.
    After(u64),
    /// When the target rank begins this step. If the target is not a rank, rank 0 counts.
    Step(&'static str),
}

/// The fault: a signal to a process, or another event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    Kill,
    Stop,
    Term,
    Int,
    /// All ranks are stopped and then killed, so that no rank sees another one end.
    KillAll,
    /// The results file is removed.
    Remove,
}

/// Target of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whom {
    Rank(u32),
    Supervisor,
}

impl Fault {
    /// Returns the fault's signal. For a fault without one, returns the signal that finally ends the program's
    /// processes.
    pub fn signal(self) -> Signal {
        match self {
            Self::Kill | Self::KillAll | Self::Remove => Signal::KILL,
            Self::Stop => Signal::STOP,
            Self::Term => Signal::TERM,
            Self::Int => Signal::INT,
        }
    }
}

const ENGINES: &[&str] = &[
    "null",
    "shm",
    "fabric:tcp --libfabric embedded",
    "fabric:shm --libfabric embedded",
];
const TRAFFICS: &[&str] = &[
    "pair",
    "fan-in",
    "all-to-all",
    "fan-out",
    "in-turn",
    "shift",
    "matrix",
    "pair --bidirectional",
];
const TRANSFER_OPTIONS: &[&str] = &["--bound none", "--bound auto", "--bound none --verify"];
const FILE_OPTIONS: &[&str] = &[
    "--bound none --phases write",
    "--bound none --phases write,read",
    "--bound none --phases write,read --verify",
    "--bound auto --phases write",
];
/// Steps of every transfer, as the log names them. Those of connections and files follow.
const TRANSFER_STEPS: &[&str] = &[
    "describing the hosts",
    "opening ",
    "connecting ",
    "warm-up of ",
    "trial 1 of ",
    "trial 2 of ",
    "closing a point",
];
const CONNECT_STEPS: &[&str] = &[
    "opening ",
    "setting up a first connection",
    "warm-up of ",
    "trial 2 of ",
];
const FILE_STEPS: &[&str] = &[
    "look at the path",
    "open the engine",
    "find out the seed of the data",
    "write phase of repetition 0",
    "write phase of repetition 1",
    "remove the files",
];
/// Steps of files through MPI.
const MPI_STEPS: &[&str] = &[
    "look at the path",
    "write phase of repetition 0",
    "write phase of repetition 1",
];
/// One case in this many uses mpirun.
pub const MPI_EVERY: u64 = 10;
/// For each kind, a step of its first point. At this step, the results file exists and is empty.
const FIRST_STEPS: [&str; 3] = ["trial 1 of ", "warm-up of ", "write phase of repetition 0"];
const LAYOUTS: &[&str] = &[
    "shared",
    "per-process",
    "per-process --directory-per-rank",
    "per-process --threads 2",
];

fn works() -> impl Strategy<Value = Work> {
    let verbs = select(&["write", "read", "send", "write-imm"][..]);
    let transfers = (
        select(ENGINES),
        verbs,
        select(TRAFFICS),
        select(TRANSFER_OPTIONS),
    );
    let connects = (select(ENGINES), select(&["pair", "fan-in"][..]));
    let files = (
        select(&["posix", "uring"][..]),
        select(LAYOUTS),
        select(FILE_OPTIONS),
    );
    prop_oneof![
        5 => transfers.prop_map(|(engine, verb, traffic, more)| Work::Transfer(engine, verb, traffic, more)),
        2 => connects.prop_map(|(engine, traffic)| Work::Connect(engine, traffic)),
        4 => files.prop_map(|(engine, layout, more)| Work::File(engine, layout, more)),
    ]
}

fn cases() -> impl Strategy<Value = Case> {
    let faults = prop_oneof![
        8 => select(&[Fault::Kill, Fault::Stop, Fault::Term, Fault::Int][..]),
        1 => Just(Fault::KillAll),
        1 => Just(Fault::Remove),
    ];
    // Start, join and connect together take about 200 ms, and a whole run takes 2 to 4 s.
    let moments = prop_oneof![
        1 => (0u64..300).prop_map(Drawn::After),
        1 => (0u64..3000).prop_map(Drawn::After),
        2 => any::<Index>().prop_map(Drawn::Step),
    ];
    let whom = prop_oneof![
        2 => Just(Whom::Rank(0)),
        3 => (0u32..12).prop_map(Whom::Rank),
        1 => Just(Whom::Supervisor),
    ];
    (works(), 2u32..=4, moments, faults, whom).prop_map(possible)
}

/// Cases that mpirun starts. These ranks take longer to start, and mpirun also ends them.
fn mpi_cases() -> impl Strategy<Value = Case> {
    let works = (
        select(&[OPEN_MPI, MPICH][..]),
        select(&["", "--collective"][..]),
    );
    let moments = prop_oneof![
        1 => (0u64..1500).prop_map(Drawn::After),
        1 => any::<Index>().prop_map(Drawn::Step),
    ];
    let faults = select(&[Fault::Kill, Fault::Stop, Fault::Term, Fault::Int][..]);
    let whom = select(&[Whom::Rank(0), Whom::Rank(1), Whom::Supervisor][..]);
    let works = works.prop_map(|(launcher, calls)| Work::Mpi(launcher, calls));
    (works, Just(2), moments, faults, whom).prop_map(possible)
}

/// A random moment that does not depend on the experiment yet.
#[derive(Debug, Clone, Copy)]
enum Drawn {
    After(u64),
    Step(Index),
}

impl Work {
    /// Returns the name of the work's family.
    pub fn family(&self) -> &'static str {
        match self {
            Self::Transfer(..) => "transfer",
            Self::Connect(..) => "connect",
            Self::File(..) => "file",
            Self::Mpi(..) => "mpiio",
        }
    }

    /// Returns one experiment of each family, with its steps.
    pub fn one_of_each() -> impl Iterator<Item = (Self, &'static [&'static str])> {
        let works = [
            Self::Transfer("shm", "write", "pair", TRANSFER_OPTIONS[1]),
            Self::Connect("shm", "pair"),
            Self::File("posix", LAYOUTS[1], FILE_OPTIONS[3]),
            Self::Mpi(MPICH, "--collective"),
        ];
        works.into_iter().map(|work| {
            let steps = work.steps().0;
            (work, steps)
        })
    }

    /// Returns the experiment's steps, and a step of its first point.
    fn steps(&self) -> (&'static [&'static str], &'static str) {
        let [transfer, connect, file] = FIRST_STEPS;
        match self {
            Self::Transfer(..) => (TRANSFER_STEPS, transfer),
            Self::Connect(..) => (CONNECT_STEPS, connect),
            Self::File(..) => (FILE_STEPS, file),
            Self::Mpi(..) => (MPI_STEPS, file),
        }
    }
}

/// Draws a value that depends only on the seed, the number and the family of cases.
pub fn drawn<T>(of: impl Strategy<Value = T>, seed: u64, number: u64, family: u8) -> T {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    bytes[8..16].copy_from_slice(&number.to_le_bytes());
    bytes[16] = family;
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    of.new_tree(&mut runner).unwrap().current()
}

/// Makes a random case valid. Pairs need an even number of ranks, and a rank's number must be below the number of
/// ranks. The supervisor is never stopped, because users do that themselves with Ctrl-Z.
fn possible((work, ranks, drawn, fault, whom): (Work, u32, Drawn, Fault, Whom)) -> Case {
    let pairs = |traffic: &str| traffic.starts_with("pair");
    let is_pairs = matches!(
        work,
        Work::Transfer(_, _, traffic, _) | Work::Connect(_, traffic) if pairs(traffic)
    );
    let ranks = if is_pairs { ranks & !1 } else { ranks };
    // The engine null moves no bytes, so there is nothing to verify.
    let work = match work {
        Work::Transfer("null", verb, traffic, _) => {
            Work::Transfer("null", verb, traffic, TRANSFER_OPTIONS[0])
        }
        work => work,
    };
    let (steps, first) = work.steps();
    let moment = match (drawn, fault) {
        (_, Fault::Remove) => Moment::Step(first),
        (Drawn::After(ms), _) => Moment::After(ms),
        (Drawn::Step(index), _) => Moment::Step(steps[index.index(steps.len())]),
    };
    let whom = match (whom, fault) {
        (_, Fault::Remove | Fault::KillAll) => Whom::Rank(0),
        (Whom::Supervisor, Fault::Stop) => Whom::Rank(0),
        (Whom::Rank(rank), _) => Whom::Rank(rank % ranks),
        (Whom::Supervisor, _) => Whom::Supervisor,
    };
    Case {
        work,
        ranks,
        moment,
        fault,
        whom,
    }
}

impl Case {
    /// Draws a case.
    pub fn draw(seed: u64, number: u64) -> Self {
        match number % MPI_EVERY == MPI_EVERY - 1 {
            true => drawn(mpi_cases(), seed, number, 0),
            false => drawn(cases(), seed, number, 0),
        }
    }

    /// Returns the launcher that starts the ranks; `None` if the program starts them itself.
    pub fn launcher(&self) -> Option<&'static str> {
        match self.work {
            Work::Mpi(launcher, _) => Some(launcher),
            _ => None,
        }
    }

    /// The program's arguments.
    pub fn arguments(&self) -> String {
        let ranks = self.ranks;
        let what = match &self.work {
            Work::Transfer(engine, verb, traffic, more) => {
                // With a matrix, each pair has its own trial, so a trial is short.
                let trial_ms = if *traffic == "matrix" { 100 } else { 500 };
                format!(
                    "transfer --engine {engine} --op {verb} --traffic {traffic} --sizes 8,64k --trials 2 \
                     --trial-time {trial_ms}ms --warmup 50ms {more}"
                )
            }
            Work::Connect(engine, traffic) => format!(
                "connect --engine {engine} --traffic {traffic} --threads 1,2 --trials 2 --duration 500ms"
            ),
            Work::File(engine, layout, more) => {
                // Frequent syncs keep the amount of written data small.
                let pace = match *engine {
                    "uring" => "--depth 1 --direct",
                    _ => "--fsync each",
                };
                format!(
                    "file --engine {engine} --layout {layout} --path t --block 1G --transfer 4k,64k {pace} \
                     --trials 2 --stonewall 400ms {more}"
                )
            }
            // mpirun already knows the number of ranks.
            Work::Mpi(_, calls) => {
                return format!(
                    "file --engine mpiio --layout shared --path t --block 256M --transfer 512,4k --trials 2 \
                     --stonewall 400ms --bound none --phases write {calls} -o r.jsonl"
                );
            }
        };
        format!("{what} --ranks {ranks} -o r.jsonl")
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let signal = format!("{:?}", self.fault).to_uppercase();
        match (self.fault, self.whom) {
            (Fault::KillAll, _) => write!(f, "KILL to all ranks")?,
            (Fault::Remove, _) => write!(f, "the results file removed")?,
            (_, Whom::Rank(rank)) => write!(f, "{signal} to rank {rank}")?,
            (_, Whom::Supervisor) => write!(f, "{signal} to the supervisor")?,
        }
        match self.moment {
            Moment::After(ms) => write!(f, " after {ms} ms")?,
            Moment::Step(step) => write!(f, " at {:?}", step.trim_end())?,
        }
        let launcher = self.launcher().unwrap_or_default();
        write!(f, " of {launcher} tonnage {}", self.arguments())
    }
}

#[test]
fn a_seed_and_a_number_are_a_case() {
    assert_eq!(Case::draw(1, 2).to_string(), Case::draw(1, 2).to_string());
    assert_ne!(Case::draw(1, 2).to_string(), Case::draw(1, 3).to_string());
    assert_ne!(Case::draw(1, 2).to_string(), Case::draw(2, 2).to_string());
}

/// Without this, the default cases could miss an engine, a traffic pattern, a signal or a target.
#[test]
fn the_default_cases_cover_every_engine_traffic_signal_and_target() {
    let all: Vec<_> = (0..40)
        .map(|number| Case::draw(SEED, number).to_string())
        .collect();
    let one_word = "KILL STOP TERM INT connect posix uring";
    let mut words: Vec<_> = one_word.split(' ').collect();
    words.extend([
        "rank 0 ",
        "rank 1 ",
        "rank 2 ",
        "the supervisor",
        "all ranks",
    ]);
    words.extend([
        "--ranks 2",
        "--ranks 3",
        "--ranks 4",
        "results file",
        " ms of",
    ]);
    words.extend([OPEN_MPI, MPICH]);
    words.extend(ENGINES.iter().chain(TRAFFICS).chain(LAYOUTS));
    words.extend(TRANSFER_OPTIONS.iter().chain(FILE_OPTIONS));
    words.extend(["at \"warm-up", "at \"trial", "at \"write phase"]);
    for word in words {
        assert!(all.iter().any(|case| case.contains(word)), "no {word}");
    }
    // Under MPICH, mpirun waits forever for a stopped rank. tonnage detects the stopped rank only after all ranks have
    // joined.
    let is_waited_for =
        |case: &String| case.starts_with("STOP to rank 1 at \"write phase") && case.contains(MPICH);
    assert!(all.iter().any(is_waited_for), "no STOP under MPICH");
}
