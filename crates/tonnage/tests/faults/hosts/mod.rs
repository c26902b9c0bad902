//! Faults in runs on several hosts. A seed and a number determine each case. Hosts are network namespaces with one link
//! for control and one for data. [`runs`] runs the cases, and [`promises`] checks the promises.

mod promises;
mod runs;

use std::fmt;

use proptest::prelude::*;
use proptest::sample::{Index, select};

use crate::cases::drawn;

/// Heartbeat timeout of these runs, in seconds. It is long enough for two busy CPUs and short enough for a test.
const TIMEOUT_SECONDS: u64 = 2;

/// A run with one rank on each host, and a fault on one host.
#[derive(Debug, Clone)]
struct Case {
    work: Work,
    /// Number of hosts, and of ranks.
    hosts: u32,
    fault: Fault,
    /// The host with the fault.
    host: u32,
    /// Beginning of the name of the step at which the fault occurs.
    step: &'static str,
}

/// An experiment that lasts a few seconds.
#[derive(Debug, Clone, Copy)]
enum Work {
    /// Operation, traffic and pacing.
    Transfer(&'static str, &'static str, &'static str),
    Connect,
    /// The layout of the files.
    File(&'static str),
}

/// A fault on one host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// The host's data link is cut for good. The control channel still works.
    DataCut,
    /// All links of the host are cut for good.
    HostCut,
    /// The host's rank is killed.
    Kill,
    /// The host's rank is stopped.
    Stop,
}

/// Cases use the faults in this order, so any four consecutive cases have all faults.
const FAULTS: [Fault; 4] = [Fault::DataCut, Fault::Kill, Fault::HostCut, Fault::Stop];

const VERBS: &[&str] = &["write", "read", "send", "write-imm"];
const TRAFFICS: &[&str] = &[
    "pair",
    "pair --bidirectional",
    "fan-in",
    "fan-out",
    "all-to-all",
    "shift",
    "in-turn",
];
const PACINGS: &[&str] = &[
    "--bound none --depth 4",
    ROUND_TRIPS,
    "--bound none --batch 4",
    "--bound none --depth 4 --verify",
    LIMITED,
];
const ROUND_TRIPS: &str = "--bound none --ping-pong";
/// The streams that measure the bound use the data link too.
const LIMITED: &str = "--bound auto --depth 4";
const LAYOUTS: &[&str] = &["shared", "per-process"];

const OPENING: &str = "opening ";
const TRANSFER_STEPS: &[&str] = &[
    OPENING,
    "connecting ",
    "warm-up of ",
    "trial 1 of ",
    "trial 2 of ",
];
/// Steps in which bytes move, so that the run must notice a cut link. Before these steps, a first contact may take 30
/// s.
const MOVING_STEPS: &[&str] = &["warm-up of ", "trial 1 of ", "trial 2 of "];
const LIMITED_STEPS: &[&str] = &["socket-stream limit", "trial 1 of ", "trial 2 of "];
const CONNECT_STEPS: &[&str] = &[OPENING, "warm-up of ", "trial 2 of "];
const FILE_STEPS: &[&str] = &[
    "open the engine",
    "write phase of repetition 0",
    "write phase of repetition 1",
];

impl Work {
    fn steps(self, fault: Fault) -> &'static [&'static str] {
        let steps = match (self, fault) {
            (Self::Transfer(_, _, LIMITED), _) => LIMITED_STEPS,
            (Self::Transfer(..), Fault::DataCut) => MOVING_STEPS,
            (Self::Transfer(..), _) => TRANSFER_STEPS,
            (Self::Connect, _) => CONNECT_STEPS,
            (Self::File(_), _) => FILE_STEPS,
        };
        // With the host cut while the engine opens, the device has no carrier. It is then treated as missing and the
        // points are skipped.
        let is_looked_for = fault == Fault::HostCut && steps[0] == OPENING;
        if is_looked_for { &steps[1..] } else { steps }
    }
}

impl Case {
    fn draw(seed: u64, number: u64) -> Self {
        let fault = FAULTS[number as usize % FAULTS.len()];
        // A cut data link affects only transfers, because only these use it.
        let works = match fault {
            Fault::DataCut => transfers().boxed(),
            _ => works().boxed(),
        };
        let all = (works, 2u32..=3, 0u32..3, any::<Index>());
        let (work, hosts, host, step) = drawn(all, seed, number, 1);
        let is_pairs = matches!(work, Work::Transfer(_, traffic, _) if traffic.starts_with("pair"));
        // If ranks share CPUs, the bound is not measured. With two ranks, each has its own CPU.
        let is_limited = matches!(work, Work::Transfer(_, _, LIMITED));
        let hosts = if is_pairs || is_limited { 2 } else { hosts };
        let steps = work.steps(fault);
        Self {
            work,
            hosts,
            fault,
            host: host % hosts,
            step: steps[step.index(steps.len())],
        }
    }

    /// The program's arguments.
    fn arguments(&self) -> String {
        let what = match self.work {
            Work::Transfer(verb, traffic, pacing) => format!(
                "transfer --engine fabric:tcp --libfabric embedded --devices eth1 --op {verb} --traffic {traffic} \
                 --sizes 8,64k --trials 2 --trial-time 700ms --warmup 50ms {pacing}"
            ),
            Work::Connect => {
                "connect --engine fabric:tcp --libfabric embedded --devices eth1 --traffic fan-in \
                              --threads 1,2 --trials 2 --duration 500ms"
                    .to_owned()
            }
            Work::File(layout) => format!(
                "file --engine posix --layout {layout} --path t --block 1G --transfer 4k,64k --fsync each --trials 2 \
                 --stonewall 400ms --bound none --phases write"
            ),
        };
        format!("{what} -o r.jsonl")
    }
}

fn transfers() -> impl Strategy<Value = Work> {
    let all = (select(VERBS), select(TRAFFICS), select(PACINGS));
    all.prop_map(|(verb, traffic, pacing)| {
        // A ping-pong needs ranks that only answer, and one direction.
        let is_answered = ["pair", "fan-in", "fan-out"].contains(&traffic);
        let pacing = match pacing {
            ROUND_TRIPS if !is_answered => "--bound none --batch 1",
            pacing => pacing,
        };
        Work::Transfer(verb, traffic, pacing)
    })
}

fn works() -> impl Strategy<Value = Work> {
    prop_oneof![
        5 => transfers(),
        1 => Just(Work::Connect),
        2 => select(LAYOUTS).prop_map(Work::File),
    ]
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (fault, host, step) = (self.fault, self.host, self.step.trim_end());
        let (hosts, arguments) = (self.hosts, self.arguments());
        write!(
            f,
            "{fault:?} of host {host} at {step:?}, {hosts} hosts, of tonnage {arguments}"
        )
    }
}

#[test]
fn a_seed_and_a_number_are_a_case_of_hosts() {
    assert_eq!(Case::draw(1, 2).to_string(), Case::draw(1, 2).to_string());
    assert_ne!(Case::draw(1, 2).to_string(), Case::draw(1, 6).to_string());
    for (number, fault) in (0..).zip(FAULTS) {
        assert_eq!(Case::draw(2, number).fault, fault);
    }
    for case in (0..400).map(|number| Case::draw(3, number)) {
        assert!(case.host < case.hosts, "{case}");
        let moves = matches!(case.work, Work::Transfer(..));
        assert!(moves || case.fault != Fault::DataCut, "{case}");
    }
}
