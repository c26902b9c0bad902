//! Operations as futures. A future posts its operation when first polled, and its task is woken by the completion.
//!
//! Any executor on the endpoint's thread can poll these futures if something calls
//! [`TransferEndpoint::progress`](crate::TransferEndpoint::progress). [`Executor`](crate::Executor) does.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tonnage_engine::Verb;

use crate::error::{TransferErrorKind, TransferResult};
use crate::extent::Extent;
use crate::session::Session;
use crate::ticket::Ticket;

/// A session with futures as operations.
#[derive(Debug)]
pub struct AsyncSession(Session);

impl AsyncSession {
    /// Wraps a session.
    pub fn new(session: Session) -> Self {
        Self(session)
    }

    /// Returns the session itself.
    pub fn session(&self) -> &Session {
        &self.0
    }

    /// Like [`Session::write`]; ready when the write has completed. If there is no room, the future waits for room.
    #[inline]
    pub fn write(&self, local: u64, remote: u64, len: u32) -> TransferFuture<'_> {
        self.post(Verb::Write, Extent::new(local, remote, len))
    }

    /// Like [`Session::write_imm`]; ready when the write-imm has completed.
    #[inline]
    pub fn write_imm(&self, local: u64, remote: u64, len: u32, imm: u32) -> TransferFuture<'_> {
        self.post(
            Verb::WriteImm,
            Extent::new(local, remote, len).with_imm(imm),
        )
    }

    /// Like [`Session::read`]; ready when the read has completed.
    #[inline]
    pub fn read(&self, local: u64, remote: u64, len: u32) -> TransferFuture<'_> {
        self.post(Verb::Read, Extent::new(local, remote, len))
    }

    /// Like [`Session::post`]; ready when the operation has completed.
    #[inline]
    pub fn post(&self, verb: Verb, extent: Extent) -> TransferFuture<'_> {
        TransferFuture {
            extent,
            ..TransferFuture::new(&self.0, Stage::One, verb)
        }
    }

    /// Like [`Session::batch`]; ready when the whole batch has completed.
    pub fn batch<'a>(&'a self, verb: Verb, extents: &'a [Extent]) -> TransferFuture<'a> {
        TransferFuture {
            extents,
            ..TransferFuture::new(&self.0, Stage::Many, verb)
        }
    }

    /// Like [`Session::flush`]; ready when the flush has completed.
    pub fn flush(&self, verb: Verb) -> TransferFuture<'_> {
        TransferFuture::new(&self.0, Stage::Flush, verb)
    }
}

/// An operation of an [`AsyncSession`]. If the future is dropped before its first poll, nothing is posted. Dropping it
/// later has the same effect as dropping a [`Ticket`].
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

/// Kind of operation.
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
