//! Connections to the agents of all hosts. They are opened a few at a time, and the program is copied to hosts that
//! need it.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use super::agent::PULSE;
use super::command::{Push, WANTED, ssh_command};
use super::connection::{Connection, EventSender, HostEvent};
use super::faults::{
    explain_failed_copy, explain_missing_agent, explain_other_build, explain_unrunnable,
};
use super::list::HostSlots;
use super::meeting::is_same_machine;
use super::messages::{AgentHello, AgentOrder, AgentReport, ProgramBuild};
use tonnage_units::message::print_message;
use tonnage_units::{Error, Result};

/// Longest time from the start of an ssh to the first report of its agent. Copying the program does not count.
const HELLO_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest time without progress while the program is copied.
const PUSH_TIMEOUT: Duration = Duration::from_secs(30);
/// Limit on queued events. A host that sends more has to wait.
const NEWS_MAX: usize = 4096;
/// Maximum number of hosts without an agent that are listed, each with the reason.
const LOST_SHOWN_MAX: usize = 24;
/// Time for an ssh to exit.
pub(super) const END_TIME: Duration = Duration::from_secs(4);

/// Settings for the ssh of all hosts.
#[derive(Debug, Clone)]
pub struct SshSettings {
    /// ssh and its first arguments.
    pub words: Vec<String>,
    /// Number of hosts that connect at once.
    pub parallel: usize,
    /// This program.
    pub program: PathBuf,
    /// This program's build.
    pub build: ProgramBuild,
    /// Set if the program is copied to hosts that lack it.
    pub push: Option<Push>,
    /// Time after which hosts that have not answered are given up. Without it, only each host's own timeout applies.
    pub answer_within: Option<Duration>,
}

/// State of a host.
enum HostProgress {
    /// The ssh to this host has not been started yet.
    Waiting,
    Connecting(Instant),
    /// The program is being copied. The values are the bytes sent at the last progress, and its time.
    Pushing(u64, Instant),
    There(Box<AgentHello>),
    /// The host has no agent; the text is the reason.
    Lost(String),
}

/// A host, its ssh and its agent.
pub(super) struct RemoteHost {
    pub(super) name: String,
    pub(super) connection: Option<Connection>,
    progress: HostProgress,
    /// Lines of output that are not from the agent.
    pub(super) said: Vec<String>,
}

/// All hosts.
pub struct RemoteHosts {
    pub(super) members: Vec<RemoteHost>,
    since: Instant,
    settings: SshSettings,
    events: EventSender,
    inbox: Receiver<(usize, HostEvent)>,
    pub(super) woken: UnixStream,
}

impl RemoteHosts {
    /// Starts the agents of these hosts, and waits for their first reports.
    pub fn connect_all(settings: SshSettings, hosts: &[HostSlots]) -> Result<Self> {
        let mut party = Self::start(settings, hosts)?;
        while party.connect()? {
            if let Some((host, heard)) = party.next_event(PULSE) {
                party.handle_first_event(host, heard)?;
            }
        }
        Ok(party)
    }

    /// Prepares the connections to these hosts, without connecting yet.
    pub(super) fn start(settings: SshSettings, hosts: &[HostSlots]) -> Result<Self> {
        let (sender, inbox) = mpsc::sync_channel(NEWS_MAX);
        let failed = |error| Error::io("cannot make a socket", error);
        let (woken, wake) = UnixStream::pair().map_err(failed)?;
        for end in [&woken, &wake] {
            end.set_nonblocking(true).map_err(failed)?;
        }
        let members = hosts.iter().map(|host| RemoteHost {
            name: host.name.clone(),
            connection: None,
            progress: HostProgress::Waiting,
            said: Vec::new(),
        });
        Ok(Self {
            members: members.collect(),
            since: Instant::now(),
            settings,
            events: EventSender {
                sender,
                wake: Arc::new(wake),
            },
            inbox,
            woken,
        })
    }

