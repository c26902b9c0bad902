//! The engine mpiio under real launchers, from a single call up: this very program is started again as the ranks.
//!
//! The ranks are started once under every MPI that is installed here (Open MPI, MPICH), and give all plays. They meet by
//! the launcher's own exchange, as those of tonnage do, so that the order of PMIx, PMI and MPI is under test too. An
//! ignored test is the entry point of the ranks.
#![cfg(test)]

mod plays;
