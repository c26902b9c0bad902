//! MPI's collectives under real launchers, which start this test program again as the ranks.
//!
//! One run per installed MPI (Open MPI, MPICH) and number of ranks makes all calls. An ignored test is the ranks' entry
//! point.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `plays` | starting ranks, and the scenarios |
//! | `every` | every call with every type and reduction, and its expected result |
//! | `elements` | elements of each type as bytes |
#![cfg(test)]

mod elements;
mod every;
mod plays;
