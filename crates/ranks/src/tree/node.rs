//! The state of one rank in the tree: its connections, and facts about the ranks behind them.
//!
//! Both threads of a rank use it, one at a time: the main thread while it waits in a collective
//! ([`super::node_handle`]), and otherwise the control thread ([`super::control`]). The control thread does the
//! periodic work. If it is late, the main thread does it. Only the control thread announces the end of the run.
//!
//! [`super::protocol`] handles messages; [`super::collective`] combines contributions.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use super::clock::{ClockSync, monotonic_ns};
use super::collective::Collectives;
use super::exchange::Subtree;
use super::missing::{InquiryAnswers, MissingInquiry, OverdueReport};
use super::shape::{PeerConnection, TreePosition, children_of};
use super::shared::{CollectiveResult, SharedNodeState};
use super::watch::LinkWatch;
use crate::RankInfo;
use crate::channel::message::{CallNumber, EndCause, MessageHead};
use crate::channel::{Channel, wait_for};
use crate::join::JoinBytes;
use crate::join::late_join::LateJoinListener;
use crate::rank_set::RankSet;
use crate::start_lead::StartLead;
use tonnage_units::lock::lock;
use tonnage_units::{Error, Result};

/// Number of heartbeats per heartbeat timeout. A rank on this host that is silent for the whole timeout counts as lost.
/// Ranks on other hosts have `network_timeout`.
pub(crate) const BEATS: u32 = 6;

/// Settings of a rank's node and its control thread.
pub(crate) struct ControlSettings {
    pub(crate) me: RankInfo,
    pub(crate) size: u32,
    pub(crate) fanout: u32,
    pub(crate) message_bytes_max: usize,
    pub(crate) heartbeat_timeout: Duration,
    pub(crate) network_timeout: Duration,
    /// Time between two questions about the parent's clock. It is not extended if many ranks share a CPU.
    pub(crate) clock_interval: Duration,
    /// Time in which rank 0 collects answers about missing ranks.
    pub(crate) collect_time: Duration,
    pub(crate) grace: Duration,
    pub(crate) end_process: bool,
    /// Whether a supervisor reports the loss of rank 0. If so, the ranks do not.
    pub(crate) supervised: bool,
    /// Lead of synchronized starts, once all clocks are known.
    pub(crate) start_lead: Arc<OnceLock<StartLead>>,
}

/// Direction of a connection in the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkDirection {
    Up,
    /// Towards the child with this index.
    Down(usize),
}

/// A connection, and the state of the rank behind it.
pub(crate) struct Link {
    pub(crate) channel: Channel,
    pub(crate) info: RankInfo,
    pub(crate) way: LinkDirection,
    /// Whether the peer is behind a network.
    is_remote: bool,
    /// Whether time-outs apply. They do once the peer's control thread has sent a message, because before that the peer
    /// may still wait for its children.
    armed: bool,
    last_received: Instant,
    last_sent: Instant,
    pub(crate) goodbye: bool,
    pub(crate) open: bool,
    /// Whether the epoll set reports when this connection can be written to.
    writing_watched: bool,
}

impl Link {
    fn new(peer: PeerConnection, way: LinkDirection, armed: bool) -> Self {
        let now = Instant::now();
        Self {
            is_remote: peer.channel.is_remote(),
            channel: peer.channel,
            info: peer.info,
            way,
            armed,
            last_received: now,
            last_sent: now,
            goodbye: false,
            open: true,
            writing_watched: false,
        }
    }

    /// Returns the cause for the loss of the rank behind this connection.
    fn lost_cause(&self, message: &str) -> EndCause {
        EndCause::lost(self.info.rank, &self.info.host, message)
    }
}

/// The cause of the run's end, which the control thread has not announced yet.
pub(crate) struct RunEnd {
    pub(crate) cause: EndCause,
    /// Whether another rank announced this cause.
    pub(crate) is_from_peer: bool,
}

/// One rank in the tree.
pub(crate) struct TreeNode {
    pub(crate) settings: ControlSettings,
    pub(crate) links: Vec<Link>,
    pub(crate) table: Vec<RankInfo>,
    pub(crate) join_bytes: JoinBytes,
    pub(crate) collectives: Collectives,
    pub(crate) clock: ClockSync,
    pub(crate) inquiry: Option<MissingInquiry>,
    /// At rank 0: the report that led to the inquiry.
    pub(crate) complaint: Option<OverdueReport>,
    pub(crate) shared: Arc<SharedNodeState>,
    pub(crate) watch: Arc<LinkWatch>,
    /// Whether the main thread itself is waiting on the connections.
    pub(crate) main_waits: bool,
    pub(crate) ending: Option<RunEnd>,
    /// When the end was announced to the other ranks.
    pub(crate) aborted: Option<Instant>,
    /// Whether the parent has announced the end of the run.
    pub(crate) has_parent_ended: bool,
    ticked: Instant,
}

