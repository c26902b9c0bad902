//! Ranks as threads of this process. Such a nested run is for engines that move bytes only within one process.
//!
//! These ranks meet over loopback, like other ranks. Signals are handled by the enclosing run, which also ends the
//! process if its main thread is stuck.

use tonnage_units::Result;
use tonnage_units::identity::{Identity, Meeting};

use crate::bootstrap::secret::{Secret, generate_text, plan_hash};
use crate::join::address::loopback_listener;
use crate::{JoinOptions, Rank, RankFailure};

/// A rank that has not joined yet.
#[derive(Debug)]
pub struct ThreadRank {
    identity: Identity,
    options: JoinOptions,
}

/// Creates `size` ranks (at least two), one per thread.
pub fn thread_ranks(size: u32) -> Result<Vec<ThreadRank>> {
    let (listener, control) = loopback_listener()?;
    let secret = Secret::from_text(&generate_text()?)?;
    let mut listener = Some(listener);
    let member = |rank| {
        let identity = Identity {
            rank,
            size,
            local_rank: rank,
            local_size: Some(size),
            source: "a thread".into(),
            meeting: Meeting::Local { control },
        };
        let mut options =
            JoinOptions::new(&|_| None, &identity, secret.clone(), plan_hash("threads")?)?;
        options.listener = listener.take();
        options.end_process = false;
        options.handle_signals = false;
        options.launcher = None;
        Ok(ThreadRank { identity, options })
    };
    (0..size).map(member).collect()
}

impl ThreadRank {
    /// Returns the rank's number.
    pub fn id(&self) -> u32 {
        self.identity.rank
    }

    /// Joins the other ranks. Every rank must call this in its own thread.
    pub fn join(self) -> std::result::Result<Rank, RankFailure> {
        Rank::join(self.identity, self.options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tonnage_units::reduce::ReduceMax;

    #[test]
    fn threads_meet_and_know_that_they_share_a_host() {
        let threads = thread_ranks(3).unwrap().into_iter().map(|member| {
            std::thread::spawn(move || {
                let mut rank = member.join().unwrap();
                let on_machine = rank.hosts().ranks_of_machine(rank.id()).len();
                let place = (rank.id(), rank.identity().local_rank);
                let ReduceMax(most) = rank
                    .reduce(
                        "numbers",
                        ReduceMax(u64::from(rank.id())),
                        Duration::from_secs(20),
                    )
                    .unwrap();
                rank.close().unwrap();
                (place, on_machine, most)
            })
        });
        let threads: Vec<_> = threads.collect();
        for (number, thread) in (0..).zip(threads) {
            assert_eq!(thread.join().unwrap(), ((number, number), 3, 2));
        }
    }
}
