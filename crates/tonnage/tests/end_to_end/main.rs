//! The whole program from outside: the real binary, real ranks, real engines, real files. Each module says what it holds
//! the program to; what a command line is refused for is tested beside the code, in `src/refused.rs`.
//!
//! Every run has a directory of its own as home and as working directory, and ends within a deadline; then no process
//! of it may be left. Runs last milliseconds: nothing here depends on speed.
#![cfg(test)]

mod addresses;
mod background;
mod bad_input;
mod batches;
mod blame;
mod both_ways;
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
mod export;
mod fabric;
mod files;
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
mod places;
mod plans;
mod promised;
mod published;
mod rails;
mod reasons;
mod report;
mod resuming;
mod roles;
mod signals;
mod slurm_scripts;
mod ssh;
mod ssh_stand_in;
mod strangers;
mod stress;
mod support;
mod surroundings;
mod target_memory;
mod traffic_file;
mod tune;
mod wire_proof;
