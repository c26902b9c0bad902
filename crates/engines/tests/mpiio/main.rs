//! The engine mpiio under real launchers, from a single call up: this very program is started again as the ranks.
//!
//! Each play is one run under every MPI that is installed here (Open MPI, MPICH). The ranks meet by the launcher's own
//! exchange, as those of tonnage do, so that the order of PMIx, PMI and MPI is under test too. An ignored test is the
//! entry point of the ranks, and one environment variable says which play is given.
//!
//! The module is marked as a test, so that lints treat its helpers as they treat the tests.

#[cfg(test)]
mod plays;
