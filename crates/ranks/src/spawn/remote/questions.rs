//! Requests to the agents. They find the ranks' meeting place, describe hosts, and measure the offsets of clocks.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use super::agent::{PULSE, unix_ns};
use super::connection::HostEvent;
use super::hosts::RemoteHosts;
use super::meeting::{candidate_addresses, first_reached_by_all};
use super::messages::{AgentHello, AgentOrder, AgentReport};
use crate::bootstrap::secret::generate_text;
use crate::bootstrap::variables::{Env, read_port};
use tonnage_units::{Error, Result};

/// Longest time for one answer of an agent.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest time for the answer to a trial, which itself takes at most two seconds on the host.
const TRIAL_TIMEOUT: Duration = Duration::from_millis(2400);

impl RemoteHosts {
    /// Finds an address at which all other hosts can reach rank 0, which runs on the first connected host. Makes the
    /// agent of that host listen there.
    pub fn find_meeting_address(
        &mut self,
        env: Env<'_>,
        interface: Option<&str>,
    ) -> Result<SocketAddr> {
        let port = read_port(env, "TONNAGE_PORT")?.unwrap_or(0);
        let (hosts, hellos): (Vec<usize>, Vec<&AgentHello>) = self.hellos().unzip();
        let (Some((&root, others)), Some((root_hello, other_hellos))) =
            (hosts.split_first(), hellos.split_first())
        else {
            return Err(Error::Failed("no host has an agent".into()));
        };
        let addresses = if others.is_empty() && interface.is_none() {
            vec![Ipv4Addr::LOCALHOST.into()]
        } else {
            candidate_addresses(root_hello, other_hellos)
        };
        let token = generate_text()?;
        let order = AgentOrder::Listen {
            addresses,
            interface: interface.map(str::to_owned),
            port,
            token: token.clone(),
        };
        let listening = self.ask_hosts(&[root], &order, ANSWER_TIMEOUT, |report| match report {
            AgentReport::Listening { addresses } => Some(addresses),
            _ => None,
        });
        let addresses = listening.into_iter().next().unwrap_or(Ok(Vec::new()))?;
        // The likeliest address is tried alone first, because an address that does not answer costs the full timeout.
        let (first, rest) = addresses.split_at(addresses.len().min(1));
        let mut failed = None;
        for some in [first, rest] {
            if some.is_empty() {
                continue;
            }
            match self.try_addresses(others, some, &token)? {
                Ok(address) => return Ok(address),
                Err(failure) => failed = failed.or(Some(failure)),
            }
        }
        Err(failed.unwrap_or_else(|| {
            Error::Failed(format!("{} listens nowhere", self.members[root].name))
        }))
    }

    /// Makes all other hosts try these addresses. The inner error names a host that cannot reach any of them.
    fn try_addresses(
        &mut self,
        others: &[usize],
        some: &[SocketAddr],
        token: &str,
    ) -> Result<Result<SocketAddr>> {
        let order = AgentOrder::Try {
            addresses: some.to_vec(),
            token: token.to_owned(),
        };
        let tried = self.ask_hosts(others, &order, TRIAL_TIMEOUT, |report| match report {
            AgentReport::Tried { failures } => Some(failures),
            _ => None,
        });
        let tried = tried.into_iter().collect::<Result<Vec<_>>>()?;
        let place = match first_reached_by_all(some, &tried) {
            Ok(address) => return Ok(Ok(address)),
            Err(place) => place,
        };
        let name = |host: Option<&usize>| host.map_or("?", |host| &*self.members[*host].name);
        let failures = tried.get(place).into_iter().flatten();
        let each: Vec<String> = (some.iter().zip(failures))
            .map(|(address, why)| {
                let why = why.as_deref().unwrap_or("reached, but not by all");
                format!("{address} ({why})")
            })
            .collect();
        let root = self.hellos().next().map_or("?", |(_, hello)| &hello.name);
        Ok(Err(Error::Failed(format!(
            "{} cannot reach rank 0 on {root} at {}: let TCP connections between the hosts pass, choose the port that a \
             firewall lets pass with TONNAGE_PORT, or another network with --control-interface NAME",
            name(others.get(place)),
            each.join(", ")
        ))))
    }

    /// Sends an order to these hosts, and waits for the reports that `pick` accepts.
    pub(super) fn ask_hosts<T>(
        &mut self,
        hosts: &[usize],
        order: &AgentOrder,
        time: Duration,
        pick: impl Fn(AgentReport) -> Option<T>,
    ) -> Vec<Result<T>> {
        for host in hosts {
            self.members[*host].send(order);
        }
        // Hosts without an agent do not answer.
        let lost = |host: &usize| Some(Err(Error::Failed(self.lost(*host)?.to_owned())));
        let mut answers: Vec<Option<Result<T>>> = hosts.iter().map(lost).collect();
        let until = Instant::now() + time;
        while answers.iter().any(Option::is_none) && Instant::now() < until {
            let time = until.saturating_duration_since(Instant::now());
            let Some((host, heard)) = self.next_event(time.clamp(Duration::from_millis(1), PULSE))
            else {
                continue;
            };
            let member = &mut self.members[host];
            let answer = match heard {
                HostEvent::Report(AgentReport::Failed { message, is_usage }) => {
                    let text = format!("{}: {message}", member.name);
                    let kind = if is_usage {
                        Error::Usage
                    } else {
                        Error::Failed
                    };
                    Some(Err(kind(text)))
                }
                HostEvent::Report(report) => pick(report).map(Ok),
                HostEvent::Closed => {
                    let ended = member.end();
                    member.mark_lost(|member| format!("{}: ssh {ended}", member.name));
                    Some(Err(Error::Failed(format!("{}: ssh {ended}", member.name))))
                }
                HostEvent::Complaint(line) | HostEvent::Noise(line) => {
                    member.said.push(line);
                    None
                }
                HostEvent::Pushed(_) => None,
            };
            let place = hosts.iter().position(|asked| *asked == host);
            if let (Some(answer), Some(place)) = (answer, place) {
                answers[place] = Some(answer);
            }
        }
        let late = |host: usize| {
            Error::Failed(format!(
                "{}: no answer within {time:.1?}: is the host busy, or the way to it cut?",
                self.members[host].name
            ))
        };
        let each = answers.into_iter().zip(hosts);
        each.map(|(answer, host)| answer.unwrap_or_else(|| Err(late(*host))))
            .collect()
    }

    /// Measures the clocks of these hosts, one after the other. Returns by how many nanoseconds each is ahead of this
    /// host's clock, and the largest possible error.
    pub fn measure_clocks(&mut self, hosts: &[usize]) -> Vec<Option<(i64, u64)>> {
        let ask_one = |host: &usize| {
            let (before, since) = (unix_ns(), Instant::now());
            let order = AgentOrder::Clock;
            let told = self.ask_hosts(&[*host], &order, ANSWER_TIMEOUT, |report| match report {
                AgentReport::Clock { unix_ns } => Some(unix_ns),
                _ => None,
            });
            let half = since.elapsed().as_nanos() as u64 / 2;
            let there = told.into_iter().next()?.ok()?;
            Some((there.wrapping_sub(before + half).cast_signed(), half))
        };
        hosts.iter().map(ask_one).collect()
    }

    /// Returns descriptions of these hosts, as formatted by the programs there.
    pub fn describe_hosts(&mut self, hosts: &[usize]) -> Vec<Result<String>> {
        let order = AgentOrder::Describe;
        self.ask_hosts(hosts, &order, ANSWER_TIMEOUT, |report| match report {
            AgentReport::Described { text } => Some(text),
            _ => None,
        })
    }
}
