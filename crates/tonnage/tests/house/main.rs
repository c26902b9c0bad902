//! The project's own rules, checked against its source: promises of docs/ARCHITECTURE.md and CONTRIBUTING.md that no
//! lint checks.
//!
//! | file | what is checked |
//! | --- | --- |
//! | `rooms` | dependencies between crates |
//! | `engines` | engines referred to by name |
//! | `licences` | licences of dependencies, and their origins |
//! | `safety` | `unsafe`, and how threads are started |
//! | `packaging` | versions, files and settings that contrib/ and packages name |
//! | `source` | reading the source |
//!
//! Every check has a test that proves that it detects violations. Each finding names the place and the change to make.

#[cfg(test)]
mod engines;
#[cfg(test)]
mod licences;
#[cfg(test)]
mod packaging;
#[cfg(test)]
mod rooms;
#[cfg(test)]
mod safety;
#[cfg(test)]
mod source;
