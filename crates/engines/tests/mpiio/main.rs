//! The engine mpiio under real launchers. This program starts itself again as the ranks.
//!
//! The ranks are started once under every MPI installed on this machine (Open MPI, MPICH), and run all plays. They meet
//! by the launcher's own exchange, like tonnage's ranks, so that the order of PMIx, PMI and MPI is tested too. An
//! ignored test is the entry point of the ranks.
#![cfg(test)]

mod plays;
