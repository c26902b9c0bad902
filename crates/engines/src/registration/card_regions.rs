//! Memory of GPUs that a worker has registered: what was granted, and flushing what arrives there.

use std::sync::Arc;

use tonnage_engine::{Completion, Ending, Facts, Lane};
use tonnage_sys::cuda::CudaContext;
use tonnage_units::Result;

use super::REGISTRATION;
use super::arrivals::CardArrivals;
use super::ways::{CardWay, NotGranted};

/// Registered memory of GPUs.
#[derive(Default)]
pub(crate) struct CardRegions {
    /// The way that was granted last and, before it, those that were not, in words.
    granted: Option<(CardWay, Vec<String>)>,
    /// One for each GPU.
    arrivals: Vec<CardArrivals>,
}

impl CardRegions {
    /// Keeps what was granted for one memory, and who is to see what arrives in it.
    pub(crate) fn keep(
        &mut self,
        (way, before): (CardWay, &[NotGranted]),
        context: Option<&Arc<CudaContext>>,
    ) {
        self.granted = Some((way, before.iter().map(ToString::to_string).collect()));
        if !self.arrivals.iter().any(|known| known.are_in(context)) {
            self.arrivals.push(CardArrivals::of(context));
        }
    }

    /// True where there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.granted.is_none()
    }

    /// Facts about them, for the record.
    pub(crate) fn add_granted(&self, facts: Facts) -> Facts {
        let Some((way, before)) = &self.granted else {
            return facts;
        };
        let words: Vec<_> = self.arrivals.iter().map(CardArrivals::words).collect();
        facts
            .with(REGISTRATION, way.name())
            .maybe(
                "registration_not_granted",
                (!before.is_empty()).then(|| before.clone()),
            )
            .with("card_writes_flushed", words.join("; "))
    }

    /// Waits until the GPUs see what these completions tell of; `reads` says which lanes bring bytes here.
    ///
    /// # Errors
    /// The driver's reason.
    #[inline]
    pub(crate) fn flush(
        &self,
        engine: &str,
        done: &[Completion],
        reads: impl Fn(Lane) -> bool,
    ) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        let lands = |done: &Completion| match done.ending {
            Ending::Arrived => true,
            Ending::Done => reads(done.lane),
            Ending::Failed(_) => false,
        };
        match done.iter().any(lands) {
            true => {
                let mut arrivals = self.arrivals.iter();
                arrivals.try_for_each(|arrivals| arrivals.flush(engine))
            }
            false => Ok(()),
        }
    }
}
