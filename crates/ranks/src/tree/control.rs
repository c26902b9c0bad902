//! The control thread of a rank: it owns all connections of the control channel, and sleeps unless something happens.
//!
//! It passes collectives up and down the tree, tells its neighbours that it lives, notices when one of them does not,
//! and when the run ends early sees to it that everybody hears the first cause and this process really ends. What a
//! message means is in [`super::protocol`]; how contributions are combined in [`super::collective`].

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::clock::{ClockSync, monotonic_ns};
use super::collective::Collectives;
use super::exchange::Subtree;
use super::link::{Link, Way};
use super::missing::{Answers, Complaint, Inquiry};
use super::settings::ControlSettings;
use super::shape::{TreePosition, children_of};
use super::shared::{CollectiveResult, ControlCommand, Shared, speaks};
use crate::RankInfo;
use crate::channel::message::{CallNumber, Cause, Head};
use crate::channel::{Interest, wait_for};
use crate::hosts::is_one_boot;
use crate::join::door::LateDoor;
use crate::rank_set::RankSet;
use crate::signals::Signals;
use tonnage_units::lock::lock;
use tonnage_units::message::say;
use tonnage_units::{Error, Result};

/// Time for last words when the run ends in order, and when it does not.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_ABORT: Duration = Duration::from_millis(200);

/// Reason that the control thread woke.
struct Awake {
    /// Links to listen to.
    links: Vec<usize>,
    launcher_ended: bool,
}

/// Signs of life in the time after which a rank that gives none is taken for lost.
pub(crate) const BEATS: u32 = 6;

/// The state of the control thread.
pub(crate) struct Control {
    pub(crate) settings: ControlSettings,
    pub(crate) links: Vec<Link>,
    pub(crate) table: Vec<RankInfo>,
    pub(crate) collectives: Collectives,
    pub(crate) clock: ClockSync,
    pub(crate) inquiry: Option<Inquiry>,
    /// The reason of the inquiry, at rank 0.
    pub(crate) complaint: Option<Complaint>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) signals: Signals,
    door: Option<LateDoor>,
    aborted: Option<Instant>,
    leaving: bool,
    ticked: Instant,
}

impl Control {
    pub(crate) fn new(
        settings: ControlSettings,
        tree: TreePosition,
        shared: Arc<Shared>,
        signals: Signals,
    ) -> Self {
        let mut links: Vec<Link> = tree
            .parent
            .into_iter()
            .map(|peer| Link::new(peer, Way::Up))
            .collect();
        for (child, peer) in tree.children.into_iter().enumerate() {
            let is_leaf = children_of(peer.info.rank, settings.size, settings.fanout).is_empty();
            let mut link = Link::new(peer, Way::Down(child));
            // It has nobody to wait for, so its first words are due now.
            link.armed = is_leaf;
            links.push(link);
        }
        let same_boot = is_one_boot(&settings.me.boot_id, &tree.root_boot_id);
        let is_root = settings.me.rank == 0;
        Self {
            clock: if is_root {
                ClockSync::root()
            } else {
                ClockSync::child(same_boot)
            },
            collectives: Collectives::new(
                Subtree::new(settings.me.rank, settings.size, settings.fanout),
                settings.size,
            ),
            links,
            table: tree.table,
            inquiry: None,
            complaint: None,
            shared,
            signals,
            door: tree.door,
            aborted: None,
            leaving: false,
            ticked: Instant::now(),
            settings,
        }
    }

    /// Runs until the main thread leaves, or the run has ended and its grace is over.
    pub(crate) fn run(mut self) {
        self.start();
        while !self.over() {
            if let Err(error) = self.turn() {
                let me = &self.settings.me;
                let cause = Cause::of(&error, me.rank, &me.host);
                self.abort(cause);
                // Without its connections or its sleep this thread cannot go on.
                break;
            }
        }
        self.linger();
        if self.settings.end_process && self.aborted.is_some() && !self.leaving {
            self.end_process();
        }
    }

