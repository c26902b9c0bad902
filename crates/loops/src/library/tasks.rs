//! Operations that are each awaited by a task. A lane has one task per operation in flight, and one more for a flush.
//! Each task has a mailbox for its next operation. The library's executor runs the tasks when the loop polls.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use tonnage_engine::{Completion, Flush, Lane, Op, Verb};
use tonnage_transfer::{AsyncSession, Executor, Extent, TicketEnd, TransferEndpoint};
use tonnage_units::Result;

use super::gathered::BatchCapacity;
use super::{PollFailures, WantedLane, lane_of, never_resolved, token};

/// Lanes with their tasks, and operations that have ended.
pub(super) struct TaskCalls {
    executor: Executor<'static>,
    pub(super) lanes: Vec<Option<TaskLane>>,
    /// Tasks per lane for operations or batches. Each lane has one more task for a flush.
    depth: u32,
    /// Initial room for batches, if operations that are posted together become one library call.
    gathers: Option<BatchCapacity>,
    outbox: TicketEnds,
    spare: SpareExtentLists,
    pub(super) failures: PollFailures,
}

type TicketEnds = Rc<RefCell<VecDeque<TicketEnd>>>;

/// Extent lists of ended batches, for reuse.
type SpareExtentLists = Rc<RefCell<Vec<Vec<Extent>>>>;

pub(super) struct TaskLane {
    mailboxes: Vec<Rc<TaskMailbox>>,
    /// Tasks that wait for work.
    idle: Rc<RefCell<Vec<u32>>>,
    /// Length of the last operation. All operations of a flow have the same length.
    len: u32,
}

/// Kind of a task's next work.
#[derive(Clone, Copy)]
enum TaskWork {
    Operation,
    Batch,
    Flush,
    End,
}

/// Mailbox for a task's next work.
// The fields are separate cells. An enum with fields would be moved by loads that are wider than the preceding stores.
// Such loads stall, because the CPU cannot forward the stores to them.
#[derive(Default)]
struct TaskMailbox {
    work: Cell<Option<TaskWork>>,
    token: Cell<u64>,
    local: Cell<u64>,
    remote: Cell<u64>,
    len: Cell<u32>,
    imm: Cell<u32>,
    /// The operations of a batch.
    list: Cell<Vec<Extent>>,
    waker: RefCell<Option<Waker>>,
}

impl TaskMailbox {
    #[inline]
    fn put_work(&self, work: TaskWork, token: u64) {
        self.token.set(token);
        self.work.set(Some(work));
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    #[inline]
    fn put_operation(&self, op: &Op) {
        self.local.set(op.local);
        self.remote.set(op.remote);
        self.len.set(op.len);
        self.imm.set(op.imm);
        self.put_work(TaskWork::Operation, token(op.lane, op.tag));
    }

    #[inline]
    fn extent(&self) -> Extent {
        Extent::new(self.local.get(), self.remote.get(), self.len.get()).with_imm(self.imm.get())
    }

    #[inline]
    fn take_work(&self, context: &Context<'_>) -> Poll<TaskWork> {
        if let Some(work) = self.work.take() {
            return Poll::Ready(work);
        }
        let mut known = self.waker.borrow_mut();
        match &*known {
            Some(known) if known.will_wake(context.waker()) => {}
            _ => *known = Some(context.waker().clone()),
        }
        Poll::Pending
    }
}

/// A task: carries out the work in its mailbox, one item at a time.
async fn carry_out(
    (session, verb): (Rc<AsyncSession>, Verb),
    (mailbox, number): (Rc<TaskMailbox>, u32),
    idle: Rc<RefCell<Vec<u32>>>,
    (outbox, spare): (TicketEnds, SpareExtentLists),
) {
    loop {
        let result = match poll_fn(|context| mailbox.take_work(context)).await {
            TaskWork::Operation => session.post(verb, mailbox.extent()).await,
            TaskWork::Batch => {
                let extents = mailbox.list.take();
                let result = session.batch(verb, &extents).await;
                spare.borrow_mut().push(extents);
                result
            }
            TaskWork::Flush => session.flush(verb).await,
            TaskWork::End => return,
        };
        let token = mailbox.token.get();
        let error = result.err();
        outbox.borrow_mut().push_back(TicketEnd { token, error });
        idle.borrow_mut().push(number);
    }
}

impl TaskCalls {
    pub(super) fn new(
        endpoint: &TransferEndpoint,
        depth: u32,
        gathers: Option<BatchCapacity>,
    ) -> Self {
        Self {
            executor: Executor::new(endpoint),
            lanes: Vec::new(),
            depth: gathers.map_or(depth, |room| room.batches),
            gathers,
            outbox: TicketEnds::default(),
            spare: SpareExtentLists::default(),
            failures: PollFailures::default(),
        }
    }