    /// Starts connections up to the limit, and gives up hosts that took too long. Returns true while it is not yet
    /// decided for some host whether it has an agent.
    pub(super) fn connect(&mut self) -> Result<bool> {
        let waited = self.since.elapsed();
        let within = self.settings.answer_within;
        let is_late = within.is_some_and(|time| waited >= time);
        let mut connecting = 0;
        for member in &mut self.members {
            member.give_up_late(is_late.then_some(waited));
            if let HostProgress::Connecting(_) | HostProgress::Pushing(..) = member.progress {
                connecting += 1;
            }
        }
        let mut unsettled = connecting > 0;
        for (host, member) in self.members.iter_mut().enumerate() {
            if !matches!(member.progress, HostProgress::Waiting) {
                continue;
            }
            unsettled = true;
            if connecting >= self.settings.parallel {
                break;
            }
            let SshSettings {
                words,
                program,
                push,
                ..
            } = &self.settings;
            let line = ssh_command(words, &member.name, program, push.as_ref())?;
            member.connection = Some(Connection::open(&line, host, &self.events)?);
            member.progress = HostProgress::Connecting(Instant::now());
            connecting += 1;
        }
        let has_no_pipe = |member: &RemoteHost| {
            matches!(member.progress, HostProgress::There(_)) && !member.is_ready()
        };
        Ok(unsettled || self.members.iter().any(has_no_pipe))
    }

    pub(super) fn handle_first_event(&mut self, host: usize, heard: HostEvent) -> Result<()> {
        let build = self.settings.build.clone();
        let member = &mut self.members[host];
        match heard {
            HostEvent::Report(AgentReport::Hello(hello)) if hello.build != build => {
                member.mark_lost(|member| explain_other_build(&member.name, &hello, &build));
            }
            HostEvent::Report(AgentReport::Hello(hello)) => {
                member.progress = HostProgress::There(hello);
                member.start_heartbeats()?;
            }
            HostEvent::Report(_) => {}
            HostEvent::Pushed(input) => {
                if let Some(connection) = &mut member.connection {
                    connection.give_input(input);
                }
                // The time for the agent's first report starts when the program has been copied.
                match member.progress {
                    HostProgress::Pushing(..) => {
                        member.progress = HostProgress::Connecting(Instant::now())
                    }
                    HostProgress::There(_) => member.start_heartbeats()?,
                    _ => {}
                }
            }
            HostEvent::Noise(line) => match line.strip_prefix(WANTED) {
                Some(found) if matches!(member.progress, HostProgress::Connecting(_)) => {
                    let found = found.trim().to_owned();
                    return self.push(host, &found);
                }
                _ if line.is_empty() => {}
                _ => member.said.push(line),
            },
            HostEvent::Complaint(line) => member.said.push(line),
            HostEvent::Closed => {
                if !matches!(member.progress, HostProgress::Lost(_)) {
                    let ended = member.end();
                    member.mark_lost(|member| {
                        explain_missing_agent(&member.name, &member.said, &ended)
                    });
                }
            }
        }
        Ok(())
    }

    /// Copies the program to a host. `found` has the architecture and C library of the host.
    fn push(&mut self, host: usize, found: &str) -> Result<()> {
        let (Some(push), member) = (&self.settings.push, &mut self.members[host]) else {
            return Ok(());
        };
        if let Some(why) = explain_unrunnable(push, found) {
            member.mark_lost(|member| format!("{}: {why}", member.name));
            return Ok(());
        }
        log::info!(
            "{}: copying {} bytes of the program",
            member.name,
            push.bytes
        );
        member.progress = HostProgress::Pushing(0, Instant::now());
        match &mut member.connection {
            Some(connection) => connection.push(&self.settings.program, host, &self.events),
            None => Ok(()),
        }
    }

    /// Waits for the next event.
    pub(super) fn next_event(&mut self, time: Duration) -> Option<(usize, HostEvent)> {
        if !time.is_zero() {
            return self.inbox.recv_timeout(time).ok();
        }
        // The socket is emptied before the queue is checked. In the other order, an event in between would not wake
        // this thread.
        let mut bytes = [0; 256];
        while matches!((&self.woken).read(&mut bytes), Ok(count) if count > 0) {}
        self.inbox.try_recv().ok()
    }

