//! Operations as futures: posted when they are first polled, and woken by their completions.
//!
//! Any executor on the endpoint's thread can poll them, as long as somebody calls
//! [`TransferEndpoint::progress`](crate::TransferEndpoint::progress): [`Executor`](crate::Executor) does.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tonnage_engine::Verb;

use crate::error::{TransferErrorKind, TransferResult};
use crate::extent::Extent;
use crate::session::Session;
use crate::ticket::Ticket;

/// A session whose operations are futures.
#[derive(Debug)]
pub struct AsyncSession(Session);

impl AsyncSession {
    /// Makes the operations of a session futures.
    pub fn new(session: Session) -> Self {
        Self(session)
    }

    /// The session itself, for everything else.
    pub fn session(&self) -> &Session {
        &self.0
    }

    /// [`Session::write`], done when the future is. Where there is no room it waits for it.
    #[inline]
    pub fn write(&self, local: u64, remote: u64, len: u32) -> TransferFuture<'_> {
        self.post(Verb::Write, Extent::new(local, remote, len))
    }

    /// [`Session::write_imm`], done when the future is.
    #[inline]
    pub fn write_imm(&self, local: u64, remote: u64, len: u32, imm: u32) -> TransferFuture<'_> {
        self.post(
            Verb::WriteImm,
            Extent::new(local, remote, len).with_imm(imm),
        )
    }

    /// [`Session::read`], done when the future is.
    #[inline]
    pub fn read(&self, local: u64, remote: u64, len: u32) -> TransferFuture<'_> {
        self.post(Verb::Read, Extent::new(local, remote, len))
    }

    /// [`Session::post`], done when the future is.
    #[inline]
    pub fn post(&self, verb: Verb, extent: Extent) -> TransferFuture<'_> {
        TransferFuture {
            session: &self.0,
            stage: Stage::One(verb, extent),
        }
    }

    /// [`Session::batch`], done when the future is.
    pub fn batch<'a>(&'a self, verb: Verb, extents: &'a [Extent]) -> TransferFuture<'a> {
        TransferFuture {
            session: &self.0,
            stage: Stage::Many(verb, extents),
        }
    }

    /// [`Session::flush`], done when the future is.
    pub fn flush(&self, verb: Verb) -> TransferFuture<'_> {
        TransferFuture {
            session: &self.0,
            stage: Stage::Flush(verb),
        }
    }
}

/// An operation of an [`AsyncSession`]. Dropped before it was polled, it posts nothing; dropped later, it is like a
/// [`Ticket`] that was dropped.
#[must_use = "a future does nothing unless it is polled"]
#[derive(Debug)]
pub struct TransferFuture<'a> {
    session: &'a Session,
    stage: Stage<'a>,
}

/// Part of its life.
#[derive(Debug)]
enum Stage<'a> {
    One(Verb, Extent),
    Many(Verb, &'a [Extent]),
    Flush(Verb),
    Posted(Ticket),
}

impl Future for TransferFuture<'_> {
    type Output = TransferResult<()>;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let posted = match &this.stage {
            Stage::Posted(ticket) => return ticket.ended_or_wake(context.waker()),
            Stage::One(verb, extent) => this.session.post(*verb, extent),
            Stage::Many(verb, extents) => this.session.batch(*verb, extents),
            Stage::Flush(verb) => this.session.flush(*verb),
        };
        match posted {
            Ok(ticket) => {
                let poll = ticket.ended_or_wake(context.waker());
                this.stage = Stage::Posted(ticket);
                poll
            }
            Err(error) if error.kind() == TransferErrorKind::Busy => {
                let waker = context.waker().clone();
                this.session.cell().borrow().waiting.push(waker);
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}
