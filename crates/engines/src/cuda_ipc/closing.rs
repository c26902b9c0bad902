//! Closes a worker. Each worker closes its peers' memories before the peers free them.
//!
//! Drivers do not document what happens if a process frees memory that is still open in another process. So each worker
//! notifies its peers after it has closed their memories. It keeps its own memories until all peers have notified it,
//! have died, or have been silent for too long.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::rings::PeerRings;

/// Maximum time to wait for peers that neither close this rank's memory nor die.
const LONGEST: Duration = Duration::from_secs(1);

/// Time between two checks.
const PAUSE: Duration = Duration::from_micros(200);

/// The time that a rank waits for its peers. All workers of the rank share one timeout, because a peer that does not
/// close one worker's memory will not close the memories of the other workers either.
#[derive(Debug)]
pub(super) struct CloseTimeout {
    longest: Duration,
    is_used_up: AtomicBool,
}

impl Default for CloseTimeout {
    fn default() -> Self {
        Self {
            longest: LONGEST,
            is_used_up: AtomicBool::new(false),
        }
    }
}

/// Notifies all peers that this worker has closed their memories. Then waits until they have done the same or have
/// ended.
pub(super) fn close_and_wait(peers: &[(PeerRings, Option<u32>)], patience: &CloseTimeout) {
    for (peer, _) in peers {
        // This fails only if the ring is too short. Then the peer does not read the ring either.
        let _ = peer.outbox.close();
    }
    let deadline = Instant::now() + patience.longest;
    let holds = |(peer, process): &(PeerRings, Option<u32>)| {
        !peer.inbox.is_closed().unwrap_or(true) && process.is_some_and(is_alive)
    };
    while peers.iter().any(holds) {
        if patience.is_used_up.load(Ordering::Relaxed) || Instant::now() > deadline {
            patience.is_used_up.store(true, Ordering::Relaxed);
            return;
        }
        std::thread::sleep(PAUSE);
    }
}

/// Returns whether a process exists and has not ended.
fn is_alive(process: u32) -> bool {
    let file: PathBuf = ["/proc", &process.to_string(), "stat"].iter().collect();
    let Ok(stat) = std::fs::read_to_string(file) else {
        return false;
    };
    // The process name is in brackets and may contain any characters. The state follows it.
    let state = stat.rsplit_once(") ").map(|(_, state)| state);
    !state.is_some_and(|state| state.starts_with(['Z', 'X']))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rings::{Outbox, pair};

    /// Returns the rings to a peer, and the peer's end of the ring that is read here.
    fn rings() -> (PeerRings, Outbox) {
        let ((inbox, far), (_, outbox)) = (pair(), pair());
        let peer = PeerRings {
            rank: 1,
            inbox,
            outbox,
        };
        (peer, far)
    }

    /// If a live peer does not close, only one of a rank's workers waits for it. No worker waits for a peer that has
    /// closed or died.
    #[test]
    fn the_wait_for_a_silent_peer_is_used_up_once() {
        let (short, long) = (Duration::from_millis(2), Duration::from_secs(60));
        let patience = |longest| CloseTimeout {
            longest,
            ..CloseTimeout::default()
        };
        let is_used_up = |patience: &CloseTimeout| patience.is_used_up.load(Ordering::Relaxed);
        let alive = Some(std::process::id());
        let once = patience(short);
        let (silent, far) = rings();
        let began = Instant::now();
        let mut peers = [(silent, alive)];
        close_and_wait(&peers, &once);
        assert!(began.elapsed() >= short && is_used_up(&once));
        // Another worker of the same rank has a longer timeout, but does not wait again.
        let rest = CloseTimeout {
            longest: long,
            ..once
        };
        close_and_wait(&peers, &rest);
        assert!(began.elapsed() < long);
        let fresh = patience(long);
        far.close().unwrap();
        close_and_wait(&peers, &fresh);
        peers[0] = (rings().0, None);
        close_and_wait(&peers, &fresh);
        assert!(began.elapsed() < long && !is_used_up(&fresh));
    }

    #[test]
    fn an_ended_process_is_not_waited_for() {
        assert!(is_alive(std::process::id()));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let process = child.id();
        // The child becomes a zombie: it has ended, but its exit code has not been fetched.
        let deadline = Instant::now() + Duration::from_secs(20);
        while is_alive(process) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(!is_alive(process));
        child.wait().unwrap();
        assert!(!is_alive(process));
    }
}
