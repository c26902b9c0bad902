//! Rank 0's side of joining: whoever knows the secret says who it is, is compared with the run, and is told its parent.
//!
//! The others' side is in [`super::membership`], strangers in [`super::handshake`].

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::time::{Duration, Instant};

use super::address::root_listener;
use super::bytes::JoinBytes;
use super::conditions::Conditions;
use super::crowd::Crowd;
use super::door::LateDoor;
use super::failure::JoinFailure;
use super::handshake::{Handshakes, MARGIN, STRANGERS_MAX, acknowledge, last_words, tell};
use super::open_files;
use super::refusals::JoinRefusal;
use crate::RankInfo;
use crate::bootstrap::options::JoinOptions;
use crate::channel::Channel;
use crate::channel::message::{Cause, Head, Hello, Welcome};
use crate::patience::ranks_per_cpu;
use crate::signals::{Signals, received_by};
use crate::tree::shape::{PeerConnection, TreePosition, children_of, message_bytes_max, parent_of};
use tonnage_units::identity::{Identity, Meeting};
use tonnage_units::message::say;
use tonnage_units::number_list;
use tonnage_units::{Error, Result};

/// Length of time in which late ranks are still told why the run failed.
const LATECOMERS: Duration = Duration::from_secs(1);

/// A rank that has introduced itself to rank 0.
struct Member {
    channel: Channel,
    hello: Hello,
}

/// Joins as rank 0 of several ranks.
pub(crate) fn admit(
    identity: &Identity,
    me: &RankInfo,
    options: &mut JoinOptions,
    signals: &mut Signals,
) -> Result<TreePosition, JoinFailure> {
    let listener = root_listener(identity, options, signals)?;
    let connections_max = STRANGERS_MAX + identity.size as usize;
    let mut handshakes = Handshakes::new(
        listener,
        options.secret.clone(),
        connections_max,
        options.stranger_timeout,
    )?;
    let conditions = Conditions {
        me: me.clone(),
        size: identity.size,
        source: identity.source.clone(),
        plan_hash: options.plan_hash.clone(),
    };
    let mut members = Vec::new();
    if let Err(error) = open_files::provide(me, identity.size - 1) {
        // Of a rank 0 that a supervisor started, the end tells enough; those of a launcher would wait for its start.
        if matches!(identity.meeting, Meeting::Master { .. }) {
            let failure = announced(error, me, options);
            let cause = Cause::of(&failure.error, 0, &me.host);
            tell_latecomers(&mut handshakes, signals, &cause, identity.size as usize);
            handshakes.close();
            return Err(failure);
        }
        handshakes.close();
        return Err(error.into());
    }
    let outcome = gather_members(
        identity,
        &conditions,
        options,
        signals,
        &mut handshakes,
        &mut members,
    )
    .and_then(|()| assign_parents(identity, me, options, &mut members))
    .map_err(|error| announced(error, me, options));
    if let Err(failure) = &outcome {
        let cause = Cause::of(&failure.error, 0, &me.host);
        for member in &mut members {
            tell(&mut member.channel, &cause);
        }
        tell_latecomers(
            &mut handshakes,
            signals,
            &cause,
            identity.size as usize - members.len(),
        );
    }
    let door = match (&outcome, &identity.meeting) {
        (Ok(_), Meeting::Master { .. }) => Some(LateDoor::new(handshakes, conditions)),
        // Who was started by the supervisor, or failed to start, has no latecomers.
        _ => {
            handshakes.close();
            None
        }
    };
    let ranks_per_cpu = outcome?;
    let direct = children_of(0, identity.size, options.fanout);
    Ok(position(me, direct, members, door, ranks_per_cpu))
}

/// Failure to join that is said before the others are told of it: they end without a word then, and a launcher may kill
/// this process as soon as one of them has ended. A process that may not be ended here says it itself.
fn announced(error: Error, me: &RankInfo, options: &JoinOptions) -> JoinFailure {
    let error = received_by(error, me.rank, &me.host);
    match options.end_process {
        true => {
            say(&format!("error: {error}"));
            JoinFailure::told(error)
        }
        false => error.into(),
    }
}

