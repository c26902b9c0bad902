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
            extent,
            ..TransferFuture::new(&self.0, Stage::One, verb)
        }
    }

    /// [`Session::batch`], done when the future is.
    pub fn batch<'a>(&'a self, verb: Verb, extents: &'a [Extent]) -> TransferFuture<'a> {
        TransferFuture {
            extents,
            ..TransferFuture::new(&self.0, Stage::Many, verb)
        }
    }

    /// [`Session::flush`], done when the future is.
    pub fn flush(&self, verb: Verb) -> TransferFuture<'_> {
        TransferFuture::new(&self.0, Stage::Flush, verb)
    }
}

/// An operation of an [`AsyncSession`]. Dropped before it was polled, it posts nothing; dropped later, it is like a
/// [`Ticket`] that was dropped.
// All stages have the same fields, because a future is moved once it is made: an enum with fields would be copied by
// loads that are wider than the stores before them, and wait for these.
#[must_use = "a future does nothing unless it is polled"]
#[derive(Debug)]
pub struct TransferFuture<'a> {
    session: &'a Session,
    stage: Stage,
    verb: Verb,
    extent: Extent,
    extents: &'a [Extent],
    ticket: Option<Ticket>,
}

/// Part of its life.
#[derive(Debug, Clone, Copy)]
enum Stage {
    One,
    Many,
    Flush,
}

impl<'a> TransferFuture<'a> {
    #[inline]
    fn new(session: &'a Session, stage: Stage, verb: Verb) -> Self {
        Self {
            session,
            stage,
            verb,
            extent: Extent::default(),
            extents: &[],
            ticket: None,
        }
    }
}

impl Future for TransferFuture<'_> {
    type Output = TransferResult<()>;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if let Some(ticket) = &this.ticket {
            return ticket.ended_or_wake(context.waker());
        }
        let posted = match this.stage {
            Stage::One => this.session.post(this.verb, &this.extent),
            Stage::Many => this.session.batch(this.verb, this.extents),
            Stage::Flush => this.session.flush(this.verb),
        };
        match posted {
            Ok(ticket) => this.ticket.insert(ticket).ended_or_wake(context.waker()),
            Err(error) if error.kind() == TransferErrorKind::Busy => {
                let waker = context.waker().clone();
                this.session.cell().borrow().waiting.push(waker);
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}
