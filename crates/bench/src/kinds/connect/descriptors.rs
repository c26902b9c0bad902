//! Number of workers' connections that this process has file descriptors for. The need of one worker depends on the
//! engine, its library and its peers, so it is counted: a first worker sets up its connections before all do.

use rustix::process::{Resource, getrlimit};

use tonnage_units::{Error, Result};

/// File descriptors that the rest of the process may need meanwhile.
const RESERVE: u64 = 8;

/// File descriptors of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptors {
    /// Open ones.
    pub open: u64,
    /// The most that it may have open; `None` where nothing limits them.
    pub most: Option<u64>,
}

impl Descriptors {
    /// Counts them; nothing where the system does not list them.
    pub fn count() -> Option<Self> {
        let open = std::fs::read_dir("/proc/self/fd").ok()?.count() as u64;
        Some(Self {
            // One is the list's own.
            open: open.saturating_sub(1),
            most: getrlimit(Resource::Nofile).current,
        })
    }

    /// Refuses more workers than there can be descriptors for, where the first of them opened `of_one`. The number that
    /// it names leaves each worker one more, for a moment: of two connections that both ends began at once one is given
    /// up.
    ///
    /// # Errors
    /// [`Error::Unavailable`], with the number that fits.
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
            fit => format!("--workers {fit}"),
        };
        Err(Error::Unavailable {
            what: format!("connections of {workers} workers"),
            why: format!(
                "each worker has {of_one} files open, and one more for a moment, and of {most} that a process may open {} \
                 are open already: {fit} workers fit",
                self.open
            ),
            how: format!("Choose {fewer}, or raise the limit with ulimit -n"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_that_fits_is_said() {
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
            message.contains("3 workers fit") && message.contains("--workers 3"),
            "{message}"
        );
        let message = refused(50, 1);
        assert!(
            message.contains("0 workers fit. Choose fewer --ranks"),
            "{message}"
        );
        assert!(descriptors.check(0, 1000).is_ok(), "memory needs none");
        let boundless = Descriptors {
            most: None,
            ..descriptors
        };
        assert!(boundless.check(11, 1000).is_ok());
    }

    #[test]
    fn descriptors_are_counted() {
        // More than the other tests of this process open or close meanwhile; several times, as each may be unlucky.
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
