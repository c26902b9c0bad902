//! Connects to a listening rank and proves that this rank has the secret. The addresses come from [`super::address`].
//! The messages on the connection are in [`super::introduction`].

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::RankFailure;
use super::address::{RETRY, pause_unless_interrupted, resolve};
use super::handshake::LAST_WORDS;
use super::wait_notice::WaitNotice;
use crate::bootstrap::options::JoinOptions;
use crate::channel::{Channel, wait_for};
use crate::signals::Signals;
use tonnage_units::identity::{AddressSource, Meeting};
use tonnage_units::{Error, Result};

/// Longest wait until an address accepts a connection.
const CONNECT: Duration = Duration::from_secs(2);
/// Number of failed handshakes after which this rank gives up.
const REFUSALS_MAX: u32 = 5;

/// The listening rank that this rank connects to and introduces itself to.
pub(crate) struct Listener {
    pub(crate) rank: u32,
    /// Host name of the listening rank, if it is known.
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

/// Why an attempt failed.
enum AttemptError {
    /// No process listens yet.
    Later(String),
    /// The peer accepts connections but does not answer.
    Silent,
    /// The peer closed the connection during the handshake.
    Refused,
    /// A retry is pointless.
    Fatal(Error),
    /// The listening rank has ended.
    Deserted(Error),
}

/// Connects and proves that this rank has the secret. It retries until the deadline, because rank 0 may start later.
pub(crate) fn connect_to(
    listener: &Listener,
    options: &JoinOptions,
    deadline: Instant,
    signals: &mut Signals,
) -> Result<Channel, RankFailure> {
    let mut refusals = 0;
    let mut answer_timeout = options.stranger_timeout;
    let mut notice = WaitNotice::new(deadline);
    loop {
        let (last, pause) = match try_connect(listener, options, answer_timeout, deadline, signals)
        {
            Ok(channel) => return Ok(channel),
            Err(AttemptError::Fatal(error)) => return Err(error.into()),
            Err(AttemptError::Deserted(error)) => {
                return Err(RankFailure {
                    error,
                    is_told: true,
                });
            }
            Err(AttemptError::Later(text)) => (text, RETRY),
            Err(AttemptError::Silent) => {
                // The peer may have a long queue. A new connection goes to the end of that queue, so this rank waits
                // longer next time.
                answer_timeout *= 2;
                ("it accepts connections but does not answer".into(), RETRY)
            }
            Err(AttemptError::Refused) => {
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
        // A launcher's thousands of ranks would all print the same notice. If a user gave the address by hand, there
        // are few ranks.
        if let Meeting::Master {
            host,
            port,
            source: AddressSource::Option,
        } = &listener.meeting
        {
            notice.print_if_due(|| format!("rank 0 on {host} port {port}: {last}"));
        }
        self::pause_unless_interrupted(pause, signals)?;
    }
}

fn try_connect(
    listener: &Listener,
    options: &JoinOptions,
    answer_timeout: Duration,
    deadline: Instant,
    signals: &mut Signals,
) -> std::result::Result<Channel, AttemptError> {
    let addresses = match &listener.meeting {
        Meeting::Alone | Meeting::Exchange(_) | Meeting::FirstHost { .. } => Vec::new(),
        Meeting::Local { control } => vec![*control],
        // Some names, such as a pod's, become known only after this process has started.
        Meeting::Master { host, port, source } => {
            resolve(host, *port, *source).map_err(|error| AttemptError::Later(error.to_string()))?
        }
    };
    let mut last = AttemptError::Later("it has no address".into());
    for address in addresses {
        // The time starts before connecting, so that it is never shorter than the time that the peer measures.
        let begun = Instant::now();
        let left = deadline.saturating_duration_since(begun);
        let timeout = CONNECT.min(left).max(Duration::from_millis(1));
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(stream) => match shake_hands(stream, options, answer_timeout, deadline, signals) {
                Ok(channel) => return Ok(channel),
                // The listener closes connections that do not finish the greeting within this time.
                Err(AttemptError::Refused) if begun.elapsed() >= options.stranger_timeout => {
                    let text = "it closed the connection before the greeting was finished: is the network between them slow \
                                or lossy, or is its port flooded?";
                    last = AttemptError::Later(text.into());
                }
                Err(attempt) => last = attempt,
            },
            Err(error)
                if is_inherited(listener) && error.kind() == ErrorKind::ConnectionRefused =>
            {
                let message = "it has ended before all ranks had come: look at its output";
                return Err(AttemptError::Deserted(
                    listener.error(address, message.into()),
                ));
            }
            Err(error) => last = AttemptError::Later(format!("{address}: {error}")),
        }
    }
    Err(last)
}

/// Returns whether the listener inherited its socket from the supervisor. That socket is open before any rank starts,
/// until all ranks have joined. So a refused connection means that rank 0 has ended.
pub(super) fn is_inherited(listener: &Listener) -> bool {
    matches!(listener.meeting, Meeting::Local { .. }) && listener.rank == 0
}

fn shake_hands(
    stream: TcpStream,
    options: &JoinOptions,
    answer_timeout: Duration,
    deadline: Instant,
    signals: &mut Signals,
) -> std::result::Result<Channel, AttemptError> {
    let mut channel = Channel::initiate(stream, &options.secret).map_err(|error| match error {
        // The peer closed the connection before it sent anything.
        Error::Io { .. } => AttemptError::Later(error.to_string()),
        error => AttemptError::Fatal(error),
    })?;
    let mut until = deadline.min(Instant::now() + answer_timeout);
    while !channel.is_established() {
        if channel.receive().is_err() || channel.ended {
            return Err(AttemptError::Refused);
        }
        channel.flush();
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            signals.check_interrupted().map_err(AttemptError::Fatal)?;
            return Err(AttemptError::Silent);
        }
        if !channel.is_established() {
            match signals.wait([channel.interest()], left) {
                // Completing the handshake is the only way to send the peer the reason, so this rank continues for a
                // moment.
                Err(Error::Interrupted { signal, .. }) => {
                    until = until.min(Instant::now() + LAST_WORDS);
                    let waited = wait_for(&[channel.interest()], left.min(LAST_WORDS));
                    waited.map_err(AttemptError::Fatal)?;
                    signals.put_back(signal);
                }
                waited => drop(waited.map_err(AttemptError::Fatal)?),
            }
        }
    }
    Ok(channel)
}
