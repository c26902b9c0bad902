//! A backend that moves no data. Its ranks are in this process and meet by counting. One rank is late for each call.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use tonnage_collective::{Collective, Dtype, Reduction};
use tonnage_engine::backend::{BackendEntry, BackendVariant, GroupCall, GroupCalls, OpenGroup};
use tonnage_engine::{EngineReport, Lifecycle, Lists};
use tonnage_units::{Error, Result};

/// The rank that is late. It is neither the first nor the last rank, which a wrong implementation could name by chance.
pub const LATE_RANK: u32 = 1;

/// How long the late rank waits after all others have begun a call.
pub const LATE_BY: Duration = Duration::from_millis(5);

/// Longest time that a rank waits for the others.
const PATIENCE: Duration = Duration::from_secs(10);

pub static LISTS: Lists = Lists {
    engines: tonnage_engines::ENGINES,
    file_engines: &[],
    memories: &[tonnage_engines::memory::HOST],
    backends: &[LATE],
};

const LATE: BackendEntry = BackendEntry {
    name: "late",
    about: "meets within one process, one rank late",
    variant: BackendVariant::Nothing,
    needs: "",
    usual: &[],
    needs_launcher: false,
    ops: &[Collective::Barrier],
    dtypes: &Dtype::ALL,
    reductions: &Reduction::ALL,
    in_place_always: &[],
    has_algorithms: false,
    libraries: &[],
    lifecycle: Lifecycle::NONE,
    open: Some(open),
};

/// Counts how often ranks have arrived, over all meetings up to now.
struct Meeting {
    came: Mutex<u64>,
    changed: Condvar,
}

impl Meeting {
    const fn new() -> Self {
        Self {
            came: Mutex::new(0),
            changed: Condvar::new(),
        }
    }

    /// Arrives, and waits until the count of arrivals is `all`.
    fn attend(&self, all: u64) -> Result<()> {
        *self.came.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.changed.notify_all();
        self.wait(all)
    }

    /// Waits until the count of arrivals is `all`.
    fn wait(&self, all: u64) -> Result<()> {
        let came = self.came.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .changed
            .wait_timeout_while(came, PATIENCE, |came| *came < all);
        match waited.unwrap_or_else(PoisonError::into_inner).1 {
            out if out.timed_out() => Err(Error::Failed("a rank did not come".into())),
            _ => Ok(()),
        }
    }
}

/// All ranks of this process share these, so only one run at a time may use the backend.
static ALIGNED: Meeting = Meeting::new();
static CALLED: Meeting = Meeting::new();

struct LateCalls {
    rank: u32,
    ranks: u32,
    aligned: u64,
    called: u64,
}

fn open(group: &OpenGroup<'_>) -> Result<Box<dyn GroupCalls>> {
    Ok(Box::new(LateCalls {
        rank: group.rank,
        ranks: group.ranks,
        aligned: 0,
        called: 0,
    }))
}

impl GroupCalls for LateCalls {
    fn prepare(&mut self, call: GroupCall) -> Result<u64> {
        Ok(call.output)
    }

    fn align(&mut self) -> Result<()> {
        self.aligned += u64::from(self.ranks);
        ALIGNED.attend(self.aligned)?;
        if self.rank == LATE_RANK {
            // All other ranks have then begun the call, even on a busy machine.
            CALLED.wait(self.called + u64::from(self.ranks) - 1)?;
            std::thread::sleep(LATE_BY);
        }
        Ok(())
    }

    fn call(&mut self) -> Result<()> {
        self.called += u64::from(self.ranks);
        CALLED.attend(self.called)
    }

    fn report(&self) -> EngineReport {
        EngineReport {
            name: "late".into(),
            ..EngineReport::default()
        }
    }
}
