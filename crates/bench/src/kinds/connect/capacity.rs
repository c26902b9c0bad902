//! Number of workers whose connections fit, where an engine has refused some of them. How many queue pairs or how much
//! pinned memory there is only the engine's library knows, so the workers that it served are counted.

use rustix::process::{Resource, getrlimit};

use tonnage_units::{Bytes, Error};

/// Workers of a rank that tried a step at the same time.
#[derive(Debug, Clone, Copy)]
pub struct Capacity {
    /// Workers that tried.
    pub workers: usize,
    /// Workers that succeeded.
    pub served: usize,
    /// Bytes that each registers.
    pub register_bytes: u64,
    /// Bytes that this process may lock in memory; `None` where nothing limits them.
    pub lockable_bytes: Option<u64>,
}

impl Capacity {
    /// The limit of locked memory of this process.
    pub fn lockable_bytes() -> Option<u64> {
        getrlimit(Resource::Memlock).current
    }

    /// Says of a refusal how much fits, where that can be told: some workers were served, or what all of them register
    /// is more than the process may lock. A wrong request stays one.
    pub fn explain(&self, error: Error) -> Error {
        if matches!(error, Error::Usage(_) | Error::Interrupted { .. }) {
            return error;
        }
        let lockable = self
            .lockable_bytes
            .filter(|&lockable| self.register_bytes.saturating_mul(self.workers as u64) > lockable);
        let mut why = error.to_string();
        let mut fit = self.served;
        if let Some(lockable) = lockable {
            let most = usize::try_from(lockable / self.register_bytes.max(1)).unwrap_or(usize::MAX);
            fit = fit.max(most.min(self.workers.saturating_sub(1)));
            why = format!(
                "{why}; this process may lock {} of memory (ulimit -l), which an engine that pins it cannot pass: {most} \
                 workers fit",
                Bytes(lockable)
            );
        }
        let smaller = match (lockable, fit) {
            (None, 0) => return error,
            (Some(lockable), 0) => format!("Choose --register {} or less", Bytes(lockable)),
            _ => format!("Choose --workers {fit}"),
        };
        if self.served > 0 {
            why = format!("{why}; {} of them were served", self.served);
        }
        let raise = match lockable {
            Some(_) => ", or raise the limit with ulimit -l",
            None => "",
        };
        Error::Unavailable {
            what: format!("connections of {} workers", self.workers),
            why,
            how: format!("{smaller}{raise}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOME: Capacity = Capacity {
        workers: 8,
        served: 5,
        register_bytes: 1 << 20,
        lockable_bytes: None,
    };

    fn said(capacity: Capacity) -> String {
        let error = capacity.explain(Error::Failed("no queue pair".into()));
        assert!(matches!(error, Error::Unavailable { .. }), "{error}");
        error.to_string()
    }

    #[test]
    fn the_number_that_was_served_is_said() {
        assert_eq!(
            said(SOME),
            "connections of 8 workers cannot be used here: no queue pair; 5 of them were served. Choose --workers 5"
        );
    }

    #[test]
    fn the_limit_of_locked_memory_is_named_where_it_is_passed() {
        let locked = |lockable_bytes, served| Capacity {
            lockable_bytes: Some(lockable_bytes),
            served,
            ..SOME
        };
        let message = said(locked(3 << 20, 0));
        assert!(
            message.contains("may lock 3M of memory") && message.contains("3 workers fit"),
            "{message}"
        );
        assert!(
            message.contains("Choose --workers 3, or raise the limit"),
            "{message}"
        );
        let message = said(locked(64 << 10, 0));
        assert!(
            message.contains("Choose --register 64k or less"),
            "{message}"
        );
        // Within the limit it is not the cause.
        let message = said(locked(8 << 20, 5));
        assert!(!message.contains("ulimit"), "{message}");
    }

    #[test]
    fn nothing_is_said_where_nothing_is_known() {
        let none = Capacity { served: 0, ..SOME };
        let error = none.explain(Error::Failed("broken".into()));
        assert_eq!(error.to_string(), "broken");
        let wrong = SOME.explain(Error::Usage("wrong".into()));
        assert_eq!(wrong.exit_code(), 2);
    }
}
