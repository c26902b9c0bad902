//! Access to a rank's node for threads other than its control thread. The main thread enters collectives, and waits on
//! the connections itself. Any thread can send notes.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::node::TreeNode;
use super::shared::{CollectiveCall, CollectiveResult, CollectiveSlot, SharedNodeState};
use super::watch::LinkWatch;
use crate::channel::message::CollectiveTerms;
use crate::join::JoinBytes;
use tonnage_units::Result;
use tonnage_units::lock::lock;

/// One rank's node, for threads other than its control thread.
#[derive(Clone)]
pub(crate) struct NodeHandle {
    node: Arc<Mutex<TreeNode>>,
    watch: Arc<LinkWatch>,
    shared: Arc<SharedNodeState>,
    /// Number of control-channel bytes that joining took.
    pub(crate) join_bytes: JoinBytes,
}

impl std::fmt::Debug for NodeHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeHandle").finish_non_exhaustive()
    }
}

impl NodeHandle {
    pub(crate) fn new(node: &Arc<Mutex<TreeNode>>) -> Self {
        let inner = lock(node);
        Self {
            node: Arc::clone(node),
            watch: Arc::clone(&inner.watch),
            shared: Arc::clone(&inner.shared),
            join_bytes: inner.join_bytes,
        }
    }

    /// Runs `act` on the node. If this ends the run or starts an inquiry, wakes the control thread, because that thread
    /// then has work.
    fn with_node(&self, act: impl FnOnce(&mut TreeNode)) {
        let mut node = lock(&self.node);
        act(&mut node);
        let is_for_control = node.ending.is_some() || node.inquiry.is_some();
        drop(node);
        if is_for_control {
            self.shared.wake_control();
        }
    }

    /// Blocks the control thread for `time`, by keeping the node locked.
    #[cfg(test)]
    pub(crate) fn keep_for(&self, time: Duration) {
        let _node = lock(&self.node);
        std::thread::sleep(time);
    }

    /// Enters a collective; for the main thread.
    pub(crate) fn enter(&self, enter: CollectiveCall) {
        self.with_node(|node| node.enter(enter));
    }

    /// Reports that the main thread has waited too long in a collective.
    pub(crate) fn report_overdue(&self, terms: CollectiveTerms, waited: Duration) {
        self.with_node(|node| node.report_overdue(terms, waited));
    }

    /// Sends a note of this rank to rank 0.
    pub(crate) fn send_note(&self, note: Vec<u8>) {
        self.with_node(|node| {
            let rank = node.settings.me.rank;
            node.pass_note(rank, note);
        });
    }

    /// Waits for the result of a collective and takes it; `None` when the time is up. While it waits, the calling
    /// thread handles the connections in place of the control thread.
    pub(crate) fn wait(
        &self,
        slot: &CollectiveSlot,
        deadline: Instant,
    ) -> Result<Option<CollectiveResult>> {
        if let Some(result) = slot.take_result() {
            return Ok(Some(result));
        }
        // From here on, the control thread wakes this thread when it has handled messages.
        lock(&self.node).main_waits = true;
        let outcome = self
            .watch
            .shut_gate(true)
            .and_then(|()| self.attend_until(slot, deadline));
        lock(&self.node).main_waits = false;
        self.watch.shut_gate(false)?;
        outcome
    }

    fn attend_until(
        &self,
        slot: &CollectiveSlot,
        deadline: Instant,
    ) -> Result<Option<CollectiveResult>> {
        loop {
            if let Some(result) = slot.take_result() {
                return Ok(Some(result));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            let ready = self.watch.ready(left)?;
            self.with_node(|node| {
                ready.for_each(|index| node.receive_and_flush(index));
                node.tick_when_late();
            });
        }
    }
}
