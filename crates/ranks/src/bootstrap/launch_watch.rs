//! Watches signals and time during steps before a rank joins. In these steps a launcher's library may block until all
//! ranks arrive. The library ignores signals, and waits forever if a rank is stopped or missing.

use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::channel::Interest;
use crate::shared_cpu_time::EACH_RANK;
use crate::signals::{Signals, with_interrupted_rank};
use tonnage_units::identity::Identity;
use tonnage_units::message::print_message;
use tonnage_units::{Error, Result};

/// Base time for a launcher to start all ranks. Each rank adds [`EACH_RANK`].
const LAUNCH_TIME: Duration = Duration::from_secs(60);

/// Deadline for all ranks to reach the launcher. It covers the start of the launcher's library, if a run needs that,
/// and then the exchange.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LaunchDeadline {
    at_most: Duration,
    begun: Instant,
}

impl LaunchDeadline {
    /// Returns a deadline that is `asked` from now. The default grows with the number of ranks.
    pub(crate) fn from_now(asked: Option<Duration>, ranks: u32) -> Self {
        let usual = || LAUNCH_TIME.saturating_add(EACH_RANK.saturating_mul(ranks));
        Self {
            at_most: asked.unwrap_or_else(usual),
            begun: Instant::now(),
        }
    }

    /// Waits until the peer closes the connection. Fails on a signal, or when the time is over.
    pub(crate) fn wait(
        &self,
        signals: &mut Signals,
        until_closed: &UnixStream,
        what: &str,
    ) -> Result<()> {
        loop {
            let left = self.at_most.saturating_sub(self.begun.elapsed());
            if signals
                .wait([Interest::read(until_closed)], left)?
                .contains(&true)
            {
                return Ok(());
            }
            if left.is_zero() {
                return Err(Error::Failed(format!(
                    "not all ranks came to {what} within {:.0?}: look at the output of the others, and whether one is \
                     stopped; to wait longer, set e.g. TONNAGE_JOIN_TIMEOUT=300 (seconds)",
                    self.at_most
                )));
            }
        }
    }
}

/// Runs a step on this thread, while another thread watches signals and the deadline. A signal or a missed deadline
/// ends the process.
pub(crate) fn run_watched<T>(
    signals: &mut Signals,
    identity: &Identity,
    limit: &LaunchDeadline,
    step: impl FnOnce() -> T,
) -> Result<T> {
    let (here, there) =
        UnixStream::pair().map_err(|error| Error::io("cannot make a pair of sockets", error))?;
    std::thread::scope(|scope| {
        std::thread::Builder::new()
            .name("launch watch".into())
            .spawn_scoped(scope, || {
                if let Err(error) = limit.wait(signals, &there, "the start of MPI") {
                    report_and_exit(error, identity);
                }
            })
            .map_err(|error| thread_start_error(&error, identity))?;
        let done = StepEnd(here);
        let given = step();
        drop(done);
        Ok(given)
    })
}

/// Returns the error of a rank that cannot start a thread.
pub(super) fn thread_start_error(error: &std::io::Error, identity: &Identity) -> Error {
    Error::Rank {
        rank: identity.rank,
        host: tonnage_sys::host::name(),
        message: Error::start_error("a thread", error).to_string(),
    }
}

/// Tells the watching thread, when dropped, that the step has ended.
struct StepEnd(UnixStream);

impl Drop for StepEnd {
    fn drop(&mut self) {
        // A process that a library has forked may hold this socket too, so closing it would not be enough.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

/// Adds the rank to an error that occurred before the ranks have met.
pub(crate) fn with_rank_name(error: Error, identity: &Identity, host: &str) -> Error {
    match with_interrupted_rank(error, identity.rank, host) {
        Error::Failed(text) => Error::Failed(format!(
            "rank {} of {} on {host}: {text}",
            identity.rank, identity.size
        )),
        error => error,
    }
}

/// Prints the error and ends the process. The main thread may be stuck inside a library and still runs, so nothing that
/// it uses may be freed. Nothing needs cleaning up, because nothing is buffered or started yet.
fn report_and_exit(error: Error, identity: &Identity) -> ! {
    let error = with_rank_name(error, identity, &tonnage_sys::host::name());
    print_message(&format!("error: {error}"));
    tonnage_sys::process::end_at_once(error.exit_code())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{door, identity};

    fn limit(ms: u64) -> LaunchDeadline {
        LaunchDeadline::from_now(Some(Duration::from_millis(ms)), 2)
    }

    #[test]
    fn a_step_may_take_its_given_time() {
        let identity = identity(1, 2, door().1);
        let mut signals = Signals::none();
        let given = run_watched(&mut signals, &identity, &limit(60_000), || 7).unwrap();
        assert_eq!(given, 7);
        let (_here, there) = UnixStream::pair().unwrap();
        let error = limit(20).wait(&mut signals, &there, "x").unwrap_err();
        let text = with_rank_name(error, &identity, "h").to_string();
        let expected = "rank 1 of 2 on h: not all ranks came to x within 20ms: look at";
        assert!(text.starts_with(expected), "{text}");
    }

    /// A library may have forked a child, which keeps the socket open.
    #[test]
    fn a_step_ends_even_if_another_process_holds_its_socket() {
        let (here, there) = UnixStream::pair().unwrap();
        let _kept = here.try_clone().unwrap();
        drop(StepEnd(here));
        let waited = limit(60_000).wait(&mut Signals::none(), &there, "x");
        waited.unwrap();
    }

    #[test]
    fn a_signal_ends_the_wait_and_names_the_rank() {
        let (_here, there) = UnixStream::pair().unwrap();
        let mut signals = Signals::none();
        signals.put_back(15);
        let error = limit(60_000).wait(&mut signals, &there, "x").unwrap_err();
        let error = with_rank_name(error, &identity(1, 2, door().1), "h");
        assert!(
            matches!(&error, Error::Interrupted { signal: 15, rank: Some((1, host)) } if host == "h")
        );
        assert_eq!(error.exit_code(), 143);
    }

    #[test]
    fn the_time_grows_with_the_ranks_unless_it_was_given() {
        let usual = |ranks| LaunchDeadline::from_now(None, ranks).at_most;
        assert_eq!(usual(1000), Duration::from_secs(90));
        assert!(usual(2) < Duration::from_secs(61));
        assert_eq!(limit(5).at_most, Duration::from_millis(5));
    }
}
