//! Ranks on other hosts, which the system's ssh reaches.
//!
//! The process that the user started is no rank. It starts one ssh for each host; there an agent, this program again,
//! starts the ranks of its host and tells what becomes of them. Everything that must stay secret goes through that
//! ssh's standard input, and when it closes the agent ends its ranks and itself.
//!
//! | file | what lives there | where it runs |
//! | --- | --- | --- |
//! | [`list`] | the hosts and the numbers of their ranks, as they are written | here |
//! | [`command`] | ssh's command line, and the script that finds or takes the program there | here |
//! | [`words`] | orders, reports and letters: the lines that pass through ssh | both |
//! | `faults` | failures of ssh, and programs that do not fit, with the next thing to try | here |
//! | `connection` | one ssh | here |
//! | `pipes` | threads that read pipes, and their lines | both |
//! | [`party`] | all of them, from the first word on | here |
//! | `questions` | the meeting place, and what the hosts are | here |
//! | [`meeting`] | the address where the ranks meet | here |
//! | [`ranks`] | the ranks, for the supervisor | here |
//! | [`apart`] | a process on each host that has nothing to do with the others | here |
//! | `trial` | listening and connecting in a trial | there |
//! | `children` | the ranks of one host | there |
//! | [`agent`] | obeying orders, and the end of everything | there |

pub mod agent;
pub mod apart;
mod children;
pub mod command;
mod connection;
mod faults;
pub mod list;
pub mod meeting;
pub mod party;
mod pipes;
mod questions;
pub mod ranks;
mod trial;
pub mod words;
