//! How the ranks of a run find each other and become a tree.
//!
//! Everybody but rank 0 connects to rank 0 and says who it is. When all have come and fit together, rank 0 tells each
//! its parent; a rank whose parent is not rank 0 connects there. What is made here is a [`Tree`] of open connections,
//! which the control thread ([`super::control`]) then owns. Rank 0's side is here, the others' in [`crate::membership`], and
//! addresses in [`super::address`].

use std::net::IpAddr;
use std::ops::Range;
use std::time::{Duration, Instant};

use super::RankInfo;
use super::address::root_listener;
use super::channel::Channel;
use super::detect::Identity;
use super::message::{Cause, Head, Hello, Welcome};
use super::options::JoinOptions;
use super::signals::Signals;
use crate::handshake::Lobby;
use crate::membership::attend;
use tonnage_units::number_list;
use tonnage_units::{Error, Result};

/// Strangers that are looked at beside the ranks themselves.
pub(super) const STRANGERS_MAX: usize = 64;
/// So long ranks that come late are told why the run cannot start.
const LATECOMERS: Duration = Duration::from_secs(1);
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

impl Tree {
    /// The address of this host that its nearest relative is connected to.
    pub(super) fn local_ip(&self) -> Option<IpAddr> {
        let relative = self.parent.as_ref().or(self.children.first())?;
        let address = relative.channel.local_addr().ok()?;
        Some(address.ip().to_canonical())
    }
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
    let listener = root_listener(identity, options, signals)?;
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
    if let Err(error) = &outcome {
        let cause = Cause::of(error, 0, &me.host);
        for guest in &mut guests {
            tell(&mut guest.channel, &cause);
        }
        tell_latecomers(
            &mut lobby,
            signals,
            &cause,
            identity.size as usize - guests.len(),
        );
    }
    lobby.close();
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

/// When a run cannot start, ranks that come a moment later hear the reason too.
fn tell_latecomers(lobby: &mut Lobby, signals: &mut Signals, cause: &Cause, expected: usize) {
    let until = Instant::now() + LATECOMERS;
    let mut told = 1;
    while told < expected && Instant::now() < until {
        let Ok(arrivals) = lobby.step(until, signals, &mut []) else {
            return;
        };
        for (mut channel, _) in arrivals.greeted {
            tell(&mut channel, cause);
            told += 1;
        }
    }
}

/// Last words on a connection: why this rank ends.
pub(super) fn tell(channel: &mut Channel, cause: &Cause) {
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
        let mut misfit = None;
        for (mut channel, message) in arrivals.greeted {
            match message.head {
                Head::Hello(hello) => {
                    let objection = objection(identity, me, options, guests, &hello);
                    channel.trust(message_bytes_max(identity.size));
                    guests.push(Guest {
                        channel,
                        hello: *hello,
                    });
                    misfit = misfit.or(objection);
                }
                _ => lobby.refuse(channel.peer(), &Error::Failed("it said no hello".into())),
            }
        }
        // Only now, because those who came together with it are to hear the reason too.
        misfit.map_or(Ok(()), Err)?;
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
    let noun = if absent.len() == 1 { "rank" } else { "ranks" };
    Error::Rank {
        rank: absent.first().copied().unwrap_or_default(),
        host: "unknown host".into(),
        message: format!(
            "{noun} {} of {} did not come within {:.0?} to rank 0 on {}.{refused} Look at the output of those ranks; \
             TONNAGE_JOIN_TIMEOUT=seconds gives them more time",
            number_list::format(&absent),
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

/// Why a peer is gone: what it said last, or that it said nothing.
pub(super) fn last_words(channel: &mut Channel, info: &RankInfo) -> Error {
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
            let cards = size as usize * (8 + (16 << 10));
            assert!(message_bytes_max(size) > cards, "{size}");
        }
        assert_eq!(message_bytes_max(u32::MAX), 1 << 30);
    }
}
