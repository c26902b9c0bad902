//! Joining as a rank other than 0: the rank introduces itself to rank 0, connects to its parent, and accepts its
//! children.

use std::net::TcpListener;
use std::ops::Range;
use std::time::Instant;

use super::address::listen_for_children;
use super::connection::{Listener, is_inherited};
use super::handshake::{
    Handshakes, MARGIN, STRANGERS_MAX, acknowledge, end_cause_of_peer, send_end_cause,
};
use super::introduction::{await_answer, introduce_until_confirmed};
use super::open_files;
use super::refusals::JoinRefusal;
use super::{JoinBytes, Joiner, RankFailure};
use crate::channel::Channel;
use crate::channel::message::{Hello, MessageHead, Welcome};
use crate::hosts::is_one_boot;
use crate::signals::Signals;
use crate::tree::shape::{PeerConnection, TreePosition, children_of, message_bytes_max};
use tonnage_units::identity::Meeting;
use tonnage_units::number_list;
use tonnage_units::{Error, Result};

/// Joins as a rank other than 0.
pub(super) fn become_member(
    joiner: Joiner<'_>,
    signals: &mut Signals,
) -> Result<TreePosition, RankFailure> {
    let Joiner {
        identity,
        me,
        options,
    } = joiner;
    let children = children_of(identity.rank, identity.size, options.fanout);
    let AcceptedRank {
        mut channel,
        welcome,
        listener,
        bytes,
    } = introduce(joiner, !children.is_empty(), signals)?;
    channel.raise_message_max(message_bytes_max(identity.size));
    let mut parent = PeerConnection {
        channel,
        info: welcome.parent,
    };
    let children = match listener {
        None => Vec::new(),
        Some(listener) => {
            let connections_max = STRANGERS_MAX + children.len();
            let handshakes = Handshakes::new(listener, options, connections_max)?;
            open_files::ensure_open_files(me, children.end - children.start)
                .and_then(|()| gather_children(joiner, children, signals, handshakes, &mut parent))
                .inspect_err(|error| {
                    send_end_cause(&mut parent.channel, &me.failure_cause(error))
                })?
        }
    };
    Ok(TreePosition {
        parent: Some(parent),
        children,
        table: Vec::new(),
        door: None,
        has_roots_clock: is_one_boot(&welcome.root_clock, &options.clock_name()),
        ranks_per_cpu: welcome.ranks_per_cpu,
        bytes,
    })
}

/// A rank that rank 0 has accepted and that is connected to its parent.
struct AcceptedRank {
    /// The connection to the parent.
    channel: Channel,
    welcome: Welcome,
    /// Listening socket for its children, if it may get children.
    listener: Option<TcpListener>,
    bytes: JoinBytes,
}

/// Introduces this rank to rank 0, and then to its parent if that is another rank.
fn introduce(
    joiner: Joiner<'_>,
    is_parent: bool,
    signals: &mut Signals,
) -> Result<AcceptedRank, RankFailure> {
    let Joiner {
        identity,
        me,
        options,
    } = joiner;
    let root = Listener {
        rank: 0,
        host: None,
        meeting: identity.meeting.clone(),
    };
    let mut listener = None;
    let mut channel = introduce_until_confirmed(&root, joiner, signals, |channel| {
        if is_parent && listener.is_none() {
            let made = listen_for_children(channel, options)
                .inspect_err(|error| send_end_cause(channel, &me.failure_cause(error)))?;
            listener = Some(made);
        }
        let address = listener.as_ref().map(TcpListener::local_addr);
        let hello = Hello {
            info: me.clone(),
            size: identity.size,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            plan_hash: options.plan_hash.clone(),
            listen: address
                .transpose()
                .map_err(|error| Error::io("address of the listening socket", error))?,
            cpus: number_list::format(&options.cpus),
        };
        Ok(MessageHead::Hello(Box::new(hello)))
    })?;
    let welcome = wait_for_welcome(joiner, &root, &mut channel, signals)
        .inspect_err(|failure| send_end_cause(&mut channel, &me.failure_cause(&failure.error)))?;
    let mut bytes = JoinBytes {
        got: channel.taken_bytes,
        said: channel.queued_bytes,
        ..JoinBytes::default()
    };
    if let Some(address) = welcome.address {
        let parent = Listener {
            rank: welcome.parent.rank,
            host: Some(welcome.parent.host.to_string()),
            meeting: Meeting::Local { control: address },
        };
        channel = introduce_until_confirmed(&parent, joiner, signals, |_| {
            Ok(MessageHead::Attach {
                info: Box::new(me.clone()),
            })
        })?;
        bytes.got_of_parent = channel.taken_bytes;
        bytes.said_to_parent = channel.queued_bytes;
    }
    Ok(AcceptedRank {
        channel,
        welcome,
        listener,
        bytes,
    })
}

