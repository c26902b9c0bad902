//! How the ranks of a run find each other and become a tree.
//!
//! Everybody but rank 0 connects to rank 0 and says who it is. When all have come and fit together, rank 0 tells each
//! its parent; a rank whose parent is not rank 0 connects there. What is made here is a [`Tree`] of open connections,
//! which the control thread ([`super::control`]) then owns. Addresses are in [`super::address`].

use std::ops::Range;
use std::time::{Duration, Instant};

use super::address::{connect_to, inner_listener, root_listener};
use super::channel::{Channel, wait_for};
use super::detect::Identity;
use super::lobby::Lobby;
use super::message::{Cause, Head, Hello, Message, Welcome};
use super::options::JoinOptions;
use super::signals::Signals;
use super::{RankInfo, ranges};
use crate::{Error, Result};

/// Strangers that are looked at beside the ranks themselves.
const STRANGERS_MAX: usize = 64;
/// Others wait this much longer than rank 0, so that its reason reaches them before they give up.
pub(super) const MARGIN: Duration = Duration::from_secs(5);

/// A connection to a rank of this run.
pub(super) struct Peer {
    pub(super) channel: Channel,
    pub(super) info: RankInfo,
}

/// One rank's place in the tree.
pub(super) struct Tree {
    pub(super) parent: Option<Peer>,
    pub(super) children: Vec<Peer>,
    /// All ranks; only rank 0 has it.
    pub(super) table: Vec<RankInfo>,
    /// Rank 0's boot.
    pub(super) root_boot_id: String,
}

/// The longest message of the control channel: enough for a gather of what a rank may publish about its workers.
pub(super) fn message_bytes_max(size: u32) -> usize {
    const EACH: usize = 64 << 10;
    const SLACK: usize = 16 << 20;
    const TOTAL: usize = 1 << 30;
    (size as usize)
        .saturating_mul(EACH)
        .saturating_add(SLACK)
        .min(TOTAL)
}

/// The parent of a rank other than 0.
pub(super) fn parent_of(rank: u32, fanout: u32) -> u32 {
    rank.saturating_sub(1) / fanout.max(1)
}

/// The children of a rank.
pub(super) fn children_of(rank: u32, size: u32, fanout: u32) -> Range<u32> {
    let fanout = u64::from(fanout.max(1));
    let first = u64::from(rank) * fanout + 1;
    let bound = |rank: u64| u32::try_from(rank).unwrap_or(u32::MAX).min(size);
    bound(first)..bound(first + fanout)
}

/// Joins the run.
pub(super) fn join(
    identity: &Identity,
    me: &RankInfo,
    options: &mut JoinOptions,
    signals: &mut Signals,
) -> Result<Tree> {
    match identity.rank {
        0 if identity.size == 1 => Ok(Tree {
            parent: None,
            children: Vec::new(),
            table: vec![me.clone()],
            root_boot_id: me.boot_id.clone(),
        }),
        0 => host(identity, me, options, signals),
        _ => attend(identity, me, options, signals),
    }
}

/// A rank that has introduced itself to rank 0.
struct Guest {
    channel: Channel,
    hello: Hello,
}

fn host(
    identity: &Identity,
    me: &RankInfo,
    options: &mut JoinOptions,
    signals: &mut Signals,
) -> Result<Tree> {
    let listener = root_listener(identity, options)?;
    let seats = STRANGERS_MAX + identity.size as usize;
    let mut lobby = Lobby::new(
        listener,
        options.secret.clone(),
        seats,
        options.stranger_timeout,
    )?;
    let mut guests = Vec::new();
    let outcome = gather_guests(identity, me, options, signals, &mut lobby, &mut guests)
        .and_then(|()| seat(identity, me, options, &mut guests));
    lobby.close();
    if let Err(error) = &outcome {
        let cause = Cause::of(error, 0, &me.host);
        for guest in &mut guests {
            tell(&mut guest.channel, &cause);
        }
    }
    outcome?;
    let mut table = vec![me.clone()];
    table.extend(guests.iter().map(|guest| guest.hello.info.clone()));
    let direct = children_of(0, identity.size, options.fanout);
    let children = guests
        .into_iter()
        .filter(|guest| direct.contains(&guest.hello.info.rank))
        .map(|guest| Peer {
            channel: guest.channel,
            info: guest.hello.info,
        })
        .collect();
    Ok(Tree {
        parent: None,
        children,
        table,
        root_boot_id: me.boot_id.clone(),
    })
}

