//! Starts threads of a rank, such as followers that carry out a leader's orders. Failing to start a thread is an error,
//! whereas scopes of the standard library would panic. Each kind defines its own orders.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, Scope, ScopedJoinHandle};

use crate::cpu_loss::own_thread;
use tonnage_units::{Error, Result};

/// Starts a thread with the name `what`, such as `worker 3`.
pub fn start<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    what: &str,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>> {
    let started = Builder::new().name(what.into()).spawn_scoped(scope, work);
    started.map_err(|error| Error::start_error(format!("a thread ({what})"), &error))
}

/// Channels of one follower: for orders to it, and for its answers.
type FollowerChannel<O, T, E> = (Sender<O>, Receiver<Result<T, E>>);

/// Channels of a follower that has just started, and the channel on which it sends its thread ID.
type StartedFollower<O, T, E> = (FollowerChannel<O, T, E>, Receiver<u32>);

/// The leader's access to its followers. The followers carry out orders until this value is dropped. `O` is the type of
/// orders, `T` and `E` are those of results and errors.
pub struct Followers<O, T, E> {
    lines: Vec<FollowerChannel<O, T, E>>,
    /// IDs of the threads in the kernel.
    threads: Vec<u32>,
}

impl<O: Send, T: Send, E: From<Error> + Send> Followers<O, T, E> {
    /// Starts a thread for each of `works`. Their names are numbered from `first`. If one cannot be started, the
    /// channels of orders close, and the others end.
    pub fn start<'scope, W>(
        scope: &'scope Scope<'scope, '_>,
        first: usize,
        works: impl IntoIterator<Item = W>,
    ) -> Result<Self>
    where
        W: FnOnce(&Receiver<O>, &Sender<Result<T, E>>) + Send + 'scope,
        O: 'scope,
        T: 'scope,
        E: 'scope,
    {
        let begin = |(number, work): (usize, W)| {
            let (order_sender, orders) = channel();
            let (answers, answer_receiver) = channel();
            let (thread_sender, thread) = channel();
            start(scope, &format!("thread {number}"), move || {
                // Sending cannot fail, because the leader is waiting for this message.
                let _ = thread_sender.send(own_thread());
                work(&orders, &answers);
            })?;
            Ok(((order_sender, answer_receiver), thread))
        };
        let started: Vec<StartedFollower<O, T, E>> =
            (first..).zip(works).map(begin).collect::<Result<_>>()?;
        let (lines, threads): (Vec<_>, Vec<_>) = started.into_iter().unzip();
        let threads = threads.into_iter().filter_map(|thread| thread.recv().ok());
        Ok(Self {
            threads: threads.collect(),
            lines,
        })
    }

    /// Returns the IDs of the threads in the kernel.
    pub fn threads(&self) -> &[u32] {
        &self.threads
    }

    /// Returns the number of threads.
    pub fn count(&self) -> usize {
        self.lines.len()
    }

    /// Gives an order to all followers.
    ///
    /// # Errors
    /// If a follower has ended. The error is its last answer, which contains the reason.
    pub fn order(&self, order: impl Fn(usize) -> O) -> Result<(), E> {
        let mut outcome = Ok(());
        for (index, (orders, answers)) in self.lines.iter().enumerate() {
            if orders.send(order(index)).is_err() && outcome.is_ok() {
                outcome = answers.try_recv().unwrap_or_else(|_| died()).map(|_| ());
            }
        }
        outcome
    }

    /// Waits for the answers of all followers to an order.
    pub fn answers(&self) -> Vec<Result<T, E>> {
        let answers = self.lines.iter();
        answers
            .map(|(_, answers)| answers.recv().unwrap_or_else(|_| died()))
            .collect()
    }

    /// Waits for the answers of all followers. Returns their values, or the first error.
    pub fn collect(&self) -> Result<Vec<T>, E> {
        self.answers().into_iter().collect()
    }
}

fn died<T, E: From<Error>>() -> Result<T, E> {
    Err(Error::Failed("a thread of this rank died".into()).into())
}