impl TreeNode {
    /// Creates the node from its connections. Also returns rank 0's port for late ranks, if there is one.
    pub(crate) fn new(
        settings: ControlSettings,
        tree: TreePosition,
        shared: Arc<SharedNodeState>,
    ) -> Result<(Arc<Mutex<Self>>, Option<LateJoinListener>)> {
        let watch = LinkWatch::new()?;
        let parent = tree.parent.into_iter();
        let mut links: Vec<Link> = parent
            .map(|peer| Link::new(peer, LinkDirection::Up, false))
            .collect();
        for (child, peer) in tree.children.into_iter().enumerate() {
            // A leaf has no children to wait for, so it must send its first message at once.
            let is_leaf = children_of(peer.info.rank, settings.size, settings.fanout).is_empty();
            links.push(Link::new(peer, LinkDirection::Down(child), is_leaf));
        }
        for (index, link) in links.iter().enumerate() {
            watch.add(index, &link.channel, link.channel.peer)?;
        }
        let node = Self {
            clock: if settings.me.rank == 0 {
                ClockSync::root()
            } else {
                ClockSync::child(tree.has_roots_clock)
            },
            collectives: Collectives::new(
                Subtree::new(settings.me.rank, settings.size, settings.fanout),
                settings.size,
            ),
            links,
            table: tree.table,
            join_bytes: tree.bytes,
            inquiry: None,
            complaint: None,
            shared,
            watch: Arc::new(watch),
            main_waits: false,
            ending: None,
            aborted: None,
            has_parent_ended: false,
            ticked: Instant::now(),
            settings,
        };
        Ok((Arc::new(Mutex::new(node)), tree.door))
    }

    /// Handles the messages that arrived while the ranks joined. Those that directly followed the messages of joining
    /// were already read, but not handled.
    pub(crate) fn handle_early_messages(&mut self) {
        self.receive_from_all();
    }

    /// Asks for the parent's clock, publishes the own one if it is known, and sends the first heartbeats.
    pub(crate) fn send_first_messages(&mut self) {
        self.ask_clock();
        self.publish_clock();
        self.send_to_all(&MessageHead::Beat, &[]);
    }

    pub(crate) fn open_links(&self) -> impl Iterator<Item = &Link> {
        self.links.iter().filter(|link| link.open)
    }

    fn beat_interval(&self) -> Duration {
        self.settings.heartbeat_timeout / BEATS
    }

    /// Returns the silence after which a peer counts as lost.
    fn silence_max(&self, link: &Link) -> Duration {
        if link.is_remote {
            self.settings.network_timeout
        } else {
            self.settings.heartbeat_timeout
        }
    }

    /// Returns the time at which periodic work is due next.
    pub(crate) fn next_deadline(&self, now: Instant) -> Instant {
        if let Some(aborted) = self.aborted {
            return now + (aborted + self.settings.grace).saturating_duration_since(now);
        }
        let mut due = now + Duration::from_secs(3600);
        for link in self.open_links() {
            due = due.min(link.last_sent + self.beat_interval());
            if link.armed {
                due = due.min(link.last_received + self.silence_max(link));
            }
        }
        let asked = self.inquiry.as_ref().map(|inquiry| inquiry.until);
        asked.map_or(due, |until| due.min(until))
    }

    /// Reads from a ready connection, handles the messages, and writes queued ones.
    pub(crate) fn receive_and_flush(&mut self, index: usize) {
        self.receive_from(index, false);
        if let Some(link) = self.links.get_mut(index).filter(|link| link.open) {
            link.channel.flush();
        }
        self.watch_writing(index);
    }

    /// Reads and handles all arrived messages on all connections.
    pub(crate) fn receive_from_all(&mut self) {
        for index in 0..self.links.len() {
            self.receive_from(index, true);
        }
    }

