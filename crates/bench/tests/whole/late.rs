//! A backend without data, whose ranks meet by counting in this process, and one rank of which comes late to each call.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use tonnage_collective::{Collective, Dtype, Reduction};
use tonnage_engine::backend::{BackendEntry, BackendVariant, GroupCall, GroupCalls, OpenGroup};
use tonnage_engine::{EngineReport, Lifecycle, Lists};
use tonnage_units::{Error, Result};

/// The rank that comes late: neither the first nor the last, which others could name by chance.
pub const LATE_RANK: u32 = 1;

/// Time between the moment when all others are in a call and the one when it comes too.
pub const LATE_BY: Duration = Duration::from_millis(5);

/// Nobody waits longer for the others.
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

/// Ranks that have come to a meeting, and to all those before it.
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

    /// Comes, and waits until so many ranks have come.
    fn attend(&self, all: u64) -> Result<()> {
        *self.came.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.changed.notify_all();
        self.wait(all)
    }

    /// Waits until so many ranks have come.
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

/// Of all ranks of this process, so that one run at a time has this backend.
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
            // The others are surely in the call, on however busy a machine.
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
