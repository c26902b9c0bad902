//! The control thread of a rank: it sleeps unless something happens.
//!
//! It attends to the connections of the control channel while the main thread does not wait for them, does what is due
//! by the clock, and when the run ends early sees to it that everybody hears the first cause and this process really
//! ends. What it acts on is in [`super::node`]; what a message means is in [`super::protocol`].

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::node::{ControlSettings, RunEnd, TreeNode};
use super::shared::{CollectiveResult, ControlCommand, Shared, speaks};
use super::stopped;
use crate::RankInfo;
use crate::bootstrap::launcher_process::LauncherProcess;
use crate::channel::message::{Cause, Head};
use crate::channel::{Interest, wait_for};
use crate::hosts::share_processes;
use crate::join::door::LateDoor;
use crate::signals::Signals;
use tonnage_sys::process::now_ticks;
use tonnage_units::lock::lock;
use tonnage_units::message::say;
use tonnage_units::{Error, Result};

/// Time for last words when the run ends in order, and when it does not.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_ABORT: Duration = Duration::from_millis(200);

/// Longest time until rank 0 answers that the run has ended. Until then it may be gone.
const ROOT_ANSWER: Duration = Duration::from_secs(1);

/// Reason that the control thread woke.
#[derive(Default)]
struct Awake {
    is_called: bool,
    /// A connection is ready.
    by_link: bool,
    /// Anything else is, such as a signal.
    is_rare: bool,
    launcher_ended: bool,
}

/// The control thread: what it alone has to do with.
pub(crate) struct Control {
    node: Arc<Mutex<TreeNode>>,
    shared: Arc<Shared>,
    signals: Signals,
    door: Option<LateDoor>,
    /// The launcher, whose end is this run's.
    launcher: Option<LauncherProcess>,
    leaving: bool,
    /// A time at which all ranks had begun, in ticks since boot: this one is connected, and all have come before.
    joined_ticks: u64,
    /// True from the time when the others were told of an early end until what this rank does about it is done.
    is_follow_up_due: bool,
}

impl Control {
    pub(crate) fn new(
        node: Arc<Mutex<TreeNode>>,
        signals: Signals,
        door: Option<LateDoor>,
        launcher: Option<LauncherProcess>,
    ) -> Self {
        let shared = Arc::clone(&lock(&node).shared);
        Self {
            node,
            shared,
            signals,
            door,
            launcher,
            leaving: false,
            joined_ticks: now_ticks(),
            is_follow_up_due: false,
        }
    }

    /// Starts the thread. Where there can be none the others hear why, before they find this rank's connections closed
    /// and believe that it crashed.
    pub(crate) fn start_thread(self) -> Result<JoinHandle<()>> {
        let node = Arc::clone(&self.node);
        let started = std::thread::Builder::new()
            .name("control".into())
            .spawn(move || self.run());
        started.map_err(|error| {
            let mut node = lock(&node);
            let me = &node.settings.me;
            let error = me.error(Error::not_started("the control thread", &error).to_string());
            let cause = me.cause(&error);
            node.tell_end(cause);
            linger(&mut node);
            node.links.clear();
            error
        })
    }

    /// Runs until the main thread leaves, or the run has ended and its grace is over.
    fn run(mut self) {
        let node = Arc::clone(&self.node);
        {
            let mut node = lock(&node);
            node.start();
            // A signal may have come while the ranks joined, and be known already.
            self.take_signals(&mut node);
            if node.main_waits {
                // What it waits for may have come with the words of joining.
                node.watch.ring();
            }
        }
        self.follow_up(&node);
        while !self.over(&lock(&node)) {
            if let Err(error) = self.turn(&node) {
                let mut node = lock(&node);
                node.fail(&error);
                self.end(&mut node);
                // Without its sleep this thread cannot go on.
                break;
            }
            self.follow_up(&node);
        }
        self.follow_up(&node);
        let mut node = lock(&node);
        self.speak_for_root(&mut node);
        linger(&mut node);
        if node.settings.end_process && node.aborted.is_some() && !self.leaving {
            self.end_process(&node);
        }
        // The main thread may go on for a while, but not with these.
        node.links.clear();
    }

