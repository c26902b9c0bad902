//! GPU memory that a worker has registered: the method that was granted, and flushing of the bytes that arrive there.

use std::collections::BTreeMap;
use std::sync::Arc;

use tonnage_engine::{Completion, Ending, Facts, Lane, RegionId, fact_names};
use tonnage_sys::cuda::CudaContext;
use tonnage_units::Result;

use super::REGISTRATION;
use super::arrivals::{FlushMoment, NicArrivals};
use super::nic_memory::NicMemory;
use super::ways::{NotGranted, RegistrationWay, first_granted, not_granted};

/// One registered memory.
struct GrantedRegion {
    /// The method that was granted.
    way: RegistrationWay,
    /// The refusals before this method was granted, as text.
    before: Vec<String>,
    context: Option<Arc<CudaContext>>,
    /// A doubt whether the bytes are still on the GPU.
    doubt: Option<String>,
}

/// A worker's registered GPU memory.
#[derive(Default)]
pub(crate) struct NicRegions {
    granted: BTreeMap<u32, GrantedRegion>,
    /// One entry per GPU.
    arrivals: Vec<NicArrivals>,
}

impl NicRegions {
    /// Registers memory by the first granted method among those that the option's value selects. Records the method, a
    /// doubt about the location of the bytes, and the GPU that must see arrivals.
    ///
    /// # Errors
    /// If no method is granted: the error for `what`, with the advice `instead` to move the bytes through the host.
    pub(crate) fn register<T>(
        &mut self,
        (region, card): (RegionId, &NicMemory),
        (asked, ways): (&str, &[RegistrationWay]),
        (what, instead): (String, &str),
        attempt: impl FnMut(RegistrationWay) -> Result<(T, Option<String>), String>,
    ) -> Result<T> {
        let tried = first_granted(asked, ways, attempt);
        let (way, (made, doubt), before) =
            tried.map_err(|all| not_granted((what, card.rules()), &all, instead))?;
        self.keep(region, (way, &before), card.context(), doubt);
        Ok(made)
    }

    pub(super) fn keep(
        &mut self,
        region: RegionId,
        (way, before): (RegistrationWay, &[NotGranted]),
        context: Option<&Arc<CudaContext>>,
        doubt: Option<String>,
    ) {
        let granted = GrantedRegion {
            way,
            before: before.iter().map(ToString::to_string).collect(),
            context: context.cloned(),
            doubt,
        };
        self.granted.insert(region.0, granted);
        if !self.arrivals.iter().any(|known| known.are_in(context)) {
            self.arrivals.push(NicArrivals::new(context));
        }
    }

    /// Removes a deregistered region. Does nothing for regions of host memory, which are not stored here.
    pub(crate) fn forget(&mut self, region: RegionId) {
        if self.granted.remove(&region.0).is_none() {
            return;
        }
        let left = self.granted.values().map(|region| region.context.as_ref());
        self.arrivals
            .retain(|arrivals| left.clone().any(|context| arrivals.are_in(context)));
    }

    /// Whether no GPU memory is registered.
    pub(crate) fn is_empty(&self) -> bool {
        self.granted.is_empty()
    }

    /// Adds facts about these regions for the record.
    pub(crate) fn add_granted(&self, facts: Facts) -> Facts {
        if self.is_empty() {
            return facts;
        }
        let granted = self.granted.values();
        let ways = distinct(granted.clone().map(|region| region.way.name().to_owned()));
        let places = granted.clone().filter_map(|region| region.doubt.clone());
        let before = distinct(
            granted
                .clone()
                .flat_map(|region| region.before.iter().cloned()),
        );
        let words: Vec<_> = self.arrivals.iter().map(NicArrivals::words).collect();
        let doubts: Vec<_> = self
            .arrivals
            .iter()
            .filter_map(NicArrivals::doubt)
            .chain(places)
            .collect();
        facts
            .with_fact(REGISTRATION, ways.join(", "))
            .with_optional_fact(
                "registration_not_granted",
                (!before.is_empty()).then_some(before),
            )
            .with_fact("card_writes_flushed", words.join("; "))
            .with_optional_fact(
                fact_names::REMARKS,
                (!doubts.is_empty()).then(|| distinct(doubts.into_iter())),
            )
    }

    /// Waits until the GPUs see the bytes of these completions. `reads` returns whether a lane reads bytes into this
    /// worker's memory.
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
            true => self.flush_at(engine, FlushMoment::Told).map(|_| ()),
            false => Ok(()),
        }
    }

    /// Waits until the GPUs see the bytes of plain writes, which have no completion on this side. Returns whether any
    /// GPU required this wait.
    ///
    /// # Errors
    /// The driver's reason.
    pub(crate) fn flush_all(&self, engine: &str) -> Result<bool> {
        self.flush_at(engine, FlushMoment::WritesEnded)
    }

    /// Begins a point if `may_try_methods`, because an engine may try out methods only at the beginning of a point.
    /// From then on, facts are only about arrivals of this point.
    pub(crate) fn begin_point(&self, may_try_methods: bool) {
        if may_try_methods {
            self.arrivals.iter().for_each(NicArrivals::begin_point);
        }
    }

    fn flush_at(&self, engine: &str, moment: FlushMoment) -> Result<bool> {
        let mut all = self.arrivals.iter();
        all.try_fold(false, |waited, arrivals| {
            Ok(arrivals.flush(engine, moment)? || waited)
        })
    }
}

/// Removes duplicates and preserves the order.
fn distinct(texts: impl Iterator<Item = String>) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for text in texts {
        if !all.contains(&text) {
            all.push(text);
        }
    }
    all
}
