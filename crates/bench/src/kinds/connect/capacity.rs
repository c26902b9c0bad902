//! Number of workers whose connections fit, where an engine has refused some of them. How many queue pairs or how much
//! pinned memory there is only the engine's library knows, so the workers that it served are counted.

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::shortage::Shortage;
use super::worker::Refusal;
use tonnage_units::{Bytes, Error};

/// Memory is locked in pages.
const PAGE: u64 = 4096;

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

    /// Says of the first refusal how much fits, where all of them are for want of a resource. The first that is about
    /// something else counts before those, and stays the failure that it is.
    pub fn explain(&self, refusals: Vec<Refusal>) -> Option<Error> {
        let of = |refusal: &Refusal| Shortage::of(&refusal.error);
        let other = refusals.iter().position(|refusal| of(refusal).is_none());
        let first = refusals.into_iter().nth(other.unwrap_or(0))?;
        Some(match of(&first) {
            Some(shortage) => self.unavailable(first, shortage),
            None => first.error,
        })
    }

    /// Bytes that each worker can register, in whole pages.
    fn share_of(&self, lockable_bytes: u64) -> Bytes {
        Bytes(lockable_bytes / self.workers.max(1) as u64 / PAGE * PAGE)
    }

    fn unavailable(&self, refusal: Refusal, shortage: Shortage) -> Error {
        let Refusal { error, registering } = refusal;
        let pins = registering && shortage == Shortage::Code(Errno::NOMEM);
        let lockable = self.lockable_bytes.filter(|&lockable| {
            pins && self.register_bytes.saturating_mul(self.workers as u64) > lockable
        });
        // The engine's own advice is the best where no number is known.
        if shortage == Shortage::Said && self.served == 0 {
            return error;
        }
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
        if self.served > 0 {
            why = format!("{why}; {} of them were served", self.served);
        }
        let smaller = match (lockable, fit) {
            (Some(lockable), 0) => format!("Choose --register {} or less", self.share_of(lockable)),
            (None, 0) if self.workers > 1 => "Choose fewer --workers or --ranks".into(),
            (None, 0) => "Choose fewer --ranks, or another --engine".into(),
            _ => format!("Choose --workers {fit}"),
        };
        let raise = match (lockable, shortage) {
            (Some(_), _) => ", or raise the limit with ulimit -l",
            (None, Shortage::Code(Errno::MFILE)) => ", or raise the limit with ulimit -n",
            _ => "",
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

    fn refusal(code: Errno, registering: bool) -> Refusal {
        let error = Error::io("no queue pair", code);
        Refusal { error, registering }
    }

    fn skip(capacity: Capacity, refusal: Refusal) -> String {
        let error = capacity.explain(vec![refusal]).unwrap();
        assert!(matches!(error, Error::Unavailable { .. }), "{error}");
        error.to_string()
    }

    #[test]
    fn the_number_that_was_served_is_said() {
        assert_eq!(
            skip(SOME, refusal(Errno::NOSPC, false)),
            "connections of 8 workers cannot be used here: no queue pair: No space left on device (os error 28); 5 of them \
             were served. Choose --workers 5"
        );
        let message = skip(SOME, refusal(Errno::MFILE, false));
        assert!(
            message.ends_with("Choose --workers 5, or raise the limit with ulimit -n"),
            "{message}"
        );
    }

    #[test]
    fn the_limit_of_locked_memory_is_named_where_it_is_passed() {
        let locked = |lockable_bytes, served| Capacity {
            lockable_bytes: Some(lockable_bytes),
            served,
            ..SOME
        };
        let message = skip(locked(3 << 20, 0), refusal(Errno::NOMEM, true));
        assert!(
            message.contains("may lock 3M of memory") && message.contains("3 workers fit"),
            "{message}"
        );
        assert!(
            message.contains("Choose --workers 3, or raise the limit"),
            "{message}"
        );
        let message = skip(locked(64 << 10, 0), refusal(Errno::NOMEM, true));
        assert!(
            message.contains("Choose --register 8k or less"),
            "{message}"
        );
        // What one may lock is shared in whole pages.
        let message = skip(locked(100_000, 0), refusal(Errno::NOMEM, true));
        assert!(
            message.contains("Choose --register 12k or less"),
            "{message}"
        );
        // As many as were served may be more than what is pinned lets through, and all of them never fit.
        let message = skip(locked(3 << 20, 5), refusal(Errno::NOMEM, true));
        assert!(
            message.contains("Choose --workers 5, or raise"),
            "{message}"
        );
        let message = skip(locked((8 << 20) - 1, 0), refusal(Errno::NOMEM, true));
        assert!(
            message.contains("Choose --workers 7, or raise"),
            "{message}"
        );
        // Within the limit it is not the cause, nor for what pins nothing, nor for another resource.
        let others = [
            (8 << 20, refusal(Errno::NOMEM, true)),
            (3 << 20, refusal(Errno::NOMEM, false)),
            (3 << 20, refusal(Errno::MFILE, true)),
        ];
        for (lockable_bytes, refusal) in others {
            let message = skip(locked(lockable_bytes, 5), refusal);
            assert!(!message.contains("ulimit -l"), "{message}");
            assert!(message.contains("Choose --workers 5"), "{message}");
        }
    }

    #[test]
    fn the_limit_of_locked_memory_is_that_of_this_process() {
        let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
        let row = limits
            .lines()
            .find_map(|line| line.strip_prefix("Max locked memory"));
        let soft = row.unwrap().split_whitespace().next().unwrap();
        assert_eq!(Capacity::lockable_bytes(), soft.parse().ok(), "{soft}");
    }

    #[test]
    fn a_shortage_without_a_number_says_its_reason() {
        let none = Capacity { served: 0, ..SOME };
        let message = skip(none, refusal(Errno::MFILE, false));
        assert!(
            message.contains("Too many open files") && message.contains("or raise the limit"),
            "{message}"
        );
        assert!(!message.contains("were served"), "{message}");
        for (workers, advice) in [
            (8, "Choose fewer --workers or --ranks"),
            (1, "Choose fewer --ranks, or another --engine"),
        ] {
            let message = skip(Capacity { workers, ..none }, refusal(Errno::NOSPC, false));
            assert!(message.ends_with(advice), "{message}");
        }
        // The engine's own advice stays.
        let error = Error::Unavailable {
            what: "shm".into(),
            why: "no".into(),
            how: "Start both".into(),
        };
        let said = error.to_string();
        assert_eq!(skip(none, Refusal::from(error)), said);
    }

    #[test]
    fn what_is_no_shortage_stays_a_failure() {
        let locked = Capacity {
            lockable_bytes: Some(64 << 10),
            ..SOME
        };
        for capacity in [SOME, locked, Capacity { served: 0, ..SOME }] {
            let died = Refusal::from(Error::Failed("a worker thread died".into()));
            // It counts before a shortage that stands before it.
            let both = vec![refusal(Errno::NOMEM, true), died];
            let error = capacity.explain(both).unwrap();
            assert!(
                matches!(&error, Error::Failed(why) if why == "a worker thread died"),
                "{error}"
            );
        }
        let wrong = SOME.explain(vec![Error::Usage("wrong".into()).into()]);
        assert_eq!(wrong.unwrap().exit_code(), 2);
        assert!(SOME.explain(Vec::new()).is_none());
    }
}
