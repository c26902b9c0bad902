//! Drivers for the same tests: the simulated driver, and the GPUs of this machine if `make test-gpu` declares any.

use std::path::PathBuf;

use tonnage_record::{Outcome, Record};

use super::{Double, cuda};
use crate::support::{Ended, Program};

/// The variable with the number of NVIDIA GPUs of this machine.
const GPUS: &str = "TONNAGE_TEST_GPUS";

/// Beginning of the error about two GPUs that cannot reach each other.
const NO_WAY: &str = "cannot reach the memory of";

/// A driver with GPUs.
pub struct TriedDriver {
    double: Option<Double>,
    /// Number of GPUs that a process sees.
    pub gpus: u32,
}

impl TriedDriver {
    /// Returns the simulated driver with two GPUs, configured by these lines, and the real driver. Prints a skip if
    /// there is neither.
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

    /// Returns whether this is the simulated driver. Its names and numbers are known.
    pub fn is_double(&self) -> bool {
        self.double.is_some()
    }

    /// Returns the path of the simulated driver's library. `None` for a real driver, because the loader finds it.
    pub fn library(&self) -> Option<PathBuf> {
        self.double.as_ref().map(Double::path)
    }

    /// Adds the option for the driver's library to the arguments.
    pub fn with(&self, arguments: &str) -> String {
        match &self.double {
            None => arguments.to_owned(),
            Some(double) => format!("{arguments} --library {}", cuda(double)),
        }
    }

    /// Runs the program, which must succeed. With a real driver, it may instead skip points because GPUs cannot reach
    /// each other.
    pub fn run(&self, program: Program) -> Ended {
        if self.is_double() {
            return program.succeed();
        }
        let ended = program.run();
        let lacks_a_way = ended.stderr.contains(NO_WAY) || ended.stdout.contains(NO_WAY);
        // With a real driver, single points may fail, and the records show this. A signal or a refusal of the whole run
        // is not accepted.
        let is_skipped = lacks_a_way && ended.code == Some(1);
        assert!(ended.code == Some(0) || is_skipped, "{ended:#?}");
        ended
    }

    /// Returns the records to examine. Leaves out points that were skipped because GPUs cannot reach each other. All
    /// other points stay, even if they were not measured.
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

    /// Returns the memory name of the second GPU, or of the first if there is only one.
    pub fn far(&self) -> &'static str {
        match self.gpus {
            1 => "cuda:0",
            _ => "cuda:1",
        }
    }
}
