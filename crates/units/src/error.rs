//! The one error type of tonnage, and the exit code that each kind ends with.
//!
//! A message says what went wrong, where (rank, host, device, path), and what to try next: it is written for the
//! person at the terminal, not for a log parser.

use std::io;

/// `Result` with tonnage's own [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The system's number for a process that may not open another file.
const EMFILE: i32 = 24;

/// The reason why something could not be done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request itself is wrong; found before any rank starts. Exit code 2.
    #[error("{0}")]
    Usage(String),
    /// Something that was asked for is not on this machine. Recorded as a skip with its reason.
    #[error("{what} cannot be used here: {why}. {how}")]
    Unavailable {
        /// The thing that was asked for, as the user named it.
        what: String,
        /// The reason: the thing that was looked for and not found.
        why: String,
        /// The way to get it.
        how: String,
    },
    /// A rank failed, died, hung or never came.
    #[error("rank {rank} on {host}: {message}")]
    Rank {
        /// The rank that failed, which need not be the one that reports it.
        rank: u32,
        /// Its host name, or "unknown host" when it never said one.
        host: String,
        /// The failure, and the next thing to try.
        message: String,
    },
    /// The user or the launcher ended the run by a signal. Exit code 128 + signal.
    #[error("{}", interrupted(*.signal, .rank.as_ref()))]
    Interrupted {
        /// The signal's number.
        signal: i32,
        /// Number and host of the rank that got it, where it was one rank and not all of them.
        rank: Option<(u32, String)>,
    },
    /// The operating system refused.
    #[error("{what}: {source}")]
    Io {
        /// The attempt, with the path or address.
        what: String,
        /// The system's own reason.
        #[source]
        source: io::Error,
    },
    /// Anything else that ends a run or a point.
    #[error("{0}")]
    Failed(String),
}

/// Number of the signal that ends a program which writes to a pipe that nobody reads.
const SIGPIPE: i32 = 13;

impl Error {
    /// An operating-system error with what was being done. Where this process has no room for another file, the message
    /// also says how to raise the limit.
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

    /// The end of a command whose reader has closed standard output, as `head` does: as if SIGPIPE had ended it.
    pub fn output_closed() -> Self {
        Self::Interrupted {
            signal: SIGPIPE,
            rank: None,
        }
    }

    /// Returns whether it only means that nobody reads standard output any more, which is not worth a message.
    pub fn is_output_closed(&self) -> bool {
        matches!(self, Self::Interrupted { signal, .. } if *signal == SIGPIPE)
    }

    /// A thread or process that the system did not start, with what to change where it has no room for more of them.
    pub fn not_started(what: impl std::fmt::Display, source: &io::Error) -> Self {
        let advice = match source.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory => {
                ". Allow more of them (ulimit -u, the container's limit on processes) or more memory, or use fewer ranks, \
                 workers or threads"
            }
            _ => "",
        };
        Self::Failed(format!("cannot start {what}: {source}{advice}"))
    }

    /// The process exit code: 2 for a wrong request, 128 + signal when interrupted, 1 for everything else.
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
        // That of a shell for a program that SIGPIPE has ended.
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
    fn advice_is_given_where_there_is_no_room() {
        let text = |kind: io::ErrorKind| Error::not_started("a thread", &kind.into()).to_string();
        assert!(text(io::ErrorKind::WouldBlock).contains("ulimit -u"));
        assert_eq!(
            text(io::ErrorKind::NotFound),
            "cannot start a thread: entity not found"
        );
    }
}