    fn turn(&mut self, node: &Mutex<TreeNode>) -> Result<()> {
        let now = Instant::now();
        let due = lock(node).due(now);
        let watch = Arc::clone(&lock(node).watch);
        let awake = self.sleep(&Interest::read(&watch.gate), now, due)?;
        if awake.is_called {
            self.shared.awake();
        }
        let heard_before = self.shared.received_bytes.load(Ordering::Relaxed);
        let mut node = lock(node);
        // Connections come first: when a rank is killed its launcher often ends the others by a signal, and the cause
        // is the better message. What else happens is rare: then all are looked at, for what came at the same time.
        if awake.is_rare {
            node.attend_all();
        } else if awake.by_link && !node.main_waits {
            for index in watch.ready(Duration::ZERO)? {
                node.attend(index);
            }
        }
        if let Some(door) = &mut self.door {
            door.turn_away(&node.table);
        }
        let commands = std::mem::take(&mut *lock(&self.shared.commands));
        for command in commands {
            match command {
                ControlCommand::Abort(cause) => node.abort(cause),
                ControlCommand::CloseDoor(closed) => {
                    self.close_door();
                    closed.set(CollectiveResult::Result(Vec::new()));
                }
                ControlCommand::Leave => self.leaving = true,
            }
        }
        self.end(&mut node);
        if awake.is_rare {
            self.take_signals(&mut node);
        }
        if awake.launcher_ended
            && let Some(launcher) = self.launcher.take()
        {
            node.fail(&Error::Failed(format!(
                    "its launcher (process {}) ended before the run did: it was killed or it crashed. Look at its output",
                    launcher.pid
                )));
        }
        node.tick();
        self.end(&mut node);
        let has_heard = self.shared.received_bytes.load(Ordering::Relaxed) > heard_before;
        if node.main_waits && (has_heard || node.aborted.is_some()) {
            // What it waits for may be there.
            watch.ring();
        }
        Ok(())
    }

    /// Sleeps until something happens.
    fn sleep(&self, links: &Interest<'_>, now: Instant, due: Instant) -> Result<Awake> {
        let mut wake = due;
        let mut interests = vec![Interest::read(&self.shared.wake), links.clone()];
        let launcher = self.launcher.iter();
        interests.extend(launcher.map(|launcher| Interest::read(&launcher.ended)));
        interests.extend(self.signals.interests());
        if let Some(door) = &self.door {
            interests.extend(door.interests());
            wake = door.expiry().map_or(wake, |expiry| expiry.min(wake));
        }
        let ready = wait_for(&interests, wake.saturating_duration_since(now))?;
        let [is_called, by_link, rare @ ..] = &ready[..] else {
            return Ok(Awake::default());
        };
        Ok(Awake {
            is_called: *is_called,
            by_link: *by_link,
            is_rare: rare.contains(&true),
            launcher_ended: self.launcher.is_some() && rare.first() == Some(&true),
        })
    }

    fn take_signals(&mut self, node: &mut TreeNode) {
        for signal in self.signals.take() {
            node.fail(&Error::Interrupted { signal, rank: None });
        }
        self.end(node);
    }

    fn over(&self, node: &TreeNode) -> bool {
        let is_grace_over = |since: Instant| since.elapsed() >= node.settings.grace;
        self.leaving || node.aborted.is_some_and(is_grace_over)
    }

    /// Ends the run where there is a cause to.
    fn end(&mut self, node: &mut TreeNode) {
        let Some(RunEnd { cause, is_heard }) = node.ending.take() else {
            return;
        };
        let cause = match cause {
            // A signal that this rank got too was meant for all of them, so none is named.
            Cause::Interrupted { signal, .. }
                if is_heard && self.signals.take().contains(&signal) =>
            {
                Cause::Interrupted { signal, rank: None }
            }
            cause => cause,
        };
        // Who is told of the end may be started again at once, and must not find this run.
        self.close_door();
        let is_root_lost = matches!(cause, Cause::Lost { rank: 0, .. });
        if is_heard && !node.settings.supervised && is_root_lost {
            // Whoever has lost rank 0 says so: rank 0 was stopped, and comes too late to say it again, and who hears of
            // its loss hears it from rank 0.
            self.shared.claim_report();
        }
        node.tell_end(cause);
        self.is_follow_up_due = true;
    }