    pub(super) fn add(
        &mut self,
        endpoint: &TransferEndpoint,
        wanted: &WantedLane<'_>,
    ) -> Result<()> {
        let session = endpoint.session_with(wanted.local, &wanted.remote, wanted.options)?;
        let session = Rc::new(AsyncSession::new(session));
        let tasks = self.depth + 1;
        self.outbox
            .borrow_mut()
            .reserve(tasks as usize * (self.lanes.len() + 1));
        if let Some(room) = self.gathers {
            let lists = (0..room.batches).map(|_| room.extent_list());
            self.spare.borrow_mut().extend(lists);
        }
        let idle = Rc::new(RefCell::new((0..tasks).rev().collect()));
        let mut mailboxes = Vec::with_capacity(tasks as usize);
        for number in 0..tasks {
            let mailbox = Rc::new(TaskMailbox::default());
            mailboxes.push(Rc::clone(&mailbox));
            self.executor.spawn(carry_out(
                (Rc::clone(&session), wanted.verb),
                (mailbox, number),
                Rc::clone(&idle),
                (Rc::clone(&self.outbox), Rc::clone(&self.spare)),
            ));
        }
        self.lanes.push(Some(TaskLane {
            mailboxes,
            idle,
            len: 0,
        }));
        // Let each task poll its mailbox once. This registers the waker for its first work.
        self.executor.poll_once()?;
        Ok(())
    }

    pub(super) fn release_lane(&mut self, lane: Lane) {
        let known = self.lanes.get_mut(lane.0 as usize).and_then(Option::take);
        for mailbox in known.into_iter().flat_map(|lane| lane.mailboxes) {
            mailbox.put_work(TaskWork::End, 0);
        }
        // If this fails, the next call that returns a result reports the failure.
        let _ = self.executor.poll_once();
    }

    /// Takes an idle task of a lane; `None` if all are busy.
    #[inline]
    fn take_idle_task(&mut self, lane: Lane, len: u32) -> Result<Option<&TaskMailbox>> {
        let Some(Some(known)) = self.lanes.get_mut(lane.0 as usize) else {
            return Err(never_resolved(lane));
        };
        let Some(number) = known.idle.borrow_mut().pop() else {
            return Ok(None);
        };
        known.len = len;
        Ok(known.mailboxes.get(number as usize).map(Rc::as_ref))
    }

    #[inline]
    pub(super) fn post(&mut self, ops: &[Op]) -> Result<usize> {
        for (taken, op) in ops.iter().enumerate() {
            match self.take_idle_task(op.lane, op.len) {
                Ok(Some(mailbox)) => mailbox.put_operation(op),
                Err(error) if taken == 0 => return Err(error),
                Ok(None) | Err(_) => return Ok(taken),
            }
        }
        Ok(ops.len())
    }

    /// Posts a list of extents in one call; returns false if all tasks are busy.
    pub(super) fn post_batch(
        &mut self,
        (lane, token): (Lane, u64),
        extents: &[Extent],
    ) -> Result<bool> {
        let Some(Some(known)) = self.lanes.get(lane.0 as usize) else {
            return Err(never_resolved(lane));
        };
        // Check this before copying the list, because a rejected batch is retried at every poll.
        if known.idle.borrow().is_empty() {
            return Ok(false);
        }
        let mut list = self.spare.borrow_mut().pop().unwrap_or_default();
        list.clear();
        list.extend_from_slice(extents);
        let len = extents.first().map_or(0, |extent| extent.len);
        let mailbox = self.take_idle_task(lane, len)?;
        if let Some(mailbox) = mailbox {
            mailbox.list.set(list);
            mailbox.put_work(TaskWork::Batch, token);
        }
        Ok(mailbox.is_some())
    }

    pub(super) fn flush(&mut self, lane: Lane, tag: u32) -> Result<Flush> {
        Ok(match self.take_idle_task(lane, 0)? {
            Some(mailbox) => {
                mailbox.put_work(TaskWork::Flush, token(lane, tag));
                Flush::Posted
            }
            None => Flush::Again,
        })
    }

    /// Runs the tasks and collects ended operations. Returns their number, and whether something may have arrived.
    #[inline]
    pub(super) fn poll(&mut self, done: &mut [Completion]) -> Result<(usize, bool)> {
        self.failures.begin();
        let mut outbox = self.outbox.borrow_mut();
        let mut works = false;
        if outbox.is_empty() {
            drop(outbox);
            works = self.executor.poll_once()?;
            outbox = self.outbox.borrow_mut();
        }
        let mut count = 0;
        while count < done.len() {
            let Some(end) = outbox.pop_front() else { break };
            let lane = self.lanes.get(lane_of(end.token).0 as usize);
            let len = lane.and_then(Option::as_ref).map_or(0, |lane| lane.len);
            done[count] = self.failures.completion(&end, len);
            count += 1;
        }
        Ok((count, works))
    }

    /// Returns whether a poll would find ended operations or woken tasks. The engine knows about neither.
    pub(super) fn has_work(&self) -> bool {
        !self.outbox.borrow().is_empty() || self.executor.has_woken()
    }
}