/// The place of rank 0 in the tree of a run that is complete.
fn position(
    me: &RankInfo,
    direct: Range<u32>,
    members: Vec<Member>,
    door: Option<LateDoor>,
    ranks_per_cpu: u32,
) -> TreePosition {
    let channels = || members.iter().map(|member| &member.channel);
    let bytes = JoinBytes {
        got: channels().map(Channel::understood_bytes).sum(),
        said: channels().map(Channel::said_bytes).sum(),
        ..JoinBytes::default()
    };
    let mut table = vec![me.clone()];
    table.extend(members.iter().map(|member| member.hello.info.clone()));
    let children = members
        .into_iter()
        .filter(|member| direct.contains(&member.hello.info.rank))
        .map(|member| PeerConnection {
            channel: member.channel,
            info: member.hello.info,
        })
        .collect();
    TreePosition {
        parent: None,
        children,
        table,
        door,
        has_roots_clock: true,
        ranks_per_cpu,
        bytes,
    }
}

/// Number of ranks of the most crowded CPU of all hosts.
fn crowding(me: &RankInfo, options: &JoinOptions, members: &[Member]) -> u32 {
    let others = members.iter().map(|member| {
        // A rank that does not know its CPUs adds no load.
        let cpus = number_list::parse(&member.hello.cpus).unwrap_or_default();
        (&member.hello.info, cpus)
    });
    ranks_per_cpu(std::iter::once((me, options.cpus.clone())).chain(others))
}

/// Tells ranks that come a moment later why the run cannot start.
fn tell_latecomers(
    handshakes: &mut Handshakes,
    signals: &mut Signals,
    cause: &Cause,
    expected: usize,
) {
    let until = Instant::now() + LATECOMERS;
    let mut told = 1;
    while told < expected && Instant::now() < until {
        let Ok(events) = handshakes.step(until, signals, None) else {
            return;
        };
        for (mut channel, _) in events.greeted {
            tell(&mut channel, cause);
            told += 1;
        }
    }
}

fn gather_members(
    identity: &Identity,
    conditions: &Conditions,
    options: &JoinOptions,
    signals: &mut Signals,
    handshakes: &mut Handshakes,
    members: &mut Vec<Member>,
) -> Result<()> {
    let deadline = Instant::now() + options.join_timeout;
    let mut crowd = Crowd::new()?;
    // Places of the ranks among the members.
    let mut places = HashMap::new();
    while members.len() + 1 < identity.size as usize {
        if Instant::now() >= deadline {
            let me = &conditions.me;
            return Err(missing(identity, me, options, handshakes, members));
        }
        let events = handshakes.step(deadline, signals, Some(crowd.interest()))?;
        let mut misfit = None;
        for (mut channel, message) in events.greeted {
            match message.head {
                Head::Hello(hello) => {
                    let twin = places.get(&hello.info.rank).and_then(|at| members.get(*at));
                    let twin = twin.map(|member: &Member| &member.hello.info);
                    let objection = conditions.objection(twin, &hello);
                    places.entry(hello.info.rank).or_insert(members.len());
                    channel.trust(message_bytes_max(identity.size));
                    if objection.is_none() {
                        acknowledge(&mut channel)?;
                    }
                    crowd.add(&channel)?;
                    members.push(Member {
                        channel,
                        hello: *hello,
                    });
                    misfit = misfit.or(objection);
                }
                _ => {
                    let error = Error::Failed("it said no hello".into());
                    handshakes.refuse(channel.peer(), &JoinRefusal::Stranger(error));
                }
            }
        }
        // Only now, because those who came together with it are to hear the reason too.
        misfit.map_or(Ok(()), Err)?;
        let stirred = if events.stirred {
            crowd.stirred()?
        } else {
            Vec::new()
        };
        for place in stirred {
            let Some(Member { channel, hello }) = members.get_mut(place) else {
                continue;
            };
            if channel.receive().is_err() || channel.ended() {
                return Err(last_words(channel, &hello.info));
            }
        }
    }
    members.sort_by_key(|member| member.hello.info.rank);
    Ok(())
}

