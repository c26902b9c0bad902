//! The control thread of a rank, which sleeps until an event arrives.
//!
//! It serves the control channel while the main thread does not wait on it, and does periodic work. When the run ends
//! early, it makes sure that every rank learns the first cause and that this process really ends. Its state is in
//! [`super::node`], and the handling of messages is in [`super::protocol`].

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::node::{ControlSettings, RunEnd, TreeNode};
use super::shared::{CollectiveResult, ControlCommand, SharedNodeState, reports_end};
use super::stopped;
use crate::RankInfo;
use crate::bootstrap::launcher_process::LauncherProcess;
use crate::channel::message::{EndCause, MessageHead};
use crate::channel::{Interest, wait_for};
use crate::hosts::share_processes;
use crate::join::late_join::LateJoinListener;
use crate::signals::Signals;
use tonnage_sys::process::now_ticks;
use tonnage_units::lock::lock;
use tonnage_units::message::print_message;
use tonnage_units::{Error, Result};

/// Time to deliver the last messages: when the run ends normally, and when it ends early.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_ABORT: Duration = Duration::from_millis(200);

/// Longest wait for rank 0 to confirm the end of the run. If it does not answer, it counts as gone.
const ROOT_ANSWER: Duration = Duration::from_secs(1);

/// Why the control thread woke up.
#[derive(Default)]
struct WakeReason {
    is_woken: bool,
    /// A connection is ready.
    is_link_ready: bool,
    /// Anything else is ready, such as a signal.
    is_rare: bool,
    launcher_ended: bool,
}

/// State of the control thread that no other thread uses.
pub(crate) struct ControlThread {
    node: Arc<Mutex<TreeNode>>,
    shared: Arc<SharedNodeState>,
    signals: Signals,
    door: Option<LateJoinListener>,
    /// The launcher, if the run must end when it ends.
    launcher: Option<LauncherProcess>,
    leaving: bool,
    /// Time at which this rank had joined, in clock ticks since boot. All ranks that it knows were started before.
    joined_ticks: u64,
    /// Whether [`ControlThread::follow_up`] must still run after an early end.
    is_follow_up_due: bool,
}

