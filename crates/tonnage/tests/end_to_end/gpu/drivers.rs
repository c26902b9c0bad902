//! Drivers on which the same runs of the program are tried: the double, and the GPUs of this machine where `make
//! test-gpu` says that it has some.

use std::path::PathBuf;

use tonnage_record::{Outcome, Record};

use super::{Double, cuda};
use crate::support::{Ended, Program};

/// The variable that says how many GPUs of NVIDIA this machine has.
const GPUS: &str = "TONNAGE_TEST_GPUS";

/// Words about two GPUs without a way between them.
const NO_WAY: &str = "cannot reach the memory of";

/// A driver with GPUs.
pub struct TriedDriver {
    double: Option<Double>,
    /// GPUs that a process sees.
    pub gpus: u32,
}

impl TriedDriver {
    /// The double with two GPUs, set up by some lines, and the real one; a visible skip without either.
    pub fn all(lines: &str) -> Vec<Self> {
        let double = Double::with(&format!("gpus 2\n{lines}"));
        let double = double.map(|double| Self {
            double: Some(double),
            gpus: 2,
        });
        let gpus = std::env::var(GPUS).ok();
        let gpus = gpus.and_then(|gpus| gpus.parse().ok()).unwrap_or(0);
        if gpus == 0 {
            println!("skip: runs on a GPU, which `make test-gpu` tries: over the double only");
        }
        let real = (gpus > 0).then_some(Self { double: None, gpus });
        double.into_iter().chain(real).collect()
    }

    /// True for the double, whose names and numbers are known.
    pub fn is_double(&self) -> bool {
        self.double.is_some()
    }

    /// Its library, where it is not the one that the loader finds.
    pub fn library(&self) -> Option<PathBuf> {
        self.double.as_ref().map(Double::path)
    }

    /// Arguments with its library.
    pub fn with(&self, arguments: &str) -> String {
        match &self.double {
            None => arguments.to_owned(),
            Some(double) => format!("{arguments} --library {}", cuda(double)),
        }
    }

    /// Runs it, which must succeed, but for GPUs of a real driver that do not reach each other: a visible skip.
    pub fn run(&self, program: Program) -> Ended {
        if self.is_double() {
            return program.succeed();
        }
        let ended = program.run();
        let lacks_a_way = ended.stderr.contains(NO_WAY) || ended.stdout.contains(NO_WAY);
        // No death by a signal, and no refusal of the whole: what else failed is in the records.
        let is_skipped = lacks_a_way && ended.code == Some(1);
        assert!(ended.code == Some(0) || is_skipped, "{ended:#?}");
        ended
    }

    /// Records that are to be looked at: without those of GPUs that do not reach each other. Whatever else was not
    /// measured stays.
    pub fn reached(&self, records: Vec<Record>) -> Vec<Record> {
        let is_reached = |record: &Record| match &record.outcome {
            Outcome::Skipped { why } if !self.is_double() && why.contains(NO_WAY) => {
                println!("skip: {why}");
                false
            }
            _ => true,
        };
        let reached: Vec<_> = records.into_iter().filter(is_reached).collect();
        if reached.is_empty() {
            println!("skip: nothing is left to be looked at");
        }
        reached
    }

    /// Memory of the second GPU, or of the only one.
    pub fn far(&self) -> &'static str {
        match self.gpus {
            1 => "cuda:0",
            _ => "cuda:1",
        }
    }
}
