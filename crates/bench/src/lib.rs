//! The conductor: takes the points of a plan through ranks, engine, samples and statistics to records.
//!
//! | module | what lives there |
//! | --- | --- |
//! | [`conductor`] | the points of a run, one after the other |
//! | [`run`], [`settings`] | what stays the same for all of them, found out and stated |
//! | `within` | points whose ranks are threads of one process |
//! | [`observer`] | who is told |
//! | [`failure`], [`deadlines`] | how far a failure reaches, and how long ranks wait for each other |
//! | `latencies`, `json` | what ranks say to each other in several kinds |
//! | `opening` | devices, places of workers, memory and introductions, for kinds that move bytes between memories |
//! | [`kinds`] | the kinds of experiments |
//! | [`loop_parameters`] | what the timed loops need of a point |
//! | [`limit`] | upper bounds that utilization is a fraction of |
//! | [`canary`] | a check that the machine did not change under a point |
//! | [`cpu_time`] | CPU time that ranks did not get during their trials |
//! | [`network_paths`] | settings of the paths of engines' sockets |
//! | [`wire_proof`] | proof that the payload crossed the devices that it should have |
//! | [`threads`] | starting threads |
//! | [`host`] | this host's CPUs, and which ranks share them |
//!
//! Engines come in as lists; none is known here by name. Results go out as records; see `tonnage_record`.
#![forbid(unsafe_code)]

pub mod canary;
pub mod conductor;
pub mod cpu_time;
pub mod deadlines;
pub mod failure;
pub mod host;
mod json;
pub mod kinds;
mod latencies;
pub mod limit;
pub mod loop_parameters;
pub mod network_paths;
pub mod observer;
pub mod opening;
pub mod run;
pub mod settings;
pub mod threads;
pub mod wire_proof;
mod within;
