//! Determines how many workers can have connections on this machine. Only the engine's library knows the available
//! queue pairs and pinned memory. So all workers try, and if some are refused, the others are counted. The file
//! descriptors per worker depend on the engine, its library and the peers. So a first worker sets up its connections
//! alone, and its descriptors are counted.

use std::io;

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::worker::WorkerRefusal;
use tonnage_units::{Bytes, Error, Result};

/// Locked memory is counted in pages of this size.
const PAGE: u64 = 4096;

/// Number of file descriptors that the rest of the process may need at the same time.
const RESERVE: u64 = 8;

/// The workers of a rank that tried a step at the same time, and the number that succeeded.
#[derive(Debug, Clone, Copy)]
pub struct Capacity {
    /// Number of workers that tried.
    pub workers: usize,
    /// Number of workers that succeeded.
    pub served: usize,
    pub register_bytes: u64,
    /// Number of bytes that this process may lock; `None` without a limit.
    pub lockable_bytes: Option<u64>,
}

impl Capacity {
    /// Creates the capacity of this process, after `served` of `workers` workers have succeeded.
    pub fn new(workers: usize, served: usize, register_bytes: u64) -> Self {
        Self {
            workers,
            served,
            register_bytes,
            lockable_bytes: Self::lockable_bytes(),
        }
    }

    /// Returns this process's limit for locked memory.
    fn lockable_bytes() -> Option<u64> {
        getrlimit(Resource::Memlock).current
    }

    /// Combines the refusals into one error. If all refusals are shortages, the error is the first of them, extended by
    /// the number of workers that fit. A refusal for another reason takes precedence, and is returned unchanged.
    pub fn explain(&self, refusals: Vec<WorkerRefusal>) -> Option<Error> {
        let of = |refusal: &WorkerRefusal| Shortage::from_error(&refusal.error);
        let other = refusals.iter().position(|refusal| of(refusal).is_none());
        let first = refusals.into_iter().nth(other.unwrap_or(0))?;
        Some(match of(&first) {
            Some(shortage) => self.unavailable(first, shortage),
            None => first.error,
        })
    }

    fn unavailable(&self, refusal: WorkerRefusal, shortage: Shortage) -> Error {
        let WorkerRefusal { error, registering } = refusal;
        let pins = registering && shortage == Shortage::Code(Errno::NOMEM);
        let lockable = self.lockable_bytes.filter(|&lockable| {
            pins && self.register_bytes.saturating_mul(self.workers as u64) > lockable
        });
        // No number of workers is known, so the engine's own advice is the best.
        if shortage == Shortage::Uncoded && self.served == 0 {
            return error;
        }
        let mut why = error.to_string();
        let mut fit = self.served;
        if let Some(lockable) = lockable {
            let most = usize::try_from(lockable / self.register_bytes.max(1)).unwrap_or(usize::MAX);
            fit = fit.max(most.min(self.workers.saturating_sub(1)));
            why = format!(
                "{why}; this process may lock {} of memory (ulimit -l), which an engine that pins it cannot pass: {most} \
                 threads fit",
                Bytes(lockable)
            );
        }
        if self.served > 0 {
            why = format!("{why}; {} of them were served", self.served);
        }
        let smaller = match (lockable, fit) {
            (Some(lockable), 0) => {
                let share = lockable / self.workers.max(1) as u64 / PAGE * PAGE;
                format!("Choose --register {} or less", Bytes(share))
            }
            (None, 0) if self.workers > 1 => "Choose fewer --threads or --ranks".into(),
            (None, 0) => "Choose fewer --ranks, or another --engine".into(),
            _ => format!("Choose --threads {fit}"),
        };
        let raise = match (lockable, shortage) {
            (Some(_), _) => ", or raise the limit with ulimit -l",
            (None, Shortage::Code(Errno::MFILE)) => ", or raise the limit with ulimit -n",
            _ => "",
        };
        Error::Unavailable {
            what: format!("connections of {} threads", self.workers),
            why,
            how: format!("{smaller}{raise}"),
        }
    }
}

/// A resource that ran out, recognized from an engine's refusal. Other errors would also occur with fewer workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shortage {
    /// An error code of the system, such as ENOMEM.
    Code(Errno),
    /// The engine's own refusal, without a code.
    Uncoded,
}

/// Error codes of exhausted resources. ENFILE comes before EMFILE because its message contains the message of EMFILE.
const CODES: [Errno; 5] = [
    Errno::NOMEM,
    Errno::NFILE,
    Errno::MFILE,
    Errno::AGAIN,
    Errno::NOSPC,
];

impl Shortage {
    /// Returns the shortage that caused an error; `None` for another cause. Engines' libraries report error codes as
    /// text, in the system's words.
    fn from_error(error: &Error) -> Option<Self> {
        let code = match error {
            Error::Io { source, .. } => {
                let number = source.raw_os_error();
                CODES
                    .into_iter()
                    .find(|code| number == Some(code.raw_os_error()))
            }
            Error::Failed(text) | Error::Unavailable { why: text, .. } => CODES
                .into_iter()
                .find(|&code| text.contains(&system_message(code))),
            Error::Usage(_)
            | Error::Rank { .. }
            | Error::Interrupted { .. }
            | Error::TimeLimit(_) => None,
        };
        match error {
            Error::Unavailable { .. } => Some(code.map_or(Self::Uncoded, Self::Code)),
            _ => code.map(Self::Code),
        }
    }
}

