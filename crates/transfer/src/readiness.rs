//! Sleeping until an endpoint has something to do, for programs with an event loop of their own.

use std::os::fd::OwnedFd;
use std::rc::Rc;

use tonnage_engine::Arm;

use crate::endpoint::TransferEndpoint;
use crate::error::{TransferError, TransferErrorKind, TransferResult};
use crate::state::EndpointState;

/// Ways to wait for an endpoint.
#[derive(Debug, Clone)]
pub enum Readiness {
    /// There may be something already: poll or take it, and ask again before sleeping.
    Ready,
    /// Nothing can be taken until this descriptor is readable. It is the same one as long as the endpoint lives.
    Sleep(Rc<OwnedFd>),
    /// The engine can only be polled, or [`EndpointConfig::sleeps`](crate::EndpointConfig::sleeps) was not said.
    Unsupported,
}

impl TransferEndpoint {
    /// Makes ready for sleeping until the endpoint has something to do. Peers whose processes end in silence are found
    /// by polling only, so that nobody sleeps without an end.
    ///
    /// # Errors
    /// `EndpointFailed` when the engine is dead, `Unavailable` when this process may have no more descriptors.
    pub fn arm(&self) -> TransferResult<Readiness> {
        self.cell().borrow().arm()
    }
}

impl EndpointState {
    fn arm(&mut self) -> TransferResult<Readiness> {
        if let Some(dead) = &self.dead {
            return Err(dead.clone());
        }
        let has_work = self.flights.has_ended()
            || !self.arrivals.is_empty()
            || !self.backlog.is_empty()
            || !self.ending.is_empty()
            || !self.waiting.is_empty();
        if has_work {
            return Ok(Readiness::Ready);
        }
        match self.engine.arm() {
            Ok(Arm::Ready) => Ok(Readiness::Ready),
            Ok(Arm::Unsupported) => Ok(Readiness::Unsupported),
            Ok(Arm::Sleep(descriptor)) => match &self.descriptor {
                Some(known) => Ok(Readiness::Sleep(Rc::clone(known))),
                None => match descriptor.try_clone_to_owned() {
                    Ok(own) => {
                        let known = self.descriptor.insert(Rc::new(own));
                        Ok(Readiness::Sleep(Rc::clone(known)))
                    }
                    Err(error) => Err(TransferError::new(
                        TransferErrorKind::Unavailable,
                        self.subject.with("getting ready to sleep", None),
                        error.to_string(),
                    )),
                },
            },
            Err(error) => Err(self.die(error.to_string())),
        }
    }
}
