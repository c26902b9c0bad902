//! The agent of a host. It executes orders that arrive through ssh. When no more orders can arrive, it ends its ranks
//! and itself.
//!
//! No more orders can arrive when standard input closes, or when nothing arrives for some seconds, as with a pulled
//! cable. No other process would then end the ranks.

use std::collections::VecDeque;
use std::io::{BufRead, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender, TrySendError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use rustix::process::Signal;

use super::children::RankChildren;
use super::messages::{
    AgentHello, AgentOrder, AgentReport, HostAddress, ProgramBuild, StartOrder, decode_line,
    write_line,
};
use super::pipes::thread;
use super::reachability::{ReachabilityListeners, try_to_reach};
use crate::join::address::interface_addresses;
use tonnage_units::lock::lock;
use tonnage_units::{Error, Result};

/// Time between two heartbeats.
pub(super) const PULSE: Duration = Duration::from_secs(1);
/// Silence after which the agent considers the other end gone. Together with [`END_TIMEOUT`], nothing is left running
/// after ten seconds.
pub(super) const SILENCE: Duration = Duration::from_millis(6500);
/// Time for ranks to end, longer than their own grace period of 1.8 s.
const END_TIMEOUT: Duration = Duration::from_millis(2500);
/// Longest time for sending the last reports.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// Maximum number of reports queued for ssh. A rank that prints more has to wait.
const WAITING_MAX: usize = 1024;
/// Removes the files that this host's ranks have left. If some ranks failed, the agent calls it after all ranks have
/// ended, with the number of ranks and the PIDs of the failed ones.
pub type CleanUp = dyn Fn(u32, Vec<u32>);

/// Parts of the program that the agent uses.
pub struct AgentProgram {
    pub build: ProgramBuild,
    pub path: PathBuf,
    /// The program's subcommand that runs as a rank.
    pub rank_command: &'static str,
    /// Describes this host.
    pub describe: fn() -> Result<String>,
    /// Variables for the ranks, in addition to those of the order.
    pub variables: Vec<(&'static str, String)>,
    /// Removes files that the ranks have left.
    pub clean_up: Box<CleanUp>,
}

/// Sends reports to the other end of ssh.
struct ReportSender {
    sender: SyncSender<AgentReport>,
    /// Reports that did not fit the queue.
    waiting: Mutex<VecDeque<AgentReport>>,
}

impl ReportSender {
    /// Sends a report; blocks while the queue is full.
    fn send(&self, report: AgentReport) {
        // Sending fails only if the other end is gone, and the agent then ends anyway.
        let _ = self.sender.send(report);
    }

    /// Sends a report now or with the next heartbeat. It never blocks.
    fn send_without_blocking(&self, report: AgentReport) {
        let mut waiting = lock(&self.waiting);
        waiting.push_back(report);
        while let Some(next) = waiting.pop_front() {
            if let Err(TrySendError::Full(back)) = self.sender.try_send(next) {
                waiting.push_front(back);
                break;
            }
        }
        // Queued heartbeats are dropped, because one heartbeat proves as much as many.
        if waiting.len() > WAITING_MAX {
            waiting.retain(|report| *report != AgentReport::Alive);
        }
    }
}

/// A running agent.
struct Agent {
    program: AgentProgram,
    reports: Arc<ReportSender>,
    trials: Option<ReachabilityListeners>,
    children: RankChildren,
}

/// Runs as the agent of this host until the end. Call it from the main thread, because the ranks end when that thread
/// ends.
pub fn serve(program: AgentProgram) -> Result<()> {
    let (sender, said) = mpsc::sync_channel(WAITING_MAX);
    let reports = Arc::new(ReportSender {
        sender,
        waiting: Mutex::new(VecDeque::new()),
    });
    let (events, inbox) = mpsc::channel();
    let (told_all, all_told) = mpsc::channel::<()>();
    let on_error = events.clone();
    thread(move || {
        let mut out = std::io::stdout().lock();
        // If a login script has left an unfinished line, this ends it.
        let _ = out.write_all(b"\n");
        while let Ok(report) = said.recv() {
            if write_line(&mut out, &report).is_err() {
                // Without a reader of the reports, no more orders will arrive either.
                let _ = on_error.send(None);
                break;
            }
        }
        drop(told_all);
    })?;
    thread(move || {
        let lines = std::io::stdin().lock().lines();
        for line in lines.map_while(std::result::Result::ok) {
            if let Ok(Some(order)) = decode_line::<AgentOrder>(&line)
                && events.send(Some(order)).is_err()
            {
                return;
            }
        }
        let _ = events.send(None);
    })?;
    let telling = Arc::clone(&reports);
    let mut agent = Agent {
        children: RankChildren::new(Arc::new(move |report| telling.send(report))),
        program,
        reports,
        trials: None,
    };
    let hello = Box::new(agent.hello()?);
    agent.reports.send(AgentReport::Hello(hello));
    agent.carry_out_all(&inbox);
    agent.end_all();
    // The writing thread ends when all senders are dropped.
    drop(agent);
    let _ = all_told.recv_timeout(LAST_WORDS);
    Ok(())
}

impl Agent {
    fn hello(&self) -> Result<AgentHello> {
        let listed = tonnage_sys::interfaces::addresses()
            .map_err(|error| Error::io("cannot list the network interfaces", error))?;
        Ok(AgentHello {
            build: self.program.build.clone(),
            program: self.program.path.display().to_string(),
            name: tonnage_sys::host::name(),
            boot_id: tonnage_sys::host::boot_id(),
            network_namespace: tonnage_sys::host::network_namespace(),
            pid_namespace: tonnage_sys::host::pid_namespace(),
            ssh_address: ssh_address(std::env::var("SSH_CONNECTION").ok().as_deref()),
            addresses: listed
                .into_iter()
                .map(|entry| HostAddress {
                    interface: entry.name,
                    ip: entry.address,
                })
                .collect(),
        })
    }

    /// Executes orders until no more can arrive: the other end is silent for too long, or the inbox yields `None`.
    fn carry_out_all(&mut self, inbox: &mpsc::Receiver<Option<AgentOrder>>) {
        let mut heard = Instant::now();
        let mut pulse = heard;
        while heard.elapsed() < SILENCE {
            let until_pulse = PULSE.saturating_sub(pulse.elapsed());
            let until_silence = SILENCE.saturating_sub(heard.elapsed());
            match inbox.recv_timeout(until_pulse.min(until_silence)) {
                Ok(Some(order)) => {
                    heard = Instant::now();
                    if let Err(error) = self.carry_out(order) {
                        self.reports.send_without_blocking(AgentReport::Failed {
                            message: error.to_string(),
                            is_usage: matches!(error, Error::Usage(_)),
                        });
                    }
                }
                Ok(None) | Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if pulse.elapsed() >= PULSE {
                pulse = Instant::now();
                self.reports.send_without_blocking(AgentReport::Alive);
            }
        }
    }

    fn carry_out(&mut self, order: AgentOrder) -> Result<()> {
        match order {
            AgentOrder::Listen {
                addresses,
                interface,
                port,
                token,
            } => {
                let addresses = match interface {
                    Some(name) => interface_addresses(&name)?,
                    None => addresses,
                };
                let trials = ReachabilityListeners::listen(&addresses, port, &token)?;
                self.reports.send(AgentReport::Listening {
                    addresses: trials.addresses(),
                });
                self.trials = Some(trials);
            }
            AgentOrder::Try { addresses, token } => {
                self.report_from_thread(move || AgentReport::Tried {
                    failures: try_to_reach(&addresses, &token),
                })?;
            }
            AgentOrder::Describe => {
                let describe = self.program.describe;
                self.report_from_thread(move || match describe() {
                    Ok(text) => AgentReport::Described { text },
                    Err(error) => AgentReport::Failed {
                        message: error.to_string(),
                        is_usage: false,
                    },
                })?;
            }
            AgentOrder::Clock => self
                .reports
                .send_without_blocking(AgentReport::Clock { unix_ns: unix_ns() }),
            AgentOrder::Start(order) => self.start(&order)?,
            AgentOrder::Signal { rank, signal } => self.children.signal(rank, signal),
            AgentOrder::Alive => {}
        }
        Ok(())
    }

    /// Runs work on a thread of its own, so that heartbeats continue.
    fn report_from_thread(
        &self,
        work: impl FnOnce() -> AgentReport + Send + 'static,
    ) -> Result<()> {
        let reports = Arc::clone(&self.reports);
        thread(move || reports.send(work()))
    }

    fn start(&mut self, order: &StartOrder) -> Result<()> {
        if order.needs_directory && !Path::new(&order.directory).is_dir() {
            return Err(Error::Usage(format!(
                "there is no directory {}, which the relative paths of this run's files refer to: create it, or start \
                 from a directory that all hosts have",
                order.directory
            )));
        }
        let trials = self.trials.take();
        let listener = trials.and_then(|trials| trials.into_listener(order.meeting));
        if order.first == 0 && listener.is_none() {
            return Err(Error::Failed(format!(
                "the listening socket on {}, where the ranks should meet, has been closed",
                order.meeting
            )));
        }
        self.children.start(order, &self.program, listener)
    }

    fn end_all(&self) {
        let since = Instant::now();
        // A stopped rank receives SIGTERM only when SIGCONT resumes it, so both signals are sent.
        for signal in [Signal::TERM, Signal::CONT] {
            self.children.signal_all(signal);
        }
        while !self.children.have_ended() && since.elapsed() < END_TIMEOUT {
            std::thread::sleep(Duration::from_millis(10));
        }
        self.children.signal_all(Signal::KILL);
        while !self.children.have_ended() && since.elapsed() < END_TIMEOUT + LAST_WORDS {
            std::thread::sleep(Duration::from_millis(5));
        }
        let lost: Vec<u32> = self.children.lost_pids().collect();
        // This list also includes ranks that ended because of another host's failure, because their exit code is not 0
        // either.
        if !lost.is_empty() {
            (self.program.clean_up)(self.children.count(), lost);
        }
    }
}

/// Returns the time of this host's clock in nanoseconds since 1970.
pub(super) fn unix_ns() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |since| since.as_nanos() as u64)
}

/// Returns the address to which the ssh client connected. It is the third word of `SSH_CONNECTION`.
fn ssh_address(variable: Option<&str>) -> Option<IpAddr> {
    let address: IpAddr = variable?.split_whitespace().nth(2)?.parse().ok()?;
    Some(address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_ssh_is_parsed() {
        assert_eq!(
            ssh_address(Some("10.0.0.9 50000 10.0.0.1 22")),
            "10.0.0.1".parse().ok()
        );
        assert_eq!(
            ssh_address(Some("::1 1 ::ffff:10.0.0.1 22")),
            "10.0.0.1".parse().ok()
        );
        for odd in [None, Some(""), Some("UNKNOWN 65535 UNKNOWN 65535")] {
            assert_eq!(ssh_address(odd), None);
        }
    }
}
