//! Rank 0's side of joining. Each peer that has the secret introduces itself, rank 0 checks that it fits the run, and
//! assigns its parent.
//!
//! The side of the other ranks is in [`super::membership`]. Unauthenticated connections are in [`super::handshake`].

use std::collections::{HashMap, HashSet};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use super::address::root_listener;
use super::handshake::{
    Handshakes, MARGIN, STRANGERS_MAX, acknowledge, end_cause_of_peer, send_end_cause,
};
use super::late_join::LateJoinListener;
use super::open_files;
use super::refusals::JoinRefusal;
use super::wait_notice::WaitNotice;
use super::{JoinBytes, Joiner, RankFailure};
use crate::RankInfo;
use crate::channel::message::{EndCause, Hello, MessageHead, Welcome};
use crate::channel::{Channel, Interest};
use crate::shared_cpu_time::ranks_per_cpu;
use crate::signals::{Signals, with_interrupted_rank};
use crate::tree::shape::{PeerConnection, TreePosition, children_of, message_bytes_max, parent_of};
use crate::tree::watch::LinkWatch;
use tonnage_units::identity::Meeting;
use tonnage_units::message::print_message;
use tonnage_units::number_list;
use tonnage_units::{Error, Result};

/// Time for which late ranks still get the reason why the start failed.
const LATECOMERS: Duration = Duration::from_secs(1);

/// A rank that has introduced itself to rank 0.
struct AdmittedMember {
    channel: Channel,
    hello: Hello,
}

/// Conditions for taking part in a run, which rank 0 compares with each rank's introduction.
#[derive(Debug)]
pub(crate) struct AdmissionConditions {
    pub(crate) me: RankInfo,
    pub(crate) size: u32,
    /// Source of the number of ranks, such as a launcher's variables.
    pub(crate) source: String,
    pub(crate) plan_hash: String,
}

impl AdmissionConditions {
    /// Returns why this rank cannot join; `None` if it can. `twin` is a rank with the same number that has already
    /// joined.
    pub(crate) fn objection(&self, twin: Option<&RankInfo>, hello: &Hello) -> Option<Error> {
        let me = &self.me;
        let info = &hello.info;
        let twin = twin.or((info.rank == 0).then_some(me));
        let message = if hello.version != env!("CARGO_PKG_VERSION") {
            format!(
                "it is tonnage {}, rank 0 on {} is tonnage {}: install the same version on all hosts",
                hello.version,
                me.host,
                env!("CARGO_PKG_VERSION")
            )
        } else if hello.size != self.size || info.rank >= self.size {
            format!(
                "it expects {} ranks, rank 0 on {} expects {} ({}): start all with the same number",
                hello.size, me.host, self.size, self.source
            )
        } else if let Some(twin) = twin {
            format!(
                "process {} says that it is rank {}, but so does process {} on {}: give every process its own rank",
                info.pid, info.rank, twin.pid, twin.host
            )
        } else if hello.plan_hash != self.plan_hash {
            format!(
                "it was started with another command line or plan than rank 0 on {}: start all ranks with the same arguments",
                me.host
            )
        } else {
            return None;
        };
        Some(info.failure(message))
    }
}

/// Joins as rank 0 of several ranks. Without a `listener`, it opens one.
pub(super) fn admit(
    joiner: Joiner<'_>,
    listener: Option<TcpListener>,
    signals: &mut Signals,
) -> Result<TreePosition, RankFailure> {
    let Joiner {
        identity,
        me,
        options,
    } = joiner;
    let listener = match listener {
        Some(listener) => listener,
        None => root_listener(joiner, signals)?,
    };
    let connections_max = STRANGERS_MAX + identity.size as usize;
    let mut handshakes = Handshakes::new(listener, options, connections_max)?;
    let conditions = AdmissionConditions {
        me: me.clone(),
        size: identity.size,
        source: identity.source.clone(),
        plan_hash: options.plan_hash.clone(),
    };
    // Ranks that the supervisor starts are never late.
    let has_latecomers = matches!(identity.meeting, Meeting::Master { .. });
    let mut members = Vec::new();
    if let Err(error) = open_files::ensure_open_files(me, identity.size - 1) {
        let mut failure = RankFailure::from(error);
        // Under a supervisor, it is enough that rank 0 ends. A launcher's late ranks would wait for rank 0 to start, so
        // they are sent the reason.
        if has_latecomers {
            failure = print_join_failure(failure.error, joiner);
            let cause = me.failure_cause(&failure.error);
            tell_latecomers(&mut handshakes, signals, &cause, identity.size as usize);
        }
        handshakes.close();
        return Err(failure);
    }
    let outcome = gather_members(joiner, &conditions, signals, &mut handshakes, &mut members)
        .and_then(|()| assign_parents(joiner, &mut members))
        .map_err(|error| print_join_failure(error, joiner));
    if let Err(failure) = &outcome {
        let cause = me.failure_cause(&failure.error);
        for member in &mut members {
            send_end_cause(&mut member.channel, &cause);
        }
        let absent = identity.size as usize - members.len();
        tell_latecomers(&mut handshakes, signals, &cause, absent);
    }
    let door = if outcome.is_ok() && has_latecomers {
        Some(LateJoinListener::new(handshakes, conditions))
    } else {
        handshakes.close();
        None
    };
    let ranks_per_cpu = outcome?;
    let channels = || members.iter().map(|member| &member.channel);
    let bytes = JoinBytes {
        got: channels().map(|channel| channel.taken_bytes).sum(),
        said: channels().map(|channel| channel.queued_bytes).sum(),
        ..JoinBytes::default()
    };
    let mut table = vec![me.clone()];
    table.extend(members.iter().map(|member| member.hello.info.clone()));
    let direct = children_of(0, identity.size, options.fanout);
    let children = members
        .into_iter()
        .filter(|member| direct.contains(&member.hello.info.rank))
        .map(|member| PeerConnection {
            channel: member.channel,
            info: member.hello.info,
        });
    Ok(TreePosition {
        parent: None,
        children: children.collect(),
        table,
        door,
        has_roots_clock: true,
        ranks_per_cpu,
        bytes,
    })
}

