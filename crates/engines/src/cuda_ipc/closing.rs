//! The end of a worker: memory of peers is given back before the peers free it.
//!
//! A driver does not say what happens to those who have memory open that its owner frees. So each worker tells its
//! peers when it has closed theirs, and keeps its own until they have said so, have died, or do not answer.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::rings::PeerRings;

/// Time that a rank waits for peers that neither close nor die.
const LONGEST: Duration = Duration::from_secs(1);

/// Time between two looks.
const PAUSE: Duration = Duration::from_micros(200);

/// Readiness of a rank to wait for peers. It is used up once: what keeps one peer from closing keeps it from closing
/// what other workers wait for.
#[derive(Debug)]
pub(super) struct LeavePatience {
    longest: Duration,
    is_used_up: AtomicBool,
}

impl Default for LeavePatience {
    fn default() -> Self {
        Self {
            longest: LONGEST,
            is_used_up: AtomicBool::new(false),
        }
    }
}

/// Tells all peers that nothing of theirs is open here, and waits until they have said the same or are gone.
pub(super) fn take_leave(peers: &[(PeerRings, Option<u32>)], patience: &LeavePatience) {
    for (peer, _) in peers {
        // A torn ring has no reader either.
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

/// Returns whether a process is there that has not ended.
fn is_alive(process: u32) -> bool {
    let file: PathBuf = ["/proc", &process.to_string(), "stat"].iter().collect();
    let Ok(stat) = std::fs::read_to_string(file) else {
        return false;
    };
    // The name, in brackets, may hold anything; the state follows it.
    let state = stat.rsplit_once(") ").map(|(_, state)| state);
    !state.is_some_and(|state| state.starts_with(['Z', 'X']))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rings::{Outbox, pair};

    /// Rings of a peer, and the peer's side of those that this one reads.
    fn rings() -> (PeerRings, Outbox) {
        let ((inbox, far), (_, outbox)) = (pair(), pair());
        let peer = PeerRings {
            rank: 1,
            inbox,
            outbox,
        };
        (peer, far)
    }

    /// A peer that lives and does not close is waited for once, and no worker after that waits again; one that has
    /// closed, or died, is not waited for.
    #[test]
    fn patience_with_a_peer_that_does_not_answer_is_used_up_once() {
        let (short, long) = (Duration::from_millis(2), Duration::from_secs(60));
        let patience = |longest| LeavePatience {
            longest,
            ..LeavePatience::default()
        };
        let is_used_up = |patience: &LeavePatience| patience.is_used_up.load(Ordering::Relaxed);
        let alive = Some(std::process::id());
        let once = patience(short);
        let (silent, far) = rings();
        let began = Instant::now();
        let mut peers = [(silent, alive)];
        take_leave(&peers, &once);
        assert!(began.elapsed() >= short && is_used_up(&once));
        // Another worker of the rank has more patience, and does not use it.
        let rest = LeavePatience {
            longest: long,
            ..once
        };
        take_leave(&peers, &rest);
        assert!(began.elapsed() < long);
        let fresh = patience(long);
        far.close().unwrap();
        take_leave(&peers, &fresh);
        peers[0] = (rings().0, None);
        take_leave(&peers, &fresh);
        assert!(began.elapsed() < long && !is_used_up(&fresh));
    }

    #[test]
    fn a_process_that_has_ended_holds_nothing() {
        assert!(is_alive(std::process::id()));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let process = child.id();
        // Ended, and nobody has asked for its exit code yet.
        let deadline = Instant::now() + Duration::from_secs(20);
        while is_alive(process) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(!is_alive(process));
        child.wait().unwrap();
        assert!(!is_alive(process));
    }
}