/// Last words on a connection: why this rank ends.
fn tell(channel: &mut Channel, cause: &Cause) {
    // A peer that cannot be told finds the connection closed.
    if channel
        .send(
            &Head::Abort {
                cause: cause.clone(),
            },
            &[],
        )
        .is_ok()
    {
        channel.flush_until(Instant::now() + Duration::from_millis(500));
        channel.finish_writing();
    }
}

fn gather_guests(
    identity: &Identity,
    me: &RankInfo,
    options: &JoinOptions,
    signals: &mut Signals,
    lobby: &mut Lobby,
    guests: &mut Vec<Guest>,
) -> Result<()> {
    let deadline = Instant::now() + options.join_timeout;
    while guests.len() + 1 < identity.size as usize {
        if Instant::now() >= deadline {
            return Err(missing(identity, me, options, lobby, guests));
        }
        let mut watched: Vec<&mut Channel> =
            guests.iter_mut().map(|guest| &mut guest.channel).collect();
        let arrivals = lobby.step(deadline, signals, &mut watched)?;
        for (mut channel, message) in arrivals.greeted {
            match message.head {
                Head::Hello(hello) => {
                    let objection = objection(identity, me, options, guests, &hello);
                    channel.trust(message_bytes_max(identity.size));
                    guests.push(Guest {
                        channel,
                        hello: *hello,
                    });
                    objection.map_or(Ok(()), Err)?;
                }
                _ => lobby.refuse(channel.peer(), &Error::Failed("it said no hello".into())),
            }
        }
        if let Some(guest) = arrivals
            .ended
            .first()
            .and_then(|&place| guests.get_mut(place))
        {
            return Err(last_words(&mut guest.channel, &guest.hello.info));
        }
    }
    guests.sort_by_key(|guest| guest.hello.info.rank);
    Ok(())
}

fn missing(
    identity: &Identity,
    me: &RankInfo,
    options: &JoinOptions,
    lobby: &Lobby,
    guests: &[Guest],
) -> Error {
    let here = |rank: u32| guests.iter().any(|guest| guest.hello.info.rank == rank);
    let absent: Vec<u32> = (1..identity.size).filter(|&rank| !here(rank)).collect();
    let refused = match lobby.refused() {
        0 => String::new(),
        some => format!(
            " {some} connections were refused because they did not know the secret; see TONNAGE_SECRET."
        ),
    };
    Error::Rank {
        rank: absent.first().copied().unwrap_or_default(),
        host: "unknown host".into(),
        message: format!(
            "ranks {} of {} did not come within {:.0?} to rank 0 on {}.{refused} Look at the output of those ranks; \
             TONNAGE_JOIN_TIMEOUT=seconds gives them more time",
            ranges(&absent),
            identity.size,
            options.join_timeout,
            me.host
        ),
    }
}

/// Why this rank cannot be part of this run, if so.
fn objection(
    identity: &Identity,
    me: &RankInfo,
    options: &JoinOptions,
    guests: &[Guest],
    hello: &Hello,
) -> Option<Error> {
    let info = &hello.info;
    let object = |message: String| {
        Some(Error::Rank {
            rank: info.rank,
            host: info.host.clone(),
            message,
        })
    };
    if hello.version != env!("CARGO_PKG_VERSION") {
        return object(format!(
            "it is tonnage {}, rank 0 on {} is tonnage {}: install the same version on all hosts",
            hello.version,
            me.host,
            env!("CARGO_PKG_VERSION")
        ));
    }
    if hello.size != identity.size || info.rank >= identity.size {
        return object(format!(
            "it was told of {} ranks, rank 0 on {} of {} ({}): give all the same number",
            hello.size, me.host, identity.size, identity.source
        ));
    }
    let twin = guests
        .iter()
        .map(|guest| &guest.hello.info)
        .find(|other| other.rank == info.rank);
    if let Some(twin) = twin.or((info.rank == 0).then_some(me)) {
        return object(format!(
            "process {} says that it is rank {}, but so does process {} on {}: give every process its own rank",
            info.pid, info.rank, twin.pid, twin.host
        ));
    }
    if hello.plan_hash != options.plan_hash {
        return object(format!(
            "it was started with another command line or plan than rank 0 on {}: start all ranks alike",
            me.host
        ));
    }
    None
}

