//! The ranks of all hosts, as the supervisor sees them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::agent::SILENCE;
use super::connection::HostEvent;
use super::hosts::RemoteHosts;
use super::list::HostPlacement;
use super::messages::{AgentOrder, AgentReport, SecretText, StartOrder};
use crate::bootstrap::options::heartbeat_timeout;
use crate::bootstrap::secret::generate_text;
use crate::bootstrap::variables::Env;
use crate::spawn::supervisor::Supervisor;
use crate::spawn::{RankExit, RankProcesses};
use tonnage_units::{Error, Result};

/// Receiver of the ranks' output and records.
pub trait OutputReceiver {
    /// Takes a line that a rank printed, or a line about a host. `host` is `None` if the host is rank 0's.
    fn line(&mut self, host: Option<&str>, is_error: bool, text: &str) -> Result<()>;

    /// Takes a record of rank 0 as a line. If it is a checkpoint, a later record replaces it.
    fn record(&mut self, is_checkpoint: bool, text: &str) -> Result<()>;
}

/// Everything that ranks on other hosts need to start.
#[derive(Debug)]
pub struct RemoteStart {
    /// The address of rank 0.
    pub meeting: SocketAddr,
    /// Directory to start in, if it exists on the host.
    pub directory: String,
    /// Whether every host must have the directory.
    pub needs_directory: bool,
    /// Variables for the ranks.
    pub variables: Vec<(String, String)>,
    /// The job of rank 0 and the job of all other ranks, in the form that the command reads.
    pub jobs: (String, String),
}

/// A rank on one of the hosts.
#[derive(Debug, Default)]
struct RemoteRank {
    host: usize,
    pid: Option<u32>,
    stopped_by: Option<i32>,
    ended: Option<RankExit>,
}

/// Ranks on other hosts.
pub struct RemoteRanks<A: OutputReceiver> {
    party: RemoteHosts,
    ranks: Vec<RemoteRank>,
    /// When the last event of each host arrived. Lost hosts are not in the map.
    heard: BTreeMap<usize, Instant>,
    audience: A,
    /// Whether the reason for the end of the run was reported, or needs no report because the user ended the run.
    is_told: bool,
}

impl<A: OutputReceiver> RemoteRanks<A> {
    /// Starts and supervises the ranks. From `env`, only the heartbeat timeout is read.
    pub fn supervise(
        env: Env<'_>,
        mut party: RemoteHosts,
        placement: &HostPlacement,
        start: &RemoteStart,
        audience: A,
    ) -> Result<Supervisor<Self>> {
        // The timeout is for a CPU with a single rank, because the CPUs of the other hosts are unknown here. It is not
        // longer than the ranks' own timeout, so this process is the first to report a stopped rank.
        let timeout = heartbeat_timeout(env, 1)?;
        let secret = SecretText(generate_text()?);
        let mut ranks = Vec::new();
        for (host, block) in placement.blocks().into_iter().enumerate() {
            let count = block.end - block.start;
            let order = AgentOrder::Start(Box::new(StartOrder {
                first: block.start,
                count,
                size: placement.size(),
                secret: secret.clone(),
                meeting: start.meeting,
                directory: start.directory.clone(),
                needs_directory: start.needs_directory,
                variables: start.variables.clone(),
                job: start.jobs.1.clone(),
                root_job: (block.start == 0).then(|| start.jobs.0.clone()),
            }));
            party.members[host].send(&order);
            ranks.extend(block.map(|_| RemoteRank {
                host,
                ..RemoteRank::default()
            }));
        }
        let now = Instant::now();
        let remote = Self {
            heard: (0..placement.hosts.len()).map(|host| (host, now)).collect(),
            party,
            ranks,
            audience,
            is_told: false,
        };
        Supervisor::new(remote, placement.size(), timeout)
    }

    fn handle_event(&mut self, host: usize, heard: HostEvent) {
        if let Some(at) = self.heard.get_mut(&host) {
            *at = Instant::now();
        }
        let member = &mut self.party.members[host];
        match heard {
            HostEvent::Report(report) => self.handle_report(host, report),
            HostEvent::Complaint(line) => {
                log::info!("{}: {line}", member.name);
                member.said.push(line);
            }
            HostEvent::Noise(line) => log::debug!("{}: {line}", member.name),
            HostEvent::Pushed(_) => {}
            HostEvent::Closed => {
                let ended = member.end_with_last_line();
                self.lose_host(host, &format!("lost its ssh, which {ended}"));
            }
        }
    }

