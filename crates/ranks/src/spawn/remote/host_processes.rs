//! Runs an independent process on each host. No process waits for another, and the end of one does not end the others.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use super::agent::SILENCE;
use super::connection::HostEvent;
use super::hosts::{RemoteHosts, SshSettings};
use super::list::HostSlots;
use super::messages::{AgentOrder, AgentReport, SecretText, StartOrder};
use crate::bootstrap::secret::generate_text;
use crate::spawn::RankExit;
use tonnage_units::Result;

/// Time for all ssh to exit after their processes have ended.
const END_TIME: Duration = Duration::from_millis(300);

/// Time to wait for the answer of a process that has ended. On a busy host, the answer may arrive after the exit.
const LAST_LINES: Duration = Duration::from_millis(1500);

/// Longest time between two checks.
const LOOK: Duration = Duration::from_millis(100);

/// Number of lines of standard output to keep per process. The last ones are kept.
const LINES_MAX: usize = 8;

/// Everything that the processes need to start.
pub struct HostProcessStart<'a> {
    /// Directory to start in, if it exists on the host.
    pub directory: String,
    /// Variables for the processes.
    pub variables: Vec<(String, String)>,
    /// Returns the job, in the form that the command reads. It is called for each process when it starts, because
    /// processes that start later have less time left.
    pub job: &'a dyn Fn() -> Result<String>,
    /// Returns whether a line of standard output is the process's answer.
    pub is_answer: &'a dyn Fn(&str) -> bool,
}

/// Outcome of one host's process.
#[derive(Debug, Clone, Default)]
pub struct HostProcess {
    /// The process's answer, one line of its standard output.
    pub answer: Option<String>,
    /// The last lines that are not the answer.
    pub lines: VecDeque<String>,
    /// The first error on the process's standard error.
    pub error: Option<String>,
    /// How the process ended; `None` if unknown.
    pub exit: Option<RankExit>,
    /// Why no more messages came from the host.
    pub lost: Option<String>,
    /// When the last message came from the process's host.
    heard: Option<Instant>,
    /// When the process ended.
    ended: Option<Instant>,
}

impl HostProcess {
    fn is_over(&self) -> bool {
        let is_heard = |ended: Instant| self.answer.is_some() || ended.elapsed() > LAST_LINES;
        self.lost.is_some() || self.ended.is_some_and(is_heard)
    }

    fn print(&mut self, line: String, is_answer: bool) {
        if is_answer {
            self.answer = Some(line);
            return;
        }
        // Libraries print to standard output too, without limit.
        self.lines.push_back(line);
        if self.lines.len() > LINES_MAX {
            self.lines.pop_front();
        }
    }
}

impl RemoteHosts {
    /// Returns the host's own name if its agent is connected, and otherwise its name in the list.
    pub fn name_of(&self, host: usize) -> String {
        let mut hellos = self.hellos();
        let hello = hellos.find(|(known, hello)| *known == host && !hello.name.is_empty());
        let listed = self.members.get(host).map(|member| &member.name);
        let name = hello.map(|(_, hello)| &hello.name).or(listed);
        name.cloned().unwrap_or_default()
    }

    /// Starts a process on each host as soon as its agent is connected, independently of other hosts. Collects the
    /// output of all processes until they have ended or `until` has passed. `complain` gets the lines of their standard
    /// error. Afterwards, disconnects from the agents, which then end the remaining processes. Returns the hosts,
    /// with their names, and the outcomes.
    pub fn run_process_per_host(
        settings: SshSettings,
        hosts: &[HostSlots],
        start: &HostProcessStart<'_>,
        until: Instant,
        mut complain: impl FnMut(&str, &str),
    ) -> Result<(Self, Vec<HostProcess>)> {
        let secret = SecretText(generate_text()?);
        let mut party = Self::start(settings, hosts)?;
        let mut found = vec![HostProcess::default(); hosts.len()];
        while found.iter().any(|process| !process.is_over()) && Instant::now() < until {
            party.connect()?;
            party.start_on_connected(&mut found, start, &secret)?;
            let time = until.saturating_duration_since(Instant::now());
            if let Some((host, news)) = party.next_event(time.clamp(Duration::from_millis(1), LOOK))
            {
                match &mut found[host] {
                    process if process.heard.is_some() => {
                        process.heard = Some(Instant::now());
                        party.handle_event(host, news, process, start.is_answer, &mut complain);
                    }
                    _ => party.handle_first_event(host, news)?,
                }
            }
            let is_silent = |heard: Instant| heard.elapsed() > SILENCE;
            for process in &mut found {
                if !process.is_over() && process.heard.is_some_and(is_silent) {
                    process.lost = Some(format!(
                        "it was silent for {SILENCE:.1?}: is the host up, and its cable in?"
                    ));
                }
            }
        }
        party.close_finished(&found);
        Ok((party, found))
    }