    fn start(&mut self) {
        // What came right behind the words of joining has been read with them.
        for index in 0..self.links.len() {
            self.listen(index);
        }
        self.ask_clock();
        self.publish_clock();
        self.tell_all(&Head::Beat, &[]);
    }

    fn turn(&mut self) -> Result<()> {
        let awake = self.sleep()?;
        self.shared.awake();
        // Links come first: when a rank is killed its launcher often ends the others by a signal, and the cause is the
        // better message.
        for index in awake.links {
            self.listen(index);
        }
        if let Some(door) = &mut self.door {
            door.turn_away(&self.table);
        }
        let commands = std::mem::take(&mut *lock(&self.shared.commands));
        for command in commands {
            self.obey(command);
        }
        for signal in self.signals.take() {
            let me = &self.settings.me;
            let cause = Cause::interrupted(signal, me.rank, &me.host);
            self.abort(cause);
        }
        if awake.launcher_ended {
            self.lose_launcher();
        }
        self.tick();
        for link in self.links.iter_mut().filter(|link| link.open) {
            link.channel.flush();
        }
        Ok(())
    }

    /// Sleeps until something happens.
    fn sleep(&self) -> Result<Awake> {
        let now = Instant::now();
        let mut wake = now + Duration::from_secs(3600);
        for link in self.open_links() {
            wake = wake.min(link.said + self.beat_interval());
            if link.armed {
                wake = wake.min(link.heard + self.settings.silence_max(link.is_remote));
            }
        }
        if let Some(inquiry) = &self.inquiry {
            wake = wake.min(inquiry.until());
        }
        if let Some(aborted) = self.aborted {
            wake = now + (aborted + self.settings.grace).saturating_duration_since(now);
        }
        let launcher = self.settings.launcher.as_ref();
        let mut interests: Vec<_> = launcher
            .map(|launcher| Interest::read(&launcher.ended))
            .into_iter()
            .collect();
        interests.push(Interest::read(self.shared.wake()));
        interests.extend(self.signals.interests());
        if let Some(door) = &self.door {
            interests.extend(door.interests());
            wake = door.expiry().map_or(wake, |expiry| expiry.min(wake));
        }
        let others = interests.len();
        interests.extend(self.open_links().map(|link| link.channel.interest()));
        let ready = wait_for(&interests, wake.saturating_duration_since(now))?;
        let (ready, of_links) = ready.split_at(others.min(ready.len()));
        // Anything but links and the main thread is rare: then all links are looked at, for what came at the same time.
        let own_wake = usize::from(launcher.is_some());
        let is_rare = (0..).zip(ready).any(|(place, &is)| is && place != own_wake);
        let open = (0..).zip(&self.links).filter(|(_, link)| link.open);
        let heard = open.zip(of_links).filter(|&(_, &is)| is || is_rare);
        Ok(Awake {
            links: heard.map(|((index, _), _)| index).collect(),
            launcher_ended: launcher.is_some() && ready.first() == Some(&true),
        })
    }

    fn lose_launcher(&mut self) {
        if let Some(launcher) = self.settings.launcher.take() {
            let me = &self.settings.me;
            let message = format!(
                "its launcher (process {}) ended before the run did: it was killed or it crashed. Look at its output",
                launcher.pid
            );
            let cause = Cause::rank(me.rank, &me.host, &message);
            self.abort(cause);
        }
    }

    fn open_links(&self) -> impl Iterator<Item = &Link> {
        self.links.iter().filter(|link| link.open)
    }

    fn beat_interval(&self) -> Duration {
        self.settings.heartbeat_timeout / BEATS
    }