/// Returns the system's message for an error code.
fn system_message(code: Errno) -> String {
    let mut text = io::Error::from_raw_os_error(code.raw_os_error()).to_string();
    let end = text.find(" (os error").unwrap_or(text.len());
    text.truncate(end);
    text
}

/// Number and limit of this process's file descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptors {
    /// Number of open descriptors.
    pub open: u64,
    /// Maximum number of open descriptors; `None` without a limit.
    pub most: Option<u64>,
}

impl Descriptors {
    /// Counts the open descriptors. `None` if the system does not list them.
    pub fn count() -> Option<Self> {
        let open = std::fs::read_dir("/proc/self/fd").ok()?.count() as u64;
        Some(Self {
            // One of the listed descriptors belongs to the listing itself.
            open: open.saturating_sub(1),
            most: getrlimit(Resource::Nofile).current,
        })
    }

    /// Rejects more workers than the free descriptors allow, if each worker needs `of_one` descriptors. The suggested
    /// number of workers leaves one spare descriptor per worker: if both ends connect at the same time, two connections
    /// exist until one is given up.
    ///
    /// # Errors
    /// [`Error::Unavailable`] with the number of workers that fit.
    pub fn check(self, of_one: u64, workers: u32) -> Result<()> {
        let (Some(most), 1..) = (self.most, of_one) else {
            return Ok(());
        };
        let left = most.saturating_sub(self.open + RESERVE);
        if u64::from(workers) <= left / of_one {
            return Ok(());
        }
        let fit = left / (of_one + 1);
        let fewer = match fit {
            0 => "fewer --ranks".to_owned(),
            fit => format!("--threads {fit}"),
        };
        Err(Error::Unavailable {
            what: format!("connections of {workers} threads"),
            why: format!(
                "each thread has {of_one} files open, and one more for a moment, and of {most} that a process may open {} \
                 are open already: {fit} threads fit",
                self.open
            ),
            how: format!("Choose {fewer}, or raise the limit with ulimit -n"),
        })
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

    fn refusal(code: Errno, registering: bool) -> WorkerRefusal {
        let error = Error::io("no queue pair", code);
        WorkerRefusal { error, registering }
    }

    fn skip(capacity: Capacity, refusal: WorkerRefusal) -> String {
        let error = capacity.explain(vec![refusal]).unwrap();
        assert!(matches!(error, Error::Unavailable { .. }), "{error}");
        error.to_string()
    }

    #[test]
    fn the_number_of_served_workers_is_reported() {
        assert_eq!(
            skip(SOME, refusal(Errno::NOSPC, false)),
            "connections of 8 threads cannot be used here: no queue pair: No space left on device (os error 28); 5 of them \
             were served. Choose --threads 5"
        );
        let message = skip(SOME, refusal(Errno::MFILE, false));
        assert!(
            message.ends_with("Choose --threads 5, or raise the limit with ulimit -n"),
            "{message}"
        );
    }

    #[test]
    fn the_limit_of_locked_memory_is_named_if_it_is_exceeded() {
        let locked = |lockable_bytes, served| Capacity {
            lockable_bytes: Some(lockable_bytes),
            served,
            ..SOME
        };
        for (lockable_bytes, served, parts) in [
            (
                3 << 20,
                0,
                [
                    "may lock 3M of memory",
                    "3 threads fit. Choose --threads 3, or raise the limit",
                ],
            ),
            (
                64 << 10,
                0,
                ["0 threads fit", "Choose --register 8k or less"],
            ),
            // The lockable memory is divided in whole pages.
            (
                100_000,
                0,
                ["0 threads fit", "Choose --register 12k or less"],
            ),
            // More workers may have been served than the limit seems to allow, but not all of them.
            (
                3 << 20,
                5,
                ["5 of them were served", "Choose --threads 5, or raise"],
            ),
            (
                (8 << 20) - 1,
                0,
                ["7 threads fit", "Choose --threads 7, or raise"],
            ),
        ] {
            let message = skip(locked(lockable_bytes, served), refusal(Errno::NOMEM, true));
            for part in parts {
                assert!(message.contains(part), "{part}: {message}");
            }
        }
        // The limit is not blamed if it is not exceeded, if no memory is pinned, or if another resource ran out.
        let others = [
            (8 << 20, refusal(Errno::NOMEM, true)),
            (3 << 20, refusal(Errno::NOMEM, false)),
            (3 << 20, refusal(Errno::MFILE, true)),
        ];
        for (lockable_bytes, refusal) in others {
            let message = skip(locked(lockable_bytes, 5), refusal);
            assert!(!message.contains("ulimit -l"), "{message}");
            assert!(message.contains("Choose --threads 5"), "{message}");
        }
    }

    #[test]
    fn a_shortage_without_a_number_reports_its_reason() {
        let none = Capacity { served: 0, ..SOME };
        let message = skip(none, refusal(Errno::MFILE, false));
        assert!(
            message.contains("Too many open files") && message.contains("or raise the limit"),
            "{message}"
        );
        assert!(!message.contains("were served"), "{message}");
        for (workers, advice) in [
            (8, "Choose fewer --threads or --ranks"),
            (1, "Choose fewer --ranks, or another --engine"),
        ] {
            let message = skip(Capacity { workers, ..none }, refusal(Errno::NOSPC, false));
            assert!(message.ends_with(advice), "{message}");
        }
        // Without a number of workers, the engine's own advice stays.
        let error = Error::Unavailable {
            what: "shm".into(),
            why: "no".into(),
            how: "Start both".into(),
        };
        let message = error.to_string();
        assert_eq!(skip(none, WorkerRefusal::from(error)), message);
    }

    #[test]
    fn an_error_that_is_no_shortage_stays_a_failure() {
        let locked = Capacity {
            lockable_bytes: Some(64 << 10),
            ..SOME
        };
        for capacity in [SOME, locked, Capacity { served: 0, ..SOME }] {
            let died = WorkerRefusal::from(Error::Failed("a thread died".into()));
            // A failure takes precedence over a shortage, even a shortage that comes first.
            let both = vec![refusal(Errno::NOMEM, true), died];
            let error = capacity.explain(both).unwrap();
            assert!(
                matches!(&error, Error::Failed(why) if why == "a thread died"),
                "{error}"
            );
        }
        let wrong = SOME.explain(vec![Error::Usage("wrong".into()).into()]);
        assert_eq!(wrong.unwrap().exit_code(), 2);
        assert!(SOME.explain(Vec::new()).is_none());
    }

    #[test]
    fn an_error_code_is_found_in_any_wording() {
        let code = |code| Some(Shortage::Code(code));
        for errno in CODES {
            let system = io::Error::from(errno);
            let of_library = format!(
                "cannot open fabric:tcp on lo: fi_endpoint: {}",
                system_message(errno)
            );
            assert_eq!(
                Shortage::from_error(&Error::Failed(of_library)),
                code(errno)
            );
            let nested = Error::Failed(format!("fabric:tcp: {system}"));
            assert_eq!(Shortage::from_error(&nested), code(errno));
            assert_eq!(
                Shortage::from_error(&Error::io("cannot map", system)),
                code(errno)
            );
        }
        let engine = |why: String| Error::Unavailable {
            what: "shm".into(),
            why,
            how: "Start both".into(),
        };
        let opened = engine(format!("cannot open it: {}", system_message(Errno::MFILE)));
        assert_eq!(Shortage::from_error(&opened), code(Errno::MFILE));
        assert_eq!(
            Shortage::from_error(&engine("no".into())),
            Some(Shortage::Uncoded)
        );
    }

    #[test]
    fn other_failures_are_no_shortages() {
        let others = [
            Error::Failed("a thread of this rank died".into()),
            Error::Failed("fi_endpoint: Invalid argument (-22)".into()),
            Error::io("cannot pin a thread to CPU 9", Errno::INVAL),
            Error::io("cannot open it", Errno::ACCESS),
            Error::Usage("wrong".into()),
            Error::Interrupted {
                signal: 2,
                rank: None,
            },
        ];
        for other in others {
            assert_eq!(Shortage::from_error(&other), None, "{other}");
        }
    }

    #[test]
    fn the_number_of_workers_that_fit_is_reported() {
        let descriptors = Descriptors {
            open: 20,
            most: Some(20 + RESERVE + 44),
        };
        assert!(descriptors.check(11, 4).is_ok());
        let refused = |of_one, workers| {
            let error = descriptors.check(of_one, workers).unwrap_err();
            assert!(matches!(error, Error::Unavailable { .. }));
            error.to_string()
        };
        let message = refused(11, 5);
        assert!(
            message.contains("3 threads fit") && message.contains("--threads 3"),
            "{message}"
        );
        let message = refused(50, 1);
        assert!(
            message.contains("0 threads fit. Choose fewer --ranks"),
            "{message}"
        );
        assert!(
            descriptors.check(0, 1000).is_ok(),
            "workers that need no descriptors always fit"
        );
        let boundless = Descriptors {
            most: None,
            ..descriptors
        };
        assert!(boundless.check(11, 1000).is_ok());
    }

    #[test]
    fn descriptors_are_counted() {
        // 200 files are more than other tests of this process open or close meanwhile. Other tests can still disturb an
        // attempt, so several are made.
        let counts = || {
            let before = Descriptors::count().unwrap();
            let null = || std::fs::File::open("/dev/null").unwrap();
            let files: Vec<_> = std::iter::repeat_with(null).take(200).collect();
            let after = Descriptors::count().unwrap();
            drop(files);
            after.open.abs_diff(before.open + 200) <= 150
        };
        assert!((0..10).any(|_| counts()));
    }
}
