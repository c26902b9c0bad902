//! Starts ranks on other hosts through the system's ssh.
//!
//! The process that the user started is not a rank. It starts one ssh per host, which starts an agent there. The agent
//! is this program again; it starts the host's ranks and reports on them. All secrets go through ssh's standard input.
//! When standard input closes, the agent ends its ranks and itself.
//!
//! | file | what lives there | where it runs |
//! | --- | --- | --- |
//! | [`list`] | parsing hosts and their numbers of ranks | here |
//! | [`command`] | ssh's command line, and the script that finds or receives the program on the host | here |
//! | [`messages`] | orders, reports and start messages of ranks: the lines that pass through ssh | both |
//! | `faults` | failures of ssh, and builds that do not match, with the next thing to try | here |
//! | `connection` | one ssh | here |
//! | `pipes` | threads, and reading lines from pipes | both |
//! | [`hosts`] | the connections to all hosts | here |
//! | `questions` | requests to agents: the meeting place, clocks, descriptions of hosts | here |
//! | [`meeting`] | the address at which the ranks meet | here |
//! | [`ranks`] | the ranks, for the supervisor | here |
//! | [`host_processes`] | an independent process on each host | here |
//! | `reachability` | listening and connecting in a trial | there |
//! | `children` | the ranks of one host | there |
//! | [`agent`] | executing orders, and ending the host's ranks | there |

pub mod agent;
mod children;
pub mod command;
mod connection;
mod faults;
pub mod host_processes;
pub mod hosts;
pub mod list;
pub mod meeting;
pub mod messages;
mod pipes;
mod questions;
pub mod ranks;
mod reachability;
