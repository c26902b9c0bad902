//! Threads of a rank: starting them, and those that carry out a leader's orders. One that the system does not start is
//! an error here, where the standard library's scopes panic. What the orders are is with the kinds.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, Scope, ScopedJoinHandle};

use crate::cpu_time::own_thread;
use tonnage_units::{Error, Result};

/// Starts a thread that `what` names, such as `worker 3`.
pub fn start<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    what: &str,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>> {
    let started = Builder::new().name(what.into()).spawn_scoped(scope, work);
    started.map_err(|error| Error::not_started(format!("a thread ({what})"), &error))
}

/// Orders to a thread, and its answers.
type Line<O, T, E> = (Sender<O>, Receiver<Result<T, E>>);

/// A thread's line, and where it says its number.
type Started<O, T, E> = (Line<O, T, E>, Receiver<u32>);

/// The leader's handles of threads that carry out its orders until it hangs up: orders `O`, answers `T` or `E`.
pub struct Followers<O, T, E> {
    lines: Vec<Line<O, T, E>>,
    /// The kernel's numbers of the threads.
    threads: Vec<u32>,
}

impl<O: Send, T: Send, E: From<Error> + Send> Followers<O, T, E> {
    /// Starts a thread for each of `works`, named as the workers from `first` on. Where one cannot be started, those
    /// that wait for orders end.
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
            start(scope, &format!("worker {number}"), move || {
                // It cannot fail: the leader waits for it.
                let _ = thread_sender.send(own_thread());
                work(&orders, &answers);
            })?;
            Ok(((order_sender, answer_receiver), thread))
        };
        let started: Vec<Started<O, T, E>> =
            (first..).zip(works).map(begin).collect::<Result<_>>()?;
        let (lines, threads): (Vec<_>, Vec<_>) = started.into_iter().unzip();
        let threads = threads.into_iter().filter_map(|thread| thread.recv().ok());
        Ok(Self {
            threads: threads.collect(),
            lines,
        })
    }

    /// The kernel's numbers of the threads.
    pub fn threads(&self) -> &[u32] {
        &self.threads
    }

    /// Number of threads.
    pub fn count(&self) -> usize {
        self.lines.len()
    }

    /// Gives an order to all.
    ///
    /// # Errors
    /// When a thread has gone: its last answer, which says why.
    pub fn order(&self, order: impl Fn(usize) -> O) -> Result<(), E> {
        let mut outcome = Ok(());
        for (index, (orders, answers)) in self.lines.iter().enumerate() {
            if orders.send(order(index)).is_err() && outcome.is_ok() {
                outcome = answers.try_recv().unwrap_or_else(|_| died()).map(|_| ());
            }
        }
        outcome
    }

    /// Waits for the answers of all to an order.
    pub fn answers(&self) -> Vec<Result<T, E>> {
        let answers = self.lines.iter();
        answers
            .map(|(_, answers)| answers.recv().unwrap_or_else(|_| died()))
            .collect()
    }

    /// Waits for the answers of all to an order.
    pub fn collect(&self) -> Result<Vec<T>, E> {
        self.answers().into_iter().collect()
    }
}

fn died<T, E: From<Error>>() -> Result<T, E> {
    Err(Error::Failed("a worker thread of this rank died".into()).into())
}
