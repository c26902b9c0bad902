//! Cases: drawn from a seed and a number alone, so that each can be had again.

use std::fmt;

use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use rustix::process::Signal;

/// Seed of the cases that run where nothing else is asked for, so that they are always the same.
pub const SEED: u64 = 10;

/// Points of every run.
pub const POINTS: usize = 2;

/// One run and the fault that befalls it.
#[derive(Debug, Clone)]
pub struct Case {
    /// The run.
    pub work: Work,
    /// Ranks of the run.
    pub ranks: u32,
    /// Time from the start of the program to the signal. A rank that is not there yet is waited for.
    pub moment_ms: u64,
    /// The signal.
    pub fault: Fault,
    /// The receiver of the signal.
    pub whom: Whom,
}

/// An experiment that lasts a few seconds.
#[derive(Debug, Clone)]
pub enum Work {
    Transfer(&'static str, &'static str, &'static str),
    Connect(&'static str, &'static str),
    File(&'static str, &'static str),
}

/// A signal that ends or stops a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    Kill,
    Stop,
    Term,
    Int,
}

/// Receiver of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whom {
    Rank(u32),
    Supervisor,
}

impl Fault {
    /// The signal itself.
    pub fn signal(self) -> Signal {
        match self {
            Self::Kill => Signal::KILL,
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
const TRAFFICS: &[&str] = &["pair", "fan-in", "all-to-all"];
const LAYOUTS: &[&str] = &[
    "shared",
    "per-process",
    "per-process --directory-per-rank",
    "per-process --threads 2",
];

fn works() -> impl Strategy<Value = Work> {
    let verbs = select(&["write", "read", "send", "write-imm"][..]);
    let transfers = (select(ENGINES), verbs, select(TRAFFICS));
    let connects = (select(ENGINES), select(&["pair", "fan-in"][..]));
    let files = (select(&["posix", "uring"][..]), select(LAYOUTS));
    prop_oneof![
        5 => transfers.prop_map(|(engine, verb, traffic)| Work::Transfer(engine, verb, traffic)),
        2 => connects.prop_map(|(engine, traffic)| Work::Connect(engine, traffic)),
        3 => files.prop_map(|(engine, layout)| Work::File(engine, layout)),
    ]
}

fn cases() -> impl Strategy<Value = Case> {
    let faults = select(&[Fault::Kill, Fault::Stop, Fault::Term, Fault::Int][..]);
    // Starting, joining and connecting take some 200 ms, a whole run takes 2 to 4 s.
    let moments = prop_oneof![0u64..300, 0u64..3000];
    let whom = prop_oneof![
        2 => Just(Whom::Rank(0)),
        3 => (0u32..12).prop_map(Whom::Rank),
        1 => Just(Whom::Supervisor),
    ];
    (works(), 2u32..=4, moments, faults, whom).prop_map(possible)
}

/// Pairs have an even number of ranks, ranks are below their number, and a stopped supervisor is the user's own doing.
fn possible((work, ranks, moment_ms, fault, whom): (Work, u32, u64, Fault, Whom)) -> Case {
    let is_pairs = matches!(
        work,
        Work::Transfer(_, _, "pair") | Work::Connect(_, "pair")
    );
    let ranks = if is_pairs { ranks & !1 } else { ranks };
    let whom = match (whom, fault) {
        (Whom::Supervisor, Fault::Stop) => Whom::Rank(0),
        (Whom::Rank(rank), _) => Whom::Rank(rank % ranks),
        (Whom::Supervisor, _) => Whom::Supervisor,
    };
    Case {
        work,
        ranks,
        moment_ms,
        fault,
        whom,
    }
}

impl Case {
    /// Draws a case.
    pub fn draw(seed: u64, number: u64) -> Self {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        bytes[8..16].copy_from_slice(&number.to_le_bytes());
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let mut runner = TestRunner::new_with_rng(Config::default(), rng);
        cases().new_tree(&mut runner).unwrap().current()
    }

    /// The program's arguments.
    pub fn arguments(&self) -> String {
        let ranks = self.ranks;
        let what = match &self.work {
            Work::Transfer(engine, verb, traffic) => format!(
                "transfer --engine {engine} --op {verb} --traffic {traffic} --sizes 8,64k --trials 2 --trial-time 500ms \
                 --warmup 50ms --limit none"
            ),
            Work::Connect(engine, traffic) => format!(
                "connect --engine {engine} --traffic {traffic} --workers 1,2 --trials 2 --duration 500ms"
            ),
            Work::File(engine, layout) => {
                // Synced often, so that little is written.
                let pace = match *engine {
                    "uring" => "--window 1 --direct",
                    _ => "--fsync each",
                };
                format!(
                    "file --engine {engine} --layout {layout} --path t --block 1G --transfer 4k,64k {pace} \
                     --phases write --trials 2 --stonewall 500ms --limit none"
                )
            }
        };
        format!("{what} --ranks {ranks} -o r.jsonl")
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let signal = format!("{:?}", self.fault).to_uppercase();
        write!(f, "{signal} to ")?;
        match self.whom {
            Whom::Rank(rank) => write!(f, "rank {rank}")?,
            Whom::Supervisor => write!(f, "the supervisor")?,
        }
        write!(
            f,
            " after {} ms of tonnage {}",
            self.moment_ms,
            self.arguments()
        )
    }
}

#[test]
fn a_seed_and_a_number_are_a_case() {
    assert_eq!(Case::draw(1, 2).to_string(), Case::draw(1, 2).to_string());
    assert_ne!(Case::draw(1, 2).to_string(), Case::draw(1, 3).to_string());
    assert_ne!(Case::draw(1, 2).to_string(), Case::draw(2, 2).to_string());
}

/// The fixed part that always runs has every engine, traffic, signal and receiver in it.
#[test]
fn forty_cases_have_everything_in_them() {
    let all: Vec<_> = (0..40)
        .map(|number| Case::draw(SEED, number).to_string())
        .collect();
    let mut words = vec![
        "KILL",
        "STOP",
        "TERM",
        "INT",
        "rank 0 ",
        "rank 1 ",
        "rank 2 ",
        "the supervisor",
        "--ranks 2",
        "--ranks 3",
        "--ranks 4",
        "connect ",
        "posix",
        "uring",
    ];
    words.extend(ENGINES.iter().chain(TRAFFICS).chain(LAYOUTS));
    for word in words {
        assert!(all.iter().any(|case| case.contains(word)), "no {word}");
    }
}
