//! Connecting to a rank that listens, and proving to know the secret. The addresses are found in [`super::address`];
//! what is said on the connection is in [`super::introduction`].

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::RankFailure;
use super::address::{RETRY, pause, resolve};
use super::handshake::LAST_WORDS;
use crate::bootstrap::options::JoinOptions;
use crate::channel::{Channel, wait_for};
use crate::signals::Signals;
use tonnage_units::identity::Meeting;
use tonnage_units::{Error, Result};

/// Longest wait for one address to accept.
const CONNECT: Duration = Duration::from_secs(2);
/// Closed handshakes after which trying again is pointless.
const REFUSALS_MAX: u32 = 5;

/// The listener that a rank connects and introduces itself to.
pub(crate) struct Listener {
    pub(crate) rank: u32,
    /// Not known by name before it answers.
    pub(crate) host: Option<String>,
    pub(crate) meeting: Meeting,
}

impl Listener {
    pub(crate) fn error(&self, address: SocketAddr, message: String) -> Error {
        Error::Rank {
            rank: self.rank,
            host: (self.host.clone()).unwrap_or_else(|| address.ip().to_string()),
            message,
        }
    }
}

/// Reason why one try did not work.
enum Attempt {
    /// Nobody listens yet.
    Later(String),
    /// Somebody listens, but does not answer.
    Silent,
    /// Somebody listens, but closes the connection at once during the handshake.
    Refused,
    /// Trying again is pointless.
    Fatal(Error),
    /// Nobody listens any more.
    Deserted(Error),
}

/// Connects and proves to know the secret; tries until the deadline, because rank 0 may start later.
pub(crate) fn connect_to(
    listener: &Listener,
    options: &JoinOptions,
    deadline: Instant,
    signals: &mut Signals,
) -> Result<Channel, RankFailure> {
    let mut refusals = 0;
    let mut answer_timeout = options.stranger_timeout;
    loop {
        let (last, pause) = match try_connect(listener, options, answer_timeout, deadline, signals)
        {
            Ok(channel) => return Ok(channel),
            Err(Attempt::Fatal(error)) => return Err(error.into()),
            Err(Attempt::Deserted(error)) => {
                return Err(RankFailure {
                    error,
                    is_told: true,
                });
            }
            Err(Attempt::Later(text)) => (text, RETRY),
            Err(Attempt::Silent) => {
                // It may be in a long queue, where every new connection is the last one again.
                answer_timeout *= 2;
                ("it accepts connections but does not answer".into(), RETRY)
            }
            Err(Attempt::Refused) => {
                refusals += 1;
                let text = "it closes the connection during the handshake: do all ranks have the same secret \
                            (TONNAGE_SECRET, TONNAGE_SECRET_FILE, ~/.config/tonnage/secret), and is it rank 0 of this \
                            run that listens there, and not of another?";
                (text.to_owned(), 2 * RETRY)
            }
        };
        if Instant::now() + pause >= deadline || refusals >= REFUSALS_MAX {
            let place = match &listener.meeting {
                Meeting::Alone | Meeting::Exchange(_) | Meeting::FirstHost { .. } => {
                    "any other rank".to_owned()
                }
                Meeting::Local { control } => format!("the rank that listens on {control}"),
                Meeting::Master { host, port, .. } => format!("rank 0 on {host} port {port}"),
            };
            let text = format!("{} cannot reach {place}: {last}", options.host);
            return Err(Error::Failed(text).into());
        }
        self::pause(pause, signals)?;
    }
}

fn try_connect(
    listener: &Listener,
    options: &JoinOptions,
    answer_timeout: Duration,
    deadline: Instant,
    signals: &mut Signals,
) -> std::result::Result<Channel, Attempt> {
    let addresses = match &listener.meeting {
        Meeting::Alone | Meeting::Exchange(_) | Meeting::FirstHost { .. } => Vec::new(),
        Meeting::Local { control } => vec![*control],
        // A name may be known later than this process starts, such as that of a pod.
        Meeting::Master { host, port, source } => {
            resolve(host, *port, *source).map_err(|error| Attempt::Later(error.to_string()))?
        }
    };
    let mut last = Attempt::Later("it has no address".into());
    for address in addresses {
        // Before the other side can have begun to count.
        let begun = Instant::now();
        let left = deadline.saturating_duration_since(begun);
        let timeout = CONNECT.min(left).max(Duration::from_millis(1));
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(stream) => match shake_hands(stream, options, answer_timeout, deadline, signals) {
                Ok(channel) => return Ok(channel),
                // Whoever listens shows out those that need longer for their greeting.
                Err(Attempt::Refused) if begun.elapsed() >= options.stranger_timeout => {
                    let text = "it closed the connection before the greeting was finished: is the network between them slow \
                                or lossy, or does somebody flood its port?";
                    last = Attempt::Later(text.into());
                }
                Err(attempt) => last = attempt,
            },
            Err(error)
                if is_inherited(listener) && error.kind() == ErrorKind::ConnectionRefused =>
            {
                let message = "it has ended before all ranks had come: look at its output";
                return Err(Attempt::Deserted(listener.error(address, message.into())));
            }
            Err(error) => last = Attempt::Later(format!("{address}: {error}")),
        }
    }
    Err(last)
}

/// Returns whether whoever listens there took that over from the supervisor, which listened before it started any rank,
/// and goes on until all have come: a refused connection says then that rank 0 is no more.
pub(super) fn is_inherited(listener: &Listener) -> bool {
    matches!(listener.meeting, Meeting::Local { .. }) && listener.rank == 0
}

fn shake_hands(
    stream: TcpStream,
    options: &JoinOptions,
    answer_timeout: Duration,
    deadline: Instant,
    signals: &mut Signals,
) -> std::result::Result<Channel, Attempt> {
    let mut channel = Channel::initiate(stream, &options.secret).map_err(|error| match error {
        // The other side was gone before a word was said.
        Error::Io { .. } => Attempt::Later(error.to_string()),
        error => Attempt::Fatal(error),
    })?;
    let mut until = deadline.min(Instant::now() + answer_timeout);
    while !channel.established() {
        if channel.receive().is_err() || channel.ended {
            return Err(Attempt::Refused);
        }
        channel.flush();
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            signals.refuse_to_wait().map_err(Attempt::Fatal)?;
            return Err(Attempt::Silent);
        }
        if !channel.established() {
            match signals.wait([channel.interest()], left) {
                // Whoever leaves in the middle of a handshake cannot say why.
                Err(Error::Interrupted { signal, .. }) => {
                    until = until.min(Instant::now() + LAST_WORDS);
                    let waited = wait_for(&[channel.interest()], left.min(LAST_WORDS));
                    waited.map_err(Attempt::Fatal)?;
                    signals.put_back(signal);
                }
                waited => drop(waited.map_err(Attempt::Fatal)?),
            }
        }
    }
    Ok(channel)
}
