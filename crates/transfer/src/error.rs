//! Errors of transfers, with their kind, operation, peer and device.
//!
//! Opening an engine or allocating memory returns a [`tonnage_units::Error`]. This module converts it into a
//! [`TransferError`], and back.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tonnage_engine::{Failure, Peer};
use tonnage_units::Error;

/// `Result` with a [`TransferError`].
pub type TransferResult<T> = std::result::Result<T, TransferError>;

/// Kind of an error, so that programs can decide what to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TransferErrorKind {
    /// The request itself is wrong: an unknown engine, an unconnected peer, or a verb that sessions do not support.
    Usage,
    /// This machine lacks a requested resource, or the engine cannot use this memory.
    Unavailable,
    /// An offset lies outside the local or the remote memory. Nothing was posted.
    OutOfRange,
    /// There is no room now, and nothing was posted: poll, and try again.
    Busy,
    /// The timeout has passed. The operation continues, and its ticket can be polled or waited for again.
    Deadline,
    /// The engine reported the operation as failed.
    OperationFailed,
    /// The peer's process has ended.
    PeerLost,
    /// The engine is dead. Everything that was in flight on it has failed.
    EndpointFailed,
    /// The queue of arrivals is full. Nothing is lost: take arrivals, and poll again.
    ArrivalsFull,
}

/// The endpoint that an error is about, and its operation and peer if known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ErrorSubject {
    pub(crate) engine: Arc<str>,
    pub(crate) device: Option<Arc<str>>,
    pub(crate) operation: Option<&'static str>,
    pub(crate) peer: Option<Peer>,
}

impl ErrorSubject {
    /// Returns this subject with an operation and its peer.
    pub(crate) fn with_operation(
        &self,
        operation: &'static str,
        peer: impl Into<Option<Peer>>,
    ) -> Self {
        Self {
            operation: Some(operation),
            peer: peer.into(),
            ..self.clone()
        }
    }
}

/// Error of a transfer. Cloning does not allocate, because several operations may share one error.
#[derive(Clone)]
pub struct TransferError(Arc<ErrorDetail>);

#[derive(Clone)]
struct ErrorDetail {
    kind: TransferErrorKind,
    subject: ErrorSubject,
    reason: String,
    failure: Option<Failure>,
    /// The three texts of the [`Error::Unavailable`] that this error was made from.
    unavailable: Option<[String; 3]>,
}

impl TransferError {
    pub(crate) fn new(
        kind: TransferErrorKind,
        subject: ErrorSubject,
        reason: impl Into<String>,
    ) -> Self {
        Self(Arc::new(ErrorDetail {
            kind,
            subject,
            reason: reason.into(),
            failure: None,
            unavailable: None,
        }))
    }

    /// Wraps a lower-level error. `kind` applies unless that error is itself of kind `Usage` or `Unavailable`.
    pub(crate) fn from_error(
        kind: TransferErrorKind,
        subject: ErrorSubject,
        error: &Error,
    ) -> Self {
        let mut unavailable = None;
        let kind = match error {
            Error::Usage(_) => TransferErrorKind::Usage,
            Error::Unavailable { what, why, how } => {
                unavailable = Some([what.clone(), why.clone(), how.clone()]);
                TransferErrorKind::Unavailable
            }
            _ => kind,
        };
        Self(Arc::new(ErrorDetail {
            kind,
            subject,
            reason: error.to_string(),
            failure: None,
            unavailable,
        }))
    }

    /// Wraps the engine's explanation of a failed operation.
    pub(crate) fn failed(subject: ErrorSubject, failure: Failure) -> Self {
        let mut reason = format!("{} ({})", failure.name, failure.code);
        if let Some(cause) = &failure.usual_cause {
            reason += &format!("; usual cause: {cause}");
        }
        Self(Arc::new(ErrorDetail {
            kind: TransferErrorKind::OperationFailed,
            subject,
            reason,
            failure: Some(failure),
            unavailable: None,
        }))
    }

    pub(crate) fn deadline(subject: ErrorSubject, timeout: Duration) -> Self {
        let reason = format!("not done within {:.3} s", timeout.as_secs_f64());
        Self::new(TransferErrorKind::Deadline, subject, reason)
    }

