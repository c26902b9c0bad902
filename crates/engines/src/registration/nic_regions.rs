//! Memory of GPUs that a worker has registered: what was granted, and flushing what arrives there.

use std::collections::BTreeMap;
use std::sync::Arc;

use tonnage_engine::{Completion, Ending, Facts, Lane, RegionId, fact_names};
use tonnage_sys::cuda::CudaContext;
use tonnage_units::Result;

use super::REGISTRATION;
use super::arrivals::{CardArrivals, FlushMoment};
use super::card_memory::CardMemory;
use super::ways::{CardWay, NotGranted, first_granted, not_granted};

/// One registered memory.
struct GrantedRegion {
    /// The way that was granted.
    way: CardWay,
    /// Ways that were tried before it, in words.
    before: Vec<String>,
    context: Option<Arc<CudaContext>>,
    /// Doubt of where its bytes are.
    doubt: Option<String>,
}

/// Registered memory of GPUs.
#[derive(Default)]
pub(crate) struct CardRegions {
    granted: BTreeMap<u32, GrantedRegion>,
    /// One for each GPU.
    arrivals: Vec<CardArrivals>,
}

impl CardRegions {
    /// Registers memory as a region by the first way that is granted, of those that an option's value asks for. Keeps
    /// what was granted, a doubt of where the bytes are then, and who is to see what arrives there.
    ///
    /// # Errors
    /// The refusal of `what`, where none is granted; `instead` says how to move the bytes through the host.
    pub(crate) fn register<T>(
        &mut self,
        (region, card): (RegionId, &CardMemory),
        (asked, ways): (&str, &[CardWay]),
        (what, instead): (String, &str),
        attempt: impl FnMut(CardWay) -> Result<(T, Option<String>), String>,
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
        (way, before): (CardWay, &[NotGranted]),
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
            self.arrivals.push(CardArrivals::of(context));
        }
    }

    /// Takes a registration out that was taken back; one of memory of the host is none of these.
    pub(crate) fn forget(&mut self, region: RegionId) {
        if self.granted.remove(&region.0).is_none() {
            return;
        }
        let left = self.granted.values().map(|region| region.context.as_ref());
        self.arrivals
            .retain(|arrivals| left.clone().any(|context| arrivals.are_in(context)));
    }

    /// True where there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.granted.is_empty()
    }

    /// Facts about them, for the record.
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
        let words: Vec<_> = self.arrivals.iter().map(CardArrivals::words).collect();
        let doubts: Vec<_> = self
            .arrivals
            .iter()
            .filter_map(CardArrivals::doubt)
            .chain(places)
            .collect();
        facts
            .with(REGISTRATION, ways.join(", "))
            .maybe(
                "registration_not_granted",
                (!before.is_empty()).then_some(before),
            )
            .with("card_writes_flushed", words.join("; "))
            .maybe(
                fact_names::REMARKS,
                (!doubts.is_empty()).then(|| distinct(doubts.into_iter())),
            )
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
            true => self.flush_at(engine, FlushMoment::Told).map(|_| ()),
            false => Ok(()),
        }
    }

    /// Waits until the GPUs see what plain writes have brought, of which nothing was told here; returns whether any of
    /// them needed it.
    ///
    /// # Errors
    /// The driver's reason.
    pub(crate) fn flush_all(&self, engine: &str) -> Result<bool> {
        self.flush_at(engine, FlushMoment::WritesEnded)
    }

    /// Begins a point, where something is `tried` before it is measured: facts are about what arrives from now on.
    pub(crate) fn begin(&self, tried: bool) {
        if tried {
            self.arrivals.iter().for_each(CardArrivals::begin);
        }
    }

    fn flush_at(&self, engine: &str, moment: FlushMoment) -> Result<bool> {
        let mut all = self.arrivals.iter();
        all.try_fold(false, |waited, arrivals| {
            Ok(arrivals.flush(engine, moment)? || waited)
        })
    }
}

/// Texts, each once.
fn distinct(texts: impl Iterator<Item = String>) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for text in texts {
        if !all.contains(&text) {
            all.push(text);
        }
    }
    all
}