    fn listen(&mut self, index: usize) {
        let Some(link) = self.links.get_mut(index).filter(|link| link.open) else {
            return;
        };
        let before = link.channel.received_bytes();
        let mut outcome = link.channel.receive();
        let received = link.channel.received_bytes() - before;
        self.shared
            .received_bytes
            .fetch_add(received, Ordering::Relaxed);
        loop {
            let Some(link) = self.links.get_mut(index) else {
                return;
            };
            match outcome.and_then(|()| link.channel.next_message()) {
                Ok(Some(message)) => {
                    link.armed = true;
                    link.heard = Instant::now();
                    outcome = self.understand(index, message);
                }
                Ok(None) => break,
                Err(error) => {
                    // The link stays open, so that its rank hears the cause too.
                    let cause = Cause::rank(link.info.rank, &link.info.host, &error.to_string());
                    self.abort(cause);
                    break;
                }
            }
        }
        if let Some(link) = self
            .links
            .get_mut(index)
            .filter(|link| link.channel.ended())
        {
            link.open = false;
            if !link.goodbye {
                let message = format!(
                    "its process {} ended without saying goodbye: it was killed or it crashed. Look at its output, and \
                     for the out-of-memory killer in the kernel log",
                    link.info.pid
                );
                let cause = Cause::rank(link.info.rank, &link.info.host, &message);
                self.abort(cause);
            }
        }
    }

    fn obey(&mut self, command: ControlCommand) {
        match command {
            ControlCommand::Enter(enter) if self.aborted.is_some() => {
                enter.slot.set(CollectiveResult::Stopped)
            }
            ControlCommand::Enter(enter) => self.enter(enter),
            ControlCommand::Overdue { terms, waited } => self.overdue(terms, waited),
            ControlCommand::Note(note) => self.pass_note(self.settings.me.rank, note),
            ControlCommand::Abort(cause) => self.abort(cause),
            ControlCommand::CloseDoor => self.close_door(),
            ControlCommand::Leave => self.leaving = true,
        }
    }

    fn over(&self) -> bool {
        self.leaving
            || self
                .aborted
                .is_some_and(|since| since.elapsed() >= self.settings.grace)
    }

    /// Does everything that is due by the clock: heartbeats, silence, and the end of an inquiry.
    fn tick(&mut self) {
        let now = Instant::now();
        // When this process itself was stopped for a while, the others could not be heard.
        let excused = now.duration_since(self.ticked) > self.settings.heartbeat_timeout / 2;
        self.ticked = now;
        if self.aborted.is_some() {
            return;
        }
        let interval = self.beat_interval();
        let clock_interval = self.settings.clock_interval;
        if let Some(question) = self.clock.question(monotonic_ns(), clock_interval) {
            self.tell_parent(&question, &[]);
        }
        for index in 0..self.links.len() {
            let Some(link) = self.links.get_mut(index).filter(|link| link.open) else {
                continue;
            };
            if excused {
                link.heard = now;
            }
            let silence = now.duration_since(link.heard);
            if link.armed && silence >= self.settings.silence_max(link.is_remote) {
                let me = &self.settings.me;
                let message = format!(
                    "rank {} on {} has heard nothing of it (process {}) for {silence:.1?}: it hangs or is stopped, or its \
                     host or the network between them is gone",
                    me.rank, me.host, link.info.pid
                );
                let cause = Cause::rank(link.info.rank, &link.info.host, &message);
                self.abort(cause);
                return;
            }
            if now.duration_since(link.said) >= interval {
                self.send(index, &Head::Beat, &[]);
            }
        }
        if self
            .inquiry
            .as_ref()
            .is_some_and(|inquiry| now >= inquiry.until())
        {
            self.close_inquiry();
        }
    }

    /// Queues a message on one link.
    pub(crate) fn send(&mut self, index: usize, head: &Head, payload: &[u8]) {
        let Some(link) = self.links.get_mut(index).filter(|link| link.open) else {
            return;
        };
        link.said = Instant::now();
        let before = link.channel.sealed_bytes();
        let sealed = link.channel.send(head, payload);
        let sent = link.channel.sealed_bytes() - before;
        self.shared.sent_bytes.fetch_add(sent, Ordering::Relaxed);
        if let Err(error) = sealed {
            link.open = false;
            let cause = Cause::rank(link.info.rank, &link.info.host, &error.to_string());
            self.abort(cause);
        } else {
            link.channel.flush();
        }
    }

