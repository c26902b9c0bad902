//! Checks the project's own rules against its source. No lint checks these rules of docs/ARCHITECTURE.md and
//! CONTRIBUTING.md.
//!
//! | file | what is checked |
//! | --- | --- |
//! | `rooms` | dependencies between crates |
//! | `engines` | crates that must not name engines |
//! | `licences` | licences of dependencies, and their origins |
//! | `safety` | `unsafe`, and ways of starting threads |
//! | `packaging` | versions, files and settings that contrib/ and packages mention |
//! | `source` | reading the source |
//!
//! Every check has a test that proves that it detects violations. Each finding names the file and the change to make.

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
