//! The house's own rules, held to its source: what docs/ARCHITECTURE.md and CONTRIBUTING.md promise and no lint knows.
//!
//! | file | what is checked |
//! | --- | --- |
//! | `rooms` | arrows between crates |
//! | `circles` | files of a crate that use each other |
//! | `names`, `engines` | types of one name; engines that are known by name |
//! | `style` | lengths of functions and files, widths and openings of comments, `unsafe` |
//! | `packaging` | versions, files and settings that contrib/ and packages name |
//! | `source` | reading the source |
//!
//! Every check has a case that proves that it notices. What a check finds says what to change, and where.

#[cfg(test)]
mod circles;
#[cfg(test)]
mod engines;
#[cfg(test)]
mod names;
#[cfg(test)]
mod packaging;
#[cfg(test)]
mod rooms;
#[cfg(test)]
mod source;
#[cfg(test)]
mod style;
