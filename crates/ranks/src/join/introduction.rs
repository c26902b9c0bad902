//! Introducing this rank to one that listens: connecting and saying who it is, until it was heard.
//!
//! The listener gives everybody a bounded time for the first words, because anybody can connect. A rank whose words
//! were late, since the network loses packets or many others were at the door, is shown out like a stranger, and tries
//! again here until the join deadline. That it was heard is the listener's answer, a beat. A rank that a signal ends
//! before says who it was and why it goes, since otherwise the others would wait for it until their time is over.

use std::time::Instant;

use super::address::{RETRY, pause};
use super::connection::{Listener, connect_to};
use super::failure::JoinFailure;
use super::handshake::{LAST_WORDS, tell};
use crate::RankInfo;
use crate::bootstrap::options::JoinOptions;
use crate::channel::Channel;
use crate::channel::message::{Cause, Head, Message};
use crate::signals::Signals;
use tonnage_units::{Error, Result};

/// Connects and says what `words` gives for the connection, again until the other side has heard it.
pub(crate) fn introduce_to(
    listener: &Listener,
    me: &RankInfo,
    options: &JoinOptions,
    signals: &mut Signals,
    mut words: impl FnMut(&mut Channel) -> Result<Head>,
) -> Result<Channel, JoinFailure> {
    let deadline = Instant::now() + options.join_timeout;
    let mut unheard = 0;
    loop {
        let connected = connect_to(listener, options, deadline, signals);
        let mut channel = match connected {
            Err(failure) if matches!(failure.error, Error::Interrupted { .. }) => {
                let cause = Cause::of(&failure.error, me.rank, &me.host);
                resign(listener, options, &cause, &mut words);
                return Err(failure);
            }
            connected => connected?,
        };
        let head = words(&mut channel)?;
        channel.send(&head, &[])?;
        let heard = is_heard((me.rank, listener), &mut channel, deadline, signals).inspect_err(
            |failure| {
                tell(&mut channel, &Cause::of(&failure.error, me.rank, &me.host));
            },
        )?;
        if heard {
            return Ok(channel);
        }
        unheard += 1;
        log::debug!(
            "{} closed the connection before it had heard who this rank is; trying again",
            channel.peer()
        );
        if Instant::now() + RETRY >= deadline {
            return Err(unheard_until_the_end(listener, &channel, options, unheard).into());
        }
        if let Err(error) = pause(RETRY, signals) {
            resign(
                listener,
                options,
                &Cause::of(&error, me.rank, &me.host),
                &mut words,
            );
            return Err(error.into());
        }
    }
}

/// Says on a connection of its own who this rank is, and why it goes.
fn resign(
    listener: &Listener,
    options: &JoinOptions,
    cause: &Cause,
    words: &mut impl FnMut(&mut Channel) -> Result<Head>,
) {
    let deadline = Instant::now() + LAST_WORDS;
    let connected = connect_to(listener, options, deadline, &mut Signals::none());
    let said = connected
        .map_err(|failure| failure.error)
        .and_then(|mut channel| {
            let head = words(&mut channel)?;
            channel.send(&head, &[])?;
            tell(&mut channel, cause);
            Ok(())
        });
    // Then the supervisor or the launcher has to end the others.
    if let Err(error) = said {
        log::debug!(
            "rank {} did not hear why this one ends: {error}",
            listener.rank
        );
    }
}

/// Returns true when the other side has heard the words, false when it closed the connection before.
fn is_heard(
    (me, listener): (u32, &Listener),
    channel: &mut Channel,
    deadline: Instant,
    signals: &mut Signals,
) -> Result<bool, JoinFailure> {
    loop {
        channel.flush();
        channel.receive()?;
        match channel.next_message()? {
            Some(Message {
                head: Head::Beat, ..
            }) => return Ok(true),
            Some(Message {
                head: Head::Abort { cause },
                ..
            }) => return Err(JoinFailure::heard(Error::from(&cause), me)),
            Some(_) => {
                let message = "it said something unexpected while joining".into();
                return Err(listener.error(channel.peer(), message).into());
            }
            None if channel.ended() => return Ok(false),
            None => {}
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        signals.wait([channel.interest()], left)?;
    }
}

fn unheard_until_the_end(
    listener: &Listener,
    channel: &Channel,
    options: &JoinOptions,
    unheard: u32,
) -> Error {
    let tries = if unheard == 1 { "try" } else { "tries" };
    listener.error(
        channel.peer(),
        format!(
            "it knows the secret, but has not heard within {:.0?} and {unheard} {tries} who {} is: is the network between \
             them slow or lossy, or does somebody flood its port? TONNAGE_JOIN_TIMEOUT=seconds gives more time",
            options.join_timeout, options.host
        ),
    )
}

#[cfg(test)]
mod tests {
    use signal_hook::consts::SIGUSR1;

    use super::super::membership::become_member;
    use super::*;
    use crate::testing::{door, identity, options, start};

    #[test]
    fn rank_0_hears_of_a_signal_to_a_rank_that_it_has_not_met() {
        let (listener, address) = door();
        let zero = start(
            0,
            3,
            (Some(listener), address),
            |_| {},
            |rank| rank.unwrap_err(),
        );
        let mut signals = Signals::of(&[SIGUSR1]).unwrap();
        signal_hook::low_level::raise(SIGUSR1).unwrap();
        let identity = identity(1, 3, address);
        let options = options(&identity);
        let me = options.info(&identity);
        let ended = become_member(&identity, &me, &options, &mut signals);
        assert_eq!(ended.err().unwrap().error.exit_code(), 128 + SIGUSR1 as u8);
        let begun = Instant::now();
        let error = zero.join().unwrap();
        let wanted = "rank 1 on h1: interrupted by signal 10";
        assert!(error.to_string().contains(wanted), "{error}");
        assert!(begun.elapsed() < options.join_timeout / 2);
    }
}