    fn receive_from(&mut self, index: usize, until_empty: bool) {
        let Some(link) = self.links.get_mut(index).filter(|link| link.open) else {
            return;
        };
        let before = link.channel.received_bytes;
        let understood = link.channel.taken_bytes;
        let mut outcome = if until_empty {
            link.channel.receive()
        } else {
            link.channel.receive_some()
        };
        if link.channel.received_bytes > before {
            // Heartbeats wait behind a long message, so any received bytes count as a sign of life.
            link.last_received = Instant::now();
        }
        loop {
            let Some(link) = self.links.get_mut(index) else {
                return;
            };
            match outcome.and_then(|()| link.channel.next_message()) {
                Ok(Some(message)) => {
                    link.armed = true;
                    link.last_received = Instant::now();
                    outcome = self.handle_message(index, message);
                }
                Ok(None) => break,
                Err(error) => {
                    // The link stays open, so that the rank behind it is sent the cause too.
                    let cause = EndCause::rank(link.info.rank, &link.info.host, &error.to_string());
                    self.abort(cause);
                    break;
                }
            }
        }
        self.close_ended(index);
        // Bytes are counted when they are handled. Messages that directly followed those of joining were received
        // earlier.
        let bytes = self.links[index].channel.taken_bytes - understood;
        let received = &self.shared.received_bytes;
        received.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Closes a connection that has ended. Unless the rank behind it has said goodbye, the run ends.
    fn close_ended(&mut self, index: usize) {
        let link = self.links.get_mut(index);
        let Some(link) = link.filter(|link| link.open && link.channel.ended) else {
            return;
        };
        self.watch.remove(&link.channel);
        link.open = false;
        if !link.goodbye {
            let message = format!(
                "its process {} ended without saying goodbye: it was killed or it crashed. Look at its output, and \
                 for the out-of-memory killer in the kernel log",
                link.info.pid
            );
            let cause = link.lost_cause(&message);
            self.abort(cause);
        }
    }

    /// Does overdue periodic work on the main thread. The control thread may be late because it cannot lock the node.
    pub(crate) fn tick_when_late(&mut self) {
        if self.ticked.elapsed() > self.beat_interval() {
            self.tick();
        }
    }

    /// Does all periodic work that is due: heartbeats, checks for silent peers, and the end of an inquiry.
    pub(crate) fn tick(&mut self) {
        let now = Instant::now();
        // If this process itself was stopped for a while, it could not receive messages, so peers are not blamed for
        // their silence.
        let excused = now.duration_since(self.ticked) > self.settings.heartbeat_timeout / 2;
        self.ticked = now;
        if self.is_over() {
            return;
        }
        let interval = self.beat_interval();
        let clock_interval = self.settings.clock_interval;
        if let Some(question) = self.clock.next_question(monotonic_ns(), clock_interval) {
            self.send_to_parent(&question, &[]);
        }
        for index in 0..self.links.len() {
            let Some(link) = self.links.get_mut(index).filter(|link| link.open) else {
                continue;
            };
            if excused {
                link.last_received = now;
            }
            let last_sent = link.last_sent;
            if self.is_silent(index, now) {
                // Messages may have arrived that the main thread has not read yet, so they are read first.
                self.receive_from(index, true);
                if self.is_silent(index, now) {
                    self.abort_for_silence(index, now);
                }
            }
            if self.is_over() {
                return;
            }
            if now.duration_since(last_sent) >= interval {
                self.send(index, &MessageHead::Beat, &[]);
            }
        }
        let until = self.inquiry.as_ref().map(|inquiry| inquiry.until);
        if until.is_some_and(|until| now >= until) {
            self.close_inquiry();
        }
    }

    fn is_silent(&self, index: usize, now: Instant) -> bool {
        let link = self.links.get(index).filter(|link| link.open && link.armed);
        link.is_some_and(|link| {
            now.saturating_duration_since(link.last_received) >= self.silence_max(link)
        })
    }

    fn abort_for_silence(&mut self, index: usize, now: Instant) {
        let link = &self.links[index];
        let silence = now.saturating_duration_since(link.last_received);
        let me = &self.settings.me;
        let message = format!(
            "rank {} on {} has heard nothing from it (process {}) for {silence:.1?}: it hangs or is stopped, or its \
             host or the network between them is gone",
            me.rank, me.host, link.info.pid
        );
        let cause = link.lost_cause(&message);
        self.abort(cause);
    }

    /// Sends a message on one link.
    pub(crate) fn send(&mut self, index: usize, head: &MessageHead, payload: &[u8]) {
        let Some(link) = self.links.get_mut(index).filter(|link| link.open) else {
            return;
        };
        link.last_sent = Instant::now();
        let before = link.channel.queued_bytes;
        let sealed = link.channel.send(head, payload);
        let sent = link.channel.queued_bytes - before;
        self.shared.sent_bytes.fetch_add(sent, Ordering::Relaxed);
        if let Err(error) = sealed {
            self.watch.remove(&link.channel);
            link.open = false;
            let cause = link.lost_cause(&error.to_string());
            self.abort(cause);
        } else {
            link.channel.flush();
            self.watch_writing(index);
        }
    }

    /// Watches whether a connection can be written to, as long as data is queued for it.
    fn watch_writing(&mut self, index: usize) {
        let Some(link) = self.links.get_mut(index).filter(|link| link.open) else {
            return;
        };
        let wants_write = link.channel.wants_write();
        if wants_write == link.writing_watched {
            return;
        }
        link.writing_watched = wants_write;
        if let Err(error) = self.watch.change(index, &link.channel, wants_write) {
            self.fail(&error);
        }
    }

    pub(crate) fn send_to_parent(&mut self, head: &MessageHead, payload: &[u8]) {
        if self.settings.me.rank != 0 {
            // The parent is always the first link.
            self.send(0, head, payload);
        }
    }

    pub(crate) fn send_to_children(&mut self, head: &MessageHead, payload: &[u8]) {
        for index in 0..self.links.len() {
            if self.links[index].way != LinkDirection::Up {
                self.send(index, head, payload);
            }
        }
    }

    pub(crate) fn send_to_all(&mut self, head: &MessageHead, payload: &[u8]) {
        self.send_to_parent(head, payload);
        self.send_to_children(head, payload);
    }

    /// Returns whether the run has ended, or the control thread is about to end it.
    pub(crate) fn is_over(&self) -> bool {
        self.ending.is_some() || self.aborted.is_some()
    }

    /// Ends the run with this cause. If the run has already ended, the first cause stays. The control thread announces
    /// the cause to the other ranks.
    pub(crate) fn abort(&mut self, cause: EndCause) {
        if !self.is_over() {
            self.shared.stop(&cause);
            self.ending = Some(RunEnd {
                cause,
                is_from_peer: false,
            });
        }
    }

    /// Ends the run because of this rank's error.
    pub(crate) fn fail(&mut self, error: &Error) {
        let cause = self.settings.me.failure_cause(error);
        self.abort(cause);
    }

    /// Ends the run because another rank has announced its end.
    pub(crate) fn receive_end(&mut self, cause: EndCause) {
        if !self.is_over() {
            self.ending = Some(RunEnd {
                cause,
                is_from_peer: true,
            });
        }
    }

    /// Waits until the parent announces the end of the run, at most until `until`. Returns whether it did.
    pub(crate) fn wait_for_parents_end(&mut self, until: Instant) -> bool {
        while !self.has_parent_ended {
            let left = until.saturating_duration_since(Instant::now());
            let Some(link) = self.links.first().filter(|link| link.open) else {
                return false;
            };
            if left.is_zero() || wait_for(&[link.channel.interest()], left).is_err() {
                return false;
            }
            self.receive_from(0, true);
        }
        true
    }

    /// Announces the end of the run to the other ranks and to the main thread.
    pub(crate) fn announce_end(&mut self, cause: EndCause) {
        self.aborted = Some(Instant::now());
        self.shared.stop(&cause);
        self.collectives.stop();
        self.shared
            .clock_known
            .set_result(CollectiveResult::Stopped);
        self.send_to_all(&MessageHead::Abort { cause }, &[]);
        if self.main_waits {
            self.watch.wake_main();
        }
    }

    /// Returns this rank's answer to an inquiry about a collective with these members.
    pub(crate) fn own_answer(&self, call: CallNumber, members: &RankSet) -> InquiryAnswers {
        let me = self.settings.me.rank;
        if !members.contains(me) || self.collectives.has_entered(call) {
            return InquiryAnswers::from_present_rank(me);
        }
        let phase = lock(&self.shared.phase);
        InquiryAnswers::from_missing_rank(me, &phase.0, phase.1.elapsed())
    }

    /// Ends an inquiry with the answers received so far. Rank 0 draws the conclusion; other ranks send the answers to
    /// their parent.
    pub(crate) fn close_inquiry(&mut self) {
        let Some(inquiry) = self.inquiry.take() else {
            return;
        };
        let call = inquiry.call;
        let answers = inquiry.answers;
        match self.complaint.take() {
            None => self.pass_answers(call, &answers),
            Some(complaint) if !self.collectives.has_finished(call) => {
                let cause = complaint.verdict(&answers, &self.table);
                self.abort(cause);
            }
            Some(_) => {}
        }
    }
}