    /// Does what is left to do where nobody supervises the ranks, once they have been told of an early end. Others may
    /// have to wait for it, or it for others, so that the node is not kept meanwhile.
    fn follow_up(&mut self, node: &Mutex<TreeNode>) {
        if !std::mem::take(&mut self.is_follow_up_due) {
            return;
        }
        let (others, cause) = {
            let node = lock(node);
            if node.settings.supervised {
                return;
            }
            // A launcher kills this process when another one is sooner to end, and the main thread may be stuck.
            let cause = self.cause_to_say(&node);
            let cause = cause.filter(|_| node.settings.end_process);
            (self.processes_here(&node), cause)
        };
        let woken = stopped::resume_next(std::process::id(), others, self.joined_ticks);
        if !woken.is_empty() {
            log::debug!("processes {woken:?} were stopped, and go on to end");
        }
        if let Some(cause) = cause {
            self.say(&cause);
        }
    }

    /// Processes of the other ranks that this one can find by their numbers: of those that it has a connection to, open
    /// or not, until it knows them all.
    fn processes_here(&self, node: &TreeNode) -> Vec<u32> {
        let me = &node.settings.me;
        let of = |infos: &mut dyn Iterator<Item = &RankInfo>| {
            let here = infos.filter(|info| info.rank != me.rank && share_processes(info, me));
            here.map(|info| info.pid).collect()
        };
        match self.shared.infos.get() {
            Some(infos) => of(&mut infos.iter()),
            None => of(&mut node.links.iter().map(|link| &link.info)),
        }
    }

    /// The reason why the run has ended early, where that is this rank's to say.
    fn cause_to_say(&self, node: &TreeNode) -> Option<Cause> {
        let ControlSettings { me, supervised, .. } = &node.settings;
        let cause = self.shared.cause()?;
        speaks(me.rank, is_below_root(node), *supervised, &cause).then_some(cause)
    }

    /// Says why the run has ended early, unless that is done.
    fn say(&self, cause: &Cause) {
        if self.shared.claim_report() {
            say(&format!("error: {}", Error::from(cause)));
        }
    }

    /// Waits until rank 0 has heard of a failure of its own, which it says itself, and says it in its place where it
    /// does not hear. A rank finds such a failure where all have agreed on it, or where its own engine has lost rank 0
    /// before the control channel does.
    fn speak_for_root(&self, node: &mut TreeNode) {
        let Some(cause @ Cause::Rank { rank: 0, .. }) = self.shared.cause() else {
            return;
        };
        let settings = &node.settings;
        let is_deputy = settings.me.rank != 0 && is_below_root(node) && !settings.supervised;
        if node.aborted.is_none() || !is_deputy {
            return;
        }
        let ends_process = settings.end_process;
        let has_heard = node.hears_end_of_parent(Instant::now() + ROOT_ANSWER);
        if !has_heard && self.shared.claim_report() && ends_process {
            say(&format!("error: {}", Error::from(&cause)));
        }
    }

    fn close_door(&mut self) {
        if let Some(door) = self.door.take() {
            door.close();
        }
    }

    /// The main thread did not end by itself: it may be stuck inside a library, so the process is ended here.
    fn end_process(&self, node: &TreeNode) {
        let Some(cause) = self.shared.cause() else {
            return;
        };
        let error = Error::from(&cause);
        if let Some(cause) = self.cause_to_say(node) {
            self.say(&cause);
        }
        let last_will = lock(&self.shared.bequest).0.take();
        if let Some(last_will) = last_will {
            last_will();
        }
        std::process::exit(i32::from(error.exit_code()));
    }
}

/// Returns whether this rank's parent is rank 0.
fn is_below_root(node: &TreeNode) -> bool {
    node.links.first().is_some_and(|link| link.info.rank == 0)
}

/// Says goodbye, and gives the last words time to arrive: a connection that is closed while something unread waits
/// in it takes what was said last with it.
fn linger(node: &mut TreeNode) {
    let is_early = node.aborted.is_some();
    let time = if is_early { LINGER_ABORT } else { LINGER };
    let until = Instant::now() + time;
    node.tell_all(&Head::Goodbye, &[]);
    for link in node.links.iter_mut().filter(|link| link.open) {
        link.channel.flush_until(until);
        link.channel.finish_writing();
    }
    loop {
        for link in node.links.iter_mut().filter(|link| link.open) {
            link.channel.discard();
            link.open = !link.channel.ended;
        }
        let left = until.saturating_duration_since(Instant::now());
        let open = node.open_links();
        let interests: Vec<_> = open.map(|link| link.channel.interest()).collect();
        if interests.is_empty() || left.is_zero() || wait_for(&interests, left).is_err() {
            return;
        }
    }
}
