//! A process on each host that has nothing to do with those on the others: none waits for another, and the end of one
//! ends no other.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use super::agent::SILENCE;
use super::connection::HostNews;
use super::party::Party;
use super::words::{AgentOrder, AgentReport, SecretText, StartOrder};
use crate::bootstrap::secret::generate_text;
use crate::spawn::RankExit;
use tonnage_units::Result;

/// Time for all ssh to end by themselves once their processes have ended.
const END_TIME: Duration = Duration::from_millis(300);

/// Time for the lines of a process that has ended and has printed none: on a busy host they come after its end.
const LAST_LINES: Duration = Duration::from_millis(1500);

/// Longest time between two looks.
const LOOK: Duration = Duration::from_millis(100);

/// Everything that the processes need to start.
#[derive(Debug)]
pub struct ApartStart {
    /// Directory to start in, where a host has it.
    pub directory: String,
    /// Variables for the processes.
    pub variables: Vec<(String, String)>,
    /// The job, as the command reads it.
    pub job: String,
}

/// Fate of the process of one host.
#[derive(Debug, Clone, Default)]
pub struct ApartProcess {
    /// Lines of its standard output.
    pub lines: Vec<String>,
    /// The first line of its standard error that tells of an error.
    pub error: Option<String>,
    /// Its end; `None` where nobody has seen that.
    pub exit: Option<RankExit>,
    /// Reason why nothing more came from the host.
    pub lost: Option<String>,
    /// Moment at which its host was last heard.
    heard: Option<Instant>,
    /// Moment at which its end was.
    ended: Option<Instant>,
}

impl ApartProcess {
    fn is_over(&self) -> bool {
        let is_heard = |ended: Instant| !self.lines.is_empty() || ended.elapsed() > LAST_LINES;
        self.lost.is_some() || self.ended.is_some_and(is_heard)
    }

    fn is_silent(&self) -> bool {
        self.heard.is_some_and(|heard| heard.elapsed() > SILENCE)
    }
}

impl Party {
    /// The host's own name, where its agent is there; else its name in the list.
    pub fn name_of(&self, host: usize) -> String {
        let mut hellos = self.hellos();
        let hello = hellos.find(|(known, hello)| *known == host && !hello.name.is_empty());
        let listed = || self.members.get(host).map(|member| member.name.clone());
        hello.map_or_else(
            || listed().unwrap_or_default(),
            |(_, hello)| hello.name.clone(),
        )
    }

    /// Starts a process on each host, and hears all of them until they have ended or it is late; `complain` gets what
    /// they print to standard error. Then the agents are let go, which end whatever still runs.
    ///
    /// # Errors
    /// When the system gives no random bytes.
    pub fn run_apart(
        &mut self,
        start: &ApartStart,
        until: Instant,
        mut complain: impl FnMut(&str, &str),
    ) -> Result<Vec<ApartProcess>> {
        let secret = SecretText(generate_text()?);
        let mut found = vec![ApartProcess::default(); self.members.len()];
        for (host, process) in found.iter_mut().enumerate() {
            if let Some(why) = self.lost(host) {
                process.lost = Some(why.to_owned());
                continue;
            }
            self.members[host].send(&order(host, start, &secret));
            process.heard = Some(Instant::now());
        }
        while found.iter().any(|process| !process.is_over()) && Instant::now() < until {
            let time = until.saturating_duration_since(Instant::now());
            if let Some((host, news)) = self.hear(time.clamp(Duration::from_millis(1), LOOK)) {
                found[host].heard = Some(Instant::now());
                self.take(host, news, &mut found[host], &mut complain);
            }
            for process in &mut found {
                if !process.is_over() && process.is_silent() {
                    process.lost = Some(format!("it was silent for {SILENCE:.1?}"));
                }
            }
        }
        self.let_go(&found);
        Ok(found)
    }

    fn take(
        &mut self,
        host: usize,
        news: HostNews,
        process: &mut ApartProcess,
        complain: &mut impl FnMut(&str, &str),
    ) {
        match news {
            HostNews::Report(AgentReport::Line { is_error, text, .. }) => match is_error {
                false => process.lines.push(text),
                true => {
                    complain(&self.members[host].name, &text);
                    if let (None, Some(error)) = (&process.error, text.strip_prefix("error: ")) {
                        process.error = Some(error.to_owned());
                    }
                }
            },
            HostNews::Report(AgentReport::Ended { exit, .. }) => {
                process.exit = Some(exit);
                process.ended = Some(Instant::now());
            }
            HostNews::Report(AgentReport::Failed { message, .. }) => process.lost = Some(message),
            HostNews::Closed if !process.is_over() => {
                let ended = self.members[host].end();
                let said = self.members[host].said.last();
                let said = said.map_or(String::new(), |line| format!(" ({line})"));
                process.lost = Some(format!("its ssh {ended}{said}"));
            }
            HostNews::Complaint(line) => self.members[host].said.push(line),
            HostNews::Report(_) | HostNews::Noise(_) | HostNews::Pushed(_) | HostNews::Closed => {}
        }
    }

    /// Lets all agents go. An ssh whose other end is late is ended.
    fn let_go(&mut self, found: &[ApartProcess]) {
        let since = Instant::now();
        for member in &mut self.members {
            if let Some(connection) = &mut member.connection {
                connection.close();
            }
        }
        for (member, process) in self.members.iter_mut().zip(found) {
            if let Some(mut connection) = member.connection.take() {
                let is_fine = process.exit.is_some();
                let time = if is_fine { END_TIME } else { Duration::ZERO };
                connection.end(time.saturating_sub(since.elapsed()));
            }
        }
    }
}

/// The order for a process that is rank of no run: it is not the first, so that nobody listens for others.
fn order(host: usize, start: &ApartStart, secret: &SecretText) -> AgentOrder {
    let place = u32::try_from(host).unwrap_or(u32::MAX - 2);
    AgentOrder::Start(Box::new(StartOrder {
        first: place + 1,
        count: 1,
        size: place + 2,
        secret: secret.clone(),
        meeting: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        directory: start.directory.clone(),
        needs_directory: false,
        variables: start.variables.clone(),
        job: start.job.clone(),
        root_job: None,
    }))
}
