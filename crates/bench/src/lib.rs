//! Measures the points of a plan on all ranks, and turns the samples into records.
//!
//! | module | what lives there |
//! | --- | --- |
//! | [`conductor`] | the points of a run, one after the other |
//! | [`run`], [`settings`] | facts and settings that all points share |
//! | `in_process` | points that run their ranks as threads of one process |
//! | [`observer`] | callbacks for progress and results |
//! | [`time_limit`] | the end of a run by its time limit |
//! | [`failure`], [`deadlines`] | the extent of a failure, and how long ranks wait for each other |
//! | `latencies`, `json` | data that ranks exchange in more than one kind |
//! | `opening` | devices, placement of workers, memory and introductions, for kinds that move bytes between memories |
//! | [`kinds`] | the kinds of experiments |
//! | [`loop_parameters`] | parameters of the timed loops, derived from a point |
//! | [`bound`] | upper bounds, which utilization refers to |
//! | [`canary`] | shows whether the machine changed while a point was measured |
//! | [`cpu_loss`] | CPU time that ranks lost during their trials |
//! | [`network_paths`] | settings of the network paths of engines' sockets |
//! | [`wire_proof`] | proof that the payload crossed the expected devices |
//! | [`threads`] | starting threads |
//! | [`host`] | this host's CPUs, and the ranks that share them |
//!
//! Engines are passed in as lists, and this crate knows none of them by name. Results are records; see
//! `tonnage_record`.
#![forbid(unsafe_code)]

pub mod bound;
pub mod canary;
pub mod conductor;
pub mod cpu_loss;
pub mod deadlines;
pub mod failure;
pub mod host;
mod in_process;
mod json;
pub mod kinds;
mod latencies;
pub mod loop_parameters;
pub mod network_paths;
pub mod observer;
pub mod opening;
pub mod run;
pub mod settings;
pub mod threads;
pub mod time_limit;
pub mod wire_proof;