    fn handle_report(&mut self, host: usize, report: AgentReport) {
        match report {
            AgentReport::Line { is_error, text, .. } => {
                let is_failure = is_error && text.starts_with("error: ");
                let name = &self.party.members[host].name;
                // After the loss of a host, errors of other ranks are only consequences.
                if is_failure && self.is_told {
                    log::debug!("{name}: {text}");
                    return;
                }
                let is_root = self.ranks.first().is_some_and(|root| root.host == host);
                let shown = self
                    .audience
                    .line((!is_root).then_some(name), is_error, &text);
                self.end_if_failed(shown);
            }
            AgentReport::Record {
                is_checkpoint,
                text,
            } => {
                let kept = self.audience.record(is_checkpoint, &text);
                self.end_if_failed(kept);
            }
            AgentReport::Failed { message, is_usage } => {
                let text = format!("error: {}: {message}", self.party.members[host].name);
                self.print_line(&text);
                self.end_host(host, RankExit::Code(if is_usage { 2 } else { 1 }));
            }
            AgentReport::Started { rank, pid } => {
                if let Some(of) = self.rank(host, rank) {
                    of.pid = Some(pid);
                }
            }
            AgentReport::Stopped { rank, by } => {
                if let Some(of) = self.rank(host, rank) {
                    of.stopped_by = by;
                }
            }
            AgentReport::Ended { rank, exit } => {
                if let Some(of) = self.rank(host, rank) {
                    of.ended.get_or_insert(exit);
                }
            }
            AgentReport::Hello(_)
            | AgentReport::Listening { .. }
            | AgentReport::Tried { .. }
            | AgentReport::Described { .. }
            | AgentReport::Clock { .. }
            | AgentReport::Alive => {}
        }
    }

    /// Prints why the run ends. Later errors of ranks are only consequences, so they are not printed.
    fn print_line(&mut self, text: &str) {
        // If the output cannot be written, the reason cannot be printed either.
        let _ = self.audience.line(None, true, text);
        self.is_told = true;
    }

    /// Ends all ranks if their output could not be shown or stored.
    fn end_if_failed(&mut self, done: Result<()>) {
        let Err(error) = done else { return };
        if !self.is_told {
            self.print_line(&format!("error: {error}"));
        }
        for host in 0..self.party.members.len() {
            self.end_host(host, RankExit::Code(error.exit_code().into()));
        }
    }

    /// Returns a rank if it belongs to this host. An agent may report only on ranks of its own host.
    fn rank(&mut self, host: usize, rank: u32) -> Option<&mut RemoteRank> {
        let found = self.ranks.get_mut(rank as usize);
        found.filter(|rank| rank.host == host)
    }

    /// Handles the loss of a host, once.
    fn lose_host(&mut self, host: usize, why: &str) {
        if self.heard.remove(&host).is_none() {
            return;
        }
        let mut own = self.ranks.iter().filter(|rank| rank.host == host);
        let is_over = own.all(|rank| rank.ended.is_some());
        let root = self.ranks.first();
        let root_told =
            root.is_some_and(|root| !matches!(root.ended, None | Some(RankExit::Code(0))));
        if !is_over && !self.is_told && !root_told {
            let name = &self.party.members[host].name;
            let text = format!(
                "error: {name} {why}; its ranks end on their own. Look at `ssh {name}`, then start again"
            );
            self.print_line(&text);
        }
        // Without this, ssh would remain until it notices that the other end is gone.
        if let Some(mut connection) = self.party.members[host].connection.take() {
            connection.end(Duration::ZERO);
        }
        self.end_host(host, RankExit::Lost);
    }

    /// Records that the host's ranks ended with `exit`, and makes the host's agent end them.
    fn end_host(&mut self, host: usize, exit: RankExit) {
        self.heard.remove(&host);
        for rank in self.ranks.iter_mut().filter(|rank| rank.host == host) {
            rank.ended.get_or_insert(exit);
        }
        self.party.members[host].close();
    }
}

impl<A: OutputReceiver> RankProcesses for RemoteRanks<A> {
    fn handle_events(&mut self) {
        while let Some((host, heard)) = self.party.next_event(Duration::ZERO) {
            self.handle_event(host, heard);
        }
        let silent = self.heard.iter().find(|(_, at)| at.elapsed() > SILENCE);
        if let Some((&host, _)) = silent {
            let why = format!("was silent for {SILENCE:.1?}: is the host up, and its cable in?");
            self.lose_host(host, &why);
        }
    }

    fn ended(&mut self, rank: u32) -> Result<Option<RankExit>> {
        let found = self.ranks.get(rank as usize);
        let rank = found.ok_or_else(|| Error::Failed(format!("rank {rank} was not started")))?;
        Ok(rank.ended)
    }

    fn stopped_by(&mut self, rank: u32) -> Option<i32> {
        self.ranks.get(rank as usize)?.stopped_by
    }

    fn signal(&mut self, rank: u32, signal: i32) {
        if [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM].contains(&signal) {
            self.is_told = true;
        }
        if let Some(host) = self.ranks.get(rank as usize).map(|rank| rank.host) {
            self.party.members[host].send(&AgentOrder::Signal { rank, signal });
        }
    }

    fn end(&mut self, rank: u32) {
        self.signal(rank, signal_hook::consts::SIGKILL);
    }

    fn host(&self, rank: u32) -> String {
        let rank = self.ranks.get(rank as usize);
        rank.map_or("an unknown host".to_owned(), |rank| {
            self.party.members[rank.host].name.clone()
        })
    }

    fn process(&self, rank: u32) -> Option<u32> {
        self.ranks.get(rank as usize)?.pid
    }

    fn wake_socket(&self) -> Option<&UnixStream> {
        Some(&self.party.woken)
    }
}