/// Prints a failure to join before the other ranks learn about it. When they learn about it, they end without a
/// message, and a launcher may kill this process as soon as one rank has ended. If this process may not be ended here,
/// the caller prints the failure instead.
fn print_join_failure(error: Error, joiner: Joiner<'_>) -> RankFailure {
    let error = with_interrupted_rank(error, joiner.me.rank, &joiner.me.host);
    let is_told = joiner.options.end_process;
    if is_told {
        print_message(&format!("error: {error}"));
    }
    RankFailure { error, is_told }
}

/// Sends the reason why the run cannot start to ranks that arrive within the next second.
fn tell_latecomers(
    handshakes: &mut Handshakes,
    signals: &mut Signals,
    cause: &EndCause,
    expected: usize,
) {
    let until = Instant::now() + LATECOMERS;
    let mut told = 1;
    while told < expected && Instant::now() < until {
        let Ok(events) = handshakes.step(until, signals, None) else {
            return;
        };
        for (mut channel, _) in events.greeted {
            send_end_cause(&mut channel, cause);
            told += 1;
        }
    }
}

fn gather_members(
    joiner: Joiner<'_>,
    conditions: &AdmissionConditions,
    signals: &mut Signals,
    handshakes: &mut Handshakes,
    members: &mut Vec<AdmittedMember>,
) -> Result<()> {
    let size = joiner.identity.size;
    let deadline = Instant::now() + joiner.options.join_timeout;
    // Members send nothing unless they end. With epoll, the arrival of another rank costs nothing per member.
    let watch = LinkWatch::new()?;
    // Index of each rank in `members`.
    let mut places = HashMap::new();
    let mut notice = WaitNotice::new(deadline);
    while members.len() + 1 < size as usize {
        if Instant::now() >= deadline {
            return Err(missing_ranks_error(joiner, handshakes, members));
        }
        notice.print_if_due(|| {
            let absent = absent_ranks(size, members);
            let place = handshakes.address();
            let place = place.map_or_else(String::new, |address| format!(" at {address}"));
            format!("{} of {size}{place}", ranks_in_words(&absent))
        });
        let until = notice.due();
        let events = handshakes.step(until, signals, Some(Interest::read(&watch.gate)))?;
        let mut misfit = None;
        for (mut channel, message) in events.greeted {
            let MessageHead::Hello(hello) = message.head else {
                let error = Error::Failed("its first message was not an introduction".into());
                handshakes.refuse(channel.peer, &JoinRefusal::Stranger(error));
                continue;
            };
            let twin = places.get(&hello.info.rank);
            let twin = twin.map(|place: &usize| &members[*place].hello.info);
            let objection = conditions.objection(twin, &hello);
            places.entry(hello.info.rank).or_insert(members.len());
            channel.raise_message_max(message_bytes_max(size));
            if objection.is_none() {
                acknowledge(&mut channel)?;
            }
            watch.add(members.len(), &channel, channel.peer)?;
            members.push(AdmittedMember {
                channel,
                hello: *hello,
            });
            misfit = misfit.or(objection);
        }
        // The error is returned only after all arrived ranks have been added, so that they all get the reason.
        misfit.map_or(Ok(()), Err)?;
        if events.stirred {
            for place in watch.ready(Duration::ZERO)? {
                let AdmittedMember { channel, hello } = &mut members[place];
                if channel.receive().is_err() || channel.ended {
                    return Err(end_cause_of_peer(channel, &hello.info));
                }
            }
        }
    }
    members.sort_by_key(|member| member.hello.info.rank);
    Ok(())
}

