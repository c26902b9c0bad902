//! tonnage's error type, and the exit code of each kind of error.
//!
//! A message gives the fault, the place (rank, host, device, path), and the next thing to try. It is written for the
//! person at the terminal, not for a log parser.

use std::io;

use crate::quantity::Nanos;

/// `Result` with tonnage's own [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// errno of a process that has reached its limit on open files.
const EMFILE: i32 = 24;

/// Reason for a failure.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request itself is wrong; found before any rank starts. Exit code 2.
    #[error("{0}")]
    Usage(String),
    /// A requested feature is missing on this machine. Recorded as a skip with its reason.
    #[error("{what} cannot be used here: {why}. {how}")]
    Unavailable {
        /// The requested feature, as the user named it.
        what: String,
        /// Why it is unavailable: the missing file, device, library or permission.
        why: String,
        /// How to get it.
        how: String,
    },
    /// A rank failed, died, hung or never joined.
    #[error("rank {rank} on {host}: {message}")]
    Rank {
        /// The rank that failed, which need not be the one that reports it.
        rank: u32,
        /// The rank's host name, or "unknown host" if it never reported one.
        host: String,
        /// The failure, and the next thing to try.
        message: String,
    },
    /// The user or the launcher ended the run by a signal. Exit code 128 + signal.
    #[error("{}", interrupted(*.signal, .rank.as_ref()))]
    Interrupted {
        /// The signal's number.
        signal: i32,
        /// Number and host of the rank that got the signal, if it was one rank and not all of them.
        rank: Option<(u32, String)>,
    },
    /// The time limit of the run has passed. Every rank ends; rank 0 reports the measurements until then.
    #[error("the time limit of {0} has passed")]
    TimeLimit(Nanos),
    /// The operating system reported an error.
    #[error("{what}: {source}")]
    Io {
        /// The attempt, with the path or address.
        what: String,
        /// The system's own reason.
        #[source]
        source: io::Error,
    },
    /// Any other failure that ends a run or a point.
    #[error("{0}")]
    Failed(String),
}

/// Number of SIGPIPE, the signal for writing to a pipe without a reader.
const SIGPIPE: i32 = 13;

impl Error {
    /// Wraps an operating-system error, with the attempt in `what`. If the process is at its limit on open files, the
    /// message also explains how to raise it.
    pub fn io(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        let (what, source) = (what.into(), source.into());
        match source.raw_os_error() {
            Some(EMFILE) => Self::Io {
                what: format!(
                    "{what} (raise the limit on open files with `ulimit -n`; `ulimit -Hn` shows the highest it may have)"
                ),
                source,
            },
            _ => Self::Io { what, source },
        }
    }

    /// Returns the error for a standard output without a reader, for example after `head` has ended. Its exit code is
    /// that of SIGPIPE.
    pub fn output_closed() -> Self {
        Self::Interrupted {
            signal: SIGPIPE,
            rank: None,
        }
    }

    /// Returns whether this error only means that standard output lost its reader. It then needs no message.
    pub fn is_output_closed(&self) -> bool {
        matches!(self, Self::Interrupted { signal, .. } if *signal == SIGPIPE)
    }

    /// Returns the error for a thread or process that could not be started. If the system ran out of resources, the
    /// message also gives the limits to raise.
    pub fn start_error(what: impl std::fmt::Display, source: &io::Error) -> Self {
        let advice = match source.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory => {
                ". Allow more of them (ulimit -u, the container's limit on processes) or more memory, or use fewer ranks, \
                 threads"
            }
            _ => "",
        };
        Self::Failed(format!("cannot start {what}: {source}{advice}"))
    }

    /// Returns the process exit code: 2 for a wrong request, 128 + signal when interrupted, 1 for everything else.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Interrupted { signal, .. } => {
                128u8.saturating_add(u8::try_from(*signal).unwrap_or(u8::MAX))
            }
            _ => 1,
        }
    }
}

fn interrupted(signal: i32, rank: Option<&(u32, String)>) -> String {
    let place = rank.map_or_else(String::new, |(rank, host)| {
        format!("rank {rank} on {host}: ")
    });
    let name = match signal {
        2 => " (SIGINT)",
        SIGPIPE => " (SIGPIPE)",
        15 => " (SIGTERM)",
        _ => "",
    };
    format!("{place}interrupted by signal {signal}{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_follow_the_kind() {
        assert_eq!(Error::Usage("x".into()).exit_code(), 2);
        let interrupted = |rank| Error::Interrupted { signal: 2, rank };
        assert_eq!(interrupted(None).exit_code(), 130);
        assert!(!interrupted(None).is_output_closed());
        // A shell reports the same exit code, 141, for a program that SIGPIPE has ended.
        let closed = Error::output_closed();
        assert!(closed.exit_code() == 141 && closed.is_output_closed());
        assert_eq!(Error::Failed("x".into()).exit_code(), 1);
    }

    #[test]
    fn a_signal_is_named_with_the_rank_that_got_it() {
        let text = |signal, rank| Error::Interrupted { signal, rank }.to_string();
        let rank = Some((1, "h1".into()));
        assert_eq!(
            text(15, rank),
            "rank 1 on h1: interrupted by signal 15 (SIGTERM)"
        );
        assert_eq!(text(2, None), "interrupted by signal 2 (SIGINT)");
    }

    #[test]
    fn a_resource_shortage_comes_with_advice() {
        let text = |kind: io::ErrorKind| Error::start_error("a thread", &kind.into()).to_string();
        assert!(text(io::ErrorKind::WouldBlock).contains("ulimit -u"));
        assert_eq!(
            text(io::ErrorKind::NotFound),
            "cannot start a thread: entity not found"
        );
    }
}