fn wait_for_welcome(
    joiner: Joiner<'_>,
    root: &Listener,
    channel: &mut Channel,
    signals: &mut Signals,
) -> Result<Welcome, RankFailure> {
    let deadline = Instant::now() + joiner.options.join_timeout + MARGIN;
    let (message, is_told) = match await_answer(joiner, channel, deadline, signals)? {
        Some(MessageHead::Welcome(welcome)) => return Ok(*welcome),
        Some(_) => ("it sent an unexpected message while joining".into(), false),
        None if channel.ended => (
            "it closed the connection before all ranks had come: look at its output".into(),
            is_inherited(root),
        ),
        None => (
            format!(
                "it did not report within {:.0?} that all ranks have joined",
                joiner.options.join_timeout
            ),
            false,
        ),
    };
    let error = root.error(channel.peer, message);
    Err(RankFailure { error, is_told })
}

/// Waits until the children that rank 0 assigned to this rank have connected.
fn gather_children(
    joiner: Joiner<'_>,
    expected: Range<u32>,
    signals: &mut Signals,
    mut handshakes: Handshakes,
    parent: &mut PeerConnection,
) -> Result<Vec<PeerConnection>> {
    let deadline = Instant::now() + joiner.options.join_timeout;
    let mut children: Vec<PeerConnection> = Vec::new();
    while children.len() < expected.len() {
        if Instant::now() >= deadline {
            let is_here = |rank: u32| children.iter().any(|child| child.info.rank == rank);
            let absent: Vec<u32> = expected.filter(|&rank| !is_here(rank)).collect();
            return Err(Error::Rank {
                rank: absent.first().copied().unwrap_or_default(),
                host: "unknown host".into(),
                message: format!(
                    "ranks {} joined rank 0 but could not reach their parent, rank {} on {}: can the hosts connect \
                     to each other on any port?{}",
                    number_list::format(&absent),
                    joiner.identity.rank,
                    joiner.options.host,
                    handshakes.refusals.describe()
                ),
            });
        }
        let beside = Some(parent.channel.interest());
        let events = handshakes.step(deadline, signals, beside)?;
        for (mut channel, message) in events.greeted {
            match message.head {
                MessageHead::Attach { info }
                    if expected.contains(&info.rank)
                        && children.iter().all(|child| child.info.rank != info.rank) =>
                {
                    channel.raise_message_max(message_bytes_max(joiner.identity.size));
                    acknowledge(&mut channel)?;
                    children.push(PeerConnection {
                        channel,
                        info: *info,
                    });
                }
                _ => {
                    let error = Error::Failed("it is not a child of this rank".into());
                    handshakes.refuse(channel.peer, &JoinRefusal::Stranger(error));
                }
            }
        }
        let is_gone = events.stirred && parent.channel.receive().is_err();
        parent.channel.flush();
        if is_gone || parent.channel.ended {
            return Err(end_cause_of_peer(&mut parent.channel, &parent.info));
        }
    }
    handshakes.close();
    children.sort_by_key(|child| child.info.rank);
    Ok(children)
}
