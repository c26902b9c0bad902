//! A loop of plain driver calls: the baseline for tests of an engine's speed. No measurement uses it.

use std::sync::Arc;

use super::abi::{NOT_READY, SUCCESS};
use super::buffer::CudaPart;
use super::context::CudaContext;
use super::failure::CudaFailure;
use super::stream::{CudaEvent, CudaStream};

/// A stream, and untimed events that signal the end of its copies.
#[derive(Debug)]
pub struct RawLoop {
    stream: CudaStream,
    events: Vec<CudaEvent>,
}

impl RawLoop {
    /// Makes a loop with `window` copies in flight, at least one.
    ///
    /// # Errors
    /// The driver's reason.
    pub fn new(context: &Arc<CudaContext>, window: usize) -> Result<Self, CudaFailure> {
        let events = (0..window.max(1)).map(|_| CudaEvent::untimed(context));
        Ok(Self {
            stream: CudaStream::new(context)?,
            events: events.collect::<Result<_, _>>()?,
        })
    }

    /// Copies `copies` times between the same parts: each copy is followed by an event, and the oldest event is
    /// queried. The context is made current once for all copies.
    ///
    /// # Errors
    /// `OtherGpu`, `Outside`, or the driver's reason.
    pub fn copies(
        &self,
        (from, to): (CudaPart<'_>, CudaPart<'_>),
        copies: usize,
    ) -> Result<(), CudaFailure> {
        self.stream.check_parts(&from, &to)?;
        let context = self.stream.context();
        let calls = context.current()?;
        let (window, stream) = (self.events.len(), self.stream.handle);
        let (mut posted, mut ended) = (0, 0);
        while ended < copies {
            while posted < copies && posted - ended < window {
                let bytes = from.bytes as usize;
                // SAFETY: both ranges lie in memory that waits for this context before it is released.
                let code = unsafe {
                    let own = &context.library.own;
                    own.copy(to.address, from.address, bytes, stream)
                };
                context.check("cuMemcpyAsync", code)?;
                // SAFETY: event and stream live.
                let code =
                    unsafe { (calls.event_record)(self.events[posted % window].handle, stream) };
                context.check("cuEventRecord", code)?;
                posted += 1;
            }
            // SAFETY: the event lives.
            match unsafe { (calls.event_query)(self.events[ended % window].handle) } {
                SUCCESS => ended += 1,
                NOT_READY => {}
                code => context.check("cuEventQuery", code)?,
            }
        }
        Ok(())
    }
}
