//! Whole runs, from plans or points to records, with threads as ranks over real and test engines.
#![cfg(test)]

mod alone;
mod bounds;
mod collectives;
mod connections;
mod device_memory;
mod far;
mod late;
mod lies;
mod long;
mod runs;
mod seen;
mod stress;
mod sweeps;
mod tune;
mod wire_proof;