    pub(crate) fn tell_parent(&mut self, head: &Head, payload: &[u8]) {
        if self.settings.me.rank != 0 {
            // The parent is always the first link.
            self.send(0, head, payload);
        }
    }

    pub(crate) fn tell_children(&mut self, head: &Head, payload: &[u8]) {
        for index in 0..self.links.len() {
            if self
                .links
                .get(index)
                .is_some_and(|link| link.way != Way::Up)
            {
                self.send(index, head, payload);
            }
        }
    }

    fn tell_all(&mut self, head: &Head, payload: &[u8]) {
        self.tell_parent(head, payload);
        self.tell_children(head, payload);
    }

    /// Ends the run with this cause, unless it has ended already: then the first cause stays the one that is told.
    pub(crate) fn abort(&mut self, cause: Cause) {
        if self.aborted.is_some() {
            return;
        }
        // Who is told of the end may be started again at once, and must not find this run.
        self.close_door();
        self.aborted = Some(Instant::now());
        self.shared.stop(&cause);
        self.collectives.stop();
        self.shared.clock_known.set(CollectiveResult::Stopped);
        self.tell_all(&Head::Abort { cause }, &[]);
    }

    fn close_door(&mut self) {
        if let Some(door) = self.door.take() {
            door.close();
        }
    }

    /// This rank's answer to an inquiry about a collective of these members.
    pub(crate) fn own_answer(&self, call: CallNumber, members: &RankSet) -> Answers {
        let me = self.settings.me.rank;
        if !members.contains(me) || self.collectives.entered(call) {
            return Answers::not_missed(me);
        }
        let phase = lock(&self.shared.phase);
        Answers::missed(me, &phase.0, phase.1.elapsed())
    }

    /// Ends an inquiry with what was heard until now: rank 0 concludes, others tell their parent.
    pub(crate) fn close_inquiry(&mut self) {
        let Some(inquiry) = self.inquiry.take() else {
            return;
        };
        let call = inquiry.call;
        let answers = inquiry.into_answers();
        match self.complaint.take() {
            None => self.pass_answers(call, &answers),
            Some(complaint) if !self.collectives.has_finished(call) => {
                let cause = complaint.verdict(&answers, &self.table);
                self.abort(cause);
            }
            Some(_) => {}
        }
    }

    /// Says goodbye, and gives the last words time to arrive: a connection that is closed while something unread waits
    /// in it takes what was said last with it.
    fn linger(&mut self) {
        let time = if self.aborted.is_some() {
            LINGER_ABORT
        } else {
            LINGER
        };
        let until = Instant::now() + time;
        self.tell_all(&Head::Goodbye, &[]);
        for link in self.links.iter_mut().filter(|link| link.open) {
            link.channel.flush_until(until);
            link.channel.finish_writing();
        }
        loop {
            for link in self.links.iter_mut().filter(|link| link.open) {
                link.channel.discard();
                link.open = !link.channel.ended();
            }
            let left = until.saturating_duration_since(Instant::now());
            let interests: Vec<_> = self
                .open_links()
                .map(|link| link.channel.interest())
                .collect();
            if interests.is_empty() || left.is_zero() || wait_for(&interests, left).is_err() {
                return;
            }
        }
    }

    /// The main thread did not end by itself: it may be stuck inside a library, so the process is ended here.
    fn end_process(&self) {
        let Some(cause) = self.shared.cause() else {
            return;
        };
        let error = Error::from(&cause);
        let parent_is_root = self.links.first().is_some_and(|link| link.info.rank == 0);
        if speaks(
            self.settings.me.rank,
            parent_is_root,
            self.settings.supervised,
            &cause,
        ) {
            say(&format!("error: {error}"));
        }
        let last_will = lock(&self.shared.bequest).0.take();
        if let Some(last_will) = last_will {
            last_will();
        }
        std::process::exit(i32::from(error.exit_code()));
    }
}
