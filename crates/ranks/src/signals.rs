//! Turns SIGINT and SIGTERM into readable sockets, so that a thread can wait for them together with other events.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use signal_hook::SigId;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::channel::{Interest, wait_for};
use tonnage_units::{Error, Result};

/// Adds the rank to an interruption that names none. Other errors are returned unchanged.
pub(crate) fn with_interrupted_rank(error: Error, rank: u32, host: &str) -> Error {
    match error {
        Error::Interrupted { signal, rank: None } => Error::Interrupted {
            signal,
            rank: Some((rank, host.to_owned())),
        },
        error => error,
    }
}

/// Caught signals. Each signal makes a socket of its own readable.
#[derive(Debug)]
pub struct Signals {
    sources: Vec<Source>,
    /// A signal that was received before it could be handled.
    put_back: Option<i32>,
}

#[derive(Debug)]
struct Source {
    signal: i32,
    socket: UnixStream,
    id: SigId,
}

impl Signals {
    /// Catches the two signals that end a run.
    pub(crate) fn for_termination() -> Result<Self> {
        Self::for_signals(&[SIGINT, SIGTERM])
    }

    /// Catches no signals, for ranks that must not end their process.
    pub(crate) fn none() -> Self {
        Self {
            sources: Vec::new(),
            put_back: None,
        }
    }

    /// Catches these signals.
    pub(crate) fn for_signals(signals: &[i32]) -> Result<Self> {
        let mut sources = Vec::new();
        for &signal in signals {
            let failed = |error| Error::io(format!("cannot prepare for signal {signal}"), error);
            let (socket, writer) = UnixStream::pair().map_err(failed)?;
            socket.set_nonblocking(true).map_err(failed)?;
            let id = signal_hook::low_level::pipe::register(signal, writer).map_err(failed)?;
            sources.push(Source { signal, socket, id });
        }
        Ok(Self {
            sources,
            put_back: None,
        })
    }

    /// Returns the sockets that become readable when a signal arrives.
    pub(crate) fn interests(&self) -> impl Iterator<Item = Interest<'_>> {
        self.sources
            .iter()
            .map(|source| Interest::read(&source.socket))
    }

    /// Returns the signals received since the last call, each once.
    pub(crate) fn take_received(&mut self) -> Vec<i32> {
        let mut buffer = [0u8; 64];
        let came = |source: &mut Source| match source.socket.read(&mut buffer) {
            Ok(len) if len > 0 => Some(source.signal),
            _ => None,
        };
        let taken = self.sources.iter_mut().filter_map(came);
        self.put_back.take().into_iter().chain(taken).collect()
    }

    /// Makes the next wait end with this signal again.
    pub(crate) fn put_back(&mut self, signal: i32) {
        self.put_back = Some(signal);
    }

    /// Waits until an entry of `more` is ready or the time is over. Returns whether each entry is ready. Fails if a
    /// signal arrives.
    pub(crate) fn wait<'a>(
        &mut self,
        more: impl IntoIterator<Item = Interest<'a>>,
        time: Duration,
    ) -> Result<Vec<bool>> {
        let mut interests: Vec<Interest<'_>> = self.interests().collect();
        let own = interests.len();
        // Pushed one by one because the two iterators have different lifetimes.
        for one in more {
            interests.push(one);
        }
        let mut ready = match self.put_back {
            None => wait_for(&interests, time)?,
            Some(_) => vec![false; interests.len()],
        };
        drop(interests);
        self.check_interrupted()?;
        Ok(ready.split_off(own))
    }

    /// Fails if a signal was received since the last call.
    pub(crate) fn check_interrupted(&mut self) -> Result<()> {
        match self.take_received().first() {
            Some(&signal) => Err(Error::Interrupted { signal, rank: None }),
            None => Ok(()),
        }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for source in &self.sources {
            signal_hook::low_level::unregister(source.id);
            // `signal_hook` keeps its handler installed, so Ctrl-C would be ignored from now on. This restores the
            // default action.
            let _ = signal_hook::flag::register_conditional_default(
                source.signal,
                Arc::new(AtomicBool::new(true)),
            );
        }
    }
}