impl ControlThread {
    pub(crate) fn new(
        node: Arc<Mutex<TreeNode>>,
        signals: Signals,
        door: Option<LateJoinListener>,
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

    /// Starts the thread. If that fails, the other ranks are sent the reason first. Otherwise they would see this
    /// rank's connections close and report a crash.
    pub(crate) fn start_thread(self) -> Result<JoinHandle<()>> {
        let node = Arc::clone(&self.node);
        let started = std::thread::Builder::new()
            .name("control".into())
            .spawn(move || self.run());
        started.map_err(|error| {
            let mut node = lock(&node);
            let me = &node.settings.me;
            let error = me.failure(Error::start_error("the control thread", &error).to_string());
            let cause = me.failure_cause(&error);
            node.announce_end(cause);
            say_goodbye(&mut node);
            node.links.clear();
            error
        })
    }

    /// Runs until the main thread leaves, or until the grace period after an early end is over.
    fn run(mut self) {
        let node = Arc::clone(&self.node);
        {
            let mut node = lock(&node);
            node.handle_early_messages();
            node.send_first_messages();
            // A signal may have arrived while the ranks were joining.
            self.take_signals(&mut node);
            if node.main_waits {
                // The result that the main thread waits for may have arrived with the last messages of joining.
                node.watch.wake_main();
            }
        }
        self.follow_up(&node);
        while !self.is_over(&lock(&node)) {
            if let Err(error) = self.step(&node) {
                let mut node = lock(&node);
                node.fail(&error);
                self.end(&mut node);
                // A thread that cannot wait for events cannot continue.
                break;
            }
            self.follow_up(&node);
        }
        self.follow_up(&node);
        let mut node = lock(&node);
        self.report_for_root(&mut node);
        say_goodbye(&mut node);
        if node.settings.end_process && node.aborted.is_some() && !self.leaving {
            self.exit_process(&node);
        }
        // The main thread may still run for a while, but must not use the connections.
        node.links.clear();
    }

    fn step(&mut self, node: &Mutex<TreeNode>) -> Result<()> {
        let now = Instant::now();
        let due = lock(node).next_deadline(now);
        let watch = Arc::clone(&lock(node).watch);
        let awake = self.sleep(&Interest::read(&watch.gate), now, due)?;
        if awake.is_woken {
            self.shared.clear_wake_up();
        }
        let received_before = self.shared.received_bytes.load(Ordering::Relaxed);
        let mut node = lock(node);
        // Connections are read before signals are handled. When a rank is killed, its launcher often signals the other
        // ranks, and the loss of the rank is the more useful message. Other events are rare. After one, all connections
        // are read, because news of a loss may have arrived at the same time.
        if awake.is_rare {
            node.receive_from_all();
        } else if awake.is_link_ready && !node.main_waits {
            for index in watch.ready(Duration::ZERO)? {
                node.receive_and_flush(index);
            }
        }
        if let Some(door) = &mut self.door {
            door.turn_away(&node.table);
        }
        let commands = std::mem::take(&mut *lock(&self.shared.commands));
        for command in commands {
            match command {
                ControlCommand::Abort(cause) => node.abort(cause),
                ControlCommand::ClosePort(closed) => {
                    self.close_late_join();
                    closed.set_result(CollectiveResult::Result(Vec::new()));
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
        let has_received = self.shared.received_bytes.load(Ordering::Relaxed) > received_before;
        if node.main_waits && (has_received || node.aborted.is_some()) {
            // The result that the main thread waits for may be among the handled messages.
            watch.wake_main();
        }
        Ok(())
    }

    /// Sleeps until an event arrives or something is due. Returns why it woke up.
    fn sleep(&self, links: &Interest<'_>, now: Instant, due: Instant) -> Result<WakeReason> {
        let mut wake = due;
        let mut interests = vec![Interest::read(&self.shared.wake), links.clone()];
        let launcher = self.launcher.iter();
        interests.extend(launcher.map(|launcher| Interest::read(&launcher.ended)));
        interests.extend(self.signals.interests());
        if let Some(door) = &self.door {
            interests.extend(door.interests());
            wake = door
                .next_handshake_expiry()
                .map_or(wake, |expiry| expiry.min(wake));
        }
        let ready = wait_for(&interests, wake.saturating_duration_since(now))?;
        let [is_woken, is_link_ready, rare @ ..] = &ready[..] else {
            return Ok(WakeReason::default());
        };
        Ok(WakeReason {
            is_woken: *is_woken,
            is_link_ready: *is_link_ready,
            is_rare: rare.contains(&true),
            launcher_ended: self.launcher.is_some() && rare.first() == Some(&true),
        })
    }

    fn take_signals(&mut self, node: &mut TreeNode) {
        for signal in self.signals.take_received() {
            node.fail(&Error::Interrupted { signal, rank: None });
        }
        self.end(node);
    }

    fn is_over(&self, node: &TreeNode) -> bool {
        let is_grace_over = |since: Instant| since.elapsed() >= node.settings.grace;
        self.leaving || node.aborted.is_some_and(is_grace_over)
    }

    /// Announces the end of the run, if this rank has recorded a cause for it.
    fn end(&mut self, node: &mut TreeNode) {
        let Some(RunEnd {
            cause,
            is_from_peer,
        }) = node.ending.take()
        else {
            return;
        };
        let cause = match cause {
            // If this rank received the same signal, it was meant for all ranks, so the message names no single rank.
            EndCause::Interrupted { signal, .. }
                if is_from_peer && self.signals.take_received().contains(&signal) =>
            {
                EndCause::Interrupted { signal, rank: None }
            }
            cause => cause,
        };
        // The port is closed first. A rank that learns of the end may be restarted at once, and must not reach this
        // run.
        self.close_late_join();
        let is_root_lost = matches!(cause, EndCause::Lost { rank: 0, .. });
        if is_from_peer && !node.settings.supervised && is_root_lost {
            // The neighbour that lost rank 0 reports the loss, so this rank does not. This rank may even be rank 0, if
            // it was stopped and resumed too late. Ranks further down only pass the announcement on.
            self.shared.claim_report();
        }
        node.announce_end(cause);
        self.is_follow_up_due = true;
    }

    /// Finishes an early end without a supervisor, after the other ranks were informed. It resumes stopped ranks and
    /// reports the cause. The node is unlocked meanwhile, because this may block while other threads or ranks need the
    /// node.
    fn follow_up(&mut self, node: &Mutex<TreeNode>) {
        if !std::mem::take(&mut self.is_follow_up_due) {
            return;
        }
        let (others, cause) = {
            let node = lock(node);
            if node.settings.supervised {
                return;
            }
            // The report cannot wait for the main thread, which may be stuck. A launcher kills this process when
            // the process of another rank ends first.
            let cause = self.cause_to_report(&node);
            let cause = cause.filter(|_| node.settings.end_process);
            (self.pids_of_host(&node), cause)
        };
        let woken = stopped::resume_and_find_next(std::process::id(), others, self.joined_ticks);
        if !woken.is_empty() {
            log::debug!("resumed the stopped processes {woken:?}, so that they can end");
        }
        if let Some(cause) = cause {
            self.report(&cause);
        }
    }

    /// Returns the PIDs of the other ranks in this PID namespace. Until all ranks are known, it returns only the PIDs
    /// of ranks that are or were connected to this rank.
    fn pids_of_host(&self, node: &TreeNode) -> Vec<u32> {
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

    /// Returns the cause of the early end, if this rank must report it.
    fn cause_to_report(&self, node: &TreeNode) -> Option<EndCause> {
        let ControlSettings { me, supervised, .. } = &node.settings;
        let cause = self.shared.cause()?;
        reports_end(me.rank, is_below_root(node), *supervised, &cause).then_some(cause)
    }

    /// Reports the cause of the early end, unless it was already reported.
    fn report(&self, cause: &EndCause) {
        if self.shared.claim_report() {
            print_message(&format!("error: {}", Error::from(cause)));
        }
    }

    /// Reports a failure of rank 0 in rank 0's place, unless rank 0 confirms that it knows of the failure. Other ranks
    /// can find such a failure: they agree on it, or their engine loses rank 0 before the control channel does.
    fn report_for_root(&self, node: &mut TreeNode) {
        let Some(cause @ EndCause::Rank { rank: 0, .. }) = self.shared.cause() else {
            return;
        };
        let settings = &node.settings;
        let reports_for_root = settings.me.rank != 0 && is_below_root(node) && !settings.supervised;
        if node.aborted.is_none() || !reports_for_root {
            return;
        }
        let ends_process = settings.end_process;
        let has_received = node.wait_for_parents_end(Instant::now() + ROOT_ANSWER);
        if !has_received && self.shared.claim_report() && ends_process {
            print_message(&format!("error: {}", Error::from(&cause)));
        }
    }

    fn close_late_join(&mut self) {
        if let Some(door) = self.door.take() {
            door.close();
        }
    }

    /// Ends the process, because the main thread has not ended. It may be stuck inside a library.
    fn exit_process(&self, node: &TreeNode) {
        let Some(cause) = self.shared.cause() else {
            return;
        };
        let error = Error::from(&cause);
        if let Some(cause) = self.cause_to_report(node) {
            self.report(&cause);
        }
        let exit_hook = lock(&self.shared.exit_hook).0.take();
        if let Some(exit_hook) = exit_hook {
            exit_hook();
        }
        std::process::exit(i32::from(error.exit_code()));
    }
}

/// Returns whether this rank's parent is rank 0.
fn is_below_root(node: &TreeNode) -> bool {
    node.links.first().is_some_and(|link| link.info.rank == 0)
}

/// Sends goodbye, and waits until the last messages have arrived. It must read before closing, because closing a
/// connection with unread data would discard messages in flight.
fn say_goodbye(node: &mut TreeNode) {
    let is_early = node.aborted.is_some();
    let time = if is_early { LINGER_ABORT } else { LINGER };
    let until = Instant::now() + time;
    node.send_to_all(&MessageHead::Goodbye, &[]);
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