    /// Returns this error with another subject.
    pub(crate) fn with_subject(&self, subject: ErrorSubject) -> Self {
        Self(Arc::new(ErrorDetail {
            subject,
            ..(*self.0).clone()
        }))
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> TransferErrorKind {
        self.0.kind
    }

    /// Returns the operation, such as "write" or "connect".
    pub fn operation(&self) -> Option<&'static str> {
        self.0.subject.operation
    }

    /// Returns the peer.
    pub fn peer(&self) -> Option<Peer> {
        self.0.subject.peer
    }

    /// Returns the engine, such as "fabric:tcp".
    pub fn engine(&self) -> &str {
        &self.0.subject.engine
    }

    /// Returns this side's device; `None` for engines without devices.
    pub fn device(&self) -> Option<&str> {
        self.0.subject.device.as_deref()
    }

    /// Returns the engine's explanation of a failed operation.
    pub fn failure(&self) -> Option<&Failure> {
        self.0.failure.as_ref()
    }
}

impl fmt::Display for TransferError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let subject = &self.0.subject;
        if !subject.engine.is_empty() {
            write!(f, "{}: ", subject.engine)?;
        }
        if let Some(operation) = subject.operation {
            f.write_str(operation)?;
            if let Some(peer) = subject.peer {
                write!(f, " with peer {peer}")?;
            }
            if let Some(device) = &subject.device {
                write!(f, " on {device}")?;
            }
            f.write_str(": ")?;
        }
        f.write_str(&self.0.reason)
    }
}

impl fmt::Debug for TransferError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}({self})", self.0.kind)
    }
}

impl std::error::Error for TransferError {}

impl From<TransferError> for Error {
    fn from(error: TransferError) -> Self {
        match (&error.0.unavailable, error.0.kind) {
            (Some([what, why, how]), _) => Self::Unavailable {
                what: what.clone(),
                why: why.clone(),
                how: how.clone(),
            },
            (None, TransferErrorKind::Usage) => Self::Usage(error.to_string()),
            (None, _) => Self::Failed(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject() -> ErrorSubject {
        ErrorSubject {
            engine: "fabric:tcp".into(),
            device: Some("lo".into()),
            operation: Some("write"),
            peer: Some(3),
        }
    }

    #[test]
    fn an_error_names_operation_peer_and_device() {
        let failure = Failure {
            name: "Connection reset".into(),
            code: 104,
            usual_cause: Some("the peer is gone".into()),
            ..Failure::default()
        };
        let error = TransferError::failed(subject(), failure);
        assert_eq!(
            error.to_string(),
            "fabric:tcp: write with peer 3 on lo: Connection reset (104); usual cause: the peer is gone"
        );
        assert_eq!(error.kind(), TransferErrorKind::OperationFailed);
        assert_eq!((error.operation(), error.peer()), (Some("write"), Some(3)));
        assert_eq!((error.engine(), error.device()), ("fabric:tcp", Some("lo")));
        assert_eq!(error.failure().map(|failure| failure.code), Some(104));
        let other = error.with_subject(subject().with_operation("read", 4));
        assert_eq!((other.operation(), other.peer()), (Some("read"), Some(4)));
    }

    #[test]
    fn errors_from_below_keep_their_kind_both_ways() {
        let missing = || Error::Unavailable {
            what: "fabric:efa".into(),
            why: "no device".into(),
            how: "Buy one".into(),
        };
        let failed = TransferErrorKind::EndpointFailed;
        let up = TransferError::from_error(failed, subject(), &missing());
        assert_eq!(up.kind(), TransferErrorKind::Unavailable);
        assert_eq!(Error::from(up).to_string(), missing().to_string());
        let up = TransferError::from_error(failed, subject(), &Error::Usage("x".into()));
        assert!(matches!(Error::from(up), Error::Usage(_)));
        let up = TransferError::from_error(failed, subject(), &Error::Failed("x".into()));
        assert_eq!(up.kind(), failed);
        assert!(matches!(Error::from(up), Error::Failed(_)));
    }
}
