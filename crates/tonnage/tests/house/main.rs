//! The house's own rules, held to its source: what docs/ARCHITECTURE.md and CONTRIBUTING.md promise and no lint knows.
//!
//! | file | what is checked |
//! | --- | --- |
//! | `rooms` | arrows between crates |
//! | `engines` | engines that are known by name |
//! | `licences` | licences of dependencies, and where these come from |
//! | `safety` | `unsafe`, and how threads are started |
//! | `packaging` | versions, files and settings that contrib/ and packages name |
//! | `source` | reading the source |
//!
//! Every check has a case that proves that it notices. What a check finds says what to change, and where.

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
