//! Single reads by the lanes of a peer, outside of trials: first contact, and the proof that writes have arrived.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use tonnage_engine::Verb;
use tonnage_sys::kread::{
    KreadFlow, KreadOrder, KreadOutcome, KreadPacing, KreadSession, KreadSlotOrder, KreadVerb,
};
use tonnage_units::{Error, Result};

use super::kernel_worker::KernelWorker;

/// Time without an answer that first contact and flushes forgive; queue pairs give up sooner, unless they were told to
/// try forever.
const PATIENCE: Duration = Duration::from_secs(30);

/// Time between two looks at whether the run was stopped.
const LOOK: Duration = Duration::from_millis(10);

impl KernelWorker {
    /// Reads so many bytes from a place of a peer by each of its lanes, to behind the worker's memory.
    pub(super) fn touch(
        &self,
        peer: usize,
        from: (u64, u32),
        bytes: u32,
        stop: &AtomicBool,
    ) -> Result<()> {
        self.read_by_each(peer, from, bytes, stop, |session, order, flow| {
            Ok(one_read(session, order, flow))
        })
    }

    /// Does the same, and asks meanwhile whether the run was stopped.
    pub(super) fn touch_unless(
        &self,
        stopped: &dyn Fn() -> bool,
        peer: usize,
        from: (u64, u32),
        bytes: u32,
    ) -> Result<()> {
        let stop = AtomicBool::new(stopped());
        self.read_by_each(peer, from, bytes, &stop, |session, order, flow| {
            let asker = thread::current();
            thread::scope(|scope| {
                let read = || {
                    let outcome = one_read(session, order, flow);
                    asker.unpark();
                    outcome
                };
                let reader = thread::Builder::new().spawn_scoped(scope, read);
                let reader = reader.map_err(|error| Error::not_started("a thread", &error))?;
                while !reader.is_finished() {
                    thread::park_timeout(LOOK);
                    if stopped() {
                        stop.store(true, Ordering::Relaxed);
                    }
                }
                let outcome = reader.join();
                Ok(outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            })
        })
    }

    fn read_by_each(
        &self,
        peer: usize,
        from: (u64, u32),
        bytes: u32,
        stop: &AtomicBool,
        read: impl Fn(&KreadSession, &KreadOrder<'_>, KreadFlow) -> Result<KreadOutcome>,
    ) -> Result<()> {
        let (each, peer) = (self.each(), &self.peers[peer]);
        let session = self.session()?;
        let memory = self.memory.as_ref();
        let order = KreadOrder {
            verb: KreadVerb::Read,
            bytes,
            window: 1,
            pacing: KreadPacing::Each,
            orders: (KreadSlotOrder::Fixed, KreadSlotOrder::Fixed),
            slots: (1, bytes.into()),
            operations_max: Some(1),
            duration: None,
            patience: PATIENCE,
            timed: false,
            stop,
        };
        for lane in peer.first..peer.first + each {
            let flow = KreadFlow {
                lane,
                lanes: 1,
                remote: (from.0, bytes.into()),
                key: from.1,
                local: memory.map_or(0, |(_, memory)| memory.len() as u64),
                seed: 0,
                begin: 0,
            };
            if stop.load(Ordering::Relaxed) {
                return Err(was_stopped());
            }
            let outcome = read(session, &order, flow)?;
            if stop.load(Ordering::Relaxed) {
                return Err(was_stopped());
            }
            self.check(&outcome, Verb::Read, PATIENCE)?;
        }
        Ok(())
    }
}

pub(super) fn was_stopped() -> Error {
    Error::Failed("the run was stopped".into())
}

/// Returns whether a signal that did not end the program ended a run.
pub(super) fn was_interrupted(outcome: &KreadOutcome) -> bool {
    let signal = |error: &std::io::Error| Errno::from_io_error(error) == Some(Errno::INTR);
    outcome.failed.is_none() && outcome.ended.as_ref().is_some_and(signal)
}

/// A read, begun again where a signal came before it was posted.
fn one_read(session: &KreadSession, order: &KreadOrder<'_>, flow: KreadFlow) -> KreadOutcome {
    loop {
        let outcome = session.run(order, &[flow]);
        let posted = outcome.issued.iter().any(|&issued| issued != 0);
        if posted || !was_interrupted(&outcome) || order.stop.load(Ordering::Relaxed) {
            return outcome;
        }
    }
}