/// Returns the ranks that have not introduced themselves yet.
fn absent_ranks(size: u32, members: &[AdmittedMember]) -> Vec<u32> {
    let here: HashSet<u32> = (members.iter().map(|member| member.hello.info.rank)).collect();
    (1..size).filter(|rank| !here.contains(rank)).collect()
}

/// Formats ranks as `rank 1` or `ranks 1-3,5`.
fn ranks_in_words(ranks: &[u32]) -> String {
    let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
    format!("{noun} {}", number_list::format(ranks))
}

fn missing_ranks_error(
    joiner: Joiner<'_>,
    handshakes: &Handshakes,
    members: &[AdmittedMember],
) -> Error {
    let Joiner { identity, me, .. } = joiner;
    let absent = absent_ranks(identity.size, members);
    Error::Rank {
        rank: absent.first().copied().unwrap_or_default(),
        host: match identity.meeting {
            // The supervisor of rank 0 starts all ranks on this host.
            Meeting::Local { .. } => me.host.to_string(),
            _ => "unknown host".into(),
        },
        message: format!(
            "{} of {} did not come within {:.0?} to rank 0 on {}.{} Look at the output of those ranks; to wait longer, \
             set e.g. TONNAGE_JOIN_TIMEOUT=300 (seconds)",
            ranks_in_words(&absent),
            identity.size,
            joiner.options.join_timeout,
            me.host,
            handshakes.refusals.describe()
        ),
    }
}

/// Sends every member its parent, and the number of ranks on the most crowded CPU of all hosts. Returns this number.
fn assign_parents(joiner: Joiner<'_>, members: &mut [AdmittedMember]) -> Result<u32> {
    let Joiner { me, options, .. } = joiner;
    let others = members.iter().map(|member| {
        // A rank that does not know its CPUs counts as no load.
        let cpus = number_list::parse(&member.hello.cpus).unwrap_or_default();
        (&member.hello.info, cpus)
    });
    let ranks_per_cpu = ranks_per_cpu(std::iter::once((me, options.cpus.clone())).chain(others));
    let places: Vec<_> = members
        .iter()
        .map(|member| (member.hello.info.clone(), member.hello.listen))
        .collect();
    for member in members {
        let rank = member.hello.info.rank;
        let (parent, address) = match parent_of(rank, options.fanout) {
            0 => (me.clone(), None),
            parent => places
                .binary_search_by_key(&parent, |(info, _)| info.rank)
                .ok()
                .map(|place| places[place].clone())
                .filter(|(_, listen)| listen.is_some())
                .ok_or_else(|| {
                    let size = joiner.identity.size;
                    Error::Failed(format!(
                        "rank {parent} of {size} does not listen for rank {rank}"
                    ))
                })?,
        };
        let welcome = Welcome {
            parent,
            address,
            root_clock: options.clock_name(),
            ranks_per_cpu,
        };
        let channel = &mut member.channel;
        channel.send(&MessageHead::Welcome(Box::new(welcome)), &[])?;
        channel.flush_until(Instant::now() + MARGIN);
        if address.is_some() {
            channel.finish_writing();
        }
    }
    Ok(ranks_per_cpu)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::RECEIVES;
    use crate::join::connection::Listener;
    use crate::join::introduction::introduce_until_confirmed;
    use crate::testing::{door, identity, options, start};

    /// Reading from every joined rank each time another rank arrives would take thousands of reads.
    #[test]
    fn rank_0_reads_only_ready_connections() {
        const RANKS: u32 = 60;
        let (listener, address) = door();
        let zero = start(
            0,
            RANKS,
            (Some(listener), address),
            |_| {},
            |rank| (rank.unwrap_err().to_string(), RECEIVES.get()),
        );
        // The ranks arrive one after the other. The last one has a different plan, which ends the run.
        let come = |rank: u32| {
            let identity = identity(rank, RANKS, address);
            let options = options(&identity);
            let root = Listener {
                rank: 0,
                host: None,
                meeting: identity.meeting.clone(),
            };
            let me = options.info(&identity);
            let hello = Hello {
                info: me.clone(),
                size: RANKS,
                version: env!("CARGO_PKG_VERSION").to_owned(),
                plan_hash: if rank == RANKS - 1 {
                    "other"
                } else {
                    &options.plan_hash
                }
                .into(),
                listen: None,
                cpus: "0".into(),
            };
            let joiner = Joiner {
                identity: &identity,
                me: &me,
                options: &options,
            };
            introduce_until_confirmed(&root, joiner, &mut Signals::none(), |_| {
                Ok(MessageHead::Hello(Box::new(hello.clone())))
            })
        };
        let came: Vec<_> = (1..RANKS).map(come).collect();
        assert_eq!(came.iter().filter(|came| came.is_ok()).count(), 58);
        let (error, receives) = zero.join().unwrap();
        assert!(error.contains("another command line"), "{error}");
        // Each rank's handshake and introduction are read, possibly in pieces.
        let ranks = RANKS as usize;
        assert!((2 * ranks..6 * ranks).contains(&receives), "{receives}");
    }
}
