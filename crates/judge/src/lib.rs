//! Verdicts: records of two sides become comparisons. Nothing here reads a file, measures or draws.
//!
//! | module | what lives there |
//! | --- | --- |
//! | [`baseline`] | figures of kinds of hosts, with thresholds |
//! | [`check`] | verdicts on a host that was measured beside a baseline |
//! | [`history`] | a metric over runs, and where it changed |
//! | [`compare`] | a comparison: from the records of two sides to a verdict on each point |
//! | [`judging`] | one metric of one point |
//! | [`sides`] | the records of two sides, from two files or from one with both |
//! | [`keys`] | keys of a point, by which points of two sides are matched |
//! | [`matching`], `neighbours` | points and their partners, and why some have none |
//! | [`metric`] | what can be compared: figures with a direction |
//! | [`surroundings`] | differences of program, effective configuration, machine and variables |
//! | [`values`] | values of a point's runs |
//! | [`criteria`], [`estimate`] | margin and confidence; a ratio, its interval, its verdict |
//! | [`welch`], [`correction`] | the statistics |
//!
//! Records come from `tonnage_record`; `tonnage_report` draws a comparison. What the verdicts mean, and what they do
//! not, is in docs/METHODOLOGY.md.

#![forbid(unsafe_code)]

pub mod baseline;
pub mod check;
pub mod compare;
pub mod correction;
pub mod criteria;
pub mod estimate;
pub mod history;
pub mod judging;
pub mod keys;
#[cfg(test)]
mod known_answers;
pub mod matching;
pub mod metric;
mod neighbours;
pub mod sides;
pub mod surroundings;
#[cfg(test)]
mod tests;
pub mod values;
pub mod welch;