    /// Iterates over the first reports of connected agents, with the index of each host.
    pub fn hellos(&self) -> impl Iterator<Item = (usize, &AgentHello)> {
        let members = self.members.iter().enumerate();
        members.filter_map(|(host, member)| match &member.progress {
            HostProgress::There(hello) => Some((host, &**hello)),
            _ => None,
        })
    }

    /// Returns why a host has no agent; `None` if it has one or may still get one.
    pub fn lost(&self, host: usize) -> Option<&str> {
        self.members.get(host)?.lost()
    }

    /// Prints the reasons and fails if some hosts have no agent.
    pub fn check_all_connected(&self) -> Result<()> {
        let members = self.members.iter();
        let lost: Vec<&str> = members.filter_map(RemoteHost::lost).collect();
        if let Some((last, others)) = lost.split_last() {
            let shown = others.len().min(LOST_SHOWN_MAX - 1);
            for why in &others[..shown] {
                print_message(&format!("error: {why}"));
            }
            return Err(Error::Failed(match others.len() - shown {
                0 => (*last).to_owned(),
                more => format!("{last}; and {more} more hosts, which `tonnage hosts` names"),
            }));
        }
        self.check_distinct_hosts(|one, other| {
            format!("{one} and {other} are one machine: name it once, with the ranks of both, such as {one}:2")
        })
    }

    /// Fails if two hosts are the same machine.
    pub(super) fn check_distinct_hosts(
        &self,
        describe: impl Fn(&str, &str) -> String,
    ) -> Result<()> {
        match self.same_hosts().first() {
            Some((one, other)) => Err(Error::Usage(describe(
                &self.members[*one].name,
                &self.members[*other].name,
            ))),
            None => Ok(()),
        }
    }

    /// Returns pairs of hosts that are the same machine.
    pub fn same_hosts(&self) -> Vec<(usize, usize)> {
        let hellos: Vec<_> = self.hellos().collect();
        let mut twins = Vec::new();
        for (place, (host, hello)) in hellos.iter().enumerate() {
            let same = hellos[..place].iter();
            let same = same.filter(|(_, other)| is_same_machine(hello, other));
            twins.extend(same.map(|(other, _)| (*other, *host)));
        }
        twins
    }

    /// Ends all agents by closing their pipes for orders.
    pub(super) fn close_all(&mut self) {
        for member in &mut self.members {
            member.close();
        }
    }
}

impl RemoteHost {
    /// Returns whether the host's agent is connected and accepts orders. It accepts none while the program is being
    /// copied.
    pub(super) fn is_ready(&self) -> bool {
        let connection = self.connection.as_ref();
        matches!(self.progress, HostProgress::There(_))
            && connection.is_some_and(Connection::has_input)
    }

    pub(super) fn lost(&self) -> Option<&str> {
        match &self.progress {
            HostProgress::Lost(why) => Some(why),
            _ => None,
        }
    }

    pub(super) fn send(&mut self, order: &AgentOrder) {
        if let Some(connection) = &mut self.connection {
            connection.send(order);
        }
    }

    pub(super) fn close(&mut self) {
        if let Some(connection) = &mut self.connection {
            connection.close();
        }
    }

    /// Ends the host's ssh and describes how it ended.
    pub(super) fn end(&mut self) -> String {
        self.end_within(END_TIME)
    }

    /// Like [`RemoteHost::end`], but the description includes the last line that ssh printed.
    pub(super) fn end_with_last_line(&mut self) -> String {
        let ended = self.end();
        let said = self.said.last();
        ended + &said.map_or(String::new(), |line| format!(" ({line})"))
    }

    fn end_within(&mut self, time: Duration) -> String {
        let connection = self.connection.take();
        connection.map_or("is not there".to_owned(), |mut connection| {
            connection.end(time)
        })
    }

