//! The engine mpiio under real launchers, from single calls up: this program is started again as the ranks.
//!
//! The ranks are started once under every MPI installed here (Open MPI, MPICH), and run all plays. They meet by the
//! launcher's own exchange, as those of tonnage do, so that the order of PMIx, PMI and MPI is tested too. An ignored
//! test is the entry point of the ranks.
#![cfg(test)]

mod plays;