/// Tells every guest its parent.
fn seat(
    identity: &Identity,
    me: &RankInfo,
    options: &JoinOptions,
    guests: &mut [Guest],
) -> Result<()> {
    let places: Vec<_> = guests
        .iter()
        .map(|guest| (guest.hello.info.clone(), guest.hello.listen))
        .collect();
    for guest in guests {
        let rank = guest.hello.info.rank;
        let (parent, address) = match parent_of(rank, options.fanout) {
            0 => (me.clone(), None),
            parent => places
                .iter()
                .find(|(info, _)| info.rank == parent)
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
            root_boot_id: me.boot_id.clone(),
        };
        guest.channel.send(&Head::Welcome(Box::new(welcome)), &[])?;
        guest.channel.flush_until(Instant::now() + MARGIN);
        if address.is_some() {
            guest.channel.finish_writing();
        }
    }
    Ok(())
}

fn attend(
    identity: &Identity,
    me: &RankInfo,
    options: &JoinOptions,
    signals: &mut Signals,
) -> Result<Tree> {
    let mut channel = connect_to(&identity.meeting, options, signals)?;
    let children = children_of(identity.rank, identity.size, options.fanout);
    let listener = if children.is_empty() {
        None
    } else {
        Some(inner_listener(&channel, options).inspect_err(|error| {
            tell(&mut channel, &Cause::of(error, me.rank, &me.host));
        })?)
    };
    let listen = listener
        .as_ref()
        .map(|listener| listener.local_addr())
        .transpose()
        .map_err(|error| Error::io("address of the listening socket", error))?;
    let hello = Hello {
        info: me.clone(),
        size: identity.size,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        plan_hash: options.plan_hash.clone(),
        listen,
    };
    channel.send(&Head::Hello(Box::new(hello)), &[])?;
    let welcome = wait_for_welcome(&mut channel, options, signals)
        .inspect_err(|error| tell(&mut channel, &Cause::of(error, me.rank, &me.host)))?;
    if let Some(address) = welcome.address {
        let meeting = super::Meeting::Local { control: address };
        channel = connect_to(&meeting, options, signals)?;
        channel.send(
            &Head::Attach {
                info: Box::new(me.clone()),
            },
            &[],
        )?;
        channel.flush();
    }
    channel.trust(message_bytes_max(identity.size));
    let mut parent = Peer {
        channel,
        info: welcome.parent,
    };
    let children = match listener {
        None => Vec::new(),
        Some(listener) => {
            let lobby = Lobby::new(
                listener,
                options.secret.clone(),
                STRANGERS_MAX + children.len(),
                options.stranger_timeout,
            )?;
            gather_children(identity, children, options, signals, lobby, &mut parent).inspect_err(
                |error| tell(&mut parent.channel, &Cause::of(error, me.rank, &me.host)),
            )?
        }
    };
    Ok(Tree {
        parent: Some(parent),
        children,
        table: Vec::new(),
        root_boot_id: welcome.root_boot_id,
    })
}

