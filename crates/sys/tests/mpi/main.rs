//! MPI's collectives under real launchers: this very program is started again as the ranks.
//!
//! All plays are given in one run under every MPI that is installed here (Open MPI, MPICH), with several numbers of
//! ranks. An ignored test is the entry point of the ranks.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `plays` | starting ranks, and the plays |
//! | `every` | every call with every type and reduction, compared with what it has to give |
//! | `elements` | elements of each type as bytes |
#![cfg(test)]

mod elements;
mod every;
mod plays;
