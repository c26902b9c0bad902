//! Random faults. A seed determines a run, a moment and a signal, and the same promises are checked after each run.
//!
//! | module | contents |
//! | --- | --- |
//! | [`cases`] | random cases from a seed and a number |
//! | [`family`] | running all cases of a family, and repeating cases that were only late |
//! | [`hosts`] | runs on several hosts: their cases, promises and runs |
//! | [`promises`] | promises that hold after any fault |
//! | [`random`] | running cases on one host and examining their leftovers |
//! | [`support`] | starting the program, from the end-to-end tests |
//!
//! Environment variables: `FAULTS` is the number of cases, `FAULT_SEED` is their seed, and `FAULT_CASE` is the number
//! of a single case to run. `FAULT_HOSTS_CASE` is the number of a single case on several hosts. For every ten cases on
//! one host, there is one on several hosts.
//!
//! A seed and a number always give the same case, but not the same timing when the signal arrives. A broken promise may
//! therefore take several tries to reproduce. Faults that were found and fixed have regular tests among the end-to-end
//! tests.

#[cfg(test)]
mod cases;
#[cfg(test)]
mod family;
#[cfg(test)]
mod hosts;
#[cfg(test)]
mod promises;
#[cfg(test)]
mod random;
#[cfg(test)]
#[path = "../end_to_end/support/mod.rs"]
#[allow(
    dead_code,
    unused_imports,
    reason = "the end-to-end tests use the rest of it"
)]
mod support;
