//! MPI's collectives under real launchers: this very program is started again as the ranks.
//!
//! Each play is one run under every MPI that is installed here (Open MPI, MPICH), with several numbers of ranks. An
//! ignored test is the entry point of the ranks, and one environment variable says which play is given.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `plays` | starting ranks, and the plays |
//! | `every` | every call with every type and reduction, compared with what it has to give |
//! | `elements` | elements of each type as bytes |
//!
//! The modules are marked as tests, so that lints treat their helpers as they treat the tests.

#[cfg(test)]
mod elements;
#[cfg(test)]
mod every;
#[cfg(test)]
mod plays;