fn wait_for_welcome(
    channel: &mut Channel,
    options: &JoinOptions,
    signals: &mut Signals,
) -> Result<Welcome> {
    let root = |message: String| Error::Rank {
        rank: 0,
        host: channel_host(options),
        message,
    };
    let deadline = Instant::now() + options.join_timeout + MARGIN;
    loop {
        channel.flush();
        channel.receive()?;
        match channel.next_message()? {
            Some(Message {
                head: Head::Welcome(welcome),
                ..
            }) => return Ok(*welcome),
            Some(Message {
                head: Head::Abort { cause },
                ..
            }) => return Err(Error::from(&cause)),
            Some(_) => return Err(root("it said something unexpected while joining".into())),
            None if channel.ended() => {
                return Err(root(
                    "it closed the connection before all ranks had come: look at its output".into(),
                ));
            }
            None => {}
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(root(format!(
                "it did not say within {:.0?} that all ranks have come",
                options.join_timeout
            )));
        }
        let mut interests: Vec<_> = signals.interests().collect();
        interests.push(channel.interest());
        wait_for(&interests, left)?;
        drop(interests);
        if let Some(&signal) = signals.take().first() {
            return Err(Error::Interrupted { signal });
        }
    }
}

/// Rank 0's host is not known by name until it has answered.
fn channel_host(options: &JoinOptions) -> String {
    format!("the host that ranks meet on (this is {})", options.host)
}

/// Waits for the ranks that rank 0 sends here.
fn gather_children(
    identity: &Identity,
    expected: Range<u32>,
    options: &JoinOptions,
    signals: &mut Signals,
    mut lobby: Lobby,
    parent: &mut Peer,
) -> Result<Vec<Peer>> {
    let deadline = Instant::now() + options.join_timeout;
    let mut children: Vec<Peer> = Vec::new();
    while children.len() < expected.len() {
        if Instant::now() >= deadline {
            let here = |rank: u32| children.iter().any(|child| child.info.rank == rank);
            let absent: Vec<u32> = expected.filter(|&rank| !here(rank)).collect();
            return Err(Error::Rank {
                rank: absent.first().copied().unwrap_or_default(),
                host: "unknown host".into(),
                message: format!(
                    "ranks {} joined rank 0 but could not reach their parent, rank {} on {}: can the hosts connect \
                     to each other on any port?",
                    ranges(&absent),
                    identity.rank,
                    options.host
                ),
            });
        }
        let arrivals = lobby.step(deadline, signals, &mut [&mut parent.channel])?;
        for (mut channel, message) in arrivals.greeted {
            match message.head {
                Head::Attach { info }
                    if expected.contains(&info.rank)
                        && children.iter().all(|child| child.info.rank != info.rank) =>
                {
                    channel.trust(message_bytes_max(identity.size));
                    children.push(Peer {
                        channel,
                        info: *info,
                    });
                }
                _ => lobby.refuse(
                    channel.peer(),
                    &Error::Failed("it belongs elsewhere".into()),
                ),
            }
        }
        if !arrivals.ended.is_empty() {
            return Err(last_words(&mut parent.channel, &parent.info));
        }
    }
    lobby.close();
    children.sort_by_key(|child| child.info.rank);
    Ok(children)
}

/// Why a peer is gone: what it said last, or that it said nothing.
fn last_words(channel: &mut Channel, info: &RankInfo) -> Error {
    while let Ok(Some(message)) = channel.next_message() {
        if let Head::Abort { cause } = message.head {
            return Error::from(&cause);
        }
    }
    Error::Rank {
        rank: info.rank,
        host: info.host.clone(),
        message: format!(
            "its process {} ended while the ranks were joining: look at its output",
            info.pid
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_and_children_agree() {
        for fanout in [1, 2, 32] {
            for size in [1u32, 2, 13, 100] {
                let mut seen = 0;
                for rank in 0..size {
                    for child in children_of(rank, size, fanout) {
                        assert_eq!(parent_of(child, fanout), rank);
                        seen += 1;
                    }
                }
                assert_eq!(seen, size - 1, "fan-out {fanout}, {size} ranks");
            }
        }
        assert!(children_of(u32::MAX - 1, u32::MAX, u32::MAX).is_empty());
    }

    #[test]
    fn a_gather_of_cards_fits() {
        for size in [1u32, 2, 100, 10_000] {
            let cards = size as usize * (8 + crate::engine::Card::BYTES_MAX);
            assert!(message_bytes_max(size) > cards, "{size}");
        }
        assert_eq!(message_bytes_max(u32::MAX), 1 << 30);
    }
}