    /// Starts processes on hosts with newly connected agents, and records the hosts without an agent.
    fn start_on_connected(
        &mut self,
        found: &mut [HostProcess],
        start: &HostProcessStart<'_>,
        secret: &SecretText,
    ) -> Result<()> {
        let there: Vec<usize> = self.hellos().map(|(host, _)| host).collect();
        let come = there.iter().filter(|host| found[**host].heard.is_none());
        let come: Vec<usize> = come.copied().collect();
        if !come.is_empty() {
            // Two independent processes on one machine would disturb each other.
            self.check_distinct_hosts(|one, other| {
                format!("{one} and {other} are one machine, and its checks would disturb each other: name it once")
            })?;
        }
        for host in come {
            // Orders must wait until the program has been copied, because both are sent to the agent's standard input.
            if self.members[host].is_ready() {
                self.members[host].send(&start_order(host, start, secret)?);
                found[host].heard = Some(Instant::now());
            }
        }
        for (member, process) in self.members.iter().zip(found) {
            if process.heard.is_none() && process.lost.is_none() {
                process.lost = member.lost().map(str::to_owned);
            }
        }
        Ok(())
    }

    fn handle_event(
        &mut self,
        host: usize,
        news: HostEvent,
        process: &mut HostProcess,
        is_answer: &dyn Fn(&str) -> bool,
        complain: &mut impl FnMut(&str, &str),
    ) {
        let member = &mut self.members[host];
        match news {
            HostEvent::Report(AgentReport::Line {
                is_error: false,
                text,
                ..
            }) => {
                let is_answer = is_answer(&text);
                process.print(text, is_answer);
            }
            HostEvent::Report(AgentReport::Line { text, .. }) => {
                complain(&member.name, &text);
                if let (None, Some(error)) = (&process.error, text.strip_prefix("error: ")) {
                    process.error = Some(error.to_owned());
                }
            }
            HostEvent::Report(AgentReport::Ended { exit, .. }) => {
                process.exit = Some(exit);
                process.ended = Some(Instant::now());
            }
            HostEvent::Report(AgentReport::Failed { message, .. }) => process.lost = Some(message),
            HostEvent::Closed if !process.is_over() => {
                process.lost = Some(format!("its ssh {}", member.end_with_last_line()));
            }
            HostEvent::Complaint(line) => member.said.push(line),
            HostEvent::Report(_)
            | HostEvent::Noise(_)
            | HostEvent::Pushed(_)
            | HostEvent::Closed => {}
        }
    }

    /// Disconnects from all agents. An ssh that does not exit in time is killed.
    fn close_finished(&mut self, found: &[HostProcess]) {
        let since = Instant::now();
        self.close_all();
        for (member, process) in self.members.iter_mut().zip(found) {
            if let Some(mut connection) = member.connection.take() {
                let is_fine = process.exit.is_some();
                let time = if is_fine { END_TIME } else { Duration::ZERO };
                connection.end(time.saturating_sub(since.elapsed()));
            }
        }
    }
}

/// Returns the order that starts an independent process. The process gets a rank other than 0, so that it need not
/// listen for other ranks.
fn start_order(
    host: usize,
    start: &HostProcessStart<'_>,
    secret: &SecretText,
) -> Result<AgentOrder> {
    let place = u32::try_from(host).unwrap_or(u32::MAX - 2);
    Ok(AgentOrder::Start(Box::new(StartOrder {
        first: place + 1,
        count: 1,
        size: place + 2,
        secret: secret.clone(),
        meeting: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        directory: start.directory.clone(),
        needs_directory: false,
        variables: start.variables.clone(),
        job: (start.job)()?,
        root_job: None,
    })))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Libraries may print lines before the process prints its answer. On a busy host, the exit may be reported before
    /// these lines arrive. The process is over only when both the answer and the exit have arrived.
    #[test]
    fn a_process_is_over_with_its_answer_whatever_else_it_prints() {
        let mut process = HostProcess::default();
        for number in 0..100 {
            process.print(format!("a library's line {number}"), false);
        }
        assert_eq!(process.lines.len(), LINES_MAX);
        assert_eq!(process.lines.back().unwrap(), "a library's line 99");
        process.ended = Some(Instant::now());
        assert!(!process.is_over());
        process.print("the answer".to_owned(), true);
        assert!(process.is_over());
        // The wait for an answer is limited.
        process.answer = None;
        process.ended = Instant::now().checked_sub(LAST_LINES * 2);
        assert!(process.is_over());
    }
}