    /// Gives the host up if it is silent for too long, or if copying makes no progress. If `waited` is given, the time
    /// for all hosts is over, and the host is given up in any case.
    fn give_up_late(&mut self, waited: Option<Duration>) {
        let silent = |time: Duration, words: &str| {
            explain_missing_agent(&self.name, &self.said, &format!("{words} {time:.1?}"))
        };
        let pushed_bytes = self.connection.as_ref().map_or(0, Connection::pushed_bytes);
        let not_whole = |what: &str| explain_failed_copy(&self.name, &self.said, what);
        let why = match (&mut self.progress, waited) {
            (HostProgress::Waiting, Some(waited)) => format!(
                "{}: not reached in {waited:.1?} behind others: raise --ssh-parallel or --time-limit",
                self.name
            ),
            (HostProgress::Connecting(since), Some(_)) => {
                silent(since.elapsed(), "was given up after")
            }
            (HostProgress::Pushing(..), Some(waited)) => not_whole(&format!(
                "took only {pushed_bytes} bytes of the program in {waited:.1?}"
            )),
            (HostProgress::Connecting(since), None) if since.elapsed() > HELLO_TIMEOUT => {
                silent(HELLO_TIMEOUT, "said nothing for")
            }
            (HostProgress::Pushing(before, since), None) => {
                if pushed_bytes != *before {
                    (*before, *since) = (pushed_bytes, Instant::now());
                }
                if since.elapsed() <= PUSH_TIMEOUT {
                    return;
                }
                not_whole(&format!(
                    "took {pushed_bytes} bytes of the program and then none for {PUSH_TIMEOUT:.1?}"
                ))
            }
            _ => return,
        };
        self.mark_lost(|_| why);
        // Kills the host's ssh without waiting for its exit.
        self.end_within(Duration::ZERO);
    }

    fn start_heartbeats(&self) -> Result<()> {
        match &self.connection {
            Some(connection) if connection.has_input() => connection.start_heartbeats(),
            _ => Ok(()),
        }
    }

    pub(super) fn mark_lost(&mut self, why: impl FnOnce(&Self) -> String) {
        self.progress = HostProgress::Lost(why(self));
        self.close();
    }
}

impl Drop for RemoteHosts {
    fn drop(&mut self) {
        self.close_all();
        let since = Instant::now();
        for member in &mut self.members {
            member.end_within(END_TIME.saturating_sub(since.elapsed()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns why a host in this state is given up; `None` if it is not.
    fn given_up(progress: HostProgress, waited: Option<Duration>) -> Option<String> {
        let mut member = RemoteHost {
            name: "h1".to_owned(),
            connection: None,
            progress,
            said: Vec::new(),
        };
        member.give_up_late(waited);
        member.lost().map(str::to_owned)
    }

    #[test]
    fn stalled_hosts_are_given_up_with_their_progress() {
        let Some(long_ago) = Instant::now().checked_sub(2 * PUSH_TIMEOUT) else {
            println!("skip: the machine was started a minute ago");
            return;
        };
        let now = Instant::now;
        let soon = Some(Duration::from_secs(4));
        let (pushing, connecting) = (
            HostProgress::Pushing(0, long_ago),
            HostProgress::Connecting(long_ago),
        );
        let took_none = "took 0 bytes of the program and then none for 30.0s";
        for (progress, waited, expected) in [
            (pushing, None, took_none),
            (
                HostProgress::Pushing(0, now()),
                soon,
                "of the program in 4.0s",
            ),
            (connecting, None, "ssh said nothing for 30.0s"),
            (
                HostProgress::Connecting(now()),
                soon,
                "ssh was given up after ",
            ),
            (HostProgress::Waiting, soon, "behind others"),
        ] {
            let why = given_up(progress, waited).unwrap();
            assert!(why.starts_with("h1: ") && why.contains(expected), "{why}");
        }
        // A copy that has just made progress is not late, however long ago it started. Nor is a login that has just
        // started.
        for progress in [
            HostProgress::Pushing(7, long_ago),
            HostProgress::Pushing(0, now()),
            HostProgress::Connecting(now()),
            HostProgress::Waiting,
        ] {
            assert_eq!(given_up(progress, None), None);
        }
    }
}
