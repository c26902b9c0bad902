//! Tests of the whole program: the real binary, real ranks, real engines, real files. The head of each module states
//! the behaviour that it checks. Refused command lines are tested in `crates/commands/src/refused.rs`.
//!
//! Every run has its own directory as home and working directory. It must end within a deadline and leave no processes
//! behind. Runs last milliseconds, and no test depends on speed.
#![cfg(test)]

mod addresses;
mod background;
mod bad_input;
mod batches;
mod bidirectional;
mod blame;
mod browser;
mod browser_golden;
mod check;
mod check_each;
mod check_links;
mod clocks;
mod collective;
mod collective_known_answers;
mod collective_mpi;
mod collective_torch;
mod compare;
mod connect;
mod cq;
mod documented_commands;
mod exit_reasons;
mod export;
mod fabric;
mod failing_environments;
mod files;
mod foreign_connections;
mod gpu;
mod hosts;
mod intervals;
mod ior;
mod killing;
mod known_answers;
mod kubernetes_manifests;
mod launchers;
mod layers;
mod library;
mod matrix;
mod mixed;
mod mpiio;
mod mpirun;
mod operations;
mod output;
mod paths;
mod per_rank;
mod placement;
mod plans;
mod published;
mod rails;
mod report;
mod resuming;
mod roles;
mod signals;
mod slurm_scripts;
mod ssh;
mod ssh_stand_in;
mod stress;
mod support;
mod target_memory;
mod time_limit;
mod traffic_file;
mod tune;
mod wire_proof;
