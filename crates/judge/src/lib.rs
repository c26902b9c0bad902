//! Verdicts: compares the records of two sides, or of hosts with a baseline. This crate does not read files, measure or
//! draw.
//!
//! | module | what lives there |
//! | --- | --- |
//! | [`baseline`] | figures and thresholds per kind of host |
//! | [`check`] | verdicts on hosts compared with a baseline |
//! | [`history`] | a metric over runs, and its changes |
//! | [`compare`] | a comparison: from two sides' records to a verdict on each point |
//! | [`judging`] | one metric of one point |
//! | [`sides`] | the records of two sides, from two files or one |
//! | [`keys`] | keys of a point, used to match points of two sides |
//! | [`matching`], `neighbours` | pairs of points, and the nearest candidates for points without a partner |
//! | [`metric`] | figures that can be compared, with their direction |
//! | [`surroundings`] | differences in program, effective configuration, machine and variables |
//! | [`values`] | values of a point's runs |
//! | [`criteria`], [`estimate`] | margin and confidence; ratio, interval and verdict |
//! | [`welch`], [`correction`] | the statistics |
//!
//! Records come from `tonnage_record`; `tonnage_report` displays comparisons. docs/METHODOLOGY.md explains the verdicts
//! and their bounds.

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