fn missing(
    identity: &Identity,
    me: &RankInfo,
    options: &JoinOptions,
    handshakes: &Handshakes,
    members: &[Member],
) -> Error {
    let here: HashSet<u32> = members
        .iter()
        .map(|member| member.hello.info.rank)
        .collect();
    let absent: Vec<u32> = (1..identity.size)
        .filter(|rank| !here.contains(rank))
        .collect();
    let noun = if absent.len() == 1 { "rank" } else { "ranks" };
    Error::Rank {
        rank: absent.first().copied().unwrap_or_default(),
        host: match identity.meeting {
            // Its supervisor started all ranks where this one is.
            Meeting::Local { .. } => me.host.to_string(),
            _ => "unknown host".into(),
        },
        message: format!(
            "{noun} {} of {} did not come within {:.0?} to rank 0 on {}.{} Look at the output of those ranks; \
             TONNAGE_JOIN_TIMEOUT=seconds gives them more time",
            number_list::format(&absent),
            identity.size,
            options.join_timeout,
            me.host,
            handshakes.refusals().sentences()
        ),
    }
}

/// Tells every member its parent, and how crowded the most crowded CPU is, which is returned.
fn assign_parents(
    identity: &Identity,
    me: &RankInfo,
    options: &JoinOptions,
    members: &mut [Member],
) -> Result<u32> {
    let ranks_per_cpu = crowding(me, options, members);
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
                .and_then(|place| places.get(place))
                .cloned()
                .filter(|(_, listen)| listen.is_some())
                .ok_or_else(|| {
                    Error::Failed(format!(
                        "rank {parent} of {} does not listen for rank {rank}",
                        identity.size
                    ))
                })?,
        };
        let welcome = Welcome {
            parent,
            address,
            root_clock: options.clock_name(),
            ranks_per_cpu,
        };
        member
            .channel
            .send(&Head::Welcome(Box::new(welcome)), &[])?;
        member.channel.flush_until(Instant::now() + MARGIN);
        if address.is_some() {
            member.channel.finish_writing();
        }
    }
    Ok(ranks_per_cpu)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::RECEIVES;
    use crate::join::connection::Listener;
    use crate::join::introduction::introduce_to;
    use crate::testing::{door, identity, options, start};

    /// A look at every rank that is there, whenever another one comes, would be some thousand.
    #[test]
    fn rank_0_reads_only_what_is_there_to_be_read() {
        const RANKS: u32 = 60;
        let (listener, address) = door();
        let zero = start(
            0,
            RANKS,
            (Some(listener), address),
            |_| {},
            |rank| (rank.unwrap_err().to_string(), RECEIVES.get()),
        );
        // One after the other; the last one does not fit, which is the end.
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
                plan_hash: match rank == RANKS - 1 {
                    true => "other".into(),
                    false => options.plan_hash.clone(),
                },
                listen: None,
                cpus: "0".into(),
            };
            introduce_to(&root, &me, &options, &mut Signals::none(), |_| {
                Ok(Head::Hello(Box::new(hello.clone())))
            })
        };
        let came: Vec<_> = (1..RANKS).map(come).collect();
        assert_eq!(came.iter().filter(|came| came.is_ok()).count(), 58);
        let (error, receives) = zero.join().unwrap();
        assert!(error.contains("another command line"), "{error}");
        // The handshake and the introduction of each, which may come in pieces.
        let ranks = RANKS as usize;
        assert!((2 * ranks..6 * ranks).contains(&receives), "{receives}");
    }
}
