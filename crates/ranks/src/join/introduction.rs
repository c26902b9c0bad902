//! Introduces this rank to a listening rank: connects, and sends the introduction until the listener confirms it.
//!
//! The listener limits the time for an introduction, because any process can connect. An introduction can be late if
//! the network loses packets or many other ranks connect. The listener then refuses it, and this rank retries until the
//! join deadline.
//!
//! The listener confirms an introduction with a heartbeat. A rank that is interrupted before that sends its identity
//! and the reason, so that the other ranks do not wait for their timeout.

use std::time::Instant;

use super::address::{RETRY, pause_unless_interrupted};
use super::connection::{Listener, connect_to};
use super::handshake::{LAST_WORDS, send_end_cause};
use super::{Joiner, RankFailure};
use crate::channel::Channel;
use crate::channel::message::{EndCause, MessageHead};
use crate::signals::Signals;
use tonnage_units::{Error, Result};

/// Connects and sends the message that `words` returns. Retries until the peer has confirmed it.
pub(super) fn introduce_until_confirmed(
    listener: &Listener,
    joiner: Joiner<'_>,
    signals: &mut Signals,
    mut words: impl FnMut(&mut Channel) -> Result<MessageHead>,
) -> Result<Channel, RankFailure> {
    let Joiner { me, options, .. } = joiner;
    let deadline = Instant::now() + options.join_timeout;
    let mut unheard = 0;
    loop {
        let connected = connect_to(listener, options, deadline, signals);
        let mut channel = connected.inspect_err(|failure| {
            if matches!(failure.error, Error::Interrupted { .. }) {
                introduce_and_end(
                    listener,
                    joiner,
                    &me.failure_cause(&failure.error),
                    &mut words,
                );
            }
        })?;
        let head = words(&mut channel)?;
        channel.send(&head, &[])?;
        let heard = is_confirmed(joiner, listener, &mut channel, deadline, signals).inspect_err(
            |failure| send_end_cause(&mut channel, &me.failure_cause(&failure.error)),
        )?;
        if heard {
            return Ok(channel);
        }
        unheard += 1;
        let peer = channel.peer;
        log::debug!("{peer} closed the connection before this rank's introduction; trying again");
        if Instant::now() + RETRY >= deadline {
            let tries = if unheard == 1 { "try" } else { "tries" };
            let message = format!(
                "it knows the secret, but within {:.0?} and {unheard} {tries} it received no introduction from {}: is \
                 the network between them slow or lossy, or is its port flooded? To wait longer, set e.g. \
                 TONNAGE_JOIN_TIMEOUT=300 (seconds)",
                options.join_timeout, options.host
            );
            return Err(listener.error(peer, message).into());
        }
        pause_unless_interrupted(RETRY, signals).inspect_err(|error| {
            introduce_and_end(listener, joiner, &me.failure_cause(error), &mut words)
        })?;
    }
}

/// Introduces this rank on a new connection, and sends the reason why it ends.
fn introduce_and_end(
    listener: &Listener,
    joiner: Joiner<'_>,
    cause: &EndCause,
    words: &mut impl FnMut(&mut Channel) -> Result<MessageHead>,
) {
    let deadline = Instant::now() + LAST_WORDS;
    let connected = connect_to(listener, joiner.options, deadline, &mut Signals::none());
    let said = connected.map_err(Error::from).and_then(|mut channel| {
        let head = words(&mut channel)?;
        channel.send(&head, &[])?;
        send_end_cause(&mut channel, cause);
        Ok(())
    });
    // If sending fails, the supervisor or the launcher must end the other ranks.
    if let Err(error) = said {
        let rank = listener.rank;
        log::debug!("rank {rank} was not sent the reason why this one ends: {error}");
    }
}

/// Returns whether the peer confirmed the introduction; false if the peer closed the connection first.
fn is_confirmed(
    joiner: Joiner<'_>,
    listener: &Listener,
    channel: &mut Channel,
    deadline: Instant,
    signals: &mut Signals,
) -> Result<bool, RankFailure> {
    match await_answer(joiner, channel, deadline, signals)? {
        Some(MessageHead::Beat) => Ok(true),
        Some(_) => {
            let message = "it sent an unexpected message while joining".into();
            Err(listener.error(channel.peer, message).into())
        }
        None => Ok(false),
    }
}

/// Waits for the listener's next message. `None` if the listener closes the connection, or the time is up.
pub(super) fn await_answer(
    joiner: Joiner<'_>,
    channel: &mut Channel,
    deadline: Instant,
    signals: &mut Signals,
) -> Result<Option<MessageHead>, RankFailure> {
    loop {
        channel.flush();
        channel.receive()?;
        match channel.next_message()?.map(|message| message.head) {
            Some(MessageHead::Abort { cause }) => {
                return Err(RankFailure::from_root(Error::from(&cause), joiner.me.rank));
            }
            None if !channel.ended => {}
            head => return Ok(head),
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(None);
        }
        signals.wait([channel.interest()], left)?;
    }
}

#[cfg(test)]
mod tests {
    use signal_hook::consts::SIGUSR1;

    use super::super::membership::become_member;
    use super::*;
    use crate::testing::{door, identity, options, start};

    #[test]
    fn rank_0_learns_of_a_signal_to_a_rank_that_has_not_joined() {
        let (listener, address) = door();
        let zero = start(
            0,
            3,
            (Some(listener), address),
            |_| {},
            |rank| rank.unwrap_err(),
        );
        let mut signals = Signals::for_signals(&[SIGUSR1]).unwrap();
        signal_hook::low_level::raise(SIGUSR1).unwrap();
        let identity = identity(1, 3, address);
        let options = options(&identity);
        let me = options.info(&identity);
        let joiner = Joiner {
            identity: &identity,
            me: &me,
            options: &options,
        };
        let ended = become_member(joiner, &mut signals);
        assert_eq!(ended.err().unwrap().error.exit_code(), 128 + SIGUSR1 as u8);
        let begun = Instant::now();
        let error = zero.join().unwrap();
        let wanted = "rank 1 on h1: interrupted by signal 10";
        assert!(error.to_string().contains(wanted), "{error}");
        assert!(begun.elapsed() < options.join_timeout / 2);
    }
}
